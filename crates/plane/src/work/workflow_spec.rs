//! [`WorkflowSpec`]: a workflow as an operator writes it.
//!
//! ```yaml
//! name: renew-certificates
//! steps:
//!   - name: try one                       # 64 steps at most, in this order
//!     on: "edge-1"                        # a selector; read when the step begins
//!     action: {name: renew, args: {ca: new}}
//!   - name: the edge
//!     on: "edge-**,!edge-1"
//!     command: [/usr/bin/certbot, renew]  # or action, or query; one of the three
//!     batch: 10%                          # at a time; all of them by default
//!     max_failures: 2                     # before the rest is called off; none by default
//!     canaries: 3                         # that must succeed first
//!     timeout: 5m                         # on one node; 5m by default
//!     wait: 2h                            # for nodes that cannot be reached; not by default
//!     gate:                               # before the next step, all of it
//!       success_percent: 95               # 100 by default
//!       soak: 30m
//!       approve: true
//!   - name: what is there now
//!     on: "*"
//!     query: {what: file, path: /etc/ssl/edge.pem}
//!     gate: {success_percent: 0}
//! ```
//!
//! Unknown keys are errors. Durations are texts such as `90s`, `5m`, `2h`.

use std::collections::{BTreeMap, BTreeSet};

use catalog::duration;
use lang::Selector;
use model::id::is_name;
use model::share::Share;
use model::work::{MAX_TIMEOUT_SECS, Work};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::spec::{SpecError, TaskSpec, check_work};
use super::{BEGIN_SECS, MAX_STEPS, MAX_WAIT_SECS};

/// The longest name of a step, in bytes.
pub const MAX_STEP_NAME: usize = 100;
/// The time on one node, unless a step says another, in seconds.
const TIMEOUT_SECS: u32 = 300;

/// A workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowSpec {
    /// Its name: a to z, 0 to 9, `-` and `_`.
    pub name: String,
    /// Its steps, in their order.
    pub steps: Vec<StepSpec>,
}

/// A step: a task, and what must be true before the next one.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    /// Its name, for people; unique in the workflow.
    pub name: String,
    /// On which nodes.
    pub on: Selector,
    /// A command: program and arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// A named action.
    pub action: Option<ActionCall>,
    /// A query.
    pub query: Option<QueryCall>,
    /// How many at a time.
    #[serde(default = "all", skip_serializing_if = "is_all")]
    pub batch: Share,
    /// How many may fail before the rest is called off; none by default.
    #[serde(default = "none")]
    pub max_failures: Share,
    /// How many must succeed before the others begin.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub canaries: u32,
    /// The longest time on one node.
    #[serde(default = "timeout", with = "as_text")]
    pub timeout: u32,
    /// How long nodes that cannot be reached are waited for.
    #[serde(default, with = "as_text")]
    pub wait: u32,
    /// What must be true before the next step.
    #[serde(default)]
    pub gate: Gate,
}

/// A named action and its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionCall {
    /// Its name, as a delegation has it.
    pub name: String,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, String>,
}

/// A query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryCall {
    /// `traits`, `processes`, `file`, `listeners` or `disks`.
    pub what: String,
    /// Of which file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// What must be true before the next step begins: first the share, then the soak, then the
/// approval. By itself it is passed as soon as every node has succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gate {
    /// At least so many of a hundred targets must have succeeded.
    pub success_percent: u8,
    /// So long nothing happens after that.
    #[serde(with = "as_text", skip_serializing_if = "is_zero")]
    pub soak: u32,
    /// An operator has to say go on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub approve: bool,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate { success_percent: 100, soak: 0, approve: false }
    }
}

fn all() -> Share {
    Share::ALL
}

fn is_all(share: &Share) -> bool {
    *share == Share::ALL
}

