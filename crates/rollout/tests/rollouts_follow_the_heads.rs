//! ROL-1, ROL-2, ROL-4: a release with terms begins a rollout, one without them ends those of its channel, and who is in a
//! channel is in its rollouts; worked out from what is there, however often it is asked.

use std::collections::BTreeSet;

use model::rollout::RolloutTask;
use model::share::Share;
use model::status::Contact;
use model::{Channel, Timestamp};
use rollout::{
    EarlierRelease, EventAnswer, HeadKind, HeadStep, MemberFailure, ReleaseBefore, RolloutCommand,
    RolloutDocument, RolloutEffect, RolloutInput, RolloutKey, RolloutState, reads_declared,
};
use trust::RolloutTerms;
use trust::rollout_terms::{NodeEdge, OnFailure, WaveMembers};

use crate::model::driven::{Driven, joining, node_id, release};
use crate::model::terms::{budget, selector, wave};

fn driven() -> Driven {
    Driven::new(RolloutTerms::default(), &[("a", &[]), ("b", &[])])
}

fn key(channel: &str, seq: u64) -> RolloutKey {
    RolloutKey { channel: channel.parse().unwrap(), seq }
}

/// The channel points to a release that goes to all of its nodes at once; whether anything ended.
fn at_once(driven: &mut Driven, head: &RolloutKey) -> bool {
    match driven.rollouts.follow_head(head, HeadKind::AtOnce) {
        HeadStep::End => drop(driven.give(RolloutInput::AtOnce { head: head.clone() })),
        HeadStep::Known => return false,
        HeadStep::Begin => panic!("{head} has no rollout"),
    }
    true
}

#[test]
fn a_newer_release_begins_its_rollout_once() {
    let driven = driven();
    let follow = |head: &RolloutKey| driven.rollouts.follow_head(head, HeadKind::InRollout);
    assert!(matches!(follow(&key("stable", 42)), HeadStep::Begin));
    assert!(matches!(follow(&key("stable", 41)), HeadStep::Known));
    assert!(matches!(follow(&key("stable", 40)), HeadStep::Known), "the channel has a newer one");
    assert!(matches!(follow(&key("edge", 40)), HeadStep::Begin), "it is of another channel");
}

#[test]
fn a_release_without_terms_ends_what_runs_and_what_waits() {
    let mut driven = driven();
    let channel = driven.key.channel.clone();
    let nodes = vec![joining("a", &[], Some(40)), joining("b", &[], Some(40))];
    driven.publish(release(&channel, 42, RolloutTerms::default(), nodes)).unwrap();
    assert!(!at_once(&mut driven, &key("edge", 43)), "it is of another channel");
    assert!(!at_once(&mut driven, &key("stable", 40)), "both are newer");
    assert!(at_once(&mut driven, &key("stable", 43)));
    for seq in [41, 42] {
        let document = driven.rollouts.document(&key("stable", seq)).unwrap();
        assert_eq!(document.state, RolloutState::Superseded, "{seq}");
        let cause = document.halt.as_ref().map(|halt| halt.cause.to_string());
        let replaced = "release 43, which goes to all nodes at once, took its place".to_owned();
        assert_eq!(cause, (seq == 41).then_some(replaced), "{seq}");
    }
    assert!(!at_once(&mut driven, &key("stable", 43)), "what is over is not ended twice");
    for name in ["a", "b"] {
        let wakes = RolloutEffect::Wake(node_id(name));
        assert!(driven.effects.contains(&wakes), "{:?}", driven.effects);
        assert_eq!((driven.rollouts.pointer(&node_id(name)), driven.why(name)), (None, String::new()));
    }
}

/// One node of `*` at a time, over all channels.
fn one_at_a_time(on_failure: OnFailure) -> RolloutTerms {
    RolloutTerms {
        waves: vec![wave("rest", WaveMembers::Rest, 60, 100)],
        budgets: vec![budget("*", Some(Share::Count(1)), None)],
        on_failure,
        ..RolloutTerms::default()
    }
}

/// Whoever is on its way, or fell silent in it: nobody waits for it any more.
#[test]
fn what_ended_holds_no_slot_and_no_channel() {
    for falls_silent in [false, true] {
        let mut driven = Driven::new(one_at_a_time(OnFailure::Halt), &[("a", &[])]);
        driven.activate("a");
        if falls_silent {
            driven.wait(2 * 3600);
            assert!(matches!(driven.member("a").failure, Some(MemberFailure::Silent { .. })));
        }
        let edge: Channel = "edge".parse().unwrap();
        let after =
            RolloutTerms { after: vec![driven.key.channel.clone()], ..one_at_a_time(OnFailure::Halt) };
        driven.publish(release(&edge, 42, after, vec![joining("e", &[], Some(40))])).unwrap();
        driven.contact("e", Contact::Online);
        assert!(driven.why("e").contains("channel stable goes first"), "{}", driven.why("e"));
        assert!(at_once(&mut driven, &key("stable", 43)));
        assert!(!driven.member("a").in_flight());
        let asked = driven.rollouts.member(&key("edge", 42), &node_id("e")).unwrap().asked;
        assert!(asked.is_some(), "{}", driven.why("e"));
        // What it says of the one that ended is taken, and takes no slot again.
        driven.fail_softly("a");
        assert!(!driven.member("a").in_flight());
    }
}

