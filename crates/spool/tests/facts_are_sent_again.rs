//! SCL-4: facts that a restored control plane lost after it acknowledged them are sent again under their numbers,
//! as far as a segment of them is kept; what is left of older ones begins another incarnation, and none is sent
//! twice under two numbers.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{incarnation, now, open, pending, said};
use spool::{Disk, FactLog};

fn numbers(log: &FactLog) -> Vec<u64> {
    pending(log).into_iter().map(|(seq, _)| seq).collect()
}

fn texts(log: &FactLog) -> Vec<String> {
    pending(log).into_iter().map(|(_, text)| text.split(' ').next().unwrap().to_owned()).collect()
}

/// Facts from 1 on, of which a few fill a segment.
fn append(log: &mut FactLog, range: std::ops::RangeInclusive<u64>) {
    for number in range {
        log.append(said(&format!("{number} {}", "x".repeat(60))), now()).unwrap();
    }
}

#[test]
fn those_that_are_here_keep_their_numbers() {
    let directory = common::tempdir();
    let disk = Disk::new();
    let mut log = open(&disk, directory.path(), "one").unwrap().log;
    append(&mut log, 1..=4);
    log.ack(3).unwrap();
    log.resend_after(3, &incarnation("two")).unwrap();
    assert_eq!(numbers(&log), [4], "nothing was lost");
    log.resend_after(2, &incarnation("two")).unwrap();
    assert_eq!((log.incarnation(), numbers(&log)), (&incarnation("one"), vec![3, 4]));
    drop(log);
    let mut log = open(&disk, directory.path(), "three").unwrap().log;
    assert_eq!((log.incarnation(), numbers(&log)), (&incarnation("one"), vec![3, 4]), "it is durable");
    log.ack(4).unwrap();
    append(&mut log, 5..=5);
    assert_eq!(numbers(&log), [5]);
}

#[test]
fn where_some_are_gone_the_others_begin_anew() {
    let directory = common::tempdir();
    let disk = Disk::new();
    let mut log = open(&disk, directory.path(), "one").unwrap().log;
    append(&mut log, 1..=40);
    log.ack(39).unwrap();
    append(&mut log, 41..=41);
    drop(log);
    let mut log = open(&disk, directory.path(), "two").unwrap().log;
    assert!(log.bytes() < 2_000, "only the newest are kept: {} bytes", log.bytes());
    log.resend_after(2, &incarnation("three")).unwrap();
    assert_eq!(log.incarnation(), &incarnation("three"));
    let left = texts(&log);
    assert!(left.len() > 2 && left.len() < 20, "{left:?}");
    let first: u64 = left[0].parse().unwrap();
    assert_eq!(left, (first..=41).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(numbers(&log), (1..=left.len() as u64).collect::<Vec<_>>());
    // Its own are sent again as those before it were.
    log.ack(left.len() as u64).unwrap();
    log.resend_after(left.len() as u64 - 1, &incarnation("four")).unwrap();
    assert_eq!((log.incarnation(), texts(&log)), (&incarnation("three"), vec!["41".to_owned()]));
}

#[test]
fn they_take_no_room_from_those_that_wait() {
    let directory = common::tempdir();
    let limits = spool::LogLimits { max_bytes: 1500, reserve_bytes: 0, segment_bytes: 300 };
    let fresh = incarnation("one");
    let mut log = FactLog::open(&Disk::new(), directory.path(), &fresh, limits).unwrap().log;
    for round in 0..20u64 {
        append(&mut log, round * 2 + 1..=round * 2 + 2);
        log.ack(log.last()).unwrap();
    }
}
