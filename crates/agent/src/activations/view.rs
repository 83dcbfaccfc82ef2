//! [`ActivationView`]: how an activation stands, for people at the host.

use std::fmt;

use activation::{ActivationRecord, ActivationStage, BootMoment, EndedReturn};
use model::Timestamp;
use model::text::one_line;
use model::time::when;
use serde::{Deserialize, Serialize};

use crate::clock::now;

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
    /// When the host was back, of a return that ended in this boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

impl ActivationView {
    /// As a record has it; nothing while nothing is under way, and the host did not go back since something was confirmed.
    pub(crate) fn of(record: &ActivationRecord, now: &BootMoment) -> Option<ActivationView> {
        let confirmed = record.confirmed.seq;
        let back = match confirmed {
            0 => "to the host as it was found".to_owned(),
            release => format!("to release {release}"),
        };
        let (release, text) = match &record.under_way {
            ActivationStage::Settled => {
                let ended = record.returned.as_ref()?;
                (ended.from.seq, left(ended, record, now))
            }
            ActivationStage::Armed(trial) => {
                (trial.target.seq, format!("is switched to; where that fails this host goes back {back}"))
            }
            ActivationStage::Confirming(trial) => {
                let left = trial.deadline.since(now.at).as_secs();
                let text =
                    format!("is on trial: what is not confirmed within {left} s takes this host back {back}");
                (trial.target.seq, text)
            }
            ActivationStage::Deferred(trial) => {
                (trial.target.seq, "takes effect at the next boot".to_owned())
            }
            ActivationStage::Probation(probation) => (
                confirmed,
                format!(
                    "is confirmed; release {} is kept until its rollout is through",
                    probation.previous.seq
                ),
            ),
            ActivationStage::Returning(returning) => {
                (returning.from.seq, format!("is left, as {}: this host goes back {back}", returning.cause))
            }
        };
        let ended = record.returned.as_ref().filter(|_| record.under_way == ActivationStage::Settled);
        let ended = ended.filter(|ended| ended.at.boot == now.boot);
        let at = ended.map(|ended| crate::clock::now().minus(now.at.since(ended.at.at)));
        Some(ActivationView { release, confirmed, text, at })
    }
}

impl fmt::Display for ActivationView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "release {} {}", self.release, one_line(&self.text))?;
        match self.at {
            Some(at) => write!(f, "; since {}", when(at, now())),
            None => Ok(()),
        }
    }
}

/// What is said of a return that ended.
fn left(ended: &EndedReturn, record: &ActivationRecord, now: &BootMoment) -> String {
    let EndedReturn { from, cause, at } = ended;
    let when = if at.boot == now.boot { "" } else { " before the last boot" };
    let confirmed = match record.confirmed.seq {
        0 => "as it was found".to_owned(),
        release => format!("on release {release}"),
    };
    let held_back = match record.quarantine.of(from.id) {
        Some(_) => ", and holds that back until a release gives it another content",
        None => "",
    };
    format!("was left{when}, as {cause}; this host is {confirmed}{held_back}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use activation::{
        Activation, ActivationInput, ActivationOrder, ActivationProcess, ActivationTerms, BootTime,
        FoundHost, Generation, GenerationId, GenerationLimits, ProbeTopology, SwitchEnd,
    };
    use model::Digest;

    use super::*;

    fn at(boot: &str, secs: u64) -> BootMoment {
        BootMoment { boot: boot.parse().unwrap(), at: BootTime::after_boot(Duration::from_secs(secs)) }
    }

    fn generation(seq: u64) -> Generation {
        Generation { id: GenerationId(Digest::of(&seq.to_be_bytes())), seq, bytes: 1 }
    }

    /// ROL-7: which release was left, why, when, and that it is not taken again.
    #[test]
    fn a_settled_return_is_told() {
        let record = ActivationRecord { confirmed: generation(41), ..ActivationRecord::default() };
        assert_eq!(ActivationView::of(&record, &at("b1", 0)), None);
        let found = FoundHost { process: ActivationProcess::Agent, runs: Some(generation(41).id) };
        let mut host = Activation::start(record, GenerationLimits::default(), found, &at("b1", 0)).0;
        let (terms, probes) = (ActivationTerms::default(), ProbeTopology::default());
        let order = ActivationOrder { target: generation(42), terms, probes };
        host.handle(ActivationInput::Activate(Box::new(order)), at("b1", 0).at);
        let end = SwitchEnd::Failed { reason: "web.service failed".to_owned() };
        host.handle(ActivationInput::Switched { target: generation(42).id, end }, at("b1", 60).at);
        host.handle(ActivationInput::Returned, at("b1", 100).at);
        let text = |now: &BootMoment| ActivationView::of(host.record(), now).unwrap().text;
        assert_eq!(
            text(&at("b1", 400)),
            "was left, as the switch failed: web.service failed; this host is on release 41, and holds that back until a \
             release gives it another content"
        );
        let since = ActivationView::of(host.record(), &at("b1", 400)).unwrap().at.unwrap();
        let ago = crate::clock::now().since(since);
        assert!((299..360).contains(&ago.as_secs()), "{ago:?}");
        assert!(text(&at("b2", 1)).starts_with("was left before the last boot, as "));
        assert_eq!(ActivationView::of(host.record(), &at("b2", 1)).unwrap().at, None);
    }
}
