//! Which traits a node's set may read, found in its expressions without evaluating them.

use std::collections::{BTreeMap, BTreeSet};

use catalog::module::{DeclaredResource, Module, Params};
use catalog::visit::ExpressionVisitor;
use lang::{Expr, Template, Value};
use model::collect::CollectInserting;

use super::Inputs;

/// The traits that a node's set may read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraitUses {
    uses: NameUses,
}

/// The names that expressions may read, found without evaluating them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameUses {
    /// With its root: `["node", "labels", "region"]`. A short one stands for all below it, as in
    /// `traits[params.group]`.
    paths: BTreeSet<Vec<String>>,
}

impl TraitUses {
    /// Finds them. What does not parse reads nothing: it fails wherever it is bound.
    pub fn of(inputs: &Inputs<'_>) -> TraitUses {
        let mut uses = NameUses::of_params(inputs.params);
        inputs.modules.values().for_each(|module| uses.module(module));
        TraitUses { uses }
    }

    /// Whether anything reads the trait at this path (`["uptime", "seconds"]`), a part of it, or a map
    /// that it is in.
    pub fn reads(&self, path: &[&str]) -> bool {
        let below = self.uses.paths.iter().filter_map(|used| used.split_first());
        let mut traits = below.filter(|(root, _)| *root == "traits");
        traits.any(|(_, used)| used.iter().zip(path).all(|(name, part)| name == part))
    }

    /// Those of the traits that are read; groups and traits alone count, not what is inside a trait. A group of which
    /// something is read is there also where it is empty: that is another thing than none.
    pub fn select(&self, traits: &Value) -> Value {
        let Value::Map(groups) = traits else { return Value::Map(BTreeMap::new()) };
        let selected = groups.iter().filter_map(|(group, members)| {
            let Value::Map(members) = members else { return None };
            let read = members.iter().filter(|(name, _)| self.reads(&[group, name]));
            let read: BTreeMap<_, _> =
                read.map(|(name, value)| (name.clone(), value.clone())).collect_inserting();
            let is_read = !read.is_empty() || self.reads(&[group]);
            is_read.then(|| (group.clone(), Value::Map(read)))
        });
        Value::Map(selected.collect_inserting())
    }
}

impl NameUses {
    /// Those of a node's vars.
    pub fn of_params(params: &Params) -> NameUses {
        let mut uses = NameUses::default();
        params.vars.values().chain(params.host_vars.values()).for_each(|value| uses.value(value));
        for layer in &params.conditional {
            uses.condition(&layer.when);
            layer.vars.values().for_each(|value| uses.value(value));
        }
        uses
    }

    /// Those of a module.
    pub fn of_module(module: &Module) -> NameUses {
        let mut uses = NameUses::default();
        uses.module(module);
        uses
    }

    /// Those of a resource of a module, with those of its template.
    pub fn of_resource(module: &Module, resource: &DeclaredResource) -> NameUses {
        let mut uses = NameUses::default();
        uses.resource(resource);
        let template = resource.attributes.get("template").and_then(Value::as_str);
        if let Some(source) = template.and_then(|name| module.templates.get(name)) {
            uses.template_source(source);
        }
        uses
    }

    /// Every path, with its root.
    pub fn paths(&self) -> impl Iterator<Item = &[String]> {
        self.paths.iter().map(Vec::as_slice)
    }

    fn name(&mut self, name: &[String]) {
        self.paths.insert(name.to_vec());
    }
}

impl ExpressionVisitor for NameUses {
    fn expr(&mut self, expr: &Expr) {
        expr.names().iter().for_each(|name| self.name(&name.path));
    }

    fn template(&mut self, template: &Template) {
        template.uses().iter().for_each(|name| self.name(&name.path));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;

    fn reads(conditional: &str, template: &str) -> bool {
        let module: Module = serde_json::from_value(serde_json::json!({
            "name": "app", "templates": {"a": template},
        }))
        .unwrap();
        let params: Params = serde_json::from_value(serde_json::json!({
            "node": {"channel": "stable"}, "vars": {"app.text": conditional},
        }))
        .unwrap();
        let modules = BTreeMap::from([("app".to_owned(), Arc::new(module))]);
        let traits = Value::Map(BTreeMap::new());
        let inputs = Inputs {
            modules: &modules,
            params: &params,
            hostname: Some("h"),
            traits: Some(&traits),
            own_paths: &[],
            secrets: lang::OpenedSecrets::SEALED,
        };
        TraitUses::of(&inputs).reads(&["uptime", "seconds"])
    }

    #[test]
    fn what_names_the_trait_or_a_map_around_it_reads_it() {
        for text in
            ["${{ traits.uptime.seconds }}", "${{ traits.uptime | default(0) }}", "${{ traits[vars.x] }}"]
        {
            assert!(reads(text, ""), "{text}");
        }
        assert!(reads("", "{{ traits.uptime.seconds }}"));
        for text in
            ["uptime", "the uptime of ${{ traits.os.name }}", "${{ params.uptime }}", "$${{ traits.uptime }}"]
        {
            assert!(!reads(text, "see uptime(1): {{ traits.os.name }}"), "{text}");
        }
    }

    /// TRT-2: a group of which something is read is another thing where it is empty than where there is none.
    #[test]
    fn an_empty_group_is_selected_where_it_is_read() {
        let uses = |path: &[&str]| {
            let path = path.iter().map(|part| (*part).to_owned()).collect();
            TraitUses { uses: NameUses { paths: BTreeSet::from([path]) } }
        };
        let empty: Value =
            serde_json::from_value(serde_json::json!({"external": {}, "os": {"name": "debian"}})).unwrap();
        let selected = |path: &[&str]| serde_json::to_value(uses(path).select(&empty)).unwrap();
        assert_eq!(selected(&["traits", "external"]), serde_json::json!({"external": {}}));
        assert_eq!(selected(&["traits", "os", "name"]), serde_json::json!({"os": {"name": "debian"}}));
        assert_eq!(selected(&["traits", "external", "db"]), serde_json::json!({"external": {}}));
    }
}
