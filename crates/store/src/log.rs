//! The decision of which facts are accepted, the same for every backend.

use model::contention;
use model::invocation::AgentInvocation;
use model::log::{Fact, FactBody};
use model::work::{ActionEvent, ActionFact};
use model::{Contention, Digest, FailureNote, Pause, RunCounts, RunsSummary, Timestamp};
use serde::{Deserialize, Serialize};

use crate::record::KeptRefusal;

/// What is derived from a node's facts. It is kept in this form, but for the streak, which has a column of its own.
/// The version before reads it too: it knows no node that has no full run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Derived {
    #[serde(flatten, with = "StoredSummary")]
    pub(crate) runs: RunsSummary,
    /// The number of the newest full run; 0 is that of none.
    #[serde(rename = "fact", with = "or_default")]
    pub(crate) full_run: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) contended: Vec<Contention>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) invocation: Option<AgentInvocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<KeptRefusal>,
}

/// [`RunsSummary`] as it is kept.
#[derive(Serialize, Deserialize)]
#[serde(remote = "RunsSummary")]
struct StoredSummary {
    #[serde(with = "or_default")]
    counts: Option<RunCounts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    root: Option<Digest>,
    #[serde(skip)]
    streak: u32,
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    failures: Box<[FailureNote]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    would_change: Option<Box<str>>,
    /// In earlier versions it is the beginning of that run.
    #[serde(rename = "started", with = "or_default")]
    since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused: Option<Box<Pause>>,
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    unknown_tags: Box<[String]>,
}

/// A value that is kept as its default where there is none.
mod or_default {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Copy + Default + Serialize, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.unwrap_or_default().serialize(serializer)
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        T::deserialize(deserializer).map(Some)
    }
}

impl Derived {
    /// What is kept, and the streak.
    pub(crate) fn restored(kept: Option<Derived>, streak: u32) -> Derived {
        let mut derived = kept.unwrap_or_default();
        derived.runs.streak = streak;
        derived.full_run = derived.full_run.filter(|fact| *fact > 0);
        if derived.full_run.is_none() {
            (derived.runs.counts, derived.runs.since) = (None, None);
        }
        derived
    }

    /// What is to be kept besides the streak; `None` when there is nothing.
    pub(crate) fn stored(self) -> Option<Derived> {
        (self != Derived::default()).then_some(self)
    }

    /// After these facts too.
    pub(crate) fn after(mut self, facts: &[Fact]) -> Derived {
        for fact in facts {
            match &fact.body {
                FactBody::Run(report) => {
                    self.runs = self.runs.after(report);
                    self.full_run = if report.partial.is_some() { self.full_run } else { Some(fact.seq) };
                }
                FactBody::Refused { code, message } => self.refusal = Some(KeptRefusal::of(code, message)),
                FactBody::Adopted { .. } => self.refusal = None,
                FactBody::Contended { resources, .. } => self.contended = contention::kept(resources),
                // What an agent that begins does not say again is over.
                FactBody::Started { invocation, .. } => {
                    self.contended.clear();
                    self.invocation = invocation.clone().filter(AgentInvocation::is_plain);
                }
                _ => {}
            }
        }
        self
    }
}

/// What sort a fact is of: each is kept apart from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sort {
    Other = 0,
    Run = 1,
    Action = 2,
}

pub(crate) fn sort_of(fact: &Fact) -> Sort {
    match &fact.body {
        FactBody::Run(_) => Sort::Run,
        FactBody::Action(_) => Sort::Action,
        _ => Sort::Other,
    }
}

/// The action that a fact is of.
pub(crate) fn action_of(fact: &Fact) -> Option<&ActionFact> {
    match &fact.body {
        FactBody::Action(action) => Some(action),
        _ => None,
    }
}

/// The fact is the terminal one of an action.
pub(crate) fn is_end(action: &ActionFact) -> bool {
    matches!(action.event, ActionEvent::Ended { .. })
}
