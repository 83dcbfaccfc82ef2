//! [`ActivationView`]: how an activation stands, for people at the host.

use activation::{ActivationRecord, ActivationStage, BootTime};
use serde::{Deserialize, Serialize};

/// How an activation stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActivationView {
    /// The release that it is of.
    pub release: u64,
    /// The release that the host is on, or goes back to; 0 for the host as it was found.
    pub confirmed: u64,
    /// In words.
    pub text: String,
}

impl ActivationView {
    /// As a record has it; nothing while nothing is under way.
    pub(crate) fn of(record: &ActivationRecord, now: BootTime) -> Option<ActivationView> {
        let confirmed = record.confirmed.seq;
        let back = match confirmed {
            0 => "to the host as it was found".to_owned(),
            release => format!("to release {release}"),
        };
        let (release, text) = match &record.under_way {
            ActivationStage::Settled => return None,
            ActivationStage::Armed(trial) => {
                (trial.target.seq, format!("is switched to; where that fails this host goes back {back}"))
            }
            ActivationStage::Confirming(trial) => {
                let left = trial.deadline.since(now).as_secs();
                let text =
                    format!("is on trial: what is not confirmed within {left} s takes this host back {back}");
                (trial.target.seq, text)
            }
            ActivationStage::Deferred(trial) => {
                (trial.target.seq, "takes effect at the next boot".to_owned())
            }
            ActivationStage::Probation(probation) => (
                confirmed,
                format!("is confirmed, and its rollout goes on; release {} is kept", probation.previous.seq),
            ),
            ActivationStage::Returning(returning) => {
                (returning.from.seq, format!("is left, as {}: this host goes back {back}", returning.cause))
            }
        };
        Some(ActivationView { release, confirmed, text })
    }
}
