//! WIR-6: what the control plane refuses as too large is left out, the rest goes on, and nothing is sent twice as it
//! was refused.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{Bench, answer, traits};
use model::exchange::{CheckIn, TraitReport};
use model::log::{Fact, FactBody};
use model::{Digest, Timestamp};
use node::{CheckInOmissions, NodeInput, Omission, TooLarge};
use serde_json::json;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn fact(seq: u64, bytes: usize) -> Fact {
    let body = FactBody::Refused { code: "x".to_owned(), message: "x".repeat(bytes) };
    Fact { seq, at: Timestamp::from_secs(1), body }
}

fn check_in(facts: Vec<Fact>) -> CheckIn {
    let traits = TraitReport::whole(Digest::of(b"traits"), json!({"a": 1}));
    CheckIn {
        held: None,
        incarnation: "i1".parse().unwrap(),
        facts,
        run: None,
        unmade_run: None,
        freshness: None,
        running_since: None,
        trust: None,
        renewal_failure: None,
        unadopted: None,
        instance: None,
        capabilities: None,
        traits: Some(traits),
        full: false,
        run_confirmed: None,
        tagged_run_confirmed: None,
        seen: None,
        header: None,
        acked: None,
    }
}

/// What is sent, with what was refused left out.
fn sent(left_out: &mut CheckInOmissions, whole: &CheckIn) -> CheckIn {
    sent_at(left_out, whole, NOW)
}

fn sent_at(left_out: &mut CheckInOmissions, whole: &CheckIn, now: Timestamp) -> CheckIn {
    let mut message = whole.clone();
    left_out.take_from(&mut message, now);
    message
}

#[test]
fn the_largest_fact_keeps_its_number_and_says_that_it_is_left_out() {
    let mut left_out = CheckInOmissions::default();
    let whole = check_in(vec![fact(1, 10), fact(2, 500), fact(3, 20)]);
    assert_eq!(sent(&mut left_out, &whole), whole);
    let omission = left_out.refused(&whole, TooLarge::Fact, NOW);
    assert_eq!(omission, Some(Omission::Fact { seq: 2, kind: "refused" }));
    let less = sent(&mut left_out, &whole);
    assert_eq!(
        (&less.facts[0], &less.facts[2], &less.traits),
        (&whole.facts[0], &whole.facts[2], &whole.traits)
    );
    assert_eq!(less.facts[1].seq, 2);
    assert!(
        matches!(&less.facts[1].body, FactBody::Repaired { message } if message.contains("(refused) was left out"))
    );
    // Each further refusal leaves another one out, until there is none.
    assert!(matches!(left_out.refused(&less, TooLarge::Fact, NOW), Some(Omission::Fact { seq: 3, .. })));
    assert!(matches!(left_out.refused(&less, TooLarge::Fact, NOW), Some(Omission::Fact { seq: 1, .. })));
    assert_eq!(left_out.refused(&less, TooLarge::Fact, NOW), None);
    // Another incarnation of the log has other facts under these numbers.
    let other = CheckIn { incarnation: "i2".parse().unwrap(), ..whole };
    assert_eq!(sent(&mut left_out, &other), other);
}

#[test]
fn traits_are_left_out_until_they_change() {
    let mut left_out = CheckInOmissions::default();
    let whole = check_in(vec![fact(1, 10)]);
    assert_eq!(left_out.refused(&whole, TooLarge::CheckIn, NOW), Some(Omission::Traits));
    assert_eq!(sent(&mut left_out, &whole), CheckIn { traits: None, ..whole.clone() });
    let mut changed = whole;
    changed.traits = Some(TraitReport::whole(Digest::of(b"others"), json!({"a": 2})));
    assert_eq!(sent(&mut left_out, &changed), changed);
    let without = CheckIn { traits: None, ..changed };
    assert_eq!(sent(&mut left_out, &without), without);
}

#[test]
fn a_check_in_is_halved_until_it_is_taken() {
    let mut left_out = CheckInOmissions::default();
    let whole = check_in((1..=8).map(|seq| fact(seq, 10)).collect());
    let mut sizes = Vec::new();
    let mut seen = Vec::new();
    let mut message = whole.clone();
    while left_out.refused(&message, TooLarge::CheckIn, NOW).is_some() {
        message = sent(&mut left_out, &whole);
        assert!(!seen.contains(&message), "the same is sent again: {message:?}");
        seen.push(message.clone());
        sizes.push(message.facts.len());
        assert!(sizes.len() < 20);
    }
    assert_eq!(sizes, [4, 2, 1, 1, 1], "then the traits, then the fact itself are left out");
    assert!(message.traits.is_none() && matches!(message.facts[0].body, FactBody::Repaired { .. }));
    for most in [2, 4, 8] {
        left_out.taken(0);
        assert_eq!(sent(&mut left_out, &whole).facts.len(), most);
    }
    left_out.taken(1);
    assert_eq!(sent(&mut left_out, &whole).facts, whole.facts, "fact 1 was acknowledged");
}

