//! The host's clock: against what is known to be past, and against a control plane's answer.

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
    let adoption: Adoption = serde_json::from_str(text.split_once('\n')?.1).ok()?;
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

/// The clock against a control plane's.
pub(super) fn compared(subject: String, now: Timestamp, theirs: Timestamp) -> Finding {
    let (ahead, behind) = (now.since(theirs), theirs.since(now));
    let (off, which) = if ahead > behind { (ahead, "ahead of") } else { (behind, "behind") };
    if off <= NEAR {
        return Finding::ok(subject, "this host's clock and the control plane's agree");
    }
    let evidence = format!("this host's clock is {} s {which} the control plane's", off.as_secs());
    Finding::warn(subject, evidence, SET_CLOCK)
}

/// The time in an HTTP `Date` header: `Mon, 23 Nov 2026 03:20:02 GMT`.
pub(super) fn http_date(text: &str) -> Option<Timestamp> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_once(", ")?.1.split(' ');
    let day: i64 = words.next()?.parse().ok()?;
    let name = words.next()?;
    let month = i64::try_from(MONTHS.iter().position(|month| *month == name)?).ok()? + 1;
    let year: i64 = words.next()?.parse().ok()?;
    let mut clock = words.next()?.split(':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if !(1..=31).contains(&day) || !(1970..=9999).contains(&year) {
        return None;
    }
    // Days since 1970, from years that begin in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    Some(Timestamp::from_secs(days * 86_400 + hour * 3600 + minute * 60 + second))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::FindingLevel;

    #[test]
    fn dates_of_answers_are_read() {
        for (text, secs) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Thu, 29 Feb 2024 23:59:59 GMT", 1_709_251_199),
            ("Mon, 23 Nov 2026 03:20:02 GMT", 1_795_404_002),
        ] {
            assert_eq!(http_date(text), Some(Timestamp::from_secs(secs)), "{text}");
        }
        for text in ["", "Mon, 23 Nov", "Mon, 99 Nov 2026 03:20:02 GMT", "Mon, 23 Foo 2026 03:20:02 GMT"] {
            assert_eq!(http_date(text), None, "{text}");
        }
    }

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
        assert_eq!(compared(String::new(), at(1000), at(1020)).level, FindingLevel::Ok);
        let off = compared(String::new(), at(1000), at(1100));
        assert_eq!((off.level, off.evidence.contains("100 s behind")), (FindingLevel::Warn, true));
    }
}
