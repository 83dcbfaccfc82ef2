//! ENR-9: keys that ask to join are kept within bounds, each under the name that it asked for last; what was decided of
//! one counts for that name alone, but a denial counts for the key.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use model::{Hostname, JoinState, NodeId, PendingJoin, Timestamp};
use plane::joining::{
    JoinBoundError, MAX_DENIED, MAX_PENDING, MAX_PENDING_PER_PREFIX, PENDING_KEPT, PendingJoins,
};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

fn id(of: u32) -> NodeId {
    format!("n-{of:032x}").parse().unwrap()
}

fn host(name: &str) -> Hostname {
    name.parse().unwrap()
}

fn join(of: u32, name: &str, state: JoinState) -> PendingJoin {
    PendingJoin {
        node_id: id(of),
        hostname: host(name),
        public_key: String::new(),
        address: "192.0.2.1".to_owned(),
        prefix: "192.0.2.0/24".to_owned(),
        group: None,
        // The smaller the number, the later it asked: an order by id is another one.
        since: START.minus(Duration::from_secs(u64::from(of))),
        state,
        decided: None,
    }
}

fn with(joins: impl IntoIterator<Item = PendingJoin>) -> PendingJoins {
    let mut pending = PendingJoins::default();
    joins.into_iter().for_each(|join| pending.keep(join, START));
    pending
}

#[test]
fn what_was_decided_counts_for_its_name_and_a_denial_for_the_key() {
    use JoinState::{Approved, Denied, Waiting};
    for (state, under_its_name, under_another) in [
        (Waiting, Some(Waiting), None),
        (Approved, Some(Approved), None),
        (Denied, Some(Denied), Some(Denied)),
    ] {
        let mut pending = with([join(1, "web-1", state)]);
        assert_eq!(pending.asks(&id(1), &host("web-1"), START), under_its_name);
        assert_eq!(pending.asks(&id(1), &host("web-2"), START), under_another, "{state:?}");
        assert_eq!(pending.asks(&id(2), &host("web-1"), START), None);
    }
}

#[test]
fn so_many_wait_of_a_network_and_in_all() {
    let few = u32::try_from(MAX_PENDING_PER_PREFIX).unwrap();
    let pending = with((0..few).map(|of| join(of, "web-1", JoinState::Waiting)));
    assert_eq!(pending.room(&id(few), "192.0.2.0/24"), Err(JoinBoundError::Prefix));
    assert_eq!(pending.room(&id(few), "198.51.100.0/24"), Ok(()), "another network");
    assert_eq!(pending.room(&id(0), "192.0.2.0/24"), Ok(()), "its own place is no other's");
    let one_less = with((1..few).map(|of| join(of, "web-1", JoinState::Approved)));
    assert_eq!(one_less.room(&id(few), "192.0.2.0/24"), Ok(()));
    // Those that were denied take no place.
    let denied = with((0..few).map(|of| join(of, "web-1", JoinState::Denied)));
    assert_eq!(denied.room(&id(few), "192.0.2.0/24"), Ok(()));

    let of_networks =
        |of: u32| PendingJoin { prefix: format!("net-{of}"), ..join(of, "web-1", JoinState::Waiting) };
    let most = u32::try_from(MAX_PENDING).unwrap();
    assert_eq!(with((0..most).map(of_networks)).room(&id(most), "other"), Err(JoinBoundError::All));
    assert_eq!(with((1..most).map(of_networks)).room(&id(most), "other"), Ok(()));
}

#[test]
fn so_many_stay_denied() {
    let most = u32::try_from(MAX_DENIED).unwrap();
    let mut pending = with((1..most).map(|of| join(of, "web-1", JoinState::Denied)));
    pending.keep(join(most + 1, "web-2", JoinState::Waiting), START);
    assert_eq!(pending.room_for_denial(), Ok(()));
    pending.keep(join(most, "web-1", JoinState::Denied), START);
    assert_eq!(pending.room_for_denial(), Err(JoinBoundError::Denied));
}

#[test]
fn who_asks_no_more_is_forgotten_and_who_was_denied_is_not() {
    let mut pending = with([
        join(1, "web-1", JoinState::Waiting),
        join(2, "web-2", JoinState::Approved),
        join(3, "web-3", JoinState::Denied),
    ]);
    let end = START.plus(PENDING_KEPT);
    assert_eq!(pending.lapsed(end), []);
    let mut gone = pending.lapsed(end.plus(Duration::from_millis(1)));
    gone.sort();
    let mut both = vec![id(1), id(2)];
    both.sort();
    assert_eq!(gone, both);
    // What counts is when it last asked, not since when it waits.
    pending.asks(&id(1), &host("web-1"), end);
    assert_eq!(pending.lapsed(end.plus(Duration::from_millis(1))), [id(2)]);
    // At a start nobody knows when they asked: from then on.
    let restored = PendingJoins::restored(vec![join(1, "web-1", JoinState::Waiting)], end);
    assert_eq!(restored.lapsed(end.plus(PENDING_KEPT)), []);
}

#[test]
fn they_are_listed_by_age_and_found_by_name_and_id() {
    let mut pending = with([
        join(9, "web-1", JoinState::Waiting),
        join(2, "web-1", JoinState::Waiting),
        join(5, "db-1", JoinState::Waiting),
    ]);
    let ids = |found: Vec<&plane::joining::HeardJoin>| {
        found.iter().map(|kept| kept.join.node_id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(pending.all()), [id(9), id(5), id(2)]);
    assert_eq!(ids(pending.named("web-1")), [id(9), id(2)]);
    assert_eq!(ids(pending.named(id(5).as_str())), [id(5)]);
    assert_eq!(ids(pending.named("web")), []);
    // A decision of one that was forgotten meanwhile brings it not back.
    pending.forget(&id(5));
    pending.change(join(5, "db-1", JoinState::Approved));
    assert!(pending.get(&id(5)).is_none());
    pending.change(join(9, "web-1", JoinState::Approved));
    let changed = pending.get(&id(9)).unwrap();
    assert_eq!((changed.join.state, changed.heard), (JoinState::Approved, START));
}
