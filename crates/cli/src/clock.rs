//! This process's clock, and times as people read them.

use std::time::{SystemTime, UNIX_EPOCH};

use model::Timestamp;
pub use model::time::short;

/// Now.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// How long ago: `4 s`, `12 min`, `3 h`, `9 days`.
pub fn ago(then: Timestamp, now: Timestamp) -> String {
    short(now.since(then))
}

/// A size in the unit that suits it.
pub fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{} KiB", count / 1024),
        _ => format!("{} MiB", count / (1024 * 1024)),
    }
}
