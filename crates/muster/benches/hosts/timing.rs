//! Times: how they are taken.

use std::process::Command;
use std::time::{Duration, Instant};

/// Milliseconds of a time.
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// How long a command takes; it must end well.
pub fn timed(mut command: Command) -> Duration {
    let begun = Instant::now();
    let output = command.output().unwrap();
    let took = begun.elapsed();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    took
}

/// The value below which this share of them lies; they are sorted by it.
pub fn quantile(times: &mut [Duration], share: f64) -> Duration {
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    times.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
}
