//! [`Explainer`]: which layer of a fleet repo set what of one node, and where that stands (CFG-6).
//!
//! It goes the ladder of the specializer once more, for one node, and notes each step: nothing is
//! kept of all nodes for it.

mod ladder;
mod layer;
mod locate;
mod modules;

use std::sync::Arc;

use catalog::module::Params;
use serde::Serialize;

pub use layer::{ExplainedLayer, ExplainedValue, LayerKind, LayerOutcome};
pub use locate::RepoSource;
pub use modules::{ExcludedModule, ExplainedModule, ModuleBecause, ModuleReason, ResourceSource};

use locate::Locator;

use crate::check::context::Context;
use crate::check::modules::Modules;
use crate::classify::{Loc, entries};
use crate::decl::nodes::{HostFile, NodesEntry};
use crate::parse::{FileDecl, Files};
use crate::resolver::Resolver;
use crate::sink::Sink;
use crate::specialize::groups_of;

/// What explains one node of a fleet repo that is right.
pub struct Explainer<'r> {
    context: &'r Context,
    modules: &'r Modules,
    locator: Locator<'r>,
    files: &'r Files,
    loc: Loc,
    entry: &'r NodesEntry,
    host: Option<(String, &'r HostFile)>,
    params: Params,
}

/// How a node was classified, and what that gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedNode {
    /// The item of `match:` that classifies it: the first that does.
    pub matched: MatchedEntry,
    /// Its host file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_file: Option<RepoSource>,
    /// Channel, environment, owner, roles and labels, each with the layers that say it.
    pub declared: Vec<ExplainedValue>,
    /// The groups that it is in, in their order.
    pub groups: Vec<ExplainedGroup>,
    /// Where it is said that it only observes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub observe: Vec<RepoSource>,
    /// Its modules, in the order in which they are bound, each with why it has it.
    pub modules: Vec<ExplainedModule>,
    /// Modules that something takes away again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<ExcludedModule>,
}

/// The entry of a nodes file that classifies a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MatchedEntry {
    /// The item of `match:`.
    pub pattern: String,
    /// Where it stands.
    pub source: RepoSource,
}

/// A group that a node is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedGroup {
    /// Its name, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The condition that holds.
    #[serde(rename = "where")]
    pub condition: String,
    /// Where it stands.
    pub source: RepoSource,
}

impl Resolver {
    /// What explains a node; `None` when no entry classifies it, or nothing was right so far.
    pub fn explainer(&self, hostname: &str) -> Option<Explainer<'_>> {
        let good = self.good.as_ref()?;
        let loc = good.index.find(hostname)?.clone();
        let entry = entries(self.files.get(&*loc.file)).get(loc.entry)?;
        let path = format!("hosts/{hostname}.yaml");
        let host = match self.files.get(&path).map(|file| &file.content) {
            Some(FileDecl::Host(host)) => Some((path, &**host)),
            _ => None,
        };
        let params = good.fleet.specialize().node(hostname)?.read_params().ok()?;
        Some(Explainer {
            context: good.fleet.context(),
            modules: &self.modules,
            locator: Locator::new(&self.files),
            files: &self.files,
            loc,
            entry,
            host,
            params,
        })
    }
}

impl Explainer<'_> {
    /// What the node gets.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// How the node was classified.
    pub fn node(&mut self) -> ExplainedNode {
        let item = self.entry.matches.get(self.loc.item);
        let matched = MatchedEntry {
            pattern: item.map(|item| item.pattern.as_str().to_owned()).unwrap_or_default(),
            source: RepoSource::at(&self.loc.file, item.map(|item| item.at).unwrap_or_default()),
        };
        ExplainedNode {
            matched,
            host_file: self.host.as_ref().map(|(path, _)| RepoSource::file(path)),
            declared: self.declared(),
            groups: self.groups(),
            observe: self.observe(),
            modules: self.explained_modules(),
            excluded: self.excluded(),
        }
    }

    fn groups(&self) -> Vec<ExplainedGroup> {
        let context = self.context;
        let groups = self.group_numbers().into_iter().filter_map(|number| context.groups.get(number));
        let explained = groups.map(|group| ExplainedGroup {
            name: group.decl.name.as_ref().map(|name| name.value.clone()),
            condition: group.decl.condition.source().trim().to_owned(),
            source: RepoSource::at(&context.groups_file, group.decl.at),
        });
        explained.collect()
    }

    /// The groups that the node is in, by their numbers.
    fn group_numbers(&self) -> Vec<usize> {
        // The fleet is right, so no condition fails here.
        groups_of(self.context, &self.params.node, &mut Sink::default())
    }

    fn observe(&mut self) -> Vec<RepoSource> {
        let (mut found, context) = (Vec::new(), self.context);
        if context.fleet.observe {
            found.push(self.locator.find("fleet.yaml", &["observe".into()]));
        }
        let channel = &self.params.node.channel;
        if context.fleet.channels.get(channel).is_some_and(|settings| settings.observe) {
            let path = ["channels".into(), channel.as_str().into(), "observe".into()];
            found.push(self.locator.find("fleet.yaml", &path));
        }
        let groups = self.group_numbers().into_iter().filter_map(|number| context.groups.get(number));
        let observing = groups.filter(|group| group.decl.observe);
        found.extend(observing.map(|group| RepoSource::at(&context.groups_file, group.decl.at)));
        if self.entry.facts.observe {
            let path = self.in_entry(&["observe".into()]);
            found.push(self.locator.find(&self.loc.file, &path));
        }
        if let Some((file, host)) = &self.host
            && host.facts.observe
        {
            found.push(self.locator.find(file, &["observe".into()]));
        }
        found
    }

    /// The path of a part of the node's entry in its file.
    fn in_entry<'k>(&self, rest: &[locate::YamlStep<'k>]) -> Vec<locate::YamlStep<'k>> {
        let entry = ["nodes".into(), self.loc.entry.into()];
        entry.into_iter().chain(rest.iter().copied()).collect()
    }

    fn entry_file(&self) -> Arc<str> {
        self.loc.file.clone()
    }
}
