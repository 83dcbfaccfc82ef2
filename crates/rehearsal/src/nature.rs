//! [`HostNature`]: how long things take a host, and what goes wrong with it.

use std::time::Duration;

use model::Hostname;

use crate::faults::{DrawnFaults, NodeFault, draw_of};

/// How long a message takes, a host's wait for it included.
const LATENCY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));
/// How long a switch takes: a full run.
const SWITCH: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(90));
/// How long a return takes: a full run of what was there before.
const RETURN: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(60));
/// How often a host calls that calls seldom, in seconds.
const SELDOM_SECS: u32 = 3600;
/// Times as long, for a slow host: at most half an hour for a switch, which may take an hour.
const SLOW: u32 = 20;

/// How long things take a host, and what goes wrong with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostNature {
    pub(crate) fault: Option<NodeFault>,
    pub(crate) is_slow: bool,
    /// When it calls the first time after the release was published, where it calls seldom.
    pub(crate) first_call: Option<Duration>,
    pub(crate) latency: Duration,
    pub(crate) switch: Duration,
    pub(crate) back: Duration,
    /// Where its probes fail: from which thousandth of the soak on.
    pub(crate) fails_from: u32,
}

impl HostNature {
    pub(crate) fn draw(seed: u64, hostname: &Hostname, drawn: DrawnFaults) -> HostNature {
        let DrawnFaults { fault, is_slow, calls_seldom } = drawn;
        let digest = draw_of(b"nature", seed, hostname);
        let number = |at: usize| {
            let bytes = digest.as_bytes().iter().skip(4 * at).take(4);
            bytes.fold(0u32, |number, byte| (number << 8) | u32::from(*byte))
        };
        let between = |(least, most): (Duration, Duration), at: usize| {
            let drawn = least + (most - least) / 1000 * (number(at) % 1000);
            if is_slow { drawn * SLOW } else { drawn }
        };
        let fails_late = number(3) % 2 == 1;
        HostNature {
            fault,
            is_slow,
            first_call: calls_seldom.then(|| Duration::from_secs((1 + number(5) % SELDOM_SECS).into())),
            latency: between(LATENCY, 0),
            switch: between(SWITCH, 1),
            back: between(RETURN, 2),
            fails_from: if fails_late { number(4) % 1000 } else { 0 },
        }
    }

    /// From when after its switch on the host is not well.
    pub(crate) fn unwell_after(&self, soak: Duration) -> Option<Duration> {
        (self.fault == Some(NodeFault::Fails)).then(|| soak / 1000 * self.fails_from)
    }
}
