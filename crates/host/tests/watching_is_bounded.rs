//! CNV-7: somebody who writes faster than events are read keeps nobody from what else there is to do: each
//! call takes a bounded number of events, none is lost between calls, and lost ones end a call.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use host::{DirectoryEvents, MAX_EVENTS_AT_ONCE, PathEvent, PathWatch};

/// An event without a name.
const SMALLEST: usize = 16;

fn watched() -> (tempfile::TempDir, PathWatch) {
    let dir = tempfile::tempdir().unwrap();
    let watch = PathWatch::open().unwrap();
    watch.add(&std::fs::File::open(dir.path()).unwrap(), DirectoryEvents::Entries).unwrap();
    (dir, watch)
}

fn come_and_go(dir: &tempfile::TempDir, times: usize) {
    let other = dir.path().join("other");
    for _ in 0..times {
        std::fs::write(&other, "").unwrap();
        std::fs::remove_file(&other).unwrap();
    }
}

fn drained(watch: &PathWatch) -> Vec<PathEvent> {
    let mut heard = Vec::new();
    watch.drain(|event| heard.push(event)).unwrap();
    heard
}

#[test]
fn a_flood_is_taken_piece_by_piece_and_none_of_it_is_lost() {
    let (dir, watch) = watched();
    let times = MAX_EVENTS_AT_ONCE / SMALLEST / 2 + 100;
    come_and_go(&dir, times);
    let mut pieces = Vec::new();
    loop {
        let heard = drained(&watch).len();
        if heard == 0 {
            break;
        }
        assert!(heard <= MAX_EVENTS_AT_ONCE / SMALLEST, "{heard} events in one go");
        pieces.push(heard);
    }
    assert!(pieces.len() > 1, "{pieces:?}");
    assert_eq!(pieces.iter().sum::<usize>(), times * 2);
}

#[test]
fn lost_events_end_a_call() {
    let (dir, watch) = watched();
    let queue = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    come_and_go(&dir, queue.trim().parse::<usize>().unwrap() / 2 + 10);
    // The first call makes room before the sign of lost events, which stays behind what was kept.
    drained(&watch);
    come_and_go(&dir, 10);
    let calls = std::iter::repeat_with(|| drained(&watch)).take(1000);
    let behind = calls.into_iter().find(|heard| heard.contains(&PathEvent::Overflow));
    assert_eq!(behind.unwrap().last(), Some(&PathEvent::Overflow), "what is behind it was given too");
}
