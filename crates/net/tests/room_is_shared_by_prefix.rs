//! SCL-3: who is let in when there is not room for all. Shares are by address prefix and bind only when room
//! is short; half of it is kept for prefixes of which somebody authenticated lately.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use net::admission::{
    AddressPrefix, Admission, AdmittedConnection, ConnectAnswer, ConnectionId, KNOWN_FOR, MAX_KNOWN,
};
use proptest::prelude::*;

fn prefix(number: u8) -> AddressPrefix {
    AddressPrefix::of(IpAddr::V4(Ipv4Addr::new(192, 0, number, 1)))
}

fn admit(admission: &mut Admission, from: u8, now: Instant) -> AdmittedConnection {
    match admission.connect(prefix(from), now) {
        ConnectAnswer::Admit(connection) => connection,
        other => panic!("{other:?}"),
    }
}

/// Makes a prefix known, and leaves.
fn know(admission: &mut Admission, from: u8, now: Instant) {
    let connection = admit(admission, from, now);
    assert!(admission.authenticated(&connection, now));
    admission.left_authenticated();
}

#[test]
fn a_prefix_is_a_site() {
    let of = |text: &str| AddressPrefix::of(text.parse().unwrap());
    assert_eq!(of("192.0.2.1"), of("192.0.2.254"));
    assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
    assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.9"), "the same address, mapped");
    assert_eq!(of("2001:db8:1:1100::1"), of("2001:db8:1:11ff::2"));
    assert_ne!(of("2001:db8:1:1100::1"), of("2001:db8:1:1200::1"));
}

/// As it is kept over a restart; another form names none.
#[test]
fn a_prefix_has_one_text() {
    for (address, text) in [("192.0.2.77", "192.0.2.0/24"), ("2001:db8:1:11ff::2", "2001:db8:1:1100::/56")] {
        let prefix = AddressPrefix::of(address.parse().unwrap());
        assert_eq!((prefix.to_string().as_str(), text.parse()), (text, Ok(prefix)));
    }
    for other in
        ["192.0.2.1/24", "192.0.2.0", "192.0.2.0/56", "2001:db8::/24", "::ffff:192.0.2.0/24", "/24", ""]
    {
        assert!(other.parse::<AddressPrefix>().is_err(), "{other}");
    }
}

/// A prefix that was known before a restart keeps its room, for the rest of its day.
#[test]
fn what_was_known_before_a_restart_is_known() {
    let now = Instant::now();
    for (ago, known) in [(KNOWN_FOR / 2, true), (KNOWN_FOR + Duration::from_secs(1), false)] {
        let mut admission = Admission::new(2, 1);
        admission.restore(prefix(1), now.checked_sub(ago).unwrap());
        let stranger = admit(&mut admission, 9, now);
        let answer = admission.connect(prefix(1), now);
        let takes_its_place = matches!(answer, ConnectAnswer::Replace(_, evicted) if evicted == stranger.id);
        assert_eq!((matches!(answer, ConnectAnswer::Admit(_)), takes_its_place), (known, !known), "{ago:?}");
    }
}

#[test]
fn a_fleet_behind_one_nat_has_all_the_room_that_nobody_else_wants() {
    let (mut admission, now) = (Admission::new(10, 4), Instant::now());
    know(&mut admission, 1, now);
    let all: Vec<_> = (0..10).map(|_| admit(&mut admission, 1, now)).collect();
    for connection in &all {
        assert!(admission.authenticated(connection, now));
    }
    assert_eq!(admission.connect(prefix(1), now), ConnectAnswer::Full);
    assert_eq!(
        admission.connect(prefix(2), now),
        ConnectAnswer::Full,
        "who authenticated gives way to nobody"
    );
}

