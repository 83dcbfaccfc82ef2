//! DLT-1, DLT-2, DLT-3, DLT-5: a node is sent what differs, and nothing when nothing does.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{
    CONTACT_SECS, CREATED, entry, head, heads, held, holding, name, node, node_key, root, selection,
};
use model::Digest;
use model::Selection;
use model::exchange::{CheckIn, TraitReport};
use model::log::{Cursor, Fact, FactBody};
use model::tags::TaggedRun;
use plane::node::UNASSIGNED_CONTACT_SECS;
use plane::{Heads, NodeState, SetBase, SetWanted};
use trust::seen::Seen;

fn web(content: &str) -> Selection {
    selection(&[("web-1", entry("main", content))], vec![])
}

/// What the control plane makes of one check-in: offered, and the set that has to travel.
fn answered(node: &mut NodeState, request: CheckIn, heads: &Heads) -> (bool, Option<SetWanted>) {
    let step = node.check_in(request, heads, CREATED);
    (step.answer.offer.is_some(), step.wanted)
}

#[test]
fn level_by_level() {
    let (old, same, new) =
        (head(1, "main", &web("a")), head(2, "main", &web("a")), head(3, "main", &web("b")));
    let full = |request: CheckIn| CheckIn { full: true, ..request };
    let target = |base: SetBase, target: &str| Some(SetWanted { base, target: root(target) });
    for (what, head, request, want) in [
        ("the release held", &same, holding(Some(held(&same, "a"))), (false, None)),
        ("a new release, the same root", &same, holding(Some(held(&old, "a"))), (true, None)),
        (
            "another root",
            &new,
            holding(Some(held(&same, "a"))),
            (true, target(SetBase::Offered(root("a")), "b")),
        ),
        ("a root nobody knows", &new, holding(Some(held(&same, "?"))), (true, target(SetBase::Unknown, "b"))),
        (
            "the right release, the wrong root",
            &same,
            holding(Some(held(&same, "?"))),
            (true, target(SetBase::Unknown, "a")),
        ),
        ("nothing held", &new, holding(None), (true, target(SetBase::Nothing, "b"))),
        (
            "all of it, please",
            &same,
            full(holding(Some(held(&same, "a")))),
            (true, target(SetBase::Nothing, "a")),
        ),
    ] {
        let mut node = node("web-1");
        answered(&mut node, holding(None), &heads(1, vec![old.clone()]));
        let answer = answered(&mut node, request, &heads(2, vec![head.clone()]));
        assert_eq!(answer, want, "{what}");
    }
}

/// IDN-5: a difference says what is in the set that it starts from.
#[test]
fn a_difference_starts_from_what_the_node_was_given_alone() {
    let mut node = node("web-1");
    let mut base = |number: u64, claimed: &str| {
        let pointed = head(number, "main", &web(&format!("set {number}")));
        let claim = held(&head(0, "main", &web(claimed)), claimed);
        answered(&mut node, holding(Some(claim)), &heads(number, vec![pointed])).1.map(|wanted| wanted.base)
    };
    let given = |number: u64| Some(SetBase::Offered(root(&format!("set {number}"))));
    // That of another node may be known here, and is not known to this one.
    assert_eq!(base(1, "another node's"), Some(SetBase::Unknown));
    assert_eq!(base(2, "set 1"), given(1));
    assert_eq!(base(3, "set 2"), given(2));
    assert_eq!(base(4, "set 2"), given(2), "one that did not take the last");
    assert_eq!(base(5, "set 2"), Some(SetBase::Unknown), "what is remembered has a bound");
}

