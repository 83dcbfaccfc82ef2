//! LIF-1, CNV-3: while the control plane was away nobody could call it. Its own absence is no silence of its nodes, and
//! what was silent before stays so.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{CREATED, heads, holding, node};
use model::Timestamp;
use model::status::Contact::{self, Offline, Online, Unreachable};
use plane::{NodeState, absence_before};

/// What a node without a channel is promised, and by how much a contact may be late, in seconds.
const PROMISED: u64 = plane::node::UNASSIGNED_CONTACT_SECS;
const SLACK: u64 = 10;
const THREE: u64 = 3 * PROMISED + SLACK;
const TEN: u64 = 10 * PROMISED + SLACK;
const DAY: u64 = 86_400;

fn at(secs: u64) -> Timestamp {
    CREATED.plus(Duration::from_secs(secs))
}

/// A node last heard of at 0, at a control plane that was away between these times.
fn heard_before(stopped: u64, started: u64) -> NodeState {
    let mut node = node("web-1");
    node.check_in(holding(None), &heads(1, vec![]), at(0));
    node.control_plane_was_absent(absence_before(at(started), Some(at(stopped))));
    node
}

#[test]
fn silence_is_counted_while_somebody_could_hear() {
    let heads = heads(1, vec![]);
    for (stopped, started, now, want) in [
        (0, 0, 0, Online),
        (0, DAY, DAY, Online),
        (0, DAY, DAY + THREE - 1, Online),
        (0, DAY, DAY + THREE, Unreachable),
        (0, DAY, DAY + TEN, Offline),
        // Silent for a while before: that counts, and goes on.
        (THREE - 1, DAY, DAY, Online),
        (THREE - 1, DAY, DAY + 1, Unreachable),
        (THREE, DAY, DAY, Unreachable),
        (TEN, DAY, DAY, Offline),
        (DAY, 2 * DAY, 2 * DAY, Offline),
        // A clock that was set back.
        (DAY, 0, TEN, Offline),
    ] {
        let mut node = heard_before(stopped, started);
        assert_eq!(node.status(&heads, at(now)).contact, want, "{stopped} {started} {now}");
        if let Some(until) = node.status_until(&heads, at(now)) {
            let before = until.minus(Duration::from_millis(1));
            assert_eq!(node.status(&heads, before).contact, want, "{stopped} {started} {now}");
            assert_ne!(node.status(&heads, until).contact, want, "{stopped} {started} {now}");
        }
        assert_eq!(node.last_seen, Some(at(0)), "when it was heard of stays true");
    }
}

#[test]
fn a_call_ends_it() {
    let heads = heads(1, vec![]);
    let mut node = heard_before(0, DAY);
    node.check_in(holding(None), &heads, at(DAY));
    let contact = |node: &mut NodeState, now| -> Contact { node.status(&heads, at(now)).contact };
    assert_eq!(contact(&mut node, DAY + THREE - 1), Online);
    assert_eq!(contact(&mut node, DAY + THREE), Unreachable);
}

#[test]
fn a_fleet_without_nodes_has_no_absence() {
    assert_eq!(absence_before(at(DAY), None), Duration::ZERO);
    assert_eq!(absence_before(at(0), Some(at(DAY))), Duration::ZERO, "the clock went back");
}
