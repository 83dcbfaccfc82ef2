//! [`IdleGroup`], [`IdlePattern`], [`IdleRevocation`]: a group that no node is in, a selector of `sync:` or
//! `delegations:` that takes no declared node, and a host that is revoked and matches no entry. It is no mistake, as nodes may come; often it is a slip of the pen in a label's value or
//! a name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use catalog::module::Declared;
use model::Hostname;

use crate::decl::admission::REVOCATIONS_FILE;
use crate::decl::nodes::PatternItem;
use crate::resolver::Fleet;
use crate::sink::Sink;
use crate::specialize::{TooMany, groups_of, meeting};

/// The most values of a label that are listed.
const MAX_VALUES: usize = 10;

/// A group that no node is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleGroup {
    /// What selectors call it, if it has a name.
    pub name: Option<String>,
    /// Its condition.
    pub condition: String,
    /// The file that declares it.
    pub file: String,
    /// The line of its condition.
    pub line: u32,
    /// The labels that the condition looks at, with the values that nodes have.
    pub labels: BTreeMap<String, BTreeSet<String>>,
}

impl fmt::Display for IdleGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_ref().map(|name| format!(" `{name}`")).unwrap_or_default();
        write!(f, "{}:{}: no node is in the group{name}: `{}`", self.file, self.line, self.condition)?;
        for (label, values) in &self.labels {
            let first: Vec<&str> = values.iter().take(MAX_VALUES).map(String::as_str).collect();
            match values.len().saturating_sub(MAX_VALUES) {
                0 if first.is_empty() => write!(f, "; no node has a label {label}")?,
                0 => write!(f, "; labels.{label} is {} on nodes", first.join(", "))?,
                more => write!(f, "; labels.{label} is {} and {more} more on nodes", first.join(", "))?,
            }
        }
        Ok(())
    }
}

/// A host that is revoked and that no entry of nodes matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleRevocation {
    /// The host.
    pub host: Hostname,
    /// Its line in `revocations.yaml`.
    pub line: u32,
}

impl fmt::Display for IdleRevocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IdleRevocation { host, line } = self;
        write!(f, "{REVOCATIONS_FILE}:{line}: {host} is revoked, and no entry of nodes matches it")
    }
}

/// A pattern under `nodes:` of an entry of `sync:` or `delegations:` that takes no declared node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdlePattern {
    /// The key that the entry stands under.
    pub key: &'static str,
    /// The entry's name.
    pub name: String,
    /// The pattern.
    pub pattern: String,
    /// Its line in `fleet.yaml`.
    pub line: u32,
}

impl fmt::Display for IdlePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IdlePattern { key, name, pattern, line } = self;
        write!(f, "fleet.yaml:{line}: `{pattern}` of `{key}` `{name}` matches no declared node")
    }
}

impl Fleet {
    /// Revoked hosts that no entry matches: one may be revoked before it joins, or be misspelt.
    pub fn idle_revocations(&self) -> Vec<IdleRevocation> {
        let specialized = self.specialize();
        let declared = self.admission().revocations.iter().flatten();
        let idle = declared.filter(|revocation| specialized.node(revocation.host.as_str()).is_none());
        idle.map(|revocation| IdleRevocation { host: revocation.host.clone(), line: revocation.line })
            .collect()
    }

    /// The patterns of `sync:` and `delegations:` that take no declared node. Those of which that cannot be
    /// told, regular expressions beside patterns of nodes, are left out. Cost: that of the check of the entries.
    pub fn idle_patterns(&self) -> Vec<IdlePattern> {
        let fleet = &self.context().fleet;
        let sync = fleet.sync.iter().map(|decl| ("sync", &decl.name.value, &decl.nodes));
        let delegations = fleet.delegations.iter().map(|decl| ("delegations", &decl.name, &decl.nodes));
        let all = sync
            .chain(delegations)
            .flat_map(|(key, name, nodes)| nodes.items().map(move |item| (key, name, item)));
        let mut idle: Vec<_> = all.collect();
        let specialized = self.specialize();
        for (name, _) in &specialized.exact {
            idle.retain(|(.., item)| !item.pattern.matches(name));
        }
        for spec in specialized.patterns.iter() {
            let names: BTreeSet<&str> = idle.iter().map(|(.., item)| item.pattern.as_str()).collect();
            if names.is_empty() {
                break;
            }
            match meeting(&spec.pattern, &spec.except, &names) {
                Ok(met) => idle.retain(|(.., item)| !met.contains(item.pattern.as_str())),
                Err(TooMany) => idle.clear(),
            }
        }
        let selector = |(key, name, item): (&'static str, &String, &PatternItem)| IdlePattern {
            key,
            name: name.clone(),
            pattern: item.pattern.as_str().to_owned(),
            line: item.at.line,
        };
        idle.into_iter().map(selector).collect()
    }

    /// The groups that no entry's nodes are in. Cost: every entry's nodes once.
    pub fn idle_groups(&self) -> Vec<IdleGroup> {
        let context = self.context();
        if context.groups.is_empty() {
            return Vec::new();
        }
        let specialized = self.specialize();
        let patterns = specialized.patterns.iter().map(|pattern| &pattern.spec);
        let specs = specialized.exact.iter().map(|(_, spec)| spec).chain(patterns);
        let mut idle: BTreeSet<usize> = (0..context.groups.len()).collect();
        let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut before: Option<Declared> = None;
        for declared in specs.filter_map(|spec| spec.read_params().ok()).map(|params| params.node) {
            if before.as_ref() == Some(&declared) {
                continue;
            }
            for (label, value) in &declared.labels {
                values.entry(label.clone()).or_default().insert(value.clone());
            }
            // Mistakes of conditions were found by the check.
            for found in groups_of(context, &declared, &mut Sink::default()) {
                idle.remove(&found);
            }
            before = Some(declared);
        }
        let groups = idle.into_iter().filter_map(|index| context.groups.get(index)).map(|group| &group.decl);
        let with_values = |label: &String| (label.clone(), values.get(label).cloned().unwrap_or_default());
        groups
            .map(|group| IdleGroup {
                name: group.name.as_ref().map(|name| name.value.clone()),
                condition: group.condition.source().to_owned(),
                file: context.groups_file.to_string(),
                line: group.at.line,
                labels: group.labels.iter().map(with_values).collect(),
            })
            .collect()
    }
}