/// A rollout that gave way to another one before, and in which a node fell silent, holds no slot either.
#[test]
fn what_gave_way_before_holds_no_slot_either() {
    let mut driven = Driven::new(one_at_a_time(OnFailure::Halt), &[("a", &[])]);
    let first = driven.key.clone();
    driven.activate("a");
    driven.wait(2 * 3600);
    let nodes = vec![joining("a", &[], Some(40))];
    driven.publish(release(&first.channel, 42, one_at_a_time(OnFailure::Halt), nodes)).unwrap();
    assert_eq!(driven.rollouts.document(&first).unwrap().state, RolloutState::Superseded);
    let in_flight = |driven: &Driven| driven.rollouts.member(&first, &node_id("a")).unwrap().in_flight();
    assert!(in_flight(&driven));
    assert!(at_once(&mut driven, &key("stable", 43)));
    assert!(!in_flight(&driven));
    assert!(!at_once(&mut driven, &key("stable", 43)), "nothing is left to be ended");
}

/// The rollout of 41 is through, 42 goes to all at once, and 43 has a rollout: it leads from 42, and back to it.
#[test]
fn a_rollout_after_one_without_leads_from_what_nodes_have() {
    let mut driven = Driven::new(one_at_a_time(OnFailure::Rollback), &[("a", &[])]);
    let channel = driven.key.channel.clone();
    driven.activate("a");
    driven.pass("a");
    driven.wait(60);
    assert_eq!(driven.converged("a", 60), EventAnswer::Accepted);
    assert_eq!(driven.state(), RolloutState::Terminal);
    assert!(at_once(&mut driven, &key("stable", 42)), "one that is through as well");
    assert_eq!(driven.state(), RolloutState::Superseded);
    assert!(driven.rollouts.document(&key("stable", 41)).unwrap().is_proven(), "nothing was said against it");
    let next = release(&channel, 43, one_at_a_time(OnFailure::Rollback), vec![joining("a", &[], Some(42))]);
    (driven.key, driven.id) = (next.key.clone(), next.id.clone());
    driven.publish(next).unwrap();
    assert_eq!(driven.member("a").before, Some(42));
    assert!(driven.is_asked("a"), "{}", driven.why("a"));
    driven.activate("a");
    driven.fail("a");
    let pointer = driven.rollouts.pointer(&node_id("a")).unwrap();
    assert_eq!((pointer.release, pointer.dispatch.task), (Some(42), RolloutTask::GoBack));
}

/// What a node tells late of a rollout that ended is older than what it has.
#[test]
fn a_word_of_before_does_not_take_back_what_a_node_has() {
    let mut driven = Driven::new(one_at_a_time(OnFailure::Halt), &[("a", &[])]);
    let channel = driven.key.channel.clone();
    driven.activate("a");
    driven.pass("a");
    driven.wait(60);
    assert!(at_once(&mut driven, &key("stable", 42)));
    let next = release(&channel, 43, one_at_a_time(OnFailure::Halt), vec![joining("a", &[], Some(42))]);
    let later = next.key.clone();
    driven.publish(next).unwrap();
    assert_eq!(driven.converged("a", 60), EventAnswer::Accepted);
    let before = driven.rollouts.member(&later, &node_id("a")).unwrap().before;
    assert_eq!(before, Some(42));
}

/// A node that moved is pointed by the rollout of its channel, however old that is.
#[test]
fn what_ended_points_nobody() {
    let mut driven = Driven::new(one_at_a_time(OnFailure::Halt), &[("a", &[])]);
    let edge = key("edge", 40);
    driven.publish(release(&edge.channel, 40, one_at_a_time(OnFailure::Halt), Vec::new())).unwrap();
    driven.give(RolloutInput::Joined { channel: edge.channel.clone(), node: joining("a", &[], Some(39)) });
    assert!(at_once(&mut driven, &key("stable", 44)));
    assert_eq!(driven.rollouts.pointer(&node_id("a")).unwrap().rollout, edge);
}

