//! The decision of which facts are accepted, the same for every backend.

use model::RunReport;
use model::contention;
use model::log::{Fact, FactBody};
use model::status::streak_after;
use model::work::{ActionEvent, ActionFact};

use crate::record::RunSummary;

/// What is derived from a node's runs: the streak and the newest run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Derived {
    pub(crate) streak: u32,
    pub(crate) last_run: Option<RunSummary>,
}

impl Derived {
    /// After these facts too.
    pub(crate) fn after(mut self, facts: &[Fact]) -> Derived {
        for fact in facts {
            // A partial run is not the run that was due.
            if let Some(report) = run_of(fact).filter(|report| report.partial.is_none()) {
                self.streak = streak_after(self.streak, report);
                let RunReport { started, counts, .. } = *report;
                let paused = report.paused.clone();
                let failures = report.failure_notes();
                let contended = self.last_run.map(|last| last.contended).unwrap_or_default();
                self.last_run =
                    Some(RunSummary { fact: fact.seq, started, counts, paused, failures, contended });
            }
            let contended = match &fact.body {
                FactBody::Contended { resources, .. } => contention::kept(resources),
                // What an agent that begins does not say again is over.
                FactBody::Started { .. } => Vec::new(),
                _ => continue,
            };
            // The first contention comes after the first run.
            self.last_run = self.last_run.map(|last| RunSummary { contended, ..last });
        }
        self
    }
}

/// The report of a fact that is a run.
pub(crate) fn run_of(fact: &Fact) -> Option<&RunReport> {
    match &fact.body {
        FactBody::Run(report) => Some(report),
        _ => None,
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
