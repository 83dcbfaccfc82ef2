//! ROL-4: a release that needs what this build lacks is refused by name, and the release that is
//! held is converged on as before.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{Bench, Release, START, adoption_of, facts, offering, report, run_of, warnings};
use model::log::FactBody;
use node::{NodeEffect, NodeInput};

#[test]
fn a_release_that_requires_what_is_lacking_is_refused_and_the_held_one_goes_on() {
    let held = Release::new(1, START, &["a"]);
    let mut bench = Bench::holding(&held);
    let mut next = Release::new(2, START, &["a", "b"]);
    next.header.requires = vec!["waves".to_owned(), "x".to_owned()];
    let offer = next.offer(Some(&held.set));
    let effects = bench.exchange(offering(offer.clone()));
    let [FactBody::Refused { code, message }] = facts(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!(code, "release-requires");
    let said = "release 2 requires waves, x, which this agent does not have; install a newer muster-agent";
    assert_eq!(message, said);
    assert_eq!(warnings(&effects).len(), 1);
    assert!(!effects.iter().any(|effect| matches!(effect, NodeEffect::Fetch { .. } | NodeEffect::Adopt(_))));
    // Offered again, it is the same news.
    assert!(facts(&bench.exchange(offering(offer))).is_empty());
    // The held release is converged on at its next time.
    assert_eq!(bench.node.adoption().unwrap().seq, 1);
    bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    let mut runs = (0..100).filter_map(|_| run_of(&bench.pass(Duration::from_secs(60))).cloned());
    assert_eq!(runs.next().expect("a run on the held set").seq, 1);
    // The floor did not rise: the same number without the requirement is taken.
    let mut bench = Bench::holding(&held);
    bench.exchange(offering(next.offer(Some(&held.set))));
    next.header.requires.clear();
    bench.exchange(offering(next.offer(Some(&held.set))));
    assert!(adoption_of(&bench.give(NodeInput::Fetched)).is_some());
}
