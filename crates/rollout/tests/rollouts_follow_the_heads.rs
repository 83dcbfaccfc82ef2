//! ROL-1, ROL-2, ROL-4: a release with terms begins a rollout, one without them ends those of its channel, and who is in a
//! channel is in its rollouts; worked out from what is there, however often it is asked.

use std::collections::BTreeSet;

use model::Timestamp;
use model::status::Contact;
use rollout::{
    EarlierRelease, EventAnswer, HeadKind, HeadStep, RolloutCommand, RolloutInput, RolloutKey, RolloutState,
    reads_declared,
};
use trust::RolloutTerms;
use trust::rollout_terms::{NodeEdge, WaveMembers};

use crate::model::driven::{Driven, joining, node_id, release};
use crate::model::terms::{budget, selector, wave};

fn driven() -> Driven {
    Driven::new(RolloutTerms::default(), &[("a", &[]), ("b", &[])])
}

fn key(channel: &str, seq: u64) -> RolloutKey {
    RolloutKey { channel: channel.parse().unwrap(), seq }
}

fn aborted(driven: &Driven, head: &RolloutKey) -> Vec<u64> {
    let HeadStep::End(inputs) = driven.rollouts.follow_head(head, HeadKind::AtOnce) else { panic!() };
    let of = |input: RolloutInput| match input {
        RolloutInput::Command { rollout, by, command: RolloutCommand::Abort } => {
            assert_eq!(by, format!("release {}, which has no rollout", head.seq));
            rollout.seq
        }
        other => panic!("{other:?}"),
    };
    inputs.into_iter().map(of).collect()
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
fn a_release_without_terms_ends_what_is_open() {
    let mut driven = driven();
    let channel = driven.key.channel.clone();
    let nodes = vec![joining("a", &[], Some(40)), joining("b", &[], Some(40))];
    driven.publish(release(&channel, 42, RolloutTerms::default(), nodes)).unwrap();
    assert_eq!(aborted(&driven, &key("stable", 43)), [41, 42], "the one that runs and the one that waits");
    assert_eq!(aborted(&driven, &key("edge", 43)), [] as [u64; 0]);
    driven.command(RolloutCommand::Abort);
    assert_eq!(driven.state(), RolloutState::Superseded);
    let HeadStep::End(inputs) = driven.rollouts.follow_head(&key("stable", 43), HeadKind::AtOnce) else {
        panic!()
    };
    inputs.into_iter().for_each(|input| drop(driven.give(input)));
    assert_eq!(aborted(&driven, &key("stable", 43)), [] as [u64; 0], "what is over is not ended twice");
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
fn a_release_counts_while_it_is_fresh_or_a_fallback_and_nothing_is_said_against_it() {
    let mut driven = driven();
    let at = Timestamp::from_secs(100);
    let counts = |is_fallback, fresh_until| {
        EarlierRelease { is_fallback, fresh_until: Timestamp::from_secs(fresh_until) }.counts(at)
    };
    assert!(counts(false, 100));
    assert!(!counts(false, 99));
    assert!(counts(true, 99));
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
