//! [`GuardView`]: how a guarded run stands, for people at the host.

use std::fmt;

use activation::guarded::{ContactHistory, HeldBackChange, guarded_cause, what_is_held};
use activation::{ActivationRecord, ActivationStage, BootTime};
use converge::ResourceId;
use model::text::one_line;
use serde::{Deserialize, Serialize};
use spool::{Disk, PeekedFile, StateFile};

use super::{CHANGES_FILE, GuardedChanges, MODE, RunGuard, locked};
use crate::generations::{GenerationFiles, boot_moment};
use crate::machine::MachineOptions;

/// How guarded runs stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardView {
    /// Changes that a contact is to follow, or that are being undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitingGuardView>,
    /// What the last run held back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<HeldBackView>,
}

/// Changes that a contact is to follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingGuardView {
    /// The release.
    pub release: u64,
    /// The resources; of a guard that goes on after damage, those that are known.
    pub resources: Vec<ResourceId>,
    /// In words.
    pub text: String,
}

/// What is not made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldBackView {
    /// The resources.
    pub resources: Vec<ResourceId>,
    /// Why, and until when, in words.
    pub text: String,
}

impl GuardView {
    /// There is nothing to say.
    pub fn is_empty(&self) -> bool {
        *self == GuardView::default()
    }

    /// As the state directory has it, for a host whose agent gives no answer. Which resources are held back is not there.
    pub(crate) fn on_disk(options: &MachineOptions) -> GuardView {
        let (state, disk) = (options.state_dir(), Disk::new());
        let record = GenerationFiles::of(options, &disk).guards().peek();
        let (Ok(PeekedFile::Value(record)), Ok(now)) = (record, boot_moment()) else {
            return GuardView::default();
        };
        let changes: StateFile<GuardedChanges> = StateFile::new(&disk, state.join(CHANGES_FILE), MODE);
        let resources = match changes.peek() {
            Ok(PeekedFile::Value(changes)) => changes.resources(),
            Ok(PeekedFile::Absent | PeekedFile::Damaged) | Err(_) => Vec::new(),
        };
        let waiting =
            stands(&record, now.at).map(|(release, text)| WaitingGuardView { release, resources, text });
        let held = what_is_held(&record.quarantine, &ContactHistory::default(), &now);
        let held_back = held.last().map(|change| HeldBackView {
            resources: Vec::new(),
            text: format!("what release {} changed: {}", change.seq, held_text(change, now.at)),
        });
        GuardView { waiting, held_back }
    }

    /// What is to be said of one resource.
    pub fn of(&self, resource: &ResourceId) -> Option<String> {
        let waiting = self.waiting.as_ref().filter(|waiting| waiting.resources.contains(resource));
        let held_back = self.held_back.as_ref().filter(|held| held.resources.contains(resource));
        waiting.map(|waiting| waiting.text.clone()).or(held_back.map(|held| held.text.clone()))
    }
}

/// The lines of `muster-agent status`.
impl fmt::Display for GuardView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(waiting) = &self.waiting {
            let resources = names(&waiting.resources);
            let text = one_line(&waiting.text);
            writeln!(f, "GUARDED        {resources} of release {}: {text}", waiting.release)?;
        }
        if let Some(held) = &self.held_back {
            writeln!(f, "HELD BACK      {}: {}", names(&held.resources), one_line(&held.text))?;
        }
        Ok(())
    }
}

/// The most resources that a line names.
const MAX_NAMED: usize = 5;

/// Resources, for people.
pub(crate) fn names(resources: &[ResourceId]) -> String {
    if resources.is_empty() {
        return "what is guarded".to_owned();
    }
    let named: Vec<&str> = resources.iter().take(MAX_NAMED).map(ResourceId::as_str).collect();
    match resources.len().saturating_sub(MAX_NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

impl RunGuard {
    /// How guarded runs stand. It waits for a change that is being undone.
    pub fn view(&self) -> GuardView {
        let Ok(now) = boot_moment() else { return GuardView::default() };
        let waiting = self.live().as_ref().and_then(|guard| {
            let (release, text) = stands(guard.guard.record(), now.at)?;
            Some(WaitingGuardView { release, resources: guard.changes.resources(), text })
        });
        let withheld = locked(&self.withheld);
        let held_back = (!withheld.resources.is_empty()).then(|| HeldBackView {
            resources: withheld.resources.iter().cloned().collect(),
            text: match &withheld.change {
                Some(change) => held_text(change, now.at),
                None => "held back until a contact has followed the change before it".to_owned(),
            },
        });
        GuardView { waiting, held_back }
    }
}

fn held_text(change: &HeldBackChange, now: BootTime) -> String {
    format!("{change}; {}", change.until_text(now))
}

/// The release, and how a guarded run of it stands in words; nothing where nothing is under way.
pub(super) fn stands(record: &ActivationRecord, now: BootTime) -> Option<(u64, String)> {
    Some(match &record.under_way {
        ActivationStage::Settled | ActivationStage::Probation(_) => return None,
        ActivationStage::Armed(trial) | ActivationStage::Deferred(trial) => {
            (trial.target.seq, "is made; a contact with the control plane is to follow".to_owned())
        }
        ActivationStage::Confirming(trial) => {
            let left = trial.deadline.since(now).as_secs();
            let text = match trial.terms.contact {
                activation::ContactRule::Required => {
                    format!("is undone unless the control plane is reached within {left} s")
                }
                activation::ContactRule::ProbesAlone => format!(
                    "is kept in {left} s, where the agent lives on: this host had no contact before it"
                ),
            };
            (trial.target.seq, text)
        }
        ActivationStage::Returning(back) => {
            (back.from.seq, format!("is being undone, as {}", guarded_cause(&back.cause)))
        }
    })
}
