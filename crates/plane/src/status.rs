//! How a node fares, by what was heard of it: [`NodeState::status`] (CNV-3).
//!
//! Green rests on evidence: the last run that was due was made on the set that is held. That it was made is known by
//! the note of it in check-ins and by its report; each counts from when it was heard of, by the clock here. Until
//! when a status holds though nothing more is heard says [`NodeState::status_until`], so that totals over many nodes
//! are kept as they change.

use model::Timestamp;
use model::selection::SelectionEntry;
use model::status::{
    self, CertificateTrust, Drift, Enforcement, LONGEST_RUN, ReleaseState, RunEvidence, RunResult, Status,
};

use crate::heads::Heads;
use crate::node::{NodeState, Pointed};

impl NodeState {
    /// How the node fares.
    pub fn status(&mut self, heads: &Heads, now: Timestamp) -> Status {
        let pointed = self.pointed(heads);
        self.status_of(heads, pointed.as_ref(), now)
    }

    /// From when [`NodeState::status`] may differ from now though nothing is heard and `heads` stay the same; `None`
    /// when it stays for ever. Always after `now`.
    pub fn status_until(&self, heads: &Heads, now: Timestamp) -> Option<Timestamp> {
        let pointed = self.pointed_now(heads);
        let contact = status::contact_until(self.silent_since(), self.promised, now);
        let release = self.not_fresh_at(pointed.as_ref());
        let run = [self.run_overdue_at(pointed.as_ref()), self.run_ends_by()];
        [contact, release].into_iter().chain(run).flatten().filter(|at| *at > now).min()
    }

    fn status_of(&self, heads: &Heads, pointed: Option<&Pointed>, now: Timestamp) -> Status {
        Status {
            result: match self.rollout_failure() {
                Some(_) => RunResult::Failed,
                None => self.summary.counts.map_or(RunResult::None, |counts| status::result_of(&counts)),
            },
            // What is put right again and again between two runs stays no better than what runs correct.
            drift: match self.open_items().contended.is_empty() {
                false => Drift::Diverged,
                true => status::drift_of(self.summary.streak),
            },
            contact: status::contact_of(self.silent_since(), self.promised, now),
            release: self.release_state(heads, pointed, now),
            evidence: self.evidence(pointed, now),
            enforcement: match self.summary.paused {
                Some(_) => Enforcement::Paused,
                None => Enforcement::On,
            },
            certificate: match self.revoked {
                Some(_) => CertificateTrust::Revoked,
                None => CertificateTrust::Trusted,
            },
            would_change: self.summary.counts.map_or(0, |counts| counts.would_change),
        }
    }

    /// Since when there was no run that was due and ended on what is held, where that is known: the last that was
    /// heard of, or the adoption after it.
    pub fn no_run_since(&self) -> Option<Timestamp> {
        match self.last_run_is_of_held() {
            true => self.runs.run.or(self.runs.held),
            false => self.runs.held.max(self.runs.run),
        }
    }

    fn evidence(&self, pointed: Option<&Pointed>, now: Timestamp) -> RunEvidence {
        let is_overdue = self.run_overdue_at(pointed).is_some_and(|at| now >= at);
        let may_still_end = self.run_ends_by().is_some_and(|at| now < at);
        if self.runs.unmade.is_some() || is_overdue && !may_still_end {
            RunEvidence::Missing
        } else if is_overdue || self.awaits_run() {
            RunEvidence::Awaited
        } else {
            RunEvidence::Current
        }
    }

    /// By when the run that is under way must have ended.
    fn run_ends_by(&self) -> Option<Timestamp> {
        self.runs.under_way.map(|run| run.heard.plus(LONGEST_RUN).plus(self.absence()))
    }

    /// By when a run must be heard of; `None` while nothing is held.
    fn run_overdue_at(&self, pointed: Option<&Pointed>) -> Option<Timestamp> {
        self.held.as_ref()?;
        let of_head = pointed.filter(|(_, entry)| self.holds(entry)).and_then(|(head, _)| head.runs);
        // A publisher of before did not say how often nodes run: those that said nothing of it run as often as this.
        let times = of_head.or(self.runs.times).unwrap_or_default();
        // What it ran while nobody could hear it is told with its next call.
        Some(status::run_overdue_at(self.no_run_since()?.plus(self.absence()), times, self.promised))
    }

    /// It holds a set, and no run over that was reported.
    pub(crate) fn awaits_run(&self) -> bool {
        self.held.is_some() && !self.last_run_is_of_held()
    }

    /// The last full run that was reported was over the set that is held. A set is reported with its first run,
    /// whatever that comes to.
    fn last_run_is_of_held(&self) -> bool {
        let Some(held) = &self.held else { return false };
        self.summary.counts.is_some() && self.summary.root.is_none_or(|root| root == held.root)
    }

    /// Whether it holds what it is pointed to.
    pub fn holds_pointed(&self, heads: &Heads) -> bool {
        self.pointed_now(heads).is_some_and(|(_, entry)| self.holds(&entry))
    }

    pub(crate) fn holds(&self, entry: &SelectionEntry) -> bool {
        self.held.as_ref().is_some_and(|held| held.root == entry.root)
    }

    /// When what it is pointed to, and does not hold, is past its freshness.
    fn not_fresh_at(&self, pointed: Option<&Pointed>) -> Option<Timestamp> {
        let (head, _) = pointed.filter(|(_, entry)| !self.holds(entry))?;
        Some(Timestamp(head.freshness().ends_at().0.saturating_add(1)))
    }

    /// It says that it does not take up what it is offered.
    fn does_not_adopt(&self) -> bool {
        let open_items = self.open_items();
        open_items.refusal.is_some() || open_items.conditions.unadopted.is_some()
    }

    /// The release of its channel has an entry for the node, and no rollout gives it one yet.
    pub fn waits_for_rollout(&self, heads: &Heads) -> bool {
        self.pointed_now(heads).is_none() && heads.pointed(&self.hostname).is_some()
    }

    fn release_state(&self, heads: &Heads, pointed: Option<&Pointed>, now: Timestamp) -> ReleaseState {
        let says_so =
            self.open_items().conditions.freshness.is_some_and(|held| held.not_fresh_since.is_some());
        match (pointed, self.not_fresh_at(pointed)) {
            (None, _) if self.waits_for_rollout(heads) => ReleaseState::Behind,
            (None, _) => ReleaseState::Unassigned,
            (Some(_), None) if says_so => ReleaseState::NotFresh,
            // The same set under a header that it refuses or cannot keep: it holds the release before.
            (Some(_), None) if self.does_not_adopt() => ReleaseState::Behind,
            (Some(_), None) => ReleaseState::Current,
            (Some(_), Some(at)) if now >= at => ReleaseState::NotFresh,
            (Some(_), Some(_)) => ReleaseState::Behind,
        }
    }
}
