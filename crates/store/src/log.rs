//! The decision of which facts are accepted, the same for every backend.

use model::contention;
use model::invocation::AgentInvocation;
use model::log::{Fact, FactBody};
use model::work::{ActionEvent, ActionFact};
use model::{Contention, Digest, FailureNote, Pause, RunCounts, RunsSummary, Timestamp};
use serde::{Deserialize, Serialize};

use crate::record::KeptRefusal;

/// What is derived from a node's facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Derived {
    pub(crate) runs: RunsSummary,
    pub(crate) full_run: Option<u64>,
    pub(crate) contended: Vec<Contention>,
    pub(crate) invocation: Option<AgentInvocation>,
    pub(crate) refusal: Option<KeptRefusal>,
}

/// [`Derived`] as it is kept, but for the streak. The version before reads it too: it knows no node that has no
/// full run.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct StoredRuns {
    /// The number of the newest full run; 0 is that of none.
    fact: u64,
    /// Since when the outcome has been what it is. In earlier versions it is the beginning of that run.
    #[serde(rename = "started")]
    since: Timestamp,
    counts: RunCounts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused: Option<Box<Pause>>,
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    failures: Box<[FailureNote]>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    contended: Vec<Contention>,
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    unknown_tags: Box<[String]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    would_change: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    root: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    invocation: Option<AgentInvocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refusal: Option<KeptRefusal>,
}

impl Derived {
    /// What is kept, and the streak.
    pub(crate) fn restored(kept: Option<StoredRuns>, streak: u32) -> Derived {
        let StoredRuns {
            fact,
            since,
            counts,
            paused,
            failures,
            contended,
            unknown_tags,
            would_change,
            root,
            invocation,
            refusal,
        } = kept.unwrap_or_default();
        let full_run = (fact > 0).then_some(fact);
        let (counts, since) = (full_run.map(|_| counts), full_run.map(|_| since));
        let runs = RunsSummary { counts, root, streak, failures, would_change, since, paused, unknown_tags };
        Derived { runs, full_run, contended, invocation, refusal }
    }

    /// What is to be kept besides the streak; `None` when there is nothing.
    pub(crate) fn stored(self) -> Option<StoredRuns> {
        if self == Derived::default() {
            return None;
        }
        let Derived { runs, full_run, contended, invocation, refusal } = self;
        let RunsSummary { counts, root, streak: _, failures, would_change, since, paused, unknown_tags } =
            runs;
        let (fact, since, counts) =
            (full_run.unwrap_or_default(), since.unwrap_or_default(), counts.unwrap_or_default());
        Some(StoredRuns {
            fact,
            since,
            counts,
            paused,
            failures,
            contended,
            unknown_tags,
            would_change,
            root,
            invocation,
            refusal,
        })
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
