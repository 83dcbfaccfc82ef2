//! The host's clock: against what is known to be past, and against the control plane's.

use std::path::Path;
use std::time::Duration;

use model::Timestamp;
use node::Adoption;

use super::Finding;

/// How far the clocks of host and control plane may differ before it is worth a word.
const NEAR: Duration = Duration::from_secs(30);
/// How far a clock may be ahead of the newest signature before that is worth a word.
const LONG: Duration = Duration::from_secs(5 * 365 * 24 * 3600);
const SET_CLOCK: &str = "set the clock, and let it be kept: timedatectl set-ntp true";

/// The newest signature that this node verified.
pub(super) fn newest_signature(state: &Path) -> Option<Timestamp> {
    // Read beside the daemon, which sets aside what is damaged: a look does not.
    let text = std::fs::read_to_string(state.join("adoption.json")).ok()?;
    let adoption: Adoption = serde_json::from_slice(text.split_once('\n')?.1.as_bytes()).ok()?;
    let newest = adoption.floor.newest_signature;
    (newest > Timestamp::default()).then_some(newest)
}

/// The clock against what is certainly past.
pub(super) fn plausible(now: Timestamp, built: Timestamp, verified: Option<Timestamp>) -> Finding {
    let past = verified.map_or(built, |verified| verified.max(built));
    if now < past {
        let what = if past == built { "this program was built" } else { "the newest release was signed" };
        return Finding::fail("clock", format!("it says {now}, but {what} on {past}"), SET_CLOCK);
    }
    if now.since(past) > LONG {
        let evidence = format!("it says {now}, years after the newest thing that is known ({past})");
        return Finding::warn("clock", evidence, SET_CLOCK);
    }
    Finding::ok("clock", format!("{now}"))
}

/// The clock against the control plane's, as the daemon knows it: a signature that was refused for its
/// time says what the control plane's clock is ahead by.
pub(super) fn compared(ahead_ms: i64) -> Finding {
    let subject = "clock difference";
    let off = Duration::from_millis(ahead_ms.unsigned_abs());
    if off <= NEAR {
        return Finding::ok(subject, "it is near the control plane's");
    }
    let which = if ahead_ms > 0 { "behind" } else { "ahead of" };
    let evidence = format!("it is {} s {which} the control plane's", off.as_secs());
    Finding::warn(subject, evidence, SET_CLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::FindingLevel;

    #[test]
    fn a_clock_behind_what_is_past_is_wrong() {
        let at = |secs| Timestamp::from_secs(secs);
        let built = at(1_795_000_000);
        for (now, verified, level) in [
            (1_795_000_001, None, FindingLevel::Ok),
            (0, None, FindingLevel::Fail),
            (1_795_000_001, Some(1_796_000_000), FindingLevel::Fail),
            (1_796_000_001, Some(1_796_000_000), FindingLevel::Ok),
            (2_208_988_800, None, FindingLevel::Warn),
        ] {
            assert_eq!(plausible(at(now), built, verified.map(at)).level, level, "{now}");
        }
        assert_eq!(compared(-20_000).level, FindingLevel::Ok);
        for (ahead_ms, word) in [(100_000, "100 s behind"), (-100_000, "100 s ahead of")] {
            let off = compared(ahead_ms);
            assert!(off.level == FindingLevel::Warn && off.evidence.contains(word), "{off:?}");
        }
    }
}
