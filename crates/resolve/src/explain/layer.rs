//! [`ExplainedValue`]: a value with every layer that sets it, and who wins.

use std::fmt;

use catalog::module::Merge;
use lang::Value;
use serde::{Serialize, Serializer};

use super::locate::RepoSource;

/// A layer of the ladder, lowest first (fleet-repo.md).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// What the module declares as the param's default.
    ModuleDefault,
    /// `vars` or `defaults` of `fleet.yaml`.
    Fleet,
    /// A role.
    Role(String),
    /// The node's environment.
    Environment(String),
    /// A group, by its name or its condition.
    Group(String),
    /// The entry that classifies the node.
    Entry,
    /// `environment_overrides` of that entry.
    EnvironmentOverride(String),
    /// `conditional_vars` of that entry, with its number among those of the node's params.
    Conditional {
        /// The condition.
        when: String,
        /// The number, from 0.
        number: usize,
    },
    /// The host file.
    Host,
}

impl fmt::Display for LayerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayerKind::ModuleDefault => f.write_str("module default"),
            LayerKind::Fleet => f.write_str("fleet"),
            LayerKind::Role(name) => write!(f, "role {name}"),
            LayerKind::Environment(name) => write!(f, "environment {name}"),
            LayerKind::Group(name) => write!(f, "group {name}"),
            LayerKind::Entry => f.write_str("node entry"),
            LayerKind::EnvironmentOverride(name) => write!(f, "environment_overrides {name}"),
            LayerKind::Conditional { when, .. } => write!(f, "conditional_vars when {when}"),
            LayerKind::Host => f.write_str("host file"),
        }
    }
}

impl Serialize for LayerKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What became of a layer's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerOutcome {
    /// It is the value, or the last that was merged into it.
    Wins,
    /// A later layer was merged into it.
    Merged,
    /// A later layer replaced it.
    Overridden,
    /// Its condition does not hold.
    NotHeld,
    /// Its condition cannot be evaluated: the reason.
    Failed(String),
}

impl LayerOutcome {
    /// How tables call it.
    pub fn text(&self) -> String {
        match self {
            LayerOutcome::Wins => "wins".to_owned(),
            LayerOutcome::Merged => "merged".to_owned(),
            LayerOutcome::Overridden => "overridden".to_owned(),
            LayerOutcome::NotHeld => "does not hold".to_owned(),
            LayerOutcome::Failed(why) => format!("cannot be evaluated: {why}"),
        }
    }
}

/// What one layer says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedLayer {
    /// The layer.
    pub layer: LayerKind,
    /// Where it says it.
    pub source: RepoSource,
    /// What it says, as written: expressions are not evaluated.
    pub value: Value,
    /// What became of it.
    pub outcome: LayerOutcome,
}

/// A value of a node with every layer that sets it, lowest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedValue {
    /// `nginx.port`, `channel`, `labels.region`.
    pub name: String,
    /// The layers that set it.
    pub layers: Vec<ExplainedLayer>,
}

impl ExplainedValue {
    /// Says what became of each layer; `holds` answers `conditional_vars` in their order.
    pub(super) fn judged(
        name: impl Into<String>,
        mut layers: Vec<ExplainedLayer>,
        merge: Merge,
        holds: &[Result<bool, String>],
    ) -> ExplainedValue {
        let mut later = false;
        for layer in layers.iter_mut().rev() {
            let held = match &layer.layer {
                LayerKind::Conditional { number, .. } => holds.get(*number).unwrap_or(&Ok(false)),
                _ => &Ok(true),
            };
            layer.outcome = match held {
                Err(why) => LayerOutcome::Failed(why.clone()),
                Ok(false) => LayerOutcome::NotHeld,
                Ok(true) if !later => LayerOutcome::Wins,
                Ok(true) if merge == Merge::Replace => LayerOutcome::Overridden,
                Ok(true) => LayerOutcome::Merged,
            };
            later |= layer.outcome == LayerOutcome::Wins;
        }
        ExplainedValue { name: name.into(), layers }
    }

    /// The layer that wins, if anything sets the value.
    pub fn winner(&self) -> Option<&ExplainedLayer> {
        self.layers.iter().find(|layer| layer.outcome == LayerOutcome::Wins)
    }
}

/// A layer that is not judged yet.
pub(super) fn layer(layer: LayerKind, source: RepoSource, value: Value) -> ExplainedLayer {
    ExplainedLayer { layer, source, value, outcome: LayerOutcome::Overridden }
}
