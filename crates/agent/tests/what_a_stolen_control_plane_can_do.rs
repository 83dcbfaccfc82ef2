//! OPS-2, ROL-4, IDN-8: what a control plane with every key of its own stolen still can do, each with the bound that holds:
//! withhold, delay, point at a release that is fresh or a fallback that is named, spend what a release delegates while
//! that is fresh, and change the objects that it lets in.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use model::log::{Cursor, FactBody};
use model::work::{ActionOutcome, Work};
use test_support::agent_links::manifest;
use test_support::scripted::stage::{DAY, OfferPlan, make};
use test_support::scripted::stolen::{Instead, said};
use test_support::scripted::victim::{ACTION, FOLDER, Victim, delegated, delegating};
use test_support::scripted::{now, problem};
use test_support::wait::{eventually, until};
use trust::release::Fallback;
use trust::signed;
use wire::{Code, Problem, route};

/// It converges on what it holds, whatever the control plane does not say.
#[tokio::test(flavor = "multi_thread")]
async fn withhold() {
    let victim = Victim::start().await;
    let silence: [(&str, Instead); 4] = [
        ("nothing works", Instead::Reply(said(StatusCode::BAD_GATEWAY, "text/html", None, Vec::new()))),
        ("it is not known", refusal(Code::UnknownNode)),
        ("it is revoked", refusal(Code::Revoked)),
        ("it is too old", refusal(Code::AgentTooOld)),
    ];
    for (what, instead) in silence {
        let asked = victim.control.asked(route::CHECKIN) + 1;
        victim.control.instead(route::CHECKIN, instead);
        until(what, async || {
            victim.nudge();
            (victim.control.asked(route::CHECKIN) >= asked).then_some(())
        })
        .await;
        std::fs::write(victim.root.join("etc/motd"), "by hand\n").unwrap();
        eventually(&format!("{what}: an edit is put right"), || victim.file("/etc/motd") == "five\n").await;
    }
    // Whoever takes it back finds it as it was.
    victim.control.as_usual();
    victim.nudge();
    victim.adopts(&delegating(6, "six\n")).await;
}

fn refusal(code: Code) -> Instead {
    Instead::Reply(problem(&Problem::new(code, "go away")))
}

/// A release counts for as long as it says, and not a day longer.
#[tokio::test(flavor = "multi_thread")]
async fn delay_within_freshness() {
    let victim = Victim::start().await;
    let late = |seq, created| OfferPlan { created, ..delegating(seq, &format!("release {seq}\n")) };
    victim.adopts(&late(6, now().minus(DAY - Duration::from_secs(3600)))).await;
    let too_late = make(&late(7, now().minus(DAY + Duration::from_secs(120))));
    victim.refuses(too_late.offer, "release-stale").await;
    assert_eq!(victim.file("/etc/motd"), "release 6\n");
}

/// Which of the releases that are fresh, and of these a later one only.
#[tokio::test(flavor = "multi_thread")]
async fn point_at_a_fresh_release() {
    let victim = Victim::start().await;
    let all: BTreeMap<u64, OfferPlan> =
        (6..=8).map(|seq| (seq, delegating(seq, &format!("release {seq}\n")))).collect();
    victim.adopts(&all[&7]).await;
    victim.refuses(make(&all[&6]).offer, "release-older").await;
    victim.adopts(&all[&8]).await;
    victim.refuses(make(&all[&7]).offer, "release-older").await;
}

/// Back to what the release names, and to nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn point_at_a_named_fallback() {
    let victim = Victim::start().await;
    let old =
        |seq| OfferPlan { created: now().minus(DAY * 3), ..delegating(seq, &format!("release {seq}\n")) };
    let three = old(3);
    let named = make(&three);
    let fallbacks = vec![Fallback { seq: 3, header: signed::digest(&named.offer.header) }];
    victim.adopts(&OfferPlan { fallbacks, ..delegating(6, "six\n") }).await;
    // Its number alone is not enough, nor another number.
    let of_its_number = make(&OfferPlan { label: Some("x"), ..three.clone() });
    victim.refuses(of_its_number.offer, "release-older").await;
    victim.refuses(make(&old(4)).offer, "release-older").await;
    victim.adopts(&three).await;
    // The way back is to the release that named it, or on; not to what lies between.
    victim.refuses(make(&delegating(5, "evil\n")).offer, "release-older").await;
    victim.adopts(&delegating(7, "seven\n")).await;
}