#[test]
fn who_is_in_the_channel_is_in_its_rollouts() {
    let driven = driven();
    let (stable, edge) = (key("stable", 0).channel, key("edge", 0).channel);
    let (a, b, c) = (node_id("a"), node_id("b"), node_id("c"));
    assert!(driven.rollouts.lacks_member(&stable, &c));
    assert!(!driven.rollouts.lacks_member(&stable, &a));
    assert!(!driven.rollouts.lacks_member(&edge, &a), "that channel has no rollout");
    assert_eq!(driven.rollouts.strangers(&stable, &BTreeSet::from([&a, &c])), BTreeSet::from([b]));
    assert_eq!(driven.rollouts.strangers(&edge, &BTreeSet::new()), BTreeSet::new());
    assert_eq!(driven.rollouts.left_by(&a, Some(&stable)), BTreeSet::new());
    assert_eq!(driven.rollouts.left_by(&a, Some(&edge)), BTreeSet::from([stable.clone()]));
    assert_eq!(driven.rollouts.left_by(&a, None), BTreeSet::from([stable]));
    assert_eq!(driven.rollouts.left_by(&c, None), BTreeSet::new());
}

/// A rollout that another one took the place of has nobody to come to it.
#[test]
fn nobody_joins_what_is_over() {
    let mut driven = driven();
    let channel = driven.key.channel.clone();
    driven.command(RolloutCommand::Abort);
    let nodes = vec![joining("c", &[], Some(40))];
    driven.publish(release(&channel, 42, RolloutTerms::default(), nodes)).unwrap();
    assert_eq!(driven.state(), RolloutState::Superseded);
    assert!(!driven.rollouts.lacks_member(&channel, &node_id("c")), "it is in the one that runs");
    assert!(driven.rollouts.lacks_member(&channel, &node_id("a")), "and this one is not");
}

#[test]
fn releases_that_members_may_be_pointed_to_are_in_use() {
    let driven = Driven::new(RolloutTerms::default(), &[("a", &[])]);
    assert_eq!(driven.rollouts.releases_in_use(), BTreeSet::from([key("stable", 40), key("stable", 41)]));
}

/// ROL-4: it is these that want to be signed anew while a rollout stands still.
#[test]
fn members_stay_on_the_release_before_until_their_wave_opens() {
    let canary = WaveMembers::Where(selector("a"));
    let waves = vec![wave("canary", canary, 60, 100), wave("rest", WaveMembers::Rest, 60, 100)];
    let terms = RolloutTerms { waves, ..RolloutTerms::default() };
    let mut driven = Driven::new(terms, &[("a", &[]), ("b", &[]), ("c", &[])]);
    driven.contact("c", Contact::Offline);
    let before = |driven: &Driven| driven.rollouts.releases_before(&driven.key);
    for name in ["a", "b"] {
        driven.activate(name);
        assert_eq!(before(&driven), BTreeSet::from([40]), "{name} is on its way, and not all are");
        driven.pass(name);
        driven.wait(60);
        assert_eq!(driven.converged(name, 60), EventAnswer::Accepted, "{}", driven.why(name));
        driven.wait(60);
    }
    assert_eq!(driven.state(), RolloutState::Terminal);
    assert_eq!(before(&driven), BTreeSet::new(), "c has the release once it calls");
}

/// ROL-4: a node that went back stays where it is, also once the rollout is through.
#[test]
fn who_went_back_stays_on_the_release_before() {
    let waves = vec![wave("all", WaveMembers::Rest, 0, 0)];
    let mut driven = Driven::new(RolloutTerms { waves, ..RolloutTerms::default() }, &[("a", &[])]);
    driven.activate("a");
    driven.fail("a");
    driven.back("a");
    assert_eq!(driven.rollouts.releases_before(&driven.key), BTreeSet::from([40]), "{:?}", driven.state());
}

#[test]
fn a_release_is_proven_while_nothing_is_said_against_it() {
    let mut driven = driven();
    let is_proven = |driven: &Driven, seq| driven.rollouts.document(&key("stable", seq)).unwrap().is_proven();
    assert!(!is_proven(&driven, 41), "it is under way");
    let channel = driven.key.channel.clone();
    for seq in [42, 43] {
        let nodes = vec![joining("a", &[], Some(40)), joining("b", &[], Some(40))];
        driven.publish(release(&channel, seq, RolloutTerms::default(), nodes)).unwrap();
    }
    assert_eq!(driven.rollouts.document(&key("stable", 42)).unwrap().state, RolloutState::Superseded);
    assert!(!is_proven(&driven, 42), "it gave way while it waited, so nobody ran it");
    driven.command(RolloutCommand::Abort);
    assert!(driven.rollouts.document(&key("stable", 43)).unwrap().state.is_running());
    assert!(!is_proven(&driven, 41), "it was aborted, and gave way then");
}

