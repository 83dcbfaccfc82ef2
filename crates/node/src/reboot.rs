//! [`Reboots`]: whether and when the host reboots because something on it requires that (CNV-12).
//!
//! ```text
//! traits say that it is required, the channel has a window for it
//!   -> the host's own time in the window, nothing under way -> NodeEffect::Reboot(mark)
//!        the host goes down, and comes back under another boot id
//!        RebootFailed, or it does not go down: again after a while, MAX_REBOOT_TRIES times in one window
//! ```
//!
//! Invariants: a channel without a window reboots nothing, and what only observes is not rebooted; the mark
//! is durable before the host goes down; whatever asks for it again, a host reboots at most once while its
//! window is open; nothing reboots by a clock that is known to be wrong.

use std::fmt;
use std::time::Duration;

use model::exchange::TraitReport;
use model::log::FactBody;
use model::policy::RebootPolicy;
use model::window::TimeWindow;
use model::{Digest, Hostname, Timestamp};
use serde::{Deserialize, Serialize};

/// Over how much of a window's beginning the hosts spread that reboot in it; at most over its first half.
pub const REBOOT_SPREAD: Duration = Duration::from_secs(30 * 60);
/// How soon after a failure the next try follows.
pub const REBOOT_RETRY: Duration = Duration::from_secs(5 * 60);
/// How often a reboot is tried while a window is open once.
pub const MAX_REBOOT_TRIES: u32 = 3;
/// After so long a host that was told to go down is taken not to do so. Nothing is begun meanwhile.
pub const GOES_DOWN_WITHIN: Duration = Duration::from_secs(10 * 60);
/// A host whose clock differs from the control plane's by more is not rebooted.
pub const MAX_REBOOT_CLOCK_DIFFERENCE: Duration = Duration::from_secs(5 * 60);
/// After so long a mark of a time to come is taken for that of a clock that was ahead. Before, this clock
/// may be the one that is wrong: a host without a clock of its own starts long ago.
pub const FUTURE_MARK_COUNTS_FOR: Duration = Duration::from_secs(24 * 3600);
/// The most packages, a newer kernel among them, that the reason names.
const MAX_NAMED: usize = 10;

/// A reboot that was ordered: durable before the host goes down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebootMark {
    /// When.
    pub at: Timestamp,
    /// What asked for it.
    pub reason: String,
    /// The window's name.
    pub window: String,
}

impl RebootMark {
    /// What the control plane hears of it.
    pub fn fact(&self) -> FactBody {
        FactBody::Rebooting { reason: self.reason.clone(), window: self.window.clone() }
    }
}

/// How a reboot that is required stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebootOutlook {
    /// Since when the agent knows, counted from its start.
    pub since: Timestamp,
    /// What asks for it.
    pub reason: String,
    /// What becomes of it.
    pub plan: RebootPlan,
    /// The last one that the agent made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<RebootMark>,
}

/// What becomes of a reboot that is required.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum RebootPlan {
    /// The channel has no window for it: somebody reboots the host by hand.
    ByHand,
    /// The node only observes: somebody reboots the host by hand.
    OnlyObserves,
    /// The host's clock is behind what it has verified, or differs from the control plane's by more than
    /// [`MAX_REBOOT_CLOCK_DIFFERENCE`].
    ClockWrong,
    /// The host is paused.
    Paused,
    /// It is made then, or as soon as what is under way has ended.
    Due {
        /// When.
        at: Timestamp,
        /// The window's name.
        window: String,
    },
    /// The host was told to go down.
    GoesDown {
        /// When.
        since: Timestamp,
    },
    /// The window cannot be read, or does not open any more.
    NeverOpens {
        /// The window's name.
        window: String,
    },
}

impl fmt::Display for RebootPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RebootPlan::ByHand => write!(f, "no window is declared: reboot by hand"),
            RebootPlan::OnlyObserves => write!(f, "the node only observes: reboot by hand"),
            RebootPlan::ClockWrong => write!(f, "not while the host's clock is wrong"),
            RebootPlan::Paused => write!(f, "not while the host is paused"),
            RebootPlan::Due { at, window } => write!(f, "due at {at} in the window {window}"),
            RebootPlan::GoesDown { since } => write!(f, "the host goes down, told at {since}"),
            RebootPlan::NeverOpens { window } => write!(f, "the window {window} does not open"),
        }
    }
}

/// What keeps a reboot from being made, whatever its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RebootHold {
    OnlyObserves,
    ClockWrong,
    Paused,
}

/// What requires a reboot.
#[derive(Clone, Debug)]
struct Requirement {
    since: Timestamp,
    /// A newer kernel, and the packages that ask for it.
    asking: Vec<String>,
}

/// Whether and when the host reboots.
#[derive(Debug)]
pub(crate) struct Reboots {
    required: Option<Requirement>,
    last: Option<RebootMark>,
    /// When the agent started.
    started: Timestamp,
    /// Not before the window opens anew after this.
    done_at: Option<Timestamp>,
    ordered: Option<Timestamp>,
    failures: u32,
    retry_at: Option<Timestamp>,
    /// What spreads the hosts over the window's beginning: a number of this host.
    spread_key: u64,
}

impl Reboots {
    pub(crate) fn new(hostname: &Hostname, last: Option<RebootMark>, now: Timestamp) -> Reboots {
        let [a, b, c, d, ..] = Digest::of(hostname.as_str().as_bytes()).0;
        Reboots {
            required: None,
            started: now,
            done_at: last.as_ref().map(|mark| mark.at),
            last,
            ordered: None,
            failures: 0,
            retry_at: None,
            spread_key: u32::from_le_bytes([a, b, c, d]).into(),
        }
    }

