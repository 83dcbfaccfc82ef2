//! [`RunsHeard`]: what a control plane heard of a node's runs in check-ins. It is kept with the node, so that a
//! restart changes neither its status nor its cause (CNV-3).

use serde::{Deserialize, Serialize};

use crate::exchange::{CheckIn, RunNote};
use crate::policy::RunTimes;
use crate::{Digest, RunReport, Timestamp, UnmadeRun};

/// What was heard of a node's runs. Times are of the control plane's clock where they say when something was heard,
/// else of the node's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunsHeard {
    /// When a run was last heard of that is newer than the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Timestamp>,
    /// When it was first heard that the node holds the set that it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Timestamp>,
    /// How often the node runs, by the release that it holds; `None` until it was seen to hold what it is pointed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<RunTimes>,
    /// The full run that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under_way: Option<OngoingRun>,
    /// Why no run can be made, by the node's own word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmade: Option<Box<UnmadeRun>>,
    /// The last full run in which nothing failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub successful: Option<SuccessfulRun>,
}

/// A full run that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OngoingRun {
    /// When it began, by the node's clock.
    pub since: Timestamp,
    /// When it was first heard of, by the control plane's: the node's may be wrong.
    pub heard: Timestamp,
}

/// A full run that changed or found everything as declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SuccessfulRun {
    /// When it ended, by the node's clock.
    pub at: Timestamp,
    /// [`RunReport::outcome`]: a later run that is only noted and has the same outcome is successful too.
    pub outcome: Digest,
}

impl RunsHeard {
    /// Takes in what a check-in says; `before` is the run that the one before noted. A run is news when it is newer
    /// than that: an agent that begins repeats an older one.
    pub fn check_in(
        &mut self,
        request: &CheckIn,
        before: Option<&RunNote>,
        is_another_set: bool,
        now: Timestamp,
    ) {
        if is_another_set {
            self.held = Some(now);
        }
        match (before, &request.run) {
            (_, None) => self.run = None,
            (Some(known), Some(new)) if new.at <= known.at => {}
            (_, Some(new)) => {
                self.run = Some(now);
                if let Some(last) = self.successful.as_mut().filter(|last| last.outcome == new.outcome) {
                    last.at = new.at;
                }
            }
        }
        let known = self.under_way;
        self.under_way = request.running_since.map(|since| {
            known.filter(|known| known.since == since).unwrap_or(OngoingRun { since, heard: now })
        });
        // A node says as much as it likes.
        let bounded =
            |unmade: &UnmadeRun| Box::new(UnmadeRun::new(unmade.since, unmade.cause, &unmade.reason));
        self.unmade = request.unmade_run.as_ref().map(bounded);
    }

    /// Takes in a report; `noted` is the newest run that a check-in noted.
    pub fn report(&mut self, report: &RunReport, at: Timestamp, noted: Option<&RunNote>) {
        if report.partial.is_some() || report.paused.is_some() || report.counts.failed > 0 {
            return;
        }
        let outcome = report.outcome();
        // Runs after it that came to the same are only noted, and their notes may be here already.
        let at = noted.filter(|note| note.outcome == outcome).map_or(at, |note| note.at);
        self.successful = Some(SuccessfulRun { at, outcome });
    }
}
