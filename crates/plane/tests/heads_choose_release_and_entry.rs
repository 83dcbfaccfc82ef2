//! CFG-1, ROL-1: which release and entry a hostname is pointed to.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{CREATED, FRESH_SECS, entry, head, heads, held, holding, name, node, pattern, selection};
use model::exchange::{CheckIn, HeldFreshness};
use model::status::ReleaseState;
use model::{Digest, Selection, SelectionEntry, Timestamp};
use plane::Heads;
use plane::heads::{NodeHeader, Patterns};

fn fleet(selection: &Selection) -> Heads {
    heads(1, vec![head(1, "main", selection), head(1, "canary", selection)])
}

fn pointed(heads: &Heads, hostname: &str) -> Option<SelectionEntry> {
    heads.pointed(&name(hostname)).map(|(_, entry)| entry)
}

#[test]
fn exact_wins_then_the_first_pattern() {
    let patterns = vec![
        pattern("edge-?", &["edge-9"], entry("main", "one digit")),
        pattern("edge-*", &[], entry("canary", "edge")),
        pattern("/db-[0-9]+/", &["db-13"], entry("main", "db")),
    ];
    let fleet = fleet(&selection(&[("edge-5", entry("main", "by name"))], patterns));
    for (hostname, want) in [
        ("edge-5", Some(entry("main", "by name"))),
        ("edge-1", Some(entry("main", "one digit"))),
        ("edge-9", Some(entry("canary", "edge"))),
        ("edge-11", Some(entry("canary", "edge"))),
        ("edge-1.eu", None),
        ("db-7", Some(entry("main", "db"))),
        ("db-13", None),
        ("stranger", None),
    ] {
        assert_eq!(pointed(&fleet, hostname), want, "{hostname}");
    }
}

#[test]
fn each_channel_has_its_head() {
    let both = selection(
        &[("a", entry("main", "a")), ("b", entry("canary", "b")), ("c", entry("lab", "c"))],
        vec![],
    );
    let fleet = fleet(&both);
    for (hostname, channel) in [("a", "main"), ("b", "canary")] {
        let (head, entry) = fleet.pointed(&name(hostname)).unwrap();
        assert_eq!((head.header.channel.as_str(), entry.channel.as_str()), (channel, channel));
    }
    assert_eq!(pointed(&fleet, "c"), None, "a channel that nothing was published to");
    assert_eq!(pointed(&Heads::default(), "a"), None);
    assert_eq!(fleet.seq(), 1);
}

#[test]
fn a_channel_that_lags_keeps_its_own_selection() {
    let old = selection(&[("a", entry("main", "old")), ("b", entry("canary", "old b"))], vec![]);
    let new = selection(
        &[("a", entry("main", "new")), ("b", entry("canary", "new b")), ("c", entry("main", "c"))],
        vec![],
    );
    let fleet = heads(1, vec![head(1, "main", &old), head(2, "canary", &new)]);
    assert_eq!(pointed(&fleet, "a"), Some(entry("main", "old")), "main's head says what main's nodes get");
    assert_eq!(pointed(&fleet, "b"), Some(entry("canary", "new b")));
    assert_eq!(pointed(&fleet, "c"), None, "the older head has no entry for it yet");
    assert_eq!(fleet.seq(), 2);
}

#[test]
fn a_node_follows_the_channel_that_the_newest_release_gives_it() {
    let old = selection(&[("a", entry("main", "a"))], vec![]);
    let new = selection(&[("a", entry("canary", "a"))], vec![]);
    let fleet = heads(1, vec![head(1, "main", &old), head(2, "canary", &new)]);
    assert_eq!(pointed(&fleet, "a"), Some(entry("canary", "a")));
}

#[test]
fn a_pattern_that_cannot_be_read_refuses_the_release() {
    for text in ["", "edge[1]", "/(/", "a b"] {
        let selection = selection(&[], vec![pattern(text, &[], entry("main", "x"))]);
        assert!(Patterns::read(&selection).is_err(), "{text:?}");
        let selection = common::selection(&[], vec![pattern("ok", &[text], entry("main", "x"))]);
        assert!(Patterns::read(&selection).is_err(), "except {text:?}");
    }
}

