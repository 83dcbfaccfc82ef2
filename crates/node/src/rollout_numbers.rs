//! [`RolloutNumbers`]: the numbers of a node's events in rollouts, which only rise within one incarnation of its log (ROL-5).
//!
//! A number is durable before the event that has it is appended: after a crash in between a number is missing, and
//! none is given twice.

use model::Incarnation;
use model::rollout::RolloutId;
use serde::{Deserialize, Serialize};

/// The most rollouts whose numbers are remembered; the one of which nothing was said for the longest time is forgotten
/// first.
pub const MAX_NUMBERED_ROLLOUTS: usize = 32;

/// The last number of each rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutNumbers {
    incarnation: Option<Incarnation>,
    /// From the one that was counted longest ago.
    rollouts: Vec<LastNumber>,
    /// No rollout that is not remembered begins at or below this.
    #[serde(skip_serializing_if = "is_zero")]
    floor: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LastNumber {
    rollout: RolloutId,
    last: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl RolloutNumbers {
    /// The numbers of a node that no longer knows which it gave: all that follow are above this.
    pub fn above(incarnation: Incarnation, floor: u64) -> RolloutNumbers {
        RolloutNumbers { incarnation: Some(incarnation), rollouts: Vec::new(), floor }
    }

    /// The number of the next event of a rollout. Those of a new incarnation of the log begin at 1.
    pub fn next(&mut self, incarnation: &Incarnation, rollout: &RolloutId) -> u64 {
        if self.incarnation.as_ref() != Some(incarnation) {
            *self = RolloutNumbers { incarnation: Some(incarnation.clone()), ..RolloutNumbers::default() };
        }
        let known = self.rollouts.iter().position(|known| known.rollout == *rollout);
        let last = known.map_or(self.floor, |at| self.rollouts.remove(at).last).saturating_add(1);
        if self.rollouts.len() >= MAX_NUMBERED_ROLLOUTS {
            let forgotten = self.rollouts.remove(0);
            // It may come again.
            self.floor = self.floor.max(forgotten.last);
        }
        self.rollouts.push(LastNumber { rollout: rollout.clone(), last });
        last
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn rollout(number: u64) -> RolloutId {
        format!("stable@{number:x}").parse().unwrap()
    }

    /// ROL-5: no number twice in an incarnation, also of a rollout that was forgotten meanwhile.
    #[test]
    fn numbers_rise_within_an_incarnation() {
        let (first, second): (Incarnation, Incarnation) = ("i1".parse().unwrap(), "i2".parse().unwrap());
        let mut numbers = RolloutNumbers::default();
        assert_eq!([1, 2, 3].map(|_| numbers.next(&first, &rollout(0))), [1, 2, 3]);
        assert_eq!(numbers.next(&first, &rollout(1)), 1, "each rollout has its own");
        for other in 2..100 {
            numbers.next(&first, &rollout(other));
        }
        assert!(numbers.next(&first, &rollout(0)) > 3, "it was forgotten");
        let kept: RolloutNumbers = serde_json::from_slice(&serde_json::to_vec(&numbers).unwrap()).unwrap();
        assert_eq!(kept, numbers);
        assert_eq!(numbers.next(&second, &rollout(0)), 1, "a new incarnation begins at 1");
        let mut lost = RolloutNumbers::above(first.clone(), 1000);
        assert_eq!(lost.next(&first, &rollout(0)), 1001);
    }
}