/// A proxy that ends TLS can say that anything is too large: traits go again after an hour, and what is left out no more
/// is told no more.
#[test]
fn traits_go_again_after_an_hour_and_nothing_is_told_any_more() {
    let (mut left_out, whole) = (CheckInOmissions::default(), check_in(vec![]));
    assert_eq!(left_out.refused(&whole, TooLarge::CheckIn, NOW), Some(Omission::Traits));
    let later = |secs| NOW.plus(Duration::from_secs(secs));
    assert_eq!(sent_at(&mut left_out, &whole, later(3599)).traits, None);
    assert!(!left_out.taken(0), "they are left out still");
    assert_eq!(sent_at(&mut left_out, &whole, later(3600)), whole);
    // Refused again, they stay out for as long again.
    assert_eq!(left_out.refused(&whole, TooLarge::CheckIn, later(3600)), Some(Omission::Traits));
    assert_eq!(sent_at(&mut left_out, &whole, later(7199)).traits, None);
    assert_eq!(sent_at(&mut left_out, &whole, NOW), whole, "a clock that was set back leaves nothing out");
    assert!(left_out.taken(0), "nothing is left out any more");
    assert!(!left_out.taken(0), "which is told once");
    // Facts that were taken, and as many as usual, are left out no more.
    let whole = check_in(vec![fact(1, 10)]);
    assert!(matches!(left_out.refused(&whole, TooLarge::Fact, NOW), Some(Omission::Fact { .. })));
    assert!(!left_out.taken(0), "it was not acknowledged");
    assert!(left_out.taken(1));
}

/// Whoever left traits out does not take the answer for having said them, though nobody asks for them.
#[test]
fn traits_that_were_left_out_are_said_again_unasked() {
    let mut bench = Bench::new();
    let said = bench.check_in().traits.unwrap();
    bench.give(NodeInput::Answered(Box::new(answer())));
    assert!(bench.check_in().traits.is_none(), "they are as they were said");
    bench.give(NodeInput::Answered(Box::new(answer())));
    bench.traits = traits("another");
    let changed = bench.check_in().traits.unwrap();
    assert_ne!(changed.digest, said.digest);
    for _ in 0..3 {
        bench.give(NodeInput::TraitsLeftOut);
        bench.give(NodeInput::Answered(Box::new(answer())));
        assert_eq!(bench.check_in().traits.as_ref(), Some(&changed), "against those that were said");
    }
    bench.give(NodeInput::Answered(Box::new(answer())));
    assert!(bench.check_in().traits.is_none());
}

/// Traits that became again what was said of them before do not go any more; that they are left out ends all the same.
#[test]
fn traits_that_need_not_go_any_more_are_not_left_out_for_ever() {
    let (mut left_out, whole) = (CheckInOmissions::default(), check_in(vec![]));
    assert_eq!(left_out.refused(&whole, TooLarge::CheckIn, NOW), Some(Omission::Traits));
    let without = CheckIn { traits: None, ..whole };
    sent_at(&mut left_out, &without, NOW.plus(Duration::from_secs(3599)));
    assert!(!left_out.taken(0));
    sent_at(&mut left_out, &without, NOW.plus(Duration::from_secs(3600)));
    assert!(left_out.taken(0));
}

/// The control plane holds older traits and asks for none: those that were left out are not taken for said, go again
/// after the hour, and as a difference from the older ones.
#[test]
fn traits_that_were_left_out_are_not_taken_for_said() {
    let whole = |text: &str| {
        let values = json!({"os": {"family": "debian"}, "network": {"hostname": text}});
        TraitReport::whole(Digest::of(text.as_bytes()), values)
    };
    let (mut bench, mut left_out) = (common::Bench::new(), CheckInOmissions::default());
    bench.traits = whole("a");
    bench.exchange(common::answer());
    bench.traits = whole("b");
    let began = bench.now;
    let first = bench.check_in();
    assert_eq!(left_out.refused(&first, TooLarge::CheckIn, bench.now), Some(Omission::Traits));
    let answered = |bench: &mut common::Bench| {
        bench.give(NodeInput::TraitsLeftOut);
        bench.give(NodeInput::Answered(Box::new(common::answer())));
    };
    answered(&mut bench);
    let said = (0..100).find_map(|_| {
        let message = bench.check_in();
        let went = sent_at(&mut left_out, &message, bench.now);
        if went.traits.is_none() {
            answered(&mut bench);
        }
        went.traits
    });
    let said = said.expect("they go again");
    assert_eq!((said.base, said.digest), (Some(whole("a").digest), whole("b").digest));
    assert!(bench.now.since(began) >= Duration::from_secs(3600));
    bench.give(NodeInput::Answered(Box::new(common::answer())));
    assert!(left_out.taken(0), "which is told");
    // Traits that are as they were before they were left out need not be said.
    bench.traits = whole("c");
    let other = bench.check_in();
    assert_eq!(left_out.refused(&other, TooLarge::CheckIn, bench.now), Some(Omission::Traits));
    assert!(!left_out.taken(0));
    left_out.traits_are_said();
    assert!(left_out.taken(0));
}
