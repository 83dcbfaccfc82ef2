//! Waiting for a condition: it is polled up to a deadline, and never slept for.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// How long any condition may take before its test fails.
pub const DEADLINE: Duration = Duration::from_secs(40);
/// Between two polls.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// Waits until `poll` gives something.
pub async fn until<T>(what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = poll().await {
            return seen;
        }
        assert!(begun.elapsed() < DEADLINE, "not seen in {} s: {what}", DEADLINE.as_secs());
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until a condition holds.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, async || holds().then_some(())).await;
}

/// Gives a future's output, which must come before the deadline.
pub async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(DEADLINE, future).await.expect("the future ends before the deadline")
}

/// The same as [`until`], for tests without a runtime.
#[track_caller]
pub fn until_blocking<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    until_ok(what, || poll().ok_or("never"))
}

/// Waits without a runtime until `poll` succeeds; the last error is in the failure's text.
#[track_caller]
pub fn until_ok<T, E: Display>(what: &str, mut poll: impl FnMut() -> Result<T, E>) -> T {
    let begun = Instant::now();
    loop {
        match poll() {
            Ok(seen) => return seen,
            Err(why) => {
                assert!(begun.elapsed() < DEADLINE, "not seen in {} s: {what}: {why}", DEADLINE.as_secs());
            }
        }
        std::thread::sleep(PAUSE);
    }
}
