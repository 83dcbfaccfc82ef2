//! CNV-3, LIF-10: a run that cannot be made is told in each check-in until one is made, and what is gone of the
//! release is fetched or written again without anybody's help, whatever became of its freshness and its key (ROL-4).
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{Bench, FRESH, Release, START, adoption_of, facts, offering, report, run_of};
use model::exchange::CheckIn;
use model::log::FactBody;
use model::{Digest, UnmadeRunCause};
use node::{HeldSettings, NodeEffect, NodeInput, Restored, RunFailure};

fn failed(cause: UnmadeRunCause, reason: &str) -> NodeInput {
    NodeInput::RunFailed(RunFailure { cause, reason: reason.to_owned() })
}

/// The next full run is due, and cannot be made.
fn fails(bench: &mut Bench, input: NodeInput) -> Vec<NodeEffect> {
    assert!(run_of(&bench.give(NodeInput::RunNow(Default::default()))).is_some());
    bench.give(input)
}

fn says(check_in: &CheckIn) -> Option<(UnmadeRunCause, &str)> {
    check_in.unmade_run.as_ref().map(|unmade| (unmade.cause, unmade.reason.as_str()))
}

fn fetched(effects: &[NodeEffect]) -> Vec<Digest> {
    let contents = effects.iter().filter_map(|effect| match effect {
        NodeEffect::Fetch { contents, .. } => Some(contents.iter().copied()),
        _ => None,
    });
    contents.flatten().collect()
}

#[test]
fn missing_content_is_fetched_and_a_run_follows() {
    let release = Release::new(1, START, &["one"]);
    let mut bench = Bench::holding(&release);
    bench.exchange(common::answer());
    let at = bench.now;
    fails(&mut bench, failed(UnmadeRunCause::MissingContent, "content is missing"));
    let check_in = bench.check_in();
    assert!(bench.now.since(at) <= Duration::from_secs(2), "it waits: {:?}", bench.now.since(at));
    assert_eq!(says(&check_in), Some((UnmadeRunCause::MissingContent, "content is missing")));
    assert_eq!(check_in.unmade_run.unwrap().since, at);
    assert!(check_in.full, "the whole set is asked for");
    let effects = bench.give(NodeInput::Answered(Box::new(offering(release.offer(None)))));
    assert_eq!(fetched(&effects), [Digest::of(b"one")]);
    assert!(adoption_of(&bench.give(NodeInput::Fetched)).is_some());
    let effects = bench.give(NodeInput::Adopted(HeldSettings::default()));
    assert!(run_of(&effects).is_some(), "a run follows at once");
    bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    let check_in = bench.check_in();
    assert_eq!((says(&check_in), check_in.full), (None, false), "it is over");
}

/// CNV-3: a run that takes long is no run that was not made.
#[test]
fn a_run_under_way_is_said_until_it_ends() {
    let mut bench = Bench::holding(&Release::new(1, START, &["one"]));
    assert_eq!(bench.check_in().running_since, None);
    bench.give(NodeInput::Answered(Box::new(common::answer())));
    let began = bench.now;
    assert!(run_of(&bench.give(NodeInput::RunNow(Default::default()))).is_some());
    for _ in 0..3 {
        assert_eq!(bench.check_in().running_since, Some(began));
        bench.give(NodeInput::Answered(Box::new(common::answer())));
    }
    bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    assert_eq!(bench.check_in().running_since, None);
    // A run by tag is not the run that is due.
    let mut bench = Bench::holding(&Release::new(1, START, &["one"]));
    assert!(run_of(&bench.give(NodeInput::RunNow(["web".to_owned()].into()))).is_some());
    assert_eq!(bench.check_in().running_since, None);
}

/// As long as it is so, each check-in says it, with the same beginning.
#[test]
fn it_is_said_until_a_run_is_made() {
    let mut bench = Bench::holding(&Release::new(1, START, &["one"]));
    bench.exchange(common::answer());
    let since = bench.now;
    let mut effects = fails(&mut bench, failed(UnmadeRunCause::State, "the disk is gone"));
    let (mut said, mut tried) = (0, 0);
    while tried < 3 {
        if run_of(&effects).is_some() {
            tried += 1;
            effects = bench.give(failed(UnmadeRunCause::State, "the disk is gone"));
        } else if let Some(check_in) = common::sent(&effects) {
            said += 1;
            let unmade = check_in.unmade_run.clone().expect("it is said");
            assert_eq!((unmade.since, unmade.cause), (since, UnmadeRunCause::State));
            effects = bench.give(NodeInput::Answered(Box::new(common::answer())));
        } else if effects.contains(&NodeEffect::CollectTraits) {
            effects = bench.give(common::observed(&common::traits("debian")));
        } else {
            let wait = bench.wait().expect("something is due");
            effects = bench.pass(wait);
        }
    }
    assert!(said >= 3, "{said}");
}

