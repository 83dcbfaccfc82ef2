//! Healing: partial runs over what was changed out of band, between the full ones (CNV-7).
//!
//! ```text
//! SuspectedDrift -> Healing -> Run(over what is due) -> Ran: a fact if there is news
//!                           -> WatchCulprits, Append(Contended) when another resource or culprit is contended
//! ```
//!
//! Nothing is healed while the host is paused, while a release is being adopted, and before the first full
//! run over what is bound: all of these end with a full run.

use model::contention::MAX_CONTENTIONS;
use model::log::FactBody;
use model::{Contention, RunReport, Timestamp};

use super::runs::RunUnderWay;
use super::{Node, ReleaseChange, inputs_digest};
use crate::healing::{ReportDecision, SuspectedDrift};
use crate::io::NodeEffect;

impl Node {
    /// What something else changes again and again.
    pub fn contentions(&self) -> &[Contention] {
        &self.contended
    }

    /// How often everything that is watched was looked at because events were lost.
    pub fn scans(&self) -> u64 {
        self.healing.scans()
    }

    pub(super) fn on_suspected_drift(&mut self, drift: SuspectedDrift, now: Timestamp) {
        let interval = self.interval();
        self.healing.suspect(drift, now, interval);
    }

    /// Whether a run over suspects may begin.
    pub(super) fn may_heal(&self) -> bool {
        let bound = self.adoption.as_ref().map(|held| inputs_digest(&held.root, &self.traits_that_count()));
        self.pause.is_none()
            && !matches!(self.change, ReleaseChange::Adopting(_))
            && self.running.is_none()
            && !self.reboots.goes_down()
            && bound.is_some()
            && bound == self.last_run.as_ref().map(|last| last.inputs)
    }

    /// When the next thing is due here.
    pub(super) fn healing_deadline(&self) -> Option<(Timestamp, &'static str)> {
        let look = self.healing.next_due().filter(|_| self.may_heal() && self.traits.is_some());
        let look = look.map(|at| (at, "what may have been changed by hand"));
        let end = self.healing.next_end(self.interval()).map(|at| (at, "the end of a contention"));
        look.into_iter().chain(end).min()
    }

    pub(super) fn heal_what_is_due(&mut self, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        if self.healing.next_due().is_none_or(|due| due > now) || !self.may_heal() {
            return;
        }
        let resources = self.healing.begin(now);
        self.running = Some(RunUnderWay::Healing);
        self.order_run(converge::RunScope::Resources(resources), Default::default(), false, effects);
    }

    pub(super) fn on_healed(&mut self, report: &RunReport, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        let interval = self.interval();
        if self.healing.ended(report, now, interval) == ReportDecision::Report {
            self.append_partial(report, now, effects);
        }
    }

    /// Says what something else changes again and again, when that is another than was reported last.
    pub(super) fn report_contentions(&mut self, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        let interval = self.interval();
        let culprits = self.healing.culprits_to_find();
        if culprits != self.culprits_to_find {
            self.culprits_to_find.clone_from(&culprits);
            effects.push(NodeEffect::WatchCulprits(culprits));
        }
        self.contended = self.healing.contentions(now, interval);
        let Some(news) = self.reported_contentions.news(&self.contended, now) else { return };
        for new in news.into_iter().take(MAX_CONTENTIONS) {
            effects.push(NodeEffect::Warn(new.text(now)));
        }
        self.reported_contentions.reported(&self.contended, now);
        let more = self.contended.len().saturating_sub(MAX_CONTENTIONS);
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let resources = self.contended.iter().take(MAX_CONTENTIONS).cloned().collect();
        self.append(FactBody::Contended { resources, more }, now, effects);
    }
}
