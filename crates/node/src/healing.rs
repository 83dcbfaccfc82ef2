//! [`Healing`]: when to look at a resource that something else may have changed, and what fights (CNV-7).
//!
//! ```text
//! event   -> suspect, due after DEBOUNCE, REST since the last look, and the back-off
//! due     -> a partial run over all that are due: one at a time, never beside another run
//! report  -> as declared: nothing to say; put right: a correction; failed: due again, ever later
//! lost    -> a scan: all that are watched are suspects; scans one after the other are ever later (`RepeatBackoff`)
//! IMMEDIATE_CORRECTIONS without QUIET between them -> contended: named, and put right ever less often
//! ```
//!
//! A value: time is an argument. Invariants: a suspect stays one until a run looked at it; what a full run
//! begins with is looked at by it; no wait is longer than the interval of full runs, which look at
//! everything anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use converge::ResourceId;
use model::collect::CollectInserting;
use model::contention::MAX_CONTENTIONS;
use model::{Action, Contention, CulpritFinding, RunReport, Timestamp};

use crate::repeat_backoff::{RepeatBackoff, doubled};

/// How long after the first event a resource is looked at: edits come in several steps.
pub const DEBOUNCE: Duration = Duration::from_millis(150);
/// The least time between two looks at one resource: what changes all the time costs little.
pub const REST: Duration = Duration::from_secs(1);
/// So many corrections are made at once; with the last of them the resource is contended.
pub const IMMEDIATE_CORRECTIONS: u32 = 4;
/// The wait before the first correction that is not made at once; it doubles with each.
pub const CONTENDED_WAIT: Duration = Duration::from_secs(1);
/// The wait after a resource could not be put right, or a run not be made; it doubles with each time.
pub const FAILED_WAIT: Duration = Duration::from_secs(1);
/// The wait after a resource that only observes was found changed; it doubles with each time.
pub const OBSERVED_WAIT: Duration = Duration::from_secs(1);
/// A resource that nothing changed for so long, and for twice its wait, is not contended any more.
pub const QUIET: Duration = Duration::from_secs(600);

/// What may have been changed by other hands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// The resources to look at.
    pub resources: BTreeSet<ResourceId>,
    /// Those to look at because events were lost: all that the events may have been of.
    pub unheard: BTreeSet<ResourceId>,
    /// What was found out of who changed a resource.
    pub culprits: BTreeMap<ResourceId, CulpritFinding>,
}

/// What is worth knowing of a run over suspects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealingNews {
    /// Everything was as declared, or is as it was told before.
    Nothing,
    /// Something was put right, failed for the first time, or is changed and only observed.
    Report,
}

/// A resource that was put right, could not be, or was only observed to be changed, of late.
#[derive(Clone, Debug, Default)]
struct Wound {
    corrections: u32,
    failures: u32,
    /// How often it was found changed and left as it was.
    observed: u32,
    since: Timestamp,
    last: Timestamp,
    culprit: Option<CulpritFinding>,
}

impl Wound {
    /// The earliest time of the next look.
    fn not_before(&self, interval: Duration) -> Timestamp {
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

    fn is_contended(&self) -> bool {
        self.corrections >= IMMEDIATE_CORRECTIONS
    }

    /// When it is forgotten, if nothing happens.
    fn heals_at(&self, interval: Duration) -> Timestamp {
        let wait = self.not_before(interval).since(self.last);
        self.last.plus(QUIET.max(wait * 2))
    }
}

/// What may be damaged, and what was.
#[derive(Clone, Debug, Default)]
pub struct Healing {
    /// When each is looked at.
    suspects: BTreeMap<ResourceId, Timestamp>,
    /// Suspects that the run under way looks at.
    looking: BTreeSet<ResourceId>,
    /// When resources were looked at, as long as they rest.
    looked: BTreeMap<ResourceId, Timestamp>,
    wounds: BTreeMap<ResourceId, Wound>,
    /// Resources that only observe and were reported as changed.
    drifting: BTreeSet<ResourceId>,
    /// Runs in a row that could not be made.
    failed_runs: u32,
    /// Until when no run over suspects is tried again.
    held_until: Option<Timestamp>,
    /// When a scan after lost events is due.
    scan: RepeatBackoff,
    /// Scans after events were lost.
    scans: u64,
}

impl Healing {
    /// Something may have been changed. `interval` is that of full runs.
    pub fn touched(&mut self, touched: Touched, now: Timestamp, interval: Duration) {
        for id in touched.resources {
            self.suspect(id, now, now, interval);
        }
        if !touched.unheard.is_empty() {
            let scan = self.scan_due(now, interval);
            for id in touched.unheard {
                self.suspect(id, scan, now, interval);
            }
        }
        for (id, found) in touched.culprits {
            if let Some(wound) = self.wounds.get_mut(&id)
                && wound.culprit.as_ref().is_none_or(|known| says_more(&found, known))
            {
                wound.culprit = Some(found);
            }
        }
    }