#[test]
fn a_record_that_is_gone_is_written_again() {
    let release = Release::new(1, START, &["one"]);
    let mut bench = Bench::holding(&release);
    let held = bench.node.adoption().unwrap().clone();
    let effects = fails(&mut bench, failed(UnmadeRunCause::ReleaseLost, "nothing is held"));
    assert_eq!(adoption_of(&effects), Some(&held));
    assert!(run_of(&bench.give(NodeInput::Adopted(HeldSettings::default()))).is_some());
}

/// A run of one tag that nothing has says nothing of the runs that are due.
#[test]
fn a_mistyped_tag_is_no_reason() {
    let mut bench = Bench::holding(&Release::new(1, START, &["one"]));
    assert!(run_of(&bench.give(NodeInput::RunNow(["typo".to_owned()].into()))).is_some());
    bench.give(NodeInput::RunFailed(RunFailure::other("no resource is tagged typo")));
    assert_eq!(bench.node.unmade_run(), None);
}

#[test]
fn an_agent_that_begins_with_damaged_contents_asks_for_them() {
    let release = Release::new(1, START, &["one"]);
    let adoption = Bench::holding(&release).node.adoption().unwrap().clone();
    let restored = Restored { adoption: Some(adoption), content_missing: true, ..Restored::default() };
    let mut bench = Bench::restored_at(restored, START.plus(FRESH / 2));
    assert!(bench.check_in().full);
}

/// ROL-4: what is held is mended when it is not fresh any more, when no key that is believed signed it and when a
/// release that is refused gives the same set; none of that makes anything newer.
#[test]
fn neither_time_nor_a_retired_key_keeps_a_content_away() {
    let release = Release::new(1, START, &["one"]);
    let same_set = Release::new(2, START, &["one"]);
    let (late, retired) = (FRESH * 9, Duration::from_secs(3600));
    let mut by_another = release.offer(None);
    by_another.header.signatures =
        trust::signed::sign(&release.header, &[&trust::SigningKey::from_seed(&[9; 32])]).unwrap().signatures;
    for (what, after, offer, refused) in [
        ("not fresh", late, release.offer(None), None),
        ("its key is believed no more", retired, by_another, None),
        ("a refused one with the same set", late, same_set.offer(None), Some("release-stale")),
    ] {
        let mut bench = Bench::holding(&release);
        bench.now = START.plus(after);
        bench.exchange(common::answer());
        bench.give(NodeInput::Ran(Box::new(report(0, 1))));
        let (held, fresh) = (bench.node.adoption().unwrap().clone(), bench.node.freshness());
        bench.freshness.clear();
        fails(&mut bench, failed(UnmadeRunCause::MissingContent, "content is missing"));
        for round in 0..3 {
            assert!(bench.check_in().full, "{what}");
            let effects = bench.give(NodeInput::Answered(Box::new(offering(offer.clone()))));
            assert_eq!(fetched(&effects), [Digest::of(b"one")], "{what}");
            let told = facts(&effects).into_iter().filter_map(|fact| match fact {
                FactBody::Refused { code, .. } => Some(code.as_str()),
                _ => None,
            });
            assert_eq!(told.collect::<Vec<_>>(), Vec::from_iter(refused.filter(|_| round == 0)), "{what}");
            if round < 2 {
                bench.give(NodeInput::FetchFailed("cut off".to_owned()));
            }
        }
        assert_eq!(adoption_of(&bench.give(NodeInput::Fetched)), Some(&held), "{what}: as it was adopted");
        let effects = bench.give(NodeInput::Adopted(HeldSettings::default()));
        assert!(run_of(&effects).is_some(), "{what}: a run follows at once");
        assert_eq!((bench.node.adoption(), bench.node.freshness()), (Some(&held), fresh), "{what}");
        assert_eq!(bench.freshness, [], "{what}: nothing of freshness is told or kept");
        bench.give(NodeInput::Ran(Box::new(report(0, 1))));
        assert!(!bench.check_in().full, "{what}: it is over");
    }
}

/// A refused release that gives another set mends nothing.
#[test]
fn a_refused_release_gives_only_what_is_held() {
    let mut bench = Bench::holding(&Release::new(1, START, &["one"]));
    let stale = Release::new(2, START.minus(FRESH * 2), &["one", "two"]);
    bench.exchange(common::answer());
    fails(&mut bench, failed(UnmadeRunCause::MissingContent, "content is missing"));
    let effects = bench.exchange(offering(stale.offer(None)));
    assert_eq!(fetched(&effects), []);
    assert!(matches!(facts(&effects)[..], [FactBody::Refused { code, .. }] if code == "release-stale"));
    let strange = Release::new(1, START.minus(FRESH * 2), &["two"]);
    // It says that it is the set that is held, and is not.
    fails(&mut bench, failed(UnmadeRunCause::MissingContent, "content is missing"));
    let mut lies = strange.offer(None);
    lies.entry.root = bench.node.adoption().unwrap().root;
    let effects = bench.exchange(offering(lies));
    assert_eq!(fetched(&effects), []);
    assert_eq!(bench.node.adoption().unwrap().seq, 1);
}
