//! Waiting for others who use the package manager, and naming them.

use std::time::{Duration, Instant};

use converge::JobFailure;
use host::{Host, LockHolder};
use model::FailureCode;

use crate::kinds::text;

/// The locks that a transaction takes, with what they are called.
const LOCKS: &[(&str, &str)] = &[
    ("/var/lib/dpkg/lock-frontend", "dpkg lock"),
    ("/var/lib/dpkg/lock", "dpkg lock"),
    ("/var/lib/apt/lists/lock", "lock of the package lists"),
    ("/var/cache/apt/archives/lock", "lock of the package archives"),
];
/// Between the first two looks: nothing tells when a lock becomes free. Each wait is twice the one before.
const FIRST_TICK: Duration = Duration::from_millis(10);
/// The longest time between two looks.
const LAST_TICK: Duration = Duration::from_millis(250);

/// Waits until nobody holds a lock of the package manager.
///
/// # Errors
/// Who holds which lock, when it was not given up in time, or that the agent is stopping.
pub(super) fn wait(host: &Host, limit: Duration) -> Result<(), JobFailure> {
    let began = Instant::now();
    let mut tick = FIRST_TICK;
    while let Some((what, holder)) = held(host)? {
        if host.is_cancelled() {
            return Err("the agent is stopping".into());
        }
        let waited = began.elapsed();
        if waited >= limit {
            let message = format!("{what} held by {}, waited {} s", name(&holder), waited.as_secs());
            let detail = holder.program.unwrap_or_default();
            return Err(JobFailure::new(FailureCode::LockHeld, &detail, message));
        }
        std::thread::sleep(tick.min(limit - waited));
        tick = (tick * 2).min(LAST_TICK);
    }
    Ok(())
}

fn held(host: &Host) -> Result<Option<(&'static str, LockHolder)>, String> {
    for (path, what) in LOCKS {
        if let Some(holder) = host.lock_holder(path).map_err(text)? {
            return Ok(Some((what, holder)));
        }
    }
    Ok(None)
}

fn name(holder: &LockHolder) -> String {
    match (holder.pid, &holder.program) {
        (Some(pid), Some(program)) => format!("{program} (pid {pid})"),
        (Some(pid), None) => format!("pid {pid}"),
        (None, _) => "a process of another container".to_owned(),
    }
}
