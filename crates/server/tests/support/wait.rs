//! Waiting for something to be so: looked at again and again, up to a deadline.

use std::time::{Duration, Instant};

/// How long anything may take before a test fails.
const DEADLINE: Duration = Duration::from_secs(20);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until `look` gives something.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(begun.elapsed() < DEADLINE, "not seen in {} s: {what}", DEADLINE.as_secs());
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until it is so.
pub async fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    until(what, || std::future::ready(so().then_some(()))).await;
}
