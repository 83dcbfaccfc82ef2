//! ROL-8: a node calls in its slot of the polling interval, during a rollout every 60 s or as often as its
//! channel says, and the slots of a fleet are spread.

use std::time::Duration;

use ::model::{Hostname, Timestamp};
use rollout::cadence::{ContactNeed, ROLLOUT_CONTACT_SECS, next_checkin_secs, slot};

fn host(number: u32) -> Hostname {
    format!("h{number}.example.com").parse().unwrap()
}

#[test]
fn the_slots_of_a_fleet_are_even() {
    let mut slots = vec![0; 60];
    for number in 0..60_000 {
        slots[usize::try_from(slot(&host(number), Duration::from_secs(60)).as_secs()).unwrap()] += 1;
    }
    let (least, most) = (slots.iter().min().unwrap(), slots.iter().max().unwrap());
    assert!(*least > 850 && *most < 1150, "{least} to {most} of 1000");
}

#[test]
fn a_node_calls_once_an_interval_and_in_its_slot() {
    let now = Timestamp::from_secs(1_800_000_017);
    for number in 0..200 {
        let needs = [
            (ContactNeed::Rollout(300), ROLLOUT_CONTACT_SECS),
            (ContactNeed::Rollout(2), 2),
            (ContactNeed::Idle(300), 300),
        ];
        for (need, interval) in needs {
            let wait = next_checkin_secs(&host(number), need, now);
            assert!((1..=interval).contains(&wait));
            let next = now.plus(Duration::from_secs(wait));
            assert_eq!(
                next_checkin_secs(&host(number), need, next),
                interval,
                "in its slot the whole interval"
            );
            let interval_millis = i64::try_from(interval).unwrap() * 1000;
            let own = slot(&host(number), Duration::from_secs(interval));
            assert_eq!(next.0.rem_euclid(interval_millis) / 1000, i64::try_from(own.as_secs()).unwrap());
        }
    }
}

#[test]
fn an_interval_of_nothing_is_a_second() {
    assert_eq!(next_checkin_secs(&host(1), ContactNeed::Rollout(0), Timestamp::from_secs(5)), 1);
    assert_eq!(next_checkin_secs(&host(1), ContactNeed::Idle(0), Timestamp::from_secs(5)), 1);
}