/// A release that was through counts, also once another one took its place.
#[test]
fn a_release_that_was_through_is_proven() {
    let waves = vec![wave("all", WaveMembers::Rest, 0, 100)];
    let mut driven = Driven::new(RolloutTerms { waves, ..RolloutTerms::default() }, &[("a", &[])]);
    driven.activate("a");
    driven.pass("a");
    driven.converged("a", 0);
    let document = |driven: &Driven| driven.rollouts.document(&driven.key).unwrap().clone();
    assert_eq!((driven.state(), document(&driven).is_proven()), (RolloutState::Terminal, true));
    let (channel, nodes) = (driven.key.channel.clone(), vec![joining("a", &[], Some(41))]);
    driven.publish(release(&channel, 42, RolloutTerms::default(), nodes)).unwrap();
    assert_eq!((driven.state(), document(&driven).is_proven()), (RolloutState::Superseded, true));
}

/// The rollout of a release that was through, or was halted.
fn rollout_of(seq: u64, state: RolloutState) -> RolloutDocument {
    let driven = driven();
    let document = driven.rollouts.document(&driven.key).unwrap().clone();
    RolloutDocument { key: key("stable", seq), state, ..document }
}

/// ROL-1: which release a node without one is pointed to until its wave opens.
#[test]
fn the_release_before_is_the_newest_that_nothing_speaks_against() {
    use HeadKind::{AtOnce, InRollout};
    let now = Timestamp::from_secs(100);
    let release = |seq, kind, fresh_until| EarlierRelease {
        seq,
        kind,
        is_fallback: false,
        fresh_until: Timestamp::from_secs(fresh_until),
    };
    let fallback = |seq, kind| EarlierRelease { is_fallback: true, ..release(seq, kind, 99) };
    let through = |seq| rollout_of(seq, RolloutState::Terminal);
    let failed = |seq| rollout_of(seq, RolloutState::Failed);
    type Case = (&'static str, Vec<RolloutDocument>, Vec<EarlierRelease>, Option<u64>);
    let cases: Vec<Case> = vec![
        ("there is none", vec![], vec![], None),
        ("it went to all at once", vec![], vec![release(40, AtOnce, 100)], Some(40)),
        ("it is not fresh any more", vec![], vec![release(40, AtOnce, 99)], None),
        ("it is a fallback", vec![], vec![fallback(40, AtOnce)], Some(40)),
        ("it was through", vec![through(40)], vec![release(40, InRollout, 100)], Some(40)),
        ("it halted", vec![failed(40)], vec![release(40, InRollout, 100)], None),
        ("it halted, and is a fallback", vec![failed(40)], vec![fallback(40, InRollout)], None),
        ("its rollout never began", vec![], vec![release(40, InRollout, 100)], None),
        ("nor did that of a fallback", vec![], vec![fallback(40, InRollout)], None),
        (
            "the newest of two",
            vec![through(41)],
            vec![release(41, InRollout, 100), release(40, AtOnce, 100)],
            Some(41),
        ),
        (
            "what halted is passed over",
            vec![failed(42), through(41)],
            vec![release(42, InRollout, 100), release(41, InRollout, 100), release(40, AtOnce, 100)],
            Some(41),
        ),
        (
            "so is what is not fresh",
            vec![through(42)],
            vec![release(42, InRollout, 99), fallback(41, AtOnce)],
            Some(41),
        ),
    ];
    for (what, rollouts, releases, wanted) in cases {
        let mut before = ReleaseBefore::of(&rollouts);
        for release in &releases {
            let halted = rollouts
                .iter()
                .any(|document| document.key.seq == release.seq && document.state == RolloutState::Failed);
            assert_eq!(before.is_open(release.seq), before.found().is_none() && !halted, "{what}");
            before.look_at(release, now);
        }
        assert_eq!(before.found(), wanted, "{what}");
    }
}

#[test]
fn terms_read_what_is_declared_where_a_selector_does() {
    let of_names = RolloutTerms {
        waves: vec![wave("half", WaveMembers::Percent(50), 0, 100), wave("all", WaveMembers::Rest, 0, 100)],
        budgets: vec![budget("*", None, Some(1))],
        ..RolloutTerms::default()
    };
    assert!(!reads_declared(&of_names));
    let by_wave = wave("db", WaveMembers::Where(selector("tier=db")), 0, 100);
    let edge = NodeEdge { before: selector("*"), after: selector("tier=db") };
    for reading in [
        RolloutTerms { waves: vec![by_wave], ..of_names.clone() },
        RolloutTerms { budgets: vec![budget("@all", None, Some(1))], ..of_names.clone() },
        RolloutTerms { edges: vec![edge], ..of_names.clone() },
    ] {
        assert!(reads_declared(&reading));
    }
}
