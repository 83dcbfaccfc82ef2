//! Chance: everything random in a simulation comes from here, so from its seed.

use std::time::Duration;

use node::backoff::Spread;

/// A seeded source of choices.
pub(crate) struct Chance(Spread);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(Spread::new(seed))
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0.number()
    }

    /// A number below `limit`, which is not zero.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.0.number() % limit as u64) as usize
    }

    pub(crate) fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    pub(crate) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        least + self.0.up_to(most - least)
    }

    pub(crate) fn secs(&mut self, least: u64, most: u64) -> Duration {
        self.between(Duration::from_secs(least), Duration::from_secs(most))
    }
}
