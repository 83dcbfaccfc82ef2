//! [`held_back`]: whether a guarded change that was undone may be made again, and when.

use std::fmt;
use std::time::Duration;

use super::contact::ContactHistory;
use crate::boot::{BootMoment, BootTime};
use crate::generation::GenerationId;
use crate::quarantine::{Quarantine, QuarantinedGeneration};
use crate::record::ReturnCause;

/// How long after each return a change that no contact followed is left alone, at least; a contact must have come since in
/// any case. The first return may be the control plane's doing, which was away.
pub const GUARDED_RETRY_WAITS: [Duration; 2] = [Duration::ZERO, Duration::from_secs(6 * 3600)];
/// How often a change that no contact followed is made in all.
pub const MAX_GUARDED_TRIES: u32 = 1 + GUARDED_RETRY_WAITS.len() as u32;

/// Until when a change is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldUntil {
    /// Until the control plane has answered.
    Contact,
    /// Until then, and until the control plane has answered.
    Wait(BootTime),
    /// Until the release or a guarded resource changes: it is another change then.
    Change,
}

/// A change that this host undid and holds back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBackChange {
    /// The change.
    pub id: GenerationId,
    /// The number of its release.
    pub seq: u64,
    /// Why it was undone.
    pub cause: ReturnCause,
    /// How often it was undone.
    pub returns: u32,
    /// Until when.
    pub until: HeldUntil,
}

impl HeldBackChange {
    /// Until when, for people, seen from a time.
    pub fn until_text(&self, now: BootTime) -> String {
        let tried = format!("{} of {MAX_GUARDED_TRIES} tries were made", self.returns);
        match self.until {
            HeldUntil::Contact => {
                format!("it is tried again once the control plane has answered ({tried})")
            }
            HeldUntil::Wait(at) => {
                let minutes = at.since(now).as_secs().div_ceil(60);
                format!("it is tried again in {minutes} min, after a contact ({tried})")
            }
            HeldUntil::Change => {
                "it is tried again once the release or a guarded resource changes".to_owned()
            }
        }
    }
}

impl fmt::Display for HeldBackChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this host undid just this change, as {}", guarded_cause(&self.cause))
    }
}

/// Why the host undid a guarded run, for people.
pub fn guarded_cause(cause: &ReturnCause) -> String {
    match cause {
        ReturnCause::NotConfirmed => {
            "no contact with the control plane followed within the window".to_owned()
        }
        ReturnCause::SwitchTooLong => "the run did not end in its time".to_owned(),
        ReturnCause::SwitchFailed { reason } => reason.clone(),
        ReturnCause::Rebooted => "the host went down before a contact followed".to_owned(),
        ReturnCause::AgentDied { .. } => "the agent died before a contact followed".to_owned(),
        cause => cause.to_string(),
    }
}

/// Why a change is held back; nothing where it may be made.
pub fn held_back(
    quarantine: &Quarantine,
    id: GenerationId,
    contacts: &ContactHistory,
    now: &BootMoment,
) -> Option<HeldBackChange> {
    let known = quarantine.of(id)?;
    let until = until(known, contacts, now)?;
    let QuarantinedGeneration { id, seq, cause, returns, .. } = known;
    Some(HeldBackChange { id: *id, seq: *seq, cause: cause.clone(), returns: *returns, until })
}

/// All changes that are held back, the newest last.
pub fn what_is_held(
    quarantine: &Quarantine,
    contacts: &ContactHistory,
    now: &BootMoment,
) -> Vec<HeldBackChange> {
    quarantine.all().iter().filter_map(|known| held_back(quarantine, known.id, contacts, now)).collect()
}

fn until(known: &QuarantinedGeneration, contacts: &ContactHistory, now: &BootMoment) -> Option<HeldUntil> {
    // What failed by itself, or ended the agent, fails again.
    if known.cause != ReturnCause::NotConfirmed {
        return Some(HeldUntil::Change);
    }
    let step = usize::try_from(known.returns.saturating_sub(1)).unwrap_or(usize::MAX);
    let Some(wait) = GUARDED_RETRY_WAITS.get(step) else { return Some(HeldUntil::Change) };
    // What an earlier agent undid has no time; of a boot before, it is counted from this one.
    let (returned, is_answered) = match &known.returned {
        Some(returned) => {
            let at = if returned.boot == now.boot { returned.at } else { BootTime::BOOT };
            (at, contacts.is_answered_since(returned, now))
        }
        None => (BootTime::BOOT, true),
    };
    let again = returned.plus(*wait);
    match (again > now.at, is_answered && contacts.is_last_answered()) {
        (true, _) => Some(HeldUntil::Wait(again)),
        (false, false) => Some(HeldUntil::Contact),
        (false, true) => None,
    }
}
