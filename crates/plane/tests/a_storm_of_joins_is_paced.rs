//! ENR-9, WIR-6: ten thousand hosts that join at once are let in at a bounded rate, each after a few tries, and the
//! control plane is never asked for more than a little beyond that rate once the storm has been answered.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::Timestamp;
use plane::joining::{JOINS_AT_ONCE, JOINS_PER_SEC, JoinPacer, MAX_JOIN_WAIT};

const HOSTS: u64 = 10_000;
/// An agent comes back up to so many percent later than it was told.
const JITTER_PERCENT: u64 = 20;

/// What came of a storm, by virtual second.
struct Storm {
    admitted: BTreeMap<i64, u32>,
    asked: BTreeMap<i64, u32>,
    tries: BTreeMap<u64, u32>,
}

fn storm(hosts: u64) -> Storm {
    let start = Timestamp::from_secs(1_800_000_000);
    let mut pacer = JoinPacer::default();
    let mut due: BTreeSet<(Timestamp, u64)> = (0..hosts).map(|host| (start, host)).collect();
    let mut storm = Storm { admitted: BTreeMap::new(), asked: BTreeMap::new(), tries: BTreeMap::new() };
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    while let Some((now, host)) = due.pop_first() {
        let second = now.since(start).as_secs() as i64;
        *storm.asked.entry(second).or_default() += 1;
        *storm.tries.entry(host).or_default() += 1;
        match pacer.take(now) {
            Ok(()) => *storm.admitted.entry(second).or_default() += 1,
            Err(wait) => {
                assert!(wait <= MAX_JOIN_WAIT, "{wait:?}");
                // Retry-After is in whole seconds.
                let told = Duration::from_secs(wait.as_secs() + 1);
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let jitter = told.as_millis() as u64 * JITTER_PERCENT / 100;
                let late = Duration::from_millis((random >> 33) % jitter.max(1));
                due.insert((now.plus(told + late), host));
            }
        }
    }
    storm
}

#[test]
fn ten_thousand_hosts_are_let_in_at_a_bounded_rate() {
    let Storm { admitted, asked, tries } = storm(HOSTS);
    assert_eq!(admitted.values().sum::<u32>(), HOSTS as u32, "each of them in the end");
    assert!(admitted[&0] <= JOINS_AT_ONCE + JOINS_PER_SEC, "{:?}", admitted[&0]);
    for (second, count) in admitted.range(1..) {
        assert!(*count <= JOINS_PER_SEC + JOINS_AT_ONCE, "{count} in second {second}");
    }
    let ideal = (HOSTS / u64::from(JOINS_PER_SEC)) as i64;
    let last = *admitted.last_key_value().unwrap().0;
    assert!(last <= ideal * 3 / 2, "the last after {last} s, where {ideal} s would do");
    let most = tries.values().max().unwrap();
    assert!(*most <= 5, "one had to ask {most} times");
    // After the first second nobody storms any more.
    let busiest = asked.range(1..).map(|(_, count)| *count).max().unwrap();
    assert!(busiest <= 3 * JOINS_PER_SEC, "{busiest} asked in one second");
}

#[test]
fn a_clock_that_is_set_back_holds_nobody_up() {
    let mut pacer = JoinPacer::default();
    let now = Timestamp::from_secs(1_800_000_000);
    while pacer.take(now).is_ok() {}
    let earlier = now.minus(Duration::from_secs(86_400));
    let wait = pacer.take(earlier).unwrap_err();
    assert!(wait <= MAX_JOIN_WAIT);
    pacer.take(earlier.plus(Duration::from_secs(1))).unwrap();
}
