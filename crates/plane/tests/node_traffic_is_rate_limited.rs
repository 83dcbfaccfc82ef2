//! SCL-3: what one node sends is bounded: a burst as large as its log, then a steady share.

use std::time::Duration;

use model::Timestamp;
use plane::budget::{BURST, ByteBudget, RATE};

#[test]
fn a_burst_then_a_share_of_time() {
    let now = Timestamp::from_secs(1_000_000_000);
    let mut budget = ByteBudget::default();
    assert!(budget.take(BURST, now), "a whole log may come at once");
    assert!(!budget.take(1, now), "and then nothing more");
    let later = now.plus(Duration::from_secs(10));
    assert!(budget.take(10 * RATE, later), "time gives a share");
    assert!(!budget.take(1, later));
    let much_later = later.plus(Duration::from_secs(1 << 30));
    assert!(!budget.take(BURST + 1, much_later), "never more than a burst");
    assert!(budget.take(BURST, much_later), "a refusal takes nothing");
}

#[test]
fn a_clock_set_back_gives_and_takes_nothing() {
    let now = Timestamp::from_secs(1_000_000_000);
    let mut budget = ByteBudget::default();
    assert!(budget.take(BURST - 5, now));
    let before = now.minus(Duration::from_secs(3600));
    assert!(budget.take(5, before));
    assert!(!budget.take(1, before));
}