#[test]
fn an_unchanged_answer_is_empty() {
    let head = head(2, "main", &web("a"));
    let mut node = node("web-1");
    node.traits = Some(Digest::ZERO);
    let held = held(&head, "a");
    let log_head = Cursor { incarnation: "i1".parse().unwrap(), seq: 0 };
    let seen =
        Seen { node: node.id.clone(), header: held.header, seq: 2, log_head, at: CREATED, acked: None };
    let document = seen.sign(&node_key()).unwrap();
    assert!(node.take_seen(&document).unwrap());
    assert!(!node.take_seen(&document).unwrap(), "the same bytes are neither verified nor stored again");
    let step = node.check_in(holding(Some(held)), &heads(1, vec![head]), CREATED);
    assert!(step.unchanged && step.facts.is_empty() && step.traits.is_none() && step.run_confirmed.is_none());
    assert_eq!(
        serde_json::to_string(&step.answer).unwrap(),
        format!(r#"{{"nextCheckinSecs":{CONTACT_SECS}}}"#)
    );
}

#[test]
fn an_offer_proves_itself() {
    let head = head(2, "main", &web("a"));
    let step = node("web-1").check_in(holding(None), &heads(1, vec![head.clone()]), CREATED);
    let offer = step.answer.offer.unwrap();
    assert_eq!(offer.header, *head.signed);
    offer.proof.verify(&head.header.selection, &name("web-1"), &offer.entry, &trust::adopt::takes).unwrap();
    assert_eq!(offer.set, None, "the shell puts it in");
}

#[test]
fn a_run_request_overrides_and_is_cleared_when_confirmed() {
    let head = head(2, "main", &web("a"));
    let (fleet, mut node) = (heads(1, vec![head.clone()]), node("web-1"));
    let holds = holding(Some(held(&head, "a")));
    node.change_open_items(|it| it.run_request = Some(9));
    for confirmed in [None, Some(8)] {
        let step = node.check_in(CheckIn { run_confirmed: confirmed, ..holds.clone() }, &fleet, CREATED);
        assert_eq!(
            (step.answer.run_request, step.run_confirmed, step.unchanged),
            (Some(9), None, false),
            "{confirmed:?}"
        );
        assert_eq!(step.wanted, Some(SetWanted { base: SetBase::Nothing, target: root("a") }));
    }
    let step = node.check_in(CheckIn { run_confirmed: Some(9), ..holds.clone() }, &fleet, CREATED);
    assert_eq!((step.answer.run_request, step.run_confirmed, step.unchanged), (None, Some(9), true));
    assert!(step.answer.offer.is_none());
    let again = node.check_in(CheckIn { run_confirmed: Some(9), ..holds }, &fleet, CREATED);
    assert_eq!(again.run_confirmed, None, "it is done once");
}

/// CFG-7.
#[test]
fn a_request_by_tag_travels_until_it_is_confirmed_and_by_its_own_number() {
    let head = head(2, "main", &web("a"));
    let (fleet, mut node) = (heads(1, vec![head.clone()]), node("web-1"));
    let holds = holding(Some(held(&head, "a")));
    let run = TaggedRun { number: 9, tags: ["web".to_owned()].into() };
    node.change_open_items(|it| it.tagged_run = Some(run.clone()));
    node.change_open_items(|it| it.run_request = Some(8));
    for (full, tagged) in [(None, None), (Some(9), Some(8)), (Some(9), None)] {
        let request = CheckIn { run_confirmed: full, tagged_run_confirmed: tagged, ..holds.clone() };
        let step = node.check_in(request, &fleet, CREATED);
        assert_eq!((step.answer.run_request, step.answer.tagged_run), (Some(8), Some(run.clone())));
        assert_eq!((step.run_confirmed, step.tagged_run_confirmed, step.unchanged), (None, None, false));
    }
    // Without the full one nothing of the set travels.
    let step = node.check_in(CheckIn { run_confirmed: Some(8), ..holds.clone() }, &fleet, CREATED);
    assert_eq!((step.run_confirmed, step.unchanged), (Some(8), false));
    assert!(step.answer.offer.is_none() && step.answer.tagged_run.is_some());
    let request = CheckIn { tagged_run_confirmed: Some(9), ..holds.clone() };
    let step = node.check_in(request.clone(), &fleet, CREATED);
    assert_eq!((step.answer.tagged_run, step.unchanged), (None, true));
    assert_eq!(step.tagged_run_confirmed.as_ref(), Some(&run));
    assert_eq!(node.check_in(request, &fleet, CREATED).tagged_run_confirmed, None, "it is done once");
}

#[test]
fn waiting_work_asks_for_a_stream_on_a_no_change_answer() {
    let head = head(2, "main", &web("a"));
    let (fleet, mut node) = (heads(1, vec![head.clone()]), node("web-1"));
    node.work_waits = true;
    let step = node.check_in(holding(Some(held(&head, "a"))), &fleet, CREATED);
    assert!(step.answer.stream_requested && step.answer.offer.is_none());
}

#[test]
fn a_node_without_entry_is_answered_and_offered_nothing() {
    let fleet = heads(1, vec![head(2, "main", &web("a"))]);
    for fleet in [fleet, Heads::default()] {
        let step = node("stranger").check_in(holding(None), &fleet, CREATED);
        assert!(step.answer.offer.is_none() && step.unchanged);
        assert_eq!(step.answer.next_checkin_secs, UNASSIGNED_CONTACT_SECS);
    }
}

#[test]
fn a_new_head_is_seen_at_once() {
    let (old, new) = (head(1, "main", &web("a")), head(2, "main", &web("b")));
    let mut node = node("web-1");
    let holds = holding(Some(held(&old, "a")));
    assert_eq!(answered(&mut node, holds.clone(), &heads(1, vec![old])), (false, None));
    let (offered, _) = answered(&mut node, holds, &heads(2, vec![new]));
    assert!(offered, "what was worked out for the node is known to be old");
}

#[test]
fn traits_are_taken_when_they_changed() {
    let mut node = node("web-1");
    let report = |text: &str| TraitReport::whole(root(text), serde_json::json!({ "os": text }));
    let mut take = |traits: Option<TraitReport>| {
        let step = node.check_in(CheckIn { traits, ..holding(None) }, &Heads::default(), CREATED);
        (step.traits.is_some(), step.answer.want_traits)
    };
    assert_eq!(take(None), (false, true), "unknown: asked for");
    assert_eq!(take(Some(report("a"))), (true, false));
    assert_eq!(take(Some(report("a"))), (false, false), "known: not stored again");
    assert_eq!(take(Some(report("b"))), (true, false));
    assert_eq!(take(None), (false, false));
}

#[test]
fn a_refusal_is_shown_until_it_no_longer_holds() {
    let (old, new) = (head(1, "main", &web("a")), head(2, "main", &web("a")));
    let mut node = node("web-1");
    let refused = FactBody::Refused { code: "release-stale".to_owned(), message: "stale".to_owned() };
    let fact = Fact { seq: 1, at: CREATED, body: refused };
    node.accepted(Cursor { incarnation: "i1".parse().unwrap(), seq: 1 }, &[fact]);
    let fleet = heads(1, vec![new.clone()]);
    node.check_in(holding(Some(held(&old, "a"))), &fleet, CREATED);
    assert_eq!(node.open_items().refusal.as_ref().map(|refusal| &*refusal.message), Some("stale"));
    // A move of the pointer alone is no fact; that the node holds it says enough.
    node.check_in(holding(Some(held(&new, "a"))), &fleet, CREATED);
    assert_eq!(node.open_items().refusal, None);
}

#[test]
fn first_use_is_said_once() {
    let mut node = node("web-1");
    assert!(node.check_in(holding(None), &Heads::default(), CREATED).first_use);
    assert!(!node.check_in(holding(None), &Heads::default(), CREATED).first_use);
}
