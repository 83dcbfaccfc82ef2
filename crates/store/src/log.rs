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
            if let Some(report) = run_of(fact) {
                self = self.after_run(fact.seq, report);
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

    fn after_run(mut self, fact: u64, report: &RunReport) -> Derived {
        let known = self.last_run.as_ref().map_or(&[][..], |last| &last.unknown_tags);
        let unknown_tags = report.unknown_tags_after(known);
        if report.partial.is_some() {
            // It is not the run that was due: of what it did not look at it says nothing.
            if let Some(last) = &mut self.last_run {
                report.take_part_into(&mut last.counts, &mut last.failures);
                last.unknown_tags = unknown_tags;
            }
            return self;
        }
        let RunReport { started, counts, .. } = *report;
        let (paused, failures) = (report.paused.clone(), report.failure_notes());
        let contended = self.last_run.map(|last| last.contended).unwrap_or_default();
        let last_run = RunSummary { fact, started, counts, paused, failures, contended, unknown_tags };
        Derived { streak: streak_after(self.streak, report), last_run: Some(last_run) }
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