    /// Takes up what the host shows; whether it is news that a reboot is required.
    pub(crate) fn observed(&mut self, traits: &TraitReport, now: Timestamp) -> bool {
        let Some(kernel) = traits.values.get("kernel") else { return false };
        let is_required = kernel.get("reboot_required").and_then(|value| value.as_bool()) == Some(true);
        let before = self.required.take();
        if !is_required {
            return false;
        }
        let newer =
            kernel.get("newer").and_then(|value| value.as_str()).filter(|release| !release.is_empty());
        let newer = newer.map(|release| format!("the newer kernel {release}"));
        let packages = kernel.get("reboot_packages").and_then(|value| value.as_array());
        let packages = packages.into_iter().flatten().filter_map(|name| name.as_str()).map(str::to_owned);
        let is_new = before.is_none();
        let since = before.map_or(now, |before| before.since);
        self.required = Some(Requirement { since, asking: newer.into_iter().chain(packages).collect() });
        is_new
    }

    pub(crate) fn set_back(&mut self, back: Duration) {
        let times = [&mut self.done_at, &mut self.ordered, &mut self.retry_at];
        for at in times.into_iter().flatten().chain([&mut self.started]) {
            *at = at.minus(back);
        }
        if let Some(required) = &mut self.required {
            required.since = required.since.minus(back);
        }
    }

    /// The host was told to go down, so nothing is begun.
    pub(crate) fn goes_down(&self) -> bool {
        self.ordered.is_some()
    }

    /// When a host that was told to go down is taken not to do so.
    pub(crate) fn patience_ends(&self) -> Option<Timestamp> {
        self.ordered.map(|at| at.plus(GOES_DOWN_WITHIN))
    }

    /// When the host is to reboot, seen from `now`: then, or later. `None`: it is not, or by hand.
    pub(crate) fn due(&self, policy: Option<&RebootPolicy>, now: Timestamp) -> Option<Timestamp> {
        let (_, policy) = (self.required.as_ref()?, policy?);
        if self.goes_down() {
            return None;
        }
        let window = TimeWindow::read(&policy.window).ok()?;
        let anew = match self.done_at {
            Some(at) if at > now => {
                let opens = window.next_start(at.plus(Duration::from_millis(1)));
                let forgotten = self.started.plus(FUTURE_MARK_COUNTS_FOR);
                opens.map_or(forgotten, |opens| opens.min(forgotten))
            }
            Some(at) => window.next_start(at.plus(Duration::from_millis(1)))?,
            None => now,
        };
        let earliest = now.max(anew).max(self.retry_at.unwrap_or(now));
        let offset = self.offset(&window);
        if !window.contains(earliest) {
            return Some(window.next_start(earliest)?.plus(offset));
        }
        // Where the clocks were set back meanwhile nobody can say when it opened: at once.
        let own_time = window.opened(earliest).map_or(earliest, |opened| opened.plus(offset));
        Some(earliest.max(own_time))
    }

    /// How far into a window the host's own time lies.
    fn offset(&self, window: &TimeWindow) -> Duration {
        let spread = REBOOT_SPREAD.min(window.length() / 2);
        Duration::from_secs(self.spread_key % spread.as_secs().max(1))
    }

    /// The reboot begins, once its mark is durable.
    pub(crate) fn order(&mut self, policy: &RebootPolicy, now: Timestamp) -> RebootMark {
        let mark = RebootMark { at: now, reason: self.reason(), window: policy.name.clone() };
        (self.ordered, self.done_at) = (Some(now), Some(now));
        self.last = Some(mark.clone());
        mark
    }

    /// It was not made; whether another try follows while the window is open.
    pub(crate) fn failed(&mut self, now: Timestamp) -> bool {
        if self.ordered.take().is_none() {
            return false;
        }
        self.failures += 1;
        let again = self.failures < MAX_REBOOT_TRIES;
        self.retry_at = again.then(|| now.plus(REBOOT_RETRY));
        self.done_at = (!again).then_some(now);
        if !again {
            self.failures = 0;
        }
        again
    }

    pub(crate) fn outlook(
        &self,
        policy: Option<&RebootPolicy>,
        hold: Option<RebootHold>,
        now: Timestamp,
    ) -> Option<RebootOutlook> {
        let required = self.required.as_ref()?;
        let plan = match (self.ordered, policy, hold) {
            (Some(since), _, _) => RebootPlan::GoesDown { since },
            (None, None, _) => RebootPlan::ByHand,
            (None, Some(_), Some(RebootHold::OnlyObserves)) => RebootPlan::OnlyObserves,
            (None, Some(_), Some(RebootHold::ClockWrong)) => RebootPlan::ClockWrong,
            (None, Some(_), Some(RebootHold::Paused)) => RebootPlan::Paused,
            (None, Some(declared), None) => match self.due(policy, now) {
                Some(at) => RebootPlan::Due { at, window: declared.name.clone() },
                None => RebootPlan::NeverOpens { window: declared.name.clone() },
            },
        };
        Some(RebootOutlook { since: required.since, reason: self.reason(), plan, last: self.last.clone() })
    }

    fn reason(&self) -> String {
        let asking = self.required.as_ref().map(|required| &*required.asking).unwrap_or_default();
        if asking.is_empty() {
            return "a package that left no name".to_owned();
        }
        let named: Vec<&str> = asking.iter().take(MAX_NAMED).map(String::as_str).collect();
        match asking.len().saturating_sub(MAX_NAMED) {
            0 => named.join(", "),
            more => format!("{} and {more} more", named.join(", ")),
        }
    }
}
