//! What a node does of a rollout, as values: [`RolloutPart`] is what is durable of it, [`ActivationRequest`] what the shell
//! activates (ROL-5, ROL-7).

use activation::{ActivationTerms, AfterConfirm, ContactRule, ProbeTopology, ReturnCause};
use lang::Value;
use model::Digest;
use model::policy::Policy;
use model::rollout::RolloutId;
use serde::{Deserialize, Serialize};
use trust::rollout_terms::{ConfirmTerms, OfflineConfirm, OnFailure};

use crate::io::HeldSettings;
use crate::state::{Adoption, LastRun};

/// A rollout whose release the node activates, or has activated while the rollout goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutPart {
    /// The rollout.
    pub rollout: RolloutId,
    /// The number of its release.
    pub seq: u64,
    /// The root of the node's set in it, which is its generation.
    pub root: Digest,
    /// Seconds for which its probes must pass after the activation, by the signed gate of the node's wave.
    pub soak_secs: u64,
    /// What its signed terms say of a halt.
    pub on_failure: OnFailure,
}

/// Which of a process' requests to activate one is: they count from 1, and none was made at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestNumber(u64);

impl RequestNumber {
    /// The one of the request after this.
    #[must_use]
    pub fn next(self) -> RequestNumber {
        RequestNumber(self.0.saturating_add(1))
    }
}

/// A release to be activated: verified, with all its contents here, asked for and acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub struct ActivationRequest {
    /// Which request it is.
    pub number: RequestNumber,
    /// Of which rollout.
    pub part: RolloutPart,
    /// The release.
    pub adoption: Adoption,
    /// What it asks of its own activation.
    pub terms: ActivationTerms,
    /// What says that it works.
    pub probes: ProbeTopology,
}

/// What of a release decides when and how it is activated, read from the node's signed set.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedRelease {
    /// The channel's settings.
    pub policy: Policy,
    /// What the release declares of the node: `groups`, a list of names, and `labels`, a map of texts.
    pub declared: Value,
    /// Why this host returned from it before, where its quarantine holds that.
    pub quarantined: Option<ReturnCause>,
}

/// Where the activation of a release stands, as far as the node's step goes by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrialStage {
    /// Nothing is under way.
    #[default]
    Settled,
    /// A release is switched to, or waits to be confirmed: no other one is taken meanwhile.
    UnderWay,
    /// It waits for a boot.
    WaitsForBoot,
    /// It is confirmed, and its rollout goes on: the host may go back to the generation before.
    OnProbation,
    /// The host goes back: no run begins, and no other release is taken.
    Returning,
}

/// What whoever carries out activations says of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialReport {
    /// Where it stands.
    pub stage: TrialStage,
    /// The newest request that was heard when this was said: what was said before a request says nothing of it.
    pub heard: RequestNumber,
}

/// What the host holds once it is back.
#[derive(Clone, Debug, PartialEq)]
pub struct ReturnedRelease {
    /// The release; nothing where it never held one before.
    pub adoption: Option<Adoption>,
    /// What it settles.
    pub settings: HeldSettings,
    /// The run that brought the host back, as it was written down.
    pub last_run: Option<LastRun>,
}

/// What signed terms ask of an activation.
pub fn activation_terms(confirm: &ConfirmTerms, on_failure: OnFailure) -> ActivationTerms {
    ActivationTerms {
        window: std::time::Duration::from_secs(confirm.window_secs),
        tries: confirm.tries,
        contact: match confirm.offline {
            OfflineConfirm::Return => ContactRule::Required,
            OfflineConfirm::Confirm => ContactRule::ProbesAlone,
        },
        after_confirm: match on_failure {
            OnFailure::Halt => AfterConfirm::Stay,
            OnFailure::Rollback => AfterConfirm::Return,
        },
        ..ActivationTerms::default()
    }
}
