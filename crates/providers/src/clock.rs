//! The clock of a host: which zone its wall clock shows.

use host::Host;
use model::Timestamp;
use model::window::east_of;

/// The largest compiled time zone that is read, in bytes.
const MAX_ZONE: u64 = 64 * 1024;

/// How many seconds east of UTC the host's wall clock is at an instant, as `/etc/localtime`
/// says; 0 where it says nothing, as the host itself would take it.
pub fn east_secs(host: &Host, now: Timestamp) -> i32 {
    let zone = host.read_followed("/etc/localtime", MAX_ZONE).ok().flatten();
    zone.and_then(|zone| east_of(&zone, now)).unwrap_or(0)
}
