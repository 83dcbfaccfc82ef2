//! The ladder of one var, and of what is declared about the node itself.

use catalog::module::Merge;
use lang::Value;

use super::Explainer;
use super::layer::{ExplainedLayer, ExplainedValue, LayerKind, layer};
use super::locate::RepoSource;
use crate::check::modules::module_file;
use crate::check::typed::Layer;
use crate::decl::nodes::Facts;
use crate::sink::Sink;
use crate::specialize::{ReadEntry, read_entry, read_host};
use crate::yaml::Spanned;

impl Explainer<'_> {
    /// The names of the vars of the node's modules, whether or not something sets them.
    pub fn var_names(&self) -> Vec<String> {
        let modules = self.params.modules.iter().filter_map(|name| self.context.modules.get(name));
        modules
            .flat_map(|info| info.params.keys().map(move |param| format!("{}.{param}", info.name)))
            .collect()
    }

    /// A var of one of the node's modules; `holds` answers the node's `conditional_vars` in their
    /// order. `None` when its modules have no such param.
    pub fn var(&mut self, name: &str, holds: &[Result<bool, String>]) -> Option<ExplainedValue> {
        let (module, param) = name.split_once('.')?;
        if !self.params.modules.iter().any(|own| own == module) {
            return None;
        }
        let decl = self.context.param(name)?.clone();
        let mut layers = Vec::new();
        if let Some(default) = &decl.default {
            let source = self.locator.find(&module_file(module), &["params".into(), param.into()]);
            layers.push(layer(LayerKind::ModuleDefault, source, default.clone()));
        }
        self.shared_layers(name, &mut layers);
        self.own_layers(name, &mut layers);
        Some(ExplainedValue::judged(name, layers, decl.merge, holds))
    }

    /// The layers that many nodes share: up to the groups.
    fn shared_layers(&self, name: &str, layers: &mut Vec<ExplainedLayer>) {
        let context = self.context;
        add(layers, &context.vars, name, "fleet.yaml", LayerKind::Fleet);
        for role in &self.params.node.roles {
            if let Some(info) = context.roles.get(role) {
                add(layers, &info.vars, name, &info.file, LayerKind::Role(role.clone()));
            }
        }
        if let Some(environment) = &self.params.node.environment
            && let Some(info) = context.environments.get(environment)
        {
            let kind = LayerKind::Environment(environment.clone());
            add(layers, &info.vars, name, &info.file, kind);
        }
        for group in self.group_numbers().into_iter().filter_map(|number| context.groups.get(number)) {
            let called = group.decl.name.as_ref().map_or(group.decl.condition.source(), |name| &name.value);
            let kind = LayerKind::Group(called.trim().to_owned());
            add(layers, &group.vars, name, &context.groups_file, kind);
        }
    }

    /// The layers of the entry and of the host file.
    fn own_layers(&self, name: &str, layers: &mut Vec<ExplainedLayer>) {
        // The fleet is right, so nothing is reported here.
        let sink = &mut Sink::default();
        let entry = read_entry(self.context, &self.entry_file(), self.entry, sink);
        add(layers, &entry.vars, name, &entry.file, LayerKind::Entry);
        if let Some(environment) = &self.params.node.environment
            && let Some(chosen) = entry.overrides.get(environment.as_str())
        {
            let kind = LayerKind::EnvironmentOverride(environment.clone());
            add(layers, &chosen.vars, name, &entry.file, kind);
        }
        self.conditional_layers(&entry, name, layers);
        if let Some((file, host)) = &self.host {
            let host = read_host(self.context, &file.as_str().into(), host, sink);
            add(layers, &host.vars, name, &host.file, LayerKind::Host);
        }
    }

    fn conditional_layers(&self, entry: &ReadEntry<'_>, name: &str, layers: &mut Vec<ExplainedLayer>) {
        let has = |module: &str| self.params.modules.iter().any(|own| own == module);
        // Those that set nothing of the node's modules are not among its params.
        let travel = entry.conditional.iter().filter(|one| one.vars.iter().any(|var| has(var.module())));
        for (number, one) in travel.enumerate() {
            let when = one.decl.when.source().trim().to_owned();
            add(layers, &one.vars, name, &entry.file, LayerKind::Conditional { when, number });
        }
    }

    /// Channel, environment, owner, roles and labels.
    pub(super) fn declared(&mut self) -> Vec<ExplainedValue> {
        let fleet = &self.context.fleet;
        let mut all = vec![
            self.fact("channel", fleet.channel.as_ref(), |facts| facts.channel.as_ref()),
            self.fact("environment", fleet.environment.as_ref(), |facts| facts.environment.as_ref()),
            self.fact("owner", fleet.owner.as_ref(), |facts| facts.owner.as_ref()),
            self.roles(),
        ];
        all.retain(|value| !value.layers.is_empty());
        let labels: Vec<String> = self.params.node.labels.keys().cloned().collect();
        all.extend(labels.iter().map(|label| self.label(label)));
        all
    }

    fn fact(
        &self,
        name: &str,
        fleet: Option<&Spanned<String>>,
        of: impl Fn(&Facts) -> Option<&Spanned<String>>,
    ) -> ExplainedValue {
        let said = |kind, file: &str, text: &Spanned<String>| {
            layer(kind, RepoSource::at(file, text.at), Value::from(text.value.as_str()))
        };
        let mut layers = Vec::new();
        layers.extend(fleet.map(|text| said(LayerKind::Fleet, "fleet.yaml", text)));
        layers.extend(of(&self.entry.facts).map(|text| said(LayerKind::Entry, &self.loc.file, text)));
        if let Some((file, host)) = &self.host {
            layers.extend(of(&host.facts).map(|text| said(LayerKind::Host, file, text)));
        }
        ExplainedValue::judged(name, layers, Merge::Replace, &[])
    }

    fn roles(&mut self) -> ExplainedValue {
        let list = |roles: &[Spanned<String>]| {
            Value::List(roles.iter().map(|role| Value::from(role.value.as_str())).collect())
        };
        let mut layers = Vec::new();
        if let Some(roles) = &self.entry.facts.roles {
            let path = self.in_entry(&["roles".into()]);
            let source = self.locator.find(&self.loc.file, &path);
            layers.push(layer(LayerKind::Entry, source, list(roles)));
        }
        if let Some((file, host)) = &self.host
            && let Some(roles) = &host.facts.roles
        {
            let source = self.locator.find(file, &["roles".into()]);
            layers.push(layer(LayerKind::Host, source, list(roles)));
        }
        ExplainedValue::judged("roles", layers, Merge::Replace, &[])
    }

    fn label(&mut self, name: &str) -> ExplainedValue {
        let mut layers = Vec::new();
        let said = |facts: &Facts| {
            let found = facts.labels.iter().find(|(label, _)| label == name);
            found.map(|(_, value)| Value::from(value.as_str()))
        };
        if let Some(value) = said(&self.entry.facts) {
            let path = self.in_entry(&["labels".into(), name.into()]);
            layers.push(layer(LayerKind::Entry, self.locator.find(&self.loc.file, &path), value));
        }
        if let Some((file, host)) = &self.host
            && let Some(value) = said(&host.facts)
        {
            let source = self.locator.find(file, &["labels".into(), name.into()]);
            layers.push(layer(LayerKind::Host, source, value));
        }
        ExplainedValue::judged(format!("labels.{name}"), layers, Merge::Replace, &[])
    }
}

/// Adds what a layer says of a var.
fn add(layers: &mut Vec<ExplainedLayer>, vars: &Layer, name: &str, file: &str, kind: LayerKind) {
    if let Some(var) = vars.iter().find(|var| &*var.name == name) {
        layers.push(layer(kind, RepoSource::at(file, var.at), var.value.clone()));
    }
}