    /// To be looked at, and not before a time.
    fn suspect(&mut self, id: ResourceId, not_before: Timestamp, now: Timestamp, interval: Duration) {
        let rested = self.looked.get(&id).map_or(now, |looked| looked.plus(REST));
        let wounded = self.wounds.get(&id).map_or(now, |wound| wound.not_before(interval));
        let due = now.plus(DEBOUNCE).max(rested).max(wounded).max(not_before);
        // What a scan would look at later is looked at now that an event names it.
        let known = self.suspects.entry(id).or_insert(due);
        *known = due.min(*known);
    }

    /// Events were lost: when what they may have been of is looked at.
    fn scan_due(&mut self, now: Timestamp, interval: Duration) -> Timestamp {
        if self.scan.due().is_none() {
            self.scans += 1;
        }
        self.scan.ask(now, interval)
    }

    /// When the next look is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        let first = self.suspects.values().min().copied()?;
        Some(self.held_until.map_or(first, |held| first.max(held)))
    }

    /// When the next contention is over if nothing happens.
    pub fn next_end(&self, interval: Duration) -> Option<Timestamp> {
        let contended = self.wounds.values().filter(|wound| wound.is_contended());
        contended.map(|wound| wound.heals_at(interval)).min()
    }

    /// A run over what is due begins, and over what was touched in the same moment: a directory and what is
    /// in it are put right in their order.
    pub fn begin(&mut self, now: Timestamp) -> BTreeSet<ResourceId> {
        let soon = now.plus(DEBOUNCE);
        let waits = |id: &ResourceId| self.wounds.contains_key(id) || self.looked.contains_key(id);
        let due = |id: &ResourceId, at: Timestamp| at <= now || (at <= soon && !waits(id));
        let due: BTreeSet<ResourceId> = self
            .suspects
            .iter()
            .filter(|(id, at)| due(id, **at))
            .map(|(id, _)| id.clone())
            .collect_inserting();
        self.suspects.retain(|id, _| !due.contains(id));
        if self.scan.due().is_some_and(|due| due <= now) {
            self.scan.done();
        }
        self.looking.clone_from(&due);
        due
    }

    /// A run over everything begins: it looks at every suspect.
    pub fn full_run_begins(&mut self) {
        self.scan.done();
        self.looking = std::mem::take(&mut self.suspects).into_keys().collect_inserting();
    }

    /// The run that began last ended with this report.
    pub fn ended(&mut self, report: &RunReport, now: Timestamp, interval: Duration) -> HealingNews {
        (self.failed_runs, self.held_until) = (0, None);
        let looking = std::mem::take(&mut self.looking);
        let mut news = HealingNews::Nothing;
        let mut found: BTreeMap<&str, Action> = BTreeMap::new();
        for item in &report.items {
            found.insert(&item.resource, item.action);
            let known = looking.contains(&ResourceId::from(item.resource.as_str()));
            if !known && !matches!(item.action, Action::Ok | Action::Skipped) {
                // It was notified by what was put right.
                news = HealingNews::Report;
            }
        }
        if report.counts.changed > 0 {
            news = HealingNews::Report;
        }
        self.looked.retain(|_, looked| looked.plus(REST) > now);
        let touched: Vec<ResourceId> =
            looking.iter().filter(|id| self.suspects.contains_key(*id)).cloned().collect();
        let mut corrected = false;
        for id in looking {
            self.looked.insert(id.clone(), now);
            let found = found.get(id.as_str()).copied();
            if found != Some(Action::WouldChange) {
                self.drifting.remove(&id);
            }
            match found {
                Some(Action::Changed | Action::Deleted) if !report.intended => {
                    corrected = true;
                    self.corrected(id, now, interval);
                }
                Some(Action::WouldChange | Action::Unknown) if report.paused.is_none() => {
                    self.observed(id.clone(), now, interval);
                    if self.drifting.insert(id) {
                        news = HealingNews::Report;
                    }
                }
                Some(Action::Failed | Action::Ignored | Action::Restored) => {
                    let wound = self.wounds.entry(id.clone()).or_insert_with(|| Wound::began(now));
                    wound.failures += 1;
                    wound.last = now;
                    if wound.failures == 1 {
                        news = HealingNews::Report;
                    }
                    let due = wound.not_before(interval);
                    self.suspects.insert(id, due);
                }
                // As declared, or more than a report names.
                _ => {
                    if let Some(wound) = self.wounds.get_mut(&id) {
                        wound.failures = 0;
                    }
                }
            }
        }
        // Touched while the run looked at them, often by the run itself.
        for id in touched {
            let wounded = self.wounds.get(&id).map_or(now, |wound| wound.not_before(interval));
            if let Some(due) = self.suspects.get_mut(&id) {
                *due = (*due).max(now.plus(REST)).max(wounded);
            }
        }
        if corrected {
            // What failed may have failed for what is right now.
            let failed = self.wounds.iter().filter(|(_, wound)| wound.failures > 0);
            for (id, _) in failed {
                if let Some(due) = self.suspects.get_mut(id) {
                    *due = (*due).min(now.plus(DEBOUNCE));
                }
            }
        }
        news
    }