/// SCL-4: nodes hold a release that the control plane lost: its header is asked for, and known from then on.
#[test]
fn headers_that_nodes_hold_and_no_release_here_has() {
    let selection = selection(&[("a", entry("main", "a"))], vec![]);
    let (main, canary) = (head(3, "main", &selection), head(5, "canary", &selection));
    let (mut fleet, other) = (heads(1, vec![main.clone(), canary.clone()]), Digest::of(b"lost"));
    assert_eq!((fleet.newest_signature(), Heads::default().newest_signature()), (Some(CREATED), None));
    for (seq, header, want) in [
        (6, other, true),
        (5, other, true),
        (4, other, false),
        (5, canary.digest, false),
        (3, main.digest, false),
    ] {
        assert_eq!(fleet.lacks(seq, &header), want, "{seq}");
    }
    assert!(!Heads::default().lacks(0, &other) && Heads::default().lacks(1, &other));
    assert!(fleet.overtaken_by().is_none());
    for (seq, overtakes) in [(4, false), (5, true), (6, true)] {
        fleet.node_header = Some(NodeHeader { seq, signed: main.signed.clone() });
        assert_eq!(fleet.overtaken_by().map(|known| known.seq), overtakes.then_some(seq), "{seq}");
    }
    assert!(!fleet.lacks(6, &other), "it is known as high");
    assert!(fleet.lacks(7, &other));
}

/// ROL-1: an entry is there for a node also while no rollout gives it a release: it waits for that, and its file in the fleet repo
/// lacks nothing.
#[test]
fn who_waits_for_a_rollout_is_not_unassigned() {
    let selection = selection(&[("a", entry("main", "new"))], vec![]);
    let mut in_waves = (*head(1, "main", &selection)).clone();
    in_waves.header.rollout = Some(Default::default());
    let fleet = heads(1, vec![std::sync::Arc::new(in_waves)]);
    for (hostname, waits, state) in
        [("a", true, ReleaseState::Behind), ("b", false, ReleaseState::Unassigned)]
    {
        let mut node = node(hostname);
        let answer = node.check_in(holding(None), &fleet, CREATED).answer;
        assert!(answer.offer.is_none() && answer.unassigned != waits, "{hostname}: {answer:?}");
        assert_eq!((node.waits_for_rollout(&fleet), node.status(&fleet, CREATED).release), (waits, state));
    }
}

#[test]
fn how_a_node_stands_to_its_release() {
    let selection = selection(&[("a", entry("main", "new"))], vec![]);
    let (old, new) = (head(1, "main", &selection), head(2, "main", &selection));
    let fleet = heads(1, vec![new.clone()]);
    // Past the slack that nodes have, too.
    let late = CREATED.plus(Duration::from_secs(FRESH_SECS + 1) + model::time::SLACK);
    for (what, hostname, holds, now, want) in [
        ("nothing yet", "a", None, CREATED, ReleaseState::Behind),
        ("the one", "a", Some(held(&new, "new")), CREATED, ReleaseState::Current),
        ("an older one with the same set", "a", Some(held(&old, "new")), late, ReleaseState::Current),
        ("an older one", "a", Some(held(&old, "old")), CREATED, ReleaseState::Behind),
        ("an older one, and the offer is stale", "a", Some(held(&old, "old")), late, ReleaseState::NotFresh),
        ("no entry", "b", None, CREATED, ReleaseState::Unassigned),
    ] {
        let mut node = node(hostname);
        node.check_in(holding(holds), &fleet, now);
        assert_eq!(node.status(&fleet, now).release, want, "{what}");
    }
    // What it says itself of what it holds, whatever the control plane knows.
    let mut node_says = node("a");
    let since = Some(CREATED);
    let freshness = Some(HeldFreshness { signed_at: CREATED, not_fresh_since: since, stale_since: since });
    node_says.check_in(CheckIn { freshness, ..holding(Some(held(&new, "new"))) }, &fleet, CREATED);
    assert_eq!(node_says.status(&fleet, CREATED).release, ReleaseState::NotFresh);
    node_says.check_in(holding(Some(held(&new, "new"))), &fleet, CREATED);
    assert_eq!(node_says.status(&fleet, CREATED).release, ReleaseState::Current);
    let mut never = node("a");
    assert_eq!(never.status(&fleet, Timestamp(0)).overall().to_string(), "changing");
}
