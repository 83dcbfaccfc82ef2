//! This process's clock, and times as people read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model::Timestamp;

/// Now.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// How long ago: `4s`, `12m`, `3h`, `9d`.
pub fn ago(then: Timestamp, now: Timestamp) -> String {
    short(now.since(then))
}

/// A duration in its largest whole unit.
pub fn short(duration: Duration) -> String {
    let secs = duration.as_secs();
    match secs {
        0..120 => format!("{secs}s"),
        120..7200 => format!("{}m", secs / 60),
        7200..172_800 => format!("{}h", secs / 3600),
        _ => format!("{}d", secs / 86_400),
    }
}

/// A size in the unit that suits it.
pub fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{} KiB", count / 1024),
        _ => format!("{} MiB", count / (1024 * 1024)),
    }
}