    /// What is known of a resource that was changed again.
    fn wound(&mut self, id: ResourceId, now: Timestamp, interval: Duration) -> &mut Wound {
        let wound = self.wounds.entry(id).or_insert_with(|| Wound::began(now));
        if now > wound.heals_at(interval) {
            *wound = Wound::began(now);
        }
        wound
    }

    fn observed(&mut self, id: ResourceId, now: Timestamp, interval: Duration) {
        let wound = self.wound(id, now, interval);
        wound.observed = wound.observed.saturating_add(1);
        wound.last = now;
    }

    fn corrected(&mut self, id: ResourceId, now: Timestamp, interval: Duration) {
        let wound = self.wound(id, now, interval);
        wound.corrections = wound.corrections.saturating_add(1);
        wound.failures = 0;
        wound.last = now;
    }

    /// The run that began last could not be made: its suspects stay suspects, and the next is tried ever
    /// later.
    pub fn failed(&mut self, now: Timestamp, interval: Duration) {
        let wait = doubled(FAILED_WAIT, self.failed_runs).min(interval);
        self.failed_runs = self.failed_runs.saturating_add(1);
        self.held_until = Some(now.plus(wait));
        for id in std::mem::take(&mut self.looking) {
            self.suspects.entry(id).or_insert(now);
        }
    }

    /// Forgets what healed; says what something else changes again and again, the newest first.
    pub fn contentions(&mut self, now: Timestamp, interval: Duration) -> Vec<Contention> {
        self.wounds.retain(|_, wound| now <= wound.heals_at(interval));
        let contended = self.wounds.iter().filter(|(_, wound)| wound.is_contended());
        let mut all: Vec<Contention> = contended
            .map(|(id, wound)| {
                let (culprit, culprit_unknown) = match &wound.culprit {
                    Some(CulpritFinding::Named(culprit)) => (Some(culprit.clone()), None),
                    Some(CulpritFinding::Unknown(why)) => (None, Some(*why)),
                    None => (None, None),
                };
                Contention {
                    resource: id.to_string(),
                    since: wound.since,
                    corrections: wound.corrections,
                    wait_secs: wound.not_before(interval).since(wound.last).as_secs(),
                    culprit,
                    culprit_unknown,
                }
            })
            .collect();
        all.sort_by(|a, b| b.since.cmp(&a.since).then_with(|| a.resource.cmp(&b.resource)));
        all
    }

    /// The resources whose culprits are of interest: what was put right twice.
    pub fn wanted_culprits(&self) -> BTreeSet<ResourceId> {
        let repeated = self.wounds.iter().filter(|(_, wound)| wound.corrections >= 2);
        repeated.map(|(id, _)| id.clone()).take(MAX_CONTENTIONS).collect_inserting()
    }

    /// How often everything that is watched was looked at because events were lost.
    pub fn scans(&self) -> u64 {
        self.scans
    }

    /// The clock was set back by so much.
    pub fn set_back(&mut self, back: Duration) {
        let times = self.suspects.values_mut().chain(self.looked.values_mut());
        let wounds = self.wounds.values_mut().flat_map(|wound| [&mut wound.since, &mut wound.last]);
        times.chain(wounds).for_each(|at| *at = at.minus(back));
        self.held_until = self.held_until.map(|at| at.minus(back));
        self.scan.set_back(back);
    }
}

impl Wound {
    fn began(now: Timestamp) -> Wound {
        Wound { since: now, last: now, ..Wound::default() }
    }
}

/// Whether a finding replaces an earlier one: a program says more than a number, and a number more than a
/// reason.
fn says_more(found: &CulpritFinding, known: &CulpritFinding) -> bool {
    match (found, known) {
        (CulpritFinding::Named(found), CulpritFinding::Named(_)) => found.program.is_some(),
        (CulpritFinding::Named(_), CulpritFinding::Unknown(_)) => true,
        (CulpritFinding::Unknown(_), CulpritFinding::Named(_)) => false,
        (CulpritFinding::Unknown(_), CulpritFinding::Unknown(_)) => true,
    }
}
