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
//! window is open; nothing reboots by a clock that is known to be wrong, or that was not compared with the
//! control plane's since the agent started.

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
    /// The boot that it ended, as the kernel names it; empty where that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot: String,
    /// The newer kernel that asked for it, or the one before that the host did not come up with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
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
    /// The control plane has not answered since the agent started, so nobody knows whether the clock is right.
    ClockNotCompared,
    /// The host was rebooted for this kernel, and came up with another one.
    NotAgain,
    /// The host is paused.
    Paused,
    /// A contact is to follow a change that can cut the host off: the boot would undo it (CNV-11).
    AwaitsContact,
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
            RebootPlan::ClockNotCompared => {
                write!(f, "not before the control plane answers, by whose clock this host's is judged")
            }
            RebootPlan::NotAgain => {
                write!(f, "the host was rebooted for it and came up with another kernel: see the boot loader")
            }
            RebootPlan::Paused => write!(f, "not while the host is paused"),
            RebootPlan::AwaitsContact => {
                write!(f, "not before a contact has followed a change that can cut this host off")
            }
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
    ClockNotCompared,
    Paused,
    AwaitsContact,
}

/// What requires a reboot.
#[derive(Clone, Debug)]
struct Requirement {
    since: Timestamp,
    /// A newer kernel that asks for it.
    kernel: Option<String>,
    /// The packages that ask for it.
    packages: Vec<String>,
}

/// Whether and when the host reboots.
#[derive(Debug)]
pub(crate) struct Reboots {
    required: Option<Requirement>,
    last: Option<RebootMark>,
    /// The boot that this is, as the kernel names it, and when it was.
    boot: String,
    booted: Timestamp,
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
            boot: String::new(),
            booted: now,
            done_at: last.as_ref().map(|mark| mark.at),
            last,
            ordered: None,
            failures: 0,
            retry_at: None,
            spread_key: u32::from_le_bytes([a, b, c, d]).into(),
        }
    }

    /// The last reboot that was ordered.
    pub(crate) fn last(&self) -> Option<&RebootMark> {
        self.last.as_ref()
    }

    /// Takes up what the host shows; whether it is news that a reboot is required.
    pub(crate) fn observed(&mut self, traits: &TraitReport, now: Timestamp) -> bool {
        self.observe_boot(traits, now);
        let Some(kernel) = traits.values.get("kernel") else { return false };
        let is_required = kernel.get("reboot_required").and_then(|value| value.as_bool()) == Some(true);
        let before = self.required.take();
        if !is_required {
            return false;
        }
        let newer =
            kernel.get("newer").and_then(|value| value.as_str()).filter(|release| !release.is_empty());
        let newer = newer.map(str::to_owned);
        let packages = kernel.get("reboot_packages").and_then(|value| value.as_array());
        let packages = packages.into_iter().flatten().filter_map(|name| name.as_str()).map(str::to_owned);
        let is_new = before.is_none();
        let since = before.map_or(now, |before| before.since);
        self.required = Some(Requirement { since, kernel: newer, packages: packages.collect() });
        is_new
    }

    /// The mark, to be made durable anew, where the host came up with the kernel that it was rebooted for: who
    /// boots another one by hand later does not make that one passed over.
    pub(crate) fn came_up(&mut self, traits: &TraitReport) -> Option<RebootMark> {
        let running = traits.values.get("kernel").and_then(|kernel| kernel.get("release")?.as_str());
        let last = self.last.as_mut().filter(|last| last.boot != self.boot)?;
        last.kernel.take_if(|kernel| Some(kernel.as_str()) == running)?;
        Some(last.clone())
    }

    fn observe_boot(&mut self, traits: &TraitReport, now: Timestamp) {
        let Some(uptime) = traits.values.get("uptime") else { return };
        if let Some(seconds) = uptime.get("seconds").and_then(|value| value.as_u64()) {
            self.booted = now.minus(Duration::from_secs(seconds));
        }
        if let Some(boot) = uptime.get("boot_id").and_then(|value| value.as_str()) {
            self.boot = boot.to_owned();
        }
    }

    /// The kernel for which the host was rebooted and that it did not come up with, if it still asks.
    fn passed_over(&self) -> Option<&str> {
        let last = self.last.as_ref().filter(|last| last.boot != self.boot)?;
        last.kernel.as_deref()
    }

    /// Nothing asks but a kernel that another reboot would not bring either.
    fn is_in_vain(&self, required: &Requirement) -> bool {
        required.packages.is_empty()
            && required.kernel.is_some()
            && required.kernel.as_deref() == self.passed_over()
    }

    pub(crate) fn set_back(&mut self, back: Duration) {
        let times = [&mut self.done_at, &mut self.ordered, &mut self.retry_at];
        for at in times.into_iter().flatten().chain([&mut self.booted]) {
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
        let (required, policy) = (self.required.as_ref()?, policy?);
        if self.goes_down() || self.is_in_vain(required) {
            return None;
        }
        let window = TimeWindow::read(&policy.window).ok()?;
        // The clock agrees with the control plane's, or nothing is due: a mark of a time to come is that of a
        // clock that was ahead, and the reboot that it tells of was made before this boot.
        let done_at = self.done_at.map(|at| if at > now { self.booted.min(now) } else { at });
        let anew = match done_at {
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
        let asking = self.required.as_ref().and_then(|required| required.kernel.as_deref());
        let mark = RebootMark {
            at: now,
            reason: self.reason(),
            window: policy.name.clone(),
            boot: self.boot.clone(),
            kernel: asking.or(self.passed_over()).map(str::to_owned),
        };
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
            (None, Some(_), _) if self.is_in_vain(required) => RebootPlan::NotAgain,
            (None, Some(_), Some(RebootHold::ClockWrong)) => RebootPlan::ClockWrong,
            (None, Some(_), Some(RebootHold::ClockNotCompared)) => RebootPlan::ClockNotCompared,
            (None, Some(_), Some(RebootHold::Paused)) => RebootPlan::Paused,
            (None, Some(_), Some(RebootHold::AwaitsContact)) => RebootPlan::AwaitsContact,
            (None, Some(declared), None) => match self.due(policy, now) {
                Some(at) => RebootPlan::Due { at, window: declared.name.clone() },
                None => RebootPlan::NeverOpens { window: declared.name.clone() },
            },
        };
        Some(RebootOutlook { since: required.since, reason: self.reason(), plan, last: self.last.clone() })
    }

    fn reason(&self) -> String {
        let Some(Requirement { kernel, packages, .. }) = &self.required else { return String::new() };
        let kernel = kernel.iter().map(|release| format!("the newer kernel {release}"));
        let asking: Vec<String> = kernel.chain(packages.iter().cloned()).collect();
        if asking.is_empty() {
            return "a package that left no name".to_owned();
        }
        let named = asking.get(..MAX_NAMED).unwrap_or(&asking);
        match asking.len().saturating_sub(MAX_NAMED) {
            0 => named.join(", "),
            more => format!("{} and {more} more", named.join(", ")),
        }
    }
}
