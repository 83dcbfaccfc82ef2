//! [`CorrectionBackoff`]: how long a resource waits for its next check after it was corrected, could not be
//! corrected, or was found changed and left as it was (CNV-7).

use std::time::Duration;

use model::{Contention, CulpritFinding, Timestamp};

use crate::repeat_backoff::doubled;

/// So many corrections are made at once; with the last of them the resource is contended.
pub const IMMEDIATE_CORRECTIONS: u32 = 4;
/// The wait before the first correction that is not made at once; it doubles with each.
pub const CONTENDED_WAIT: Duration = Duration::from_secs(1);
/// The wait after a resource could not be corrected, or a run not be made; it doubles with each time.
pub const FAILED_WAIT: Duration = Duration::from_secs(1);
/// The wait after a resource that only observes was found changed; it doubles with each time.
pub const OBSERVED_WAIT: Duration = Duration::from_secs(1);
/// A resource that nothing changed for so long, and for twice its wait, is not contended any more.
pub const QUIET: Duration = Duration::from_secs(600);

/// How often of late a resource was corrected, failed or was observed to be changed. Each of the three has a
/// wait of its own, and the longest counts.
#[derive(Clone, Debug)]
pub(crate) struct CorrectionBackoff {
    corrections: u32,
    failures: u32,
    /// How often it was found changed and left as it was.
    observed: u32,
    since: Timestamp,
    last: Timestamp,
    culprit: Option<CulpritFinding>,
}

impl CorrectionBackoff {
    pub(crate) fn began(now: Timestamp) -> CorrectionBackoff {
        CorrectionBackoff { corrections: 0, failures: 0, observed: 0, since: now, last: now, culprit: None }
    }

    pub(crate) fn corrected(&mut self, now: Timestamp) {
        self.corrections = self.corrections.saturating_add(1);
        self.failures = 0;
        self.last = now;
    }

    pub(crate) fn observed(&mut self, now: Timestamp) {
        self.observed = self.observed.saturating_add(1);
        self.last = now;
    }

    pub(crate) fn failed(&mut self, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        self.last = now;
    }

    /// It was found as it is declared.
    pub(crate) fn as_declared(&mut self) {
        self.failures = 0;
    }

    /// Keeps a finding that says more than the one that is known.
    pub(crate) fn name_culprit(&mut self, found: CulpritFinding) {
        if self.culprit.as_ref().is_none_or(|known| found.says_more_than(known)) {
            self.culprit = Some(found);
        }
    }

    pub(crate) fn corrections(&self) -> u32 {
        self.corrections
    }

    /// Failures since it was corrected or as declared.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) fn is_contended(&self) -> bool {
        self.corrections >= IMMEDIATE_CORRECTIONS
    }

    /// The earliest time of the next check. No wait is longer than `interval`, that of full runs.
    pub(crate) fn not_before(&self, interval: Duration) -> Timestamp {
        let doubled = |first: Duration, times: u32| doubled(first, times).min(interval);
        let contended = match self.corrections.checked_sub(IMMEDIATE_CORRECTIONS) {
            None => Duration::ZERO,
            Some(times) => doubled(CONTENDED_WAIT, times),
        };
        let failed = match self.failures {
            0 => Duration::ZERO,
            times => doubled(FAILED_WAIT, times - 1),
        };
        let observed = match self.observed {
            0 => Duration::ZERO,
            times => doubled(OBSERVED_WAIT, times - 1),
        };
        self.last.plus(contended.max(failed).max(observed))
    }

    /// When all of this is forgotten, if nothing happens.
    pub(crate) fn forgotten_at(&self, interval: Duration) -> Timestamp {
        let wait = self.not_before(interval).since(self.last);
        self.last.plus(QUIET.max(wait * 2))
    }

    /// As people are told of it.
    pub(crate) fn contention(&self, resource: String, interval: Duration) -> Contention {
        let (culprit, culprit_unknown) = match &self.culprit {
            Some(CulpritFinding::Named(culprit)) => (Some(culprit.clone()), None),
            Some(CulpritFinding::Unknown(why)) => (None, Some(*why)),
            None => (None, None),
        };
        Contention {
            resource,
            since: self.since,
            corrections: self.corrections,
            wait_secs: self.not_before(interval).since(self.last).as_secs(),
            culprit,
            culprit_unknown,
        }
    }

    /// The clock was set back by so much.
    pub(crate) fn set_back(&mut self, back: Duration) {
        for at in [&mut self.since, &mut self.last] {
            *at = at.minus(back);
        }
    }
}
