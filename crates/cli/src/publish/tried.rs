//! What is said of content that is published already, and that did not reach its nodes.

use model::Channel;
use rollout::RolloutState;
use server::api::rollouts::{ROLLOUTS, RolloutHistory, RolloutView};

use crate::next_step::muster;
use crate::operator::{Operator, OperatorCallError};

/// The most rollouts that are asked for: a release has one for each channel.
const ASKED: usize = 100;

/// That the rollouts of the newest release halted or went back, and how its content is tried once more; nothing where none did.
pub(crate) async fn in_vain(operator: &Operator, seq: u64) -> Result<Option<String>, OperatorCallError> {
    let request = RolloutHistory { channel: None, before: Some(seq.saturating_add(1)), limit: ASKED.into() };
    let rollouts = operator.call(&ROLLOUTS, request).await?;
    Ok(said(rollouts.iter().filter(|rollout| rollout.seq == seq)))
}

fn said<'r>(rollouts: impl Iterator<Item = &'r RolloutView>) -> Option<String> {
    let ended =
        rollouts.filter(|rollout| matches!(rollout.state, RolloutState::Failed | RolloutState::Reverted));
    let channels: Vec<&RolloutView> = ended.collect();
    let first = channels.first()?;
    let names: Vec<&str> = channels.iter().map(|rollout| Channel::as_str(&rollout.channel)).collect();
    let (channels, seq, state) = (names.join(", "), first.seq, first.state.words());
    Some(format!(
        "note: the rollout of release {seq} in {channels} is {state} ({}). A host that went back from this content by itself \
         (a probe, the switch or the agent failed) refuses it again, until something of it differs; to have the same \
         content tried once more by the others, publish it under another label: {}",
        muster(&format!("rollout show {}", first.id)),
        muster("publish --repo DIR --ref LABEL")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ROL-1: who publishes what went back once more hears how it is tried again; of what is under way nothing is said.
    #[test]
    fn what_went_back_is_told_with_the_way_to_try_it_again() -> Result<(), Box<dyn std::error::Error>> {
        let view = |state: &str| {
            let at = model::Timestamp(0);
            serde_json::from_value::<RolloutView>(serde_json::json!({
                "id": "stable@4f1c2a9", "channel": "stable", "seq": 5, "published": at, "state": state, "since": at,
            }))
        };
        let back = said([view("Reverted")?].iter()).unwrap_or_default();
        assert!(back.starts_with("note: the rollout of release 5 in stable is back"), "{back}");
        assert!(back.contains(
            "went back from this content by itself (a probe, the switch or the agent failed) refuses it again"
        ));
        assert!(back.ends_with("under another label: muster publish --repo DIR --ref LABEL"), "{back}");
        assert_eq!(said([view("Active")?, view("Terminal")?].iter()), None);
        Ok(())
    }
}
