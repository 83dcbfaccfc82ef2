//! [`IdleGroup`]: a group that no node is in. It is no mistake, as nodes may come; often it is a slip of
//! the pen in a label's value.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use catalog::module::Declared;

use crate::resolver::Fleet;
use crate::sink::Sink;
use crate::specialize::groups_of;

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

impl Fleet {
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
