//! [`admit_guarded`]: whether a change that can cut the host off may be made now, and on what terms.

use std::fmt;
use std::time::Duration;

use model::health_probe::ProbeTopology;
use model::policy::{GuardPolicy, OfflineGuard};

use super::contact::{ContactHistory, OFFLINE_WINDOW};
use super::held_back::{HeldBackChange, held_back};
use crate::boot::BootMoment;
use crate::generation::{Generation, GenerationId};
use crate::io::ActivationOrder;
use crate::record::{ActivationRecord, ActivationStage};
use crate::terms::{ActivationTerms, ContactRule, MAX_WINDOW, MIN_WINDOW};

/// Whether a watchdog is to take the host back from a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseTrial {
    /// None is: nothing is on trial, or it is confirmed, or it waits for a boot, and until then nobody goes back.
    None,
    /// It is switched to, or the host goes back; also where nobody can tell.
    UnderWay,
    /// It waits for its contact. One that followed a change of now would say nothing of the release, and may come over a
    /// connection of before.
    Confirming,
}

impl ReleaseTrial {
    /// By the record of releases.
    pub fn of(record: &ActivationRecord) -> ReleaseTrial {
        match record.under_way {
            ActivationStage::Settled | ActivationStage::Probation(_) | ActivationStage::Deferred(_) => {
                ReleaseTrial::None
            }
            ActivationStage::Confirming(_) => ReleaseTrial::Confirming,
            ActivationStage::Armed(_) | ActivationStage::Returning(_) => ReleaseTrial::UnderWay,
        }
    }
}

/// All that decides whether a guarded change is made.
#[derive(Clone, Copy, Debug)]
pub struct GuardSituation<'a> {
    /// Where the guard stands; nothing where none is up.
    pub under_way: Option<&'a ActivationStage>,
    /// Whether a release is on trial.
    pub trial: ReleaseTrial,
    /// What is durable of guarded runs before this one.
    pub record: &'a ActivationRecord,
    /// What the change is, by its digest, and of which release.
    pub target: Generation,
    /// How contacts went.
    pub contacts: &'a ContactHistory,
    /// What the channel says.
    pub policy: GuardPolicy,
    /// When.
    pub now: &'a BootMoment,
}

/// What is done about a change that can cut the host off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardAdmission {
    /// It is made in the guard that this run armed.
    Joins,
    /// It is made: the release on trial has a way back.
    GuardedByTrial,
    /// It is made once a guard is armed.
    Arms(Box<GuardOrder>),
    /// It is not made.
    HeldBack(GuardHold),
}

/// A guard to be armed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardOrder {
    /// The record to begin with.
    pub record: ActivationRecord,
    /// What is to be tried.
    pub order: ActivationOrder,
}

/// Why a change is not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardHold {
    /// A contact is to follow the changes before it.
    AwaitsContact,
    /// Changes of before are still to be followed or undone, and this process could not go on with them: what is known of
    /// them would be forgotten for this one.
    NotResumed,
    /// The host undid it, and returns from a release: nothing would undo it once more.
    UndoneBeforeReturn,
    /// The host undid it.
    Undone {
        /// The change.
        change: HeldBackChange,
        /// Until when, for people.
        until: String,
    },
}

impl fmt::Display for GuardHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GuardHold::AwaitsContact => {
                f.write_str("held back until a contact has followed the change before it")
            }
            GuardHold::NotResumed => f.write_str(
                "held back: an earlier guarded change could not be gone on with; restart muster-agent, whose journal says why",
            ),
            GuardHold::UndoneBeforeReturn => {
                f.write_str("held back: this host undid just this change, and returns from a release now")
            }
            GuardHold::Undone { change, until } => write!(f, "held back: {change}; {until}"),
        }
    }
}

/// Decides about a change that can cut the host off; the table is in [the module's documentation](crate::guarded).
pub fn admit_guarded(situation: &GuardSituation<'_>) -> GuardAdmission {
    let GuardSituation { under_way, trial, record, target, contacts, policy, now } = *situation;
    match (under_way, trial) {
        (Some(ActivationStage::Armed(_)), _) => return GuardAdmission::Joins,
        (Some(_), _) => return GuardAdmission::HeldBack(GuardHold::AwaitsContact),
        (None, ReleaseTrial::UnderWay) => return GuardAdmission::GuardedByTrial,
        (None, ReleaseTrial::Confirming) => return GuardAdmission::HeldBack(GuardHold::AwaitsContact),
        (None, ReleaseTrial::None) => {}
    }
    if record.under_way != ActivationStage::Settled {
        return GuardAdmission::HeldBack(GuardHold::NotResumed);
    }
    if let Some(change) = held_back(&record.quarantine, target.id, contacts, now) {
        let until = change.until_text(now.at);
        return GuardAdmission::HeldBack(GuardHold::Undone { change, until });
    }
    let was_kept = record.kept.iter().any(|kept| kept.id == target.id);
    let terms = terms(policy, contacts, was_kept, now);
    // What the host goes back to is the host before the run, whatever was kept before.
    let mut before = ActivationRecord {
        quarantine: record.quarantine.clone(),
        kept: record.kept.clone(),
        ..ActivationRecord::default()
    };
    before.quarantine.grant_try(target.id);
    let order = ActivationOrder { target, terms, probes: ProbeTopology::default() };
    GuardAdmission::Arms(Box::new(GuardOrder { record: before, order }))
}

/// Whether a return from a release may make a change that can cut the host off. It makes what was confirmed, with nothing
/// that would undo it; what this host undid before is left alone.
///
/// # Errors
/// [`GuardHold::UndoneBeforeReturn`].
pub fn admit_in_return(record: &ActivationRecord, change: GenerationId) -> Result<(), GuardHold> {
    match record.quarantine.of(change) {
        Some(_) => Err(GuardHold::UndoneBeforeReturn),
        None => Ok(()),
    }
}

/// Whether a contact must follow, and within what time. Of a host that was offline before, none can be expected: a change
/// that a contact followed once is kept where the agent lives on, and of any other the channel decides.
fn terms(
    policy: GuardPolicy,
    contacts: &ContactHistory,
    was_kept: bool,
    now: &BootMoment,
) -> ActivationTerms {
    let window = Duration::from_secs(policy.window_secs.into()).clamp(MIN_WINDOW, MAX_WINDOW);
    let is_offline = !contacts.is_reached(window, now.at);
    let keeps_offline = was_kept || policy.offline == OfflineGuard::Confirm;
    let (contact, window) = match is_offline && keeps_offline {
        true => (ContactRule::ProbesAlone, window.min(OFFLINE_WINDOW)),
        false => (ContactRule::Required, window),
    };
    ActivationTerms { window, contact, ..ActivationTerms::default() }
}

impl GuardOrder {
    /// What identifies the change.
    pub fn target(&self) -> GenerationId {
        self.order.target.id
    }
}
