//! Waits between connections (SYN-11, SYN-13).

use std::time::Duration;

use model::Timestamp;

/// The wait after the first failure.
pub const FIRST: Duration = Duration::from_secs(1);
/// The longest wait.
pub const LONGEST: Duration = Duration::from_secs(60);
/// The longest wait that the other side can ask for.
pub const LONGEST_ASKED: Duration = Duration::from_secs(3600);
/// Who was sent away or refused comes back within this after the wait that was asked for: when a
/// control plane starts anew, a whole fleet was sent away at one instant.
pub const BACK_WITHIN: Duration = Duration::from_secs(12);
/// Waits are moved either way by at most this, in percent.
pub const JITTER_PERCENT: u64 = 25;
/// Without a stream for so long, a node polls until it has one again.
pub const POLL_WITHOUT_STREAM: Duration = Duration::from_secs(5 * 60);

/// Waits that double after each failure, from [`FIRST`] to [`LONGEST`], with jitter.
#[derive(Clone, Debug)]
pub struct Backoff {
    failures: u32,
    state: u64,
}

impl Backoff {
    /// Waits spread by this seed: different for each node.
    pub fn new(seed: u64) -> Backoff {
        Backoff { failures: 0, state: seed }
    }

    /// A connection worked: the next failure is the first.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Anything up to [`BACK_WITHIN`].
    fn spread(&mut self) -> Duration {
        let most = u64::try_from(BACK_WITHIN.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.number() % most)
    }

    /// The wait after one more failure; never less than the other side asked for, and never
    /// more than [`LONGEST_ASKED`].
    pub fn failed(&mut self, at_least: Option<Duration>) -> Duration {
        let full = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        let millis = u64::try_from(full.as_millis()).unwrap_or(u64::MAX);
        let reach = millis * JITTER_PERCENT / 100;
        let wait = Duration::from_millis(millis - reach + self.number() % (2 * reach + 1));
        wait.max(at_least.unwrap_or_default().min(LONGEST_ASKED))
    }

    /// splitmix64: spreads waits, not for secrets.
    fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// How a link ended, for who decides when to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEnd {
    /// It broke, or could not be opened: this link alone, as far as it is known.
    Lost,
    /// Nobody was there.
    Unreached,
    /// The other side stops, and so sent all who had a link away.
    SentAway,
    /// The other side refused it, as it may refuse all others now.
    Refused,
}

/// When a side that lost its link comes back.
#[derive(Clone, Debug)]
pub struct ReconnectPolicy {
    backoff: Backoff,
    not_before: Timestamp,
    unreached: bool,
    /// A wait was cut short, and no link worked since.
    hastened: bool,
}

impl ReconnectPolicy {
    /// At once; waits are spread by this seed: different for each node.
    pub fn new(seed: u64) -> ReconnectPolicy {
        ReconnectPolicy {
            backoff: Backoff::new(seed),
            not_before: Timestamp(0),
            unreached: false,
            hastened: false,
        }
    }

    /// No link is to be opened before.
    pub fn not_before(&self) -> Timestamp {
        self.not_before
    }

    /// A link worked: the next failure is the first.
    pub fn worked(&mut self) {
        self.backoff.succeeded();
        (self.unreached, self.hastened) = (false, false);
    }

    /// There is a reason to open a link now.
    pub fn at_once(&mut self, now: Timestamp) {
        self.not_before = now;
    }

    /// A link ended, or could not be opened; the other side asked to stay away so long.
    pub fn ended(&mut self, now: Timestamp, how: LinkEnd, at_least: Option<Duration>) {
        self.unreached = how == LinkEnd::Unreached;
        let wait = match how {
            LinkEnd::Lost | LinkEnd::Unreached => self.backoff.failed(at_least),
            LinkEnd::SentAway => {
                let asked = at_least.unwrap_or_default().min(LONGEST_ASKED - BACK_WITHIN);
                asked + self.backoff.spread()
            }
            LinkEnd::Refused => {
                let wait = self.backoff.failed(at_least).min(LONGEST_ASKED - BACK_WITHIN);
                wait + self.backoff.spread()
            }
        };
        self.not_before = now.plus(wait);
    }

    /// The other side answered elsewhere. If nobody was there before, the wait for that is over,
    /// once until a link works: links may fail where other calls come through. Many may learn it
    /// at one instant, and come one by one.
    pub fn reached(&mut self, now: Timestamp) {
        if std::mem::take(&mut self.unreached) && !std::mem::replace(&mut self.hastened, true) {
            self.not_before = self.not_before.min(now.plus(self.backoff.spread()));
        }
    }
}

/// How long to stay away, as the other side asks for it in seconds, within [`LONGEST_ASKED`].
pub fn asked(seconds: u64) -> u64 {
    seconds.min(LONGEST_ASKED.as_secs())
}

/// When a node without a stream polls next. `lost` is when the last stream ended, or the agent
/// started; `interval` is `reconcile.interval`.
pub fn poll_at(lost: Timestamp, last_poll: Option<Timestamp>, interval: Duration) -> Timestamp {
    let first = lost.plus(POLL_WITHOUT_STREAM);
    last_poll.map_or(first, |at| first.max(at.plus(interval)))
}
