//! [`StreamAdmission`]: of one node, how often links are opened, who of them waits, and whose turn it
//! is (SYN-13, IDN-10).
//!
//! ```text
//! request --enter: rate--> wait: among MAX_WAITING --judging--> lease --> link
//! ```
//!
//! Invariant: of more that wait than there is room for the oldest gives up.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::Timestamp;
use sync::admission::RateLimiter;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Links that one node opens in a second.
const OPENED_PER_SEC: u32 = 1;
/// Links that one node opens at once after a rest.
const OPENED_AT_ONCE: u32 = 30;
/// The most openings of one node that wait for the link before to end: they hold what came.
pub(super) const MAX_WAITING: usize = 2;
/// A feed's incarnation is begun anew at most once in this: each time costs as much as the feed holds.
pub(super) const REINCARNATION_INTERVAL: Duration = Duration::from_secs(3600);

/// Who posted within this holds the node's identity, as one with a link does.
const POSTED_WITHIN: Duration = Duration::from_secs(300);

/// What is known of a node's openings.
pub(crate) struct StreamAdmission {
    known: Mutex<Known>,
    /// Who opens a link is judged one after the other.
    pub(super) judging: tokio::sync::Mutex<()>,
    /// The right of one link to work on the node's sets.
    pub(super) lease: Arc<tokio::sync::Mutex<()>>,
    /// One post of the node is answered at a time.
    pub(super) posting: Arc<tokio::sync::Mutex<()>>,
}

struct Known {
    pace: RateLimiter,
    /// Instances of agents that another took the place of: one that comes back is a second agent.
    replaced: [Option<String>; 2],
    waiting: VecDeque<(u64, oneshot::Sender<()>)>,
    count: u64,
    reincarnated: Option<Instant>,
    /// The instance that posted last, and when.
    posted: Option<(String, Instant)>,
}

impl Known {
    fn replace(&mut self, old: &str) {
        self.replaced = [Some(old.to_owned()), self.replaced[0].take()];
    }
}

impl Default for StreamAdmission {
    fn default() -> StreamAdmission {
        let known = Known {
            pace: RateLimiter::new(OPENED_PER_SEC, OPENED_AT_ONCE, Timestamp(0)),
            replaced: [None, None],
            waiting: VecDeque::new(),
            count: 0,
            reincarnated: None,
            posted: None,
        };
        StreamAdmission {
            known: Mutex::new(known),
            judging: tokio::sync::Mutex::default(),
            lease: Arc::default(),
            posting: Arc::default(),
        }
    }
}

impl StreamAdmission {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place in the line of the node's own openings.
    ///
    /// # Errors
    /// How long to stay away.
    pub(super) fn enter(&self, now: Timestamp) -> Result<(), Duration> {
        self.known().pace.take(now)
    }

    /// Waits for the seat among at most [`MAX_WAITING`]; of more the oldest gives up: the newest
    /// speaks for the node.
    pub(super) fn wait(self: &Arc<Self>) -> Waiting {
        let mut known = self.known();
        known.count += 1;
        let number = known.count;
        let (hold, given_up) = oneshot::channel();
        known.waiting.push_back((number, hold));
        while known.waiting.len() > MAX_WAITING {
            // Dropping its end tells it.
            known.waiting.pop_front();
        }
        drop(known);
        Waiting { admission: self.clone(), number, given_up }
    }

    /// Remembers that one instance of the node's agent took the place of another.
    pub(super) fn replace(&self, old: &str) {
        self.known().replace(old);
    }

    /// Whether this instance was replaced by another one before: a process does not come back.
    pub(super) fn was_replaced(&self, instance: &str) -> bool {
        self.known().replaced.iter().flatten().any(|replaced| replaced == instance)
    }

    /// An instance posts: it takes the place of another one that posted.
    pub(super) fn posts(&self, instance: Option<&str>) {
        let Some(instance) = instance else { return };
        let mut known = self.known();
        let before = known.posted.replace((instance.to_owned(), Instant::now()));
        if let Some((old, _)) = before.filter(|(old, _)| old != instance) {
            known.replace(&old);
        }
    }

    /// Whether somebody posted not long ago.
    pub(super) fn has_recent_post(&self) -> bool {
        self.known().posted.as_ref().is_some_and(|(_, at)| at.elapsed() < POSTED_WITHIN)
    }

    /// How long it is until the feed's incarnation may be begun anew again, if it may not now.
    pub(super) fn reincarnation_allowed_in(&self) -> Option<Duration> {
        let since = self.known().reincarnated?.elapsed();
        REINCARNATION_INTERVAL.checked_sub(since).filter(|left| !left.is_zero())
    }

    /// The feed's incarnation is begun anew now.
    pub(super) fn reincarnates(&self) {
        self.known().reincarnated = Some(Instant::now());
    }
}

/// One opening that waits; dropping it takes it out of the line.
pub(super) struct Waiting {
    admission: Arc<StreamAdmission>,
    number: u64,
    given_up: oneshot::Receiver<()>,
}

impl Waiting {
    /// Ends when newer ones took the place.
    pub(super) async fn given_up(&mut self) {
        // Nobody ever sends; the other end is dropped.
        let _ = (&mut self.given_up).await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.admission.known().waiting.retain(|(number, _)| *number != self.number);
    }
}