fn none() -> Share {
    Share::Count(0)
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn timeout() -> u32 {
    TIMEOUT_SECS
}

/// Seconds as a duration's text.
mod as_text {
    use super::{Deserialize, Deserializer, Serializer, duration};

    pub(super) fn serialize<S: Serializer>(secs: &u32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&duration::show(*secs))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        duration::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// A workflow that cannot be begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkflowError {
    /// Its name.
    #[error("{0:?} is no name of a workflow: a to z, 0 to 9, '-' and '_', at most 100")]
    Name(String),
    /// There is nothing in it.
    #[error("the workflow has no steps")]
    NoSteps,
    /// More than [`MAX_STEPS`].
    #[error("a workflow has at most {MAX_STEPS} steps")]
    TooManySteps,
    /// A step's name.
    #[error("step {0} has no name, or one longer than {MAX_STEP_NAME} bytes")]
    StepName(usize),
    /// Two steps of one name.
    #[error("two steps are called {0:?}")]
    SameName(String),
    /// Not exactly one of `command`, `action` and `query`.
    #[error("step {0:?} must say one of `command`, `action` and `query`")]
    NoWork(String),
    /// A share over a hundred.
    #[error("step {0:?}: success_percent is at most 100")]
    Percent(String),
    /// The task that it is cannot be begun.
    #[error("step {step:?} cannot be done")]
    Step {
        /// The step.
        step: String,
        /// Why.
        #[source]
        source: SpecError,
    },
}

impl WorkflowSpec {
    /// Whether it may be begun.
    ///
    /// # Errors
    /// [`WorkflowError`]: the first mistake.
    pub fn check(&self) -> Result<(), WorkflowError> {
        if !is_name(&self.name) {
            return Err(WorkflowError::Name(self.name.chars().take(MAX_STEP_NAME).collect()));
        }
        if self.steps.is_empty() {
            return Err(WorkflowError::NoSteps);
        }
        if self.steps.len() > MAX_STEPS {
            return Err(WorkflowError::TooManySteps);
        }
        let mut names = BTreeSet::new();
        for (index, step) in self.steps.iter().enumerate() {
            if step.name.trim().is_empty() || step.name.len() > MAX_STEP_NAME {
                return Err(WorkflowError::StepName(index + 1));
            }
            if !names.insert(&step.name) {
                return Err(WorkflowError::SameName(step.name.clone()));
            }
            step.check()?;
        }
        Ok(())
    }
}

impl StepSpec {
    /// What it does; `None` unless it says exactly one thing.
    pub fn work(&self) -> Option<Work> {
        let command = (!self.command.is_empty()).then(|| Work::Command { argv: self.command.clone() });
        let action = self.action.clone().map(|call| Work::Action { name: call.name, args: call.args });
        let query = self.query.clone().map(|call| Work::Query { what: call.what, path: call.path });
        let mut given = command.into_iter().chain(action).chain(query);
        match (given.next(), given.next()) {
            (Some(work), None) => Some(work),
            _ => None,
        }
    }

    /// The task that it is, under an id and for an operator.
    pub fn task(&self, id: &str, by: &str, workflow: &str) -> Option<TaskSpec> {
        Some(TaskSpec {
            id: id.to_owned(),
            by: by.to_owned(),
            selector: self.on.to_string(),
            work: self.work()?,
            batch: self.batch,
            max_failures: Some(self.max_failures),
            canaries: self.canaries,
            timeout_secs: u64::from(self.timeout),
            wait_secs: u64::from(self.wait),
            begin_secs: BEGIN_SECS,
            workflow: Some(workflow.to_owned()),
        })
    }

    fn check(&self) -> Result<(), WorkflowError> {
        let Some(work) = self.work() else { return Err(WorkflowError::NoWork(self.name.clone())) };
        if self.gate.success_percent > 100 {
            return Err(WorkflowError::Percent(self.name.clone()));
        }
        let wrong = |source| WorkflowError::Step { step: self.name.clone(), source };
        check_work(&work).map_err(wrong)?;
        if self.timeout == 0 || u64::from(self.timeout) > MAX_TIMEOUT_SECS {
            return Err(wrong(SpecError::Timeout));
        }
        if u64::from(self.wait.max(self.gate.soak)) > MAX_WAIT_SECS {
            return Err(wrong(SpecError::Wait));
        }
        if matches!(self.batch, Share::Count(0) | Share::Percent(0)) {
            return Err(wrong(SpecError::Batch));
        }
        Ok(())
    }
}
