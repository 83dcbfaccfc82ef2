//! What an operator asks for.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use model::id::is_name;
use model::work::{MAX_ARGS, MAX_TIMEOUT_SECS, Work};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{MAX_TARGETS, MAX_TASK_ID, MAX_WAIT_SECS, MAX_WORK};

/// A number of nodes, or a share of the targets. Text form: `10` or `10%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// So many.
    Count(u32),
    /// So many of a hundred, at most 100.
    Percent(u8),
}

/// The text is neither a number nor a percentage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a number such as 10 nor a share such as 10%")]
pub struct ParseShareError(String);

impl Share {
    /// All of them.
    pub const ALL: Share = Share::Percent(100);

    /// Of so many targets, a part of one counted as one, and at least one.
    pub fn at_least_one(self, total: usize) -> usize {
        let wanted = match self {
            Share::Count(count) => count as usize,
            Share::Percent(percent) => (total * usize::from(percent)).div_ceil(100),
        };
        wanted.clamp(1, total.max(1))
    }

    /// Of so many targets, a part of one left out.
    pub fn at_most(self, total: usize) -> usize {
        match self {
            Share::Count(count) => count as usize,
            Share::Percent(percent) => total * usize::from(percent) / 100,
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Share::Count(count) => write!(f, "{count}"),
            Share::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for Share {
    type Err = ParseShareError;

    fn from_str(text: &str) -> Result<Share, ParseShareError> {
        let wrong = || ParseShareError(text.chars().take(20).collect());
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.parse().ok().filter(|percent| *percent <= 100);
                percent.map(Share::Percent).ok_or_else(wrong)
            }
            None => text.parse().map(Share::Count).map_err(|_| wrong()),
        }
    }
}

impl JsonSchema for Share {
    fn schema_name() -> Cow<'static, str> {
        "Share".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "So many, or a percentage of all such as \"10%\".",
            "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string", "pattern": "^[0-9]+%?$" }],
        })
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Share::Count(count) => serializer.serialize_u32(*count),
            Share::Percent(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Share, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Count(u32),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Count(count) => Ok(Share::Count(count)),
            Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

/// One thing to do on many nodes.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskSpec {
    /// Its id, never used before: a to z, 0 to 9, `-` and `_`, at most [`MAX_TASK_ID`].
    pub id: String,
    /// The operator.
    pub by: String,
    /// The selector that the targets were taken from, for people.
    pub selector: String,
    /// What to do.
    pub work: Work,
    /// At most so many at a time, at least one.
    pub batch: Share,
    /// So many may fail before the rest is called off; absent: all may.
    pub max_failures: Option<Share>,
    /// So many must succeed before the others begin; until then none may fail.
    #[serde(default)]
    pub canaries: u32,
    /// The longest time on one node, in seconds.
    pub timeout_secs: u64,
    /// How long nodes that cannot be reached are waited for, in seconds from the beginning; with
    /// 0 they are answered at once.
    #[serde(default)]
    pub wait_secs: u64,
    /// How long a node that was asked may take to begin, in seconds, besides the time until
    /// its next contact.
    pub begin_secs: u64,
    /// The workflow that it is a step of.
    pub workflow: Option<String>,
}

/// A task that cannot be begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The id.
    #[error("a task's id has a to z, 0 to 9, '-' and '_', at most {MAX_TASK_ID}")]
    Id,
    /// There is nobody to do it.
    #[error("the selector means no node")]
    NoTargets,
    /// More targets than [`MAX_TARGETS`].
    #[error("a task has at most {MAX_TARGETS} targets")]
    TooManyTargets,
    /// A timeout of nothing or of more than a day.
    #[error("the timeout must be between 1 and {MAX_TIMEOUT_SECS} seconds")]
    Timeout,
    /// A wait beyond [`MAX_WAIT_SECS`].
    #[error("nodes are waited for at most {MAX_WAIT_SECS} seconds")]
    Wait,
    /// A batch of nothing.
    #[error("the batch must be at least 1")]
    Batch,
    /// A command without a program, or with too many arguments.
    #[error("a command has a program with an absolute path and at most {MAX_ARGS} parts")]
    Command,
    /// Larger than [`MAX_WORK`].
    #[error("the work is larger than {MAX_WORK} bytes")]
    TooLarge,
    /// A query that no node knows.
    #[error(
        "{0:?} cannot be asked so: traits, processes, listeners and disks take no path, and file an absolute one"
    )]
    Query(String),
}

impl TaskSpec {
    /// Whether it may be begun on so many targets. What nodes are delegated is their own
    /// affair, and is judged there.
    ///
    /// # Errors
    /// [`SpecError`].
    pub fn check(&self, targets: usize) -> Result<(), SpecError> {
        if !is_name(&self.id) || self.id.len() > MAX_TASK_ID {
            return Err(SpecError::Id);
        }
        if targets == 0 {
            return Err(SpecError::NoTargets);
        }
        if targets > MAX_TARGETS {
            return Err(SpecError::TooManyTargets);
        }
        if self.timeout_secs == 0 || self.timeout_secs > MAX_TIMEOUT_SECS {
            return Err(SpecError::Timeout);
        }
        if self.wait_secs > MAX_WAIT_SECS || self.begin_secs > MAX_WAIT_SECS {
            return Err(SpecError::Wait);
        }
        if matches!(self.batch, Share::Count(0) | Share::Percent(0)) {
            return Err(SpecError::Batch);
        }
        check_work(&self.work)
    }
}

/// Whether a node could read it at all.
pub(super) fn check_work(work: &Work) -> Result<(), SpecError> {
    if serde_json::to_vec(work).map_or(usize::MAX, |bytes| bytes.len()) > MAX_WORK {
        return Err(SpecError::TooLarge);
    }
    match work {
        Work::Command { argv } => {
            let program = argv.first().is_some_and(|program| program.starts_with('/'));
            let plain = argv.iter().all(|arg| !arg.contains('\0'));
            if program && plain && argv.len() <= MAX_ARGS { Ok(()) } else { Err(SpecError::Command) }
        }
        Work::Action { args, .. } if args.len() > MAX_ARGS => Err(SpecError::TooLarge),
        Work::Query { what, path } => match (what.as_str(), path) {
            ("traits" | "processes" | "listeners" | "disks", None) => Ok(()),
            ("file", Some(path)) if path.starts_with('/') => Ok(()),
            _ => Err(SpecError::Query(what.chars().take(40).collect())),
        },
        // What is no object's name is no object of the node's either.
        Work::Action { .. } | Work::Operation { .. } => Ok(()),
    }
}