#[test]
fn the_oldest_of_the_largest_prefix_gives_way() {
    let (mut admission, now) = (Admission::new(8, 4), Instant::now());
    let first = admit(&mut admission, 1, now);
    let lone = admit(&mut admission, 2, now);
    let second = admit(&mut admission, 1, now);
    let third = admit(&mut admission, 1, now);
    // Four strangers are half of the room.
    for (from, gives_way) in [(3, first), (1, second), (1, third)] {
        match admission.connect(prefix(from), now) {
            ConnectAnswer::Replace(_, shed) => assert_eq!(shed, gives_way.id, "for {from}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(admission.authenticated(&lone, now), "the one of another prefix stayed");
    assert!(!admission.authenticated(&first, now), "this one is out");
    assert_eq!(admission.open(), 4);
}

#[test]
fn half_of_the_room_is_kept_for_prefixes_that_authenticated() {
    let (mut admission, now) = (Admission::new(8, 4), Instant::now());
    know(&mut admission, 1, now);
    for from in 10..110 {
        admission.connect(prefix(from), now);
    }
    assert_eq!(admission.open(), 4, "strangers have half");
    let known: Vec<_> = (0..4).map(|_| admit(&mut admission, 1, now)).collect();
    assert!(
        matches!(admission.connect(prefix(9), now), ConnectAnswer::Replace(..)),
        "strangers among themselves"
    );
    match admission.connect(prefix(1), now) {
        ConnectAnswer::Replace(_, shed) => {
            assert!(known.iter().all(|known| known.id != shed), "strangers give way first");
        }
        other => panic!("{other:?}"),
    }
    for _ in 0..3 {
        assert!(matches!(admission.connect(prefix(1), now), ConnectAnswer::Replace(..)));
    }
    assert_eq!(
        admission.connect(prefix(9), now),
        ConnectAnswer::Refuse,
        "no known prefix gives way to a stranger"
    );
    assert!(
        matches!(admission.connect(prefix(1), now), ConnectAnswer::Replace(..)),
        "its own gives way to it"
    );
}

#[test]
fn a_prefix_is_known_for_a_day_and_the_memory_of_them_is_bounded() {
    let (mut admission, now) = (Admission::new(4, 2), Instant::now());
    know(&mut admission, 1, now);
    let fill = |admission: &mut Admission, at| {
        let mut admitted = 0;
        while let ConnectAnswer::Admit(connection) = admission.connect(prefix(1), at) {
            admitted += 1;
            assert!(admitted <= 4, "{connection:?}");
        }
        admitted
    };
    assert_eq!(fill(&mut admission, now + KNOWN_FOR), 4);
    let mut admission = Admission::new(4, 2);
    know(&mut admission, 1, now);
    assert_eq!(fill(&mut admission, now + KNOWN_FOR + Duration::from_secs(1)), 2, "a stranger again");
    let mut admission = Admission::new(4, 2);
    know(&mut admission, 1, now);
    for number in 0..u32::try_from(MAX_KNOWN).unwrap() {
        let from = AddressPrefix::of(IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + (number << 8))));
        let at = now + Duration::from_millis(u64::from(number) + 1);
        let ConnectAnswer::Admit(connection) = admission.connect(from, at) else { panic!("no room") };
        assert!(admission.authenticated(&connection, at));
        admission.left_authenticated();
    }
    assert_eq!(fill(&mut admission, now + Duration::from_secs(60)), 2, "the oldest was forgotten");
}

#[test]
fn prefixes_take_turns_in_handshakes() {
    let (mut admission, now) = (Admission::new(1000, 2), Instant::now());
    let flood: Vec<_> = (0..100).map(|_| admit(&mut admission, 1, now)).collect();
    for connection in &flood {
        admission.wait_for_handshake(connection);
    }
    let one = admit(&mut admission, 2, now);
    admission.wait_for_handshake(&one);
    let begun = admission.next_handshake();
    assert_eq!(begun, Some(flood[0].id));
    assert_eq!(admission.next_handshake(), None, "strangers have half");
    admission.handshake_over(&flood[0]);
    assert_eq!(admission.next_handshake(), Some(one.id), "the next is another prefix's");
    // A known prefix has the other half.
    know(&mut admission, 3, now);
    let known = admit(&mut admission, 3, now);
    admission.wait_for_handshake(&known);
    assert_eq!(admission.next_handshake(), Some(known.id));
    assert_eq!(admission.next_handshake(), None);
}

#[derive(Clone, Debug)]
enum Op {
    Connect(u8),
    Authenticate(usize),
    Leave(usize),
    Wait(usize),
    Over(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let one = prop_oneof![
        4 => (0u8..6).prop_map(Op::Connect),
        1 => any::<usize>().prop_map(Op::Authenticate),
        2 => any::<usize>().prop_map(Op::Leave),
        3 => any::<usize>().prop_map(Op::Wait),
        2 => any::<usize>().prop_map(Op::Over),
    ];
    proptest::collection::vec(one, 1..200)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Handshake {
    Not,
    Waiting,
    Inside,
}

#[derive(Debug)]
struct Known {
    connection: AdmittedConnection,
    from: u8,
    authenticated: bool,
    handshake: Handshake,
}

proptest! {
    #[test]
    fn bounds_hold_whatever_comes(ops in ops(), room in 1usize..9, handshakes in 1usize..5) {
        let now = Instant::now();
        let mut admission = Admission::new(room, handshakes);
        let mut open: BTreeMap<ConnectionId, Known> = BTreeMap::new();
        // Gave way, and do not know it yet.
        let mut shed_ones: Vec<Known> = Vec::new();
        for op in ops {
            let nth = |open: &BTreeMap<ConnectionId, Known>, n: usize| {
                open.keys().nth(n % open.len().max(1)).copied()
            };
            match op {
                Op::Connect(from) => {
                    let mut sizes = BTreeMap::<u8, usize>::new();
                    for known in open.values().filter(|known| !known.authenticated) {
                        *sizes.entry(known.from).or_default() += 1;
                    }
                    let came = match admission.connect(prefix(from), now) {
                        ConnectAnswer::Admit(came) => Some(came),
                        ConnectAnswer::Replace(came, shed) => {
                            let shed = open.remove(&shed).expect("it is there");
                            prop_assert!(!shed.authenticated);
                            prop_assert!(open.values().all(|other| {
                                other.from != shed.from || other.authenticated || other.connection.id > shed.connection.id
                            }) || sizes.len() > 1, "the oldest of its prefix");
                            shed_ones.push(shed);
                            Some(came)
                        }
                        ConnectAnswer::Refuse => None,
                        ConnectAnswer::Full => {
                            prop_assert!(open.values().all(|known| known.authenticated));
                            prop_assert_eq!(open.len(), room);
                            None
                        }
                    };
                    if let Some(connection) = came {
                        let known = Known { connection, from, authenticated: false, handshake: Handshake::Not };
                        open.insert(connection.id, known);
                    }
                }
                Op::Authenticate(n) => if let Some(id) = nth(&open, n) {
                    let known = open.get_mut(&id).unwrap();
                    if !known.authenticated {
                        prop_assert!(admission.authenticated(&known.connection, now));
                        known.authenticated = true;
                    }
                },
                Op::Leave(n) => if let Some(known) = nth(&open, n).and_then(|id| open.remove(&id)) {
                    if known.handshake != Handshake::Not {
                        admission.handshake_over(&known.connection);
                    }
                    match known.authenticated {
                        true => admission.left_authenticated(),
                        false => admission.left_pending(&known.connection),
                    }
                } else if let Some(shed) = shed_ones.pop() {
                    if shed.handshake != Handshake::Not {
                        admission.handshake_over(&shed.connection);
                    }
                    admission.left_pending(&shed.connection);
                },
                Op::Wait(n) => if let Some(known) = nth(&open, n).and_then(|id| open.get_mut(&id))
                    && known.handshake == Handshake::Not && !known.authenticated
                {
                    admission.wait_for_handshake(&known.connection);
                    known.handshake = Handshake::Waiting;
                },
                Op::Over(n) => if let Some(known) = nth(&open, n).and_then(|id| open.get_mut(&id))
                    && known.handshake != Handshake::Not
                {
                    admission.handshake_over(&known.connection);
                    known.handshake = Handshake::Not;
                },
            }
            while let Some(id) = admission.next_handshake() {
                let known = open.get_mut(&id).or_else(|| shed_ones.iter_mut().find(|shed| shed.connection.id == id));
                let known = known.expect("somebody who came");
                prop_assert_eq!(known.handshake, Handshake::Waiting);
                known.handshake = Handshake::Inside;
            }
            prop_assert_eq!(admission.open(), open.len());
            prop_assert!(open.len() <= room);
            let all = || open.values().chain(&shed_ones);
            let inside = all().filter(|known| known.handshake == Handshake::Inside).count();
            prop_assert!(inside <= handshakes);
            prop_assert!(inside > 0 || all().all(|known| known.handshake != Handshake::Waiting), "room is used");
        }
    }
}
