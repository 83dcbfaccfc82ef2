//! Who may resync or reconnect now: bounds for the whole fleet (SYN-6, SYN-13); how often a source
//! begins anew.

use std::collections::VecDeque;
use std::time::Duration;

use model::Timestamp;

/// The most nodes that resync at once with one control plane.
pub const MAX_RESYNCS: usize = 32;
/// The most nodes that keep their turn while they wait.
pub const MAX_WAITING: usize = 16_384;
/// A node that did not come back for its turn loses it after this.
pub const TURN_KEPT: Duration = Duration::from_secs(120);
/// A permit is taken back after this: the node that had it is gone, or makes no end. A link that
/// holds one goes away a minute before.
pub const PERMIT_KEPT: Duration = Duration::from_secs(600);
/// A source begins its feed's incarnation anew at most once in this: each time costs as much as the feed
/// holds, on the other side's word alone.
pub const REINCARNATION_INTERVAL: Duration = Duration::from_secs(3600);
/// How long a resync is taken to last when a wait is suggested.
const TYPICAL: Duration = Duration::from_millis(500);

/// Fleet-wide permits for resyncs, in the order of requests. `Who` is a node; its one permit is for
/// resyncs in both directions.
#[derive(Debug)]
pub struct ResyncAdmission<Who> {
    most: usize,
    /// Who, since when.
    held: Vec<(Who, Timestamp)>,
    waiting: VecDeque<(Who, Timestamp)>,
}

/// One link's way to the permits for resyncs.
pub trait Permits {
    /// Takes one.
    ///
    /// # Errors
    /// How long to wait before asking again.
    fn take(&self) -> Result<(), Duration>;
    /// Gives it back.
    fn give_back(&self);
}

impl<Who: Clone + PartialEq> ResyncAdmission<Who> {
    /// At most `most` permits at once; at least one.
    pub fn new(most: usize) -> ResyncAdmission<Who> {
        ResyncAdmission { most: most.max(1), held: Vec::new(), waiting: VecDeque::new() }
    }

    /// A node wants a permit. One that holds it already gets it, for no longer than before.
    ///
    /// # Errors
    /// How long to wait before asking again.
    pub fn request(&mut self, who: &Who, now: Timestamp) -> Result<(), Duration> {
        self.held.retain(|(_, since)| now.since(*since) < PERMIT_KEPT);
        if self.held.iter().any(|(other, _)| other == who) {
            return Ok(());
        }
        self.waiting.retain(|(other, at)| other == who || now.since(*at) < TURN_KEPT);
        let position = match self.waiting.iter().position(|(other, _)| other == who) {
            Some(position) => {
                self.waiting[position].1 = now;
                position
            }
            None if self.waiting.len() >= MAX_WAITING => return Err(TURN_KEPT / 2),
            None => {
                self.waiting.push_back((who.clone(), now));
                self.waiting.len() - 1
            }
        };
        if position < self.most.saturating_sub(self.held.len()) {
            self.waiting.remove(position);
            self.held.push((who.clone(), now));
            return Ok(());
        }
        let rounds = position / self.most + 1;
        let wait = TYPICAL.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
        Err(wait.clamp(Duration::from_secs(1), TURN_KEPT / 2))
    }

    /// A permit comes back, or a wish for one is given up.
    pub fn give_back(&mut self, who: &Who) {
        self.held.retain(|(other, _)| other != who);
        self.waiting.retain(|(other, _)| other != who);
    }

    /// Permits held.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Nodes that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// A bound on how often something happens: a bucket of tokens that fills evenly. For
/// reconnect storms: a connection takes a token, or comes back when there will be one.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    per_sec: u32,
    burst: u32,
    /// Tokens, in thousandths.
    filled: u64,
    at: Timestamp,
}

impl RateLimiter {
    /// `per_sec` a second, and as many as `burst` at once after a rest; both at least 1.
    pub fn new(per_sec: u32, burst: u32, now: Timestamp) -> RateLimiter {
        let burst = burst.max(1);
        RateLimiter { per_sec: per_sec.max(1), burst, filled: u64::from(burst) * 1000, at: now }
    }

    /// Takes a token.
    ///
    /// # Errors
    /// How long it takes until there is one, when there is none now.
    pub fn take(&mut self, now: Timestamp) -> Result<(), Duration> {
        let passed = u64::try_from(now.since(self.at).as_millis()).unwrap_or(u64::MAX);
        self.filled = self
            .filled
            .saturating_add(passed.saturating_mul(self.per_sec.into()))
            .min(u64::from(self.burst) * 1000);
        self.at = self.at.max(now);
        if self.filled >= 1000 {
            self.filled -= 1000;
            return Ok(());
        }
        Err(Duration::from_millis((1000 - self.filled).div_ceil(self.per_sec.into())))
    }
}
