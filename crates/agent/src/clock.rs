//! The host's clock, read here and nowhere else.

use std::time::{SystemTime, UNIX_EPOCH};

use model::Timestamp;

/// When this version was made: trust never goes by an earlier time (IDN-11).
pub const BUILT: Timestamp = Timestamp::from_secs(1_795_219_200); // 2026-11-21

/// What the clock says.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