/// As often as it likes, with any argument that fits.
#[tokio::test(flavor = "multi_thread")]
async fn spend_a_delegation_within_freshness() {
    let mut victim = Victim::start().await;
    for id in ["a", "b", "c"] {
        victim.order(id, delegated());
        assert_eq!(victim.outcome(id).await, ActionOutcome::Exited { code: 0 });
    }
    let args = BTreeMap::from([("word".to_owned(), "edge-of-anything".to_owned())]);
    victim.order("d", Work::Action { name: ACTION.to_owned(), args });
    assert_eq!(victim.outcome("d").await, ActionOutcome::Exited { code: 0 });
    assert_eq!(victim.file("/ran"), "ran\nran\nran\nedge-of-anything\n");
    // Until the freshness of the release ends, and each of them is told to whoever reads the node's log.
    victim.kill();
    victim.end_freshness();
    victim.begin();
    victim.order("e", delegated());
    assert!(matches!(victim.outcome("e").await, ActionOutcome::Refused { .. }));
    assert_eq!(victim.file("/ran").lines().count(), 4);
}

/// Objects of the kinds of the release, in its folder, and none that is a user's own.
#[tokio::test(flavor = "multi_thread")]
async fn change_the_objects_that_a_release_lets_in() {
    let victim = Victim::start().await;
    let own = format!("{FOLDER}/mine.yaml");
    std::fs::write(victim.root.join(own.trim_start_matches('/')), manifest("mine", "a user's own")).unwrap();
    let key = "Item/web/theirs".parse().unwrap();
    victim.put(&key, manifest("theirs", "anything at all"));
    victim.settles("one").await;
    let path = format!("{FOLDER}/item/web/theirs.yaml");
    assert!(victim.file(&path).contains("anything at all"));
    victim.control.feed.remove(&key);
    victim.settles("two").await;
    eventually("it is gone", || victim.file(&path).is_empty()).await;
    assert!(victim.file(&own).contains("a user's own"));
}

/// Runs on what is held, one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn request_runs() {
    let victim = Victim::start().await;
    let number = std::sync::atomic::AtomicU64::new(1);
    victim.control.stage.play().twist = Some(Arc::new(move |answer| {
        answer.run_request = Some(number.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    }));
    let before = victim.control.stage.play().check_ins;
    let begun = std::time::Instant::now();
    victim.contacts(5).await;
    let (made, took) = (victim.control.stage.play().check_ins - before, begun.elapsed());
    // A request each time makes no host spin: at most one contact a second, and one out of turn.
    assert!(made as u64 <= 2 * (took.as_secs() + 1) + 5, "{made} check-ins in {took:?}");
    assert_eq!(victim.file("/etc/motd"), "five\n");
}

/// It may lose what it was told; whoever holds the node's signed word can show it. What was not told is not lost.
#[tokio::test(flavor = "multi_thread")]
async fn lose_what_it_was_told() {
    let victim = Victim::start().await;
    // It takes all facts as told that there will ever be.
    let incarnation = victim.control.stage.play().said.as_ref().unwrap().incarnation.clone();
    victim.control.stage.play().twist = Some(Arc::new(move |answer| {
        answer.acked = Some(Cursor { incarnation: incarnation.clone(), seq: (1 << 53) - 1 });
    }));
    victim.contacts(2).await;
    victim.control.stage.play().twist = None;
    let six = delegating(6, "six\n");
    let wanted = signed::digest(&make(&six).offer.header);
    victim.adopts(&six).await;
    until("what happened since comes all the same", async || {
        let play = victim.control.stage.play();
        let is_told = |body: &FactBody| matches!(body, FactBody::Adopted { header, .. } if *header == wanted);
        play.facts.values().any(|fact| is_told(&fact.body)).then_some(())
    })
    .await;
}
