//! CFG-7, CNV-5, DLT-3, ROL-4, SCL-3: under loss, crashes, restarts, wrong clocks and a control plane
//! broken into, no node is led astray and no fact is lost; when it is over, all is well.
//!
//! `SIM_SEED=n cargo test -p sim -- --nocapture` replays one simulation with its trace;
//! `SIM_SEEDS=n` runs that many.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::collections::BTreeMap;

/// How many simulations a plain test run makes.
const SEEDS: u64 = 200;

#[test]
fn whatever_happens() {
    if let Some(seed) = number("SIM_SEED") {
        return replay(seed);
    }
    let seeds = number("SIM_SEEDS").unwrap_or(SEEDS);
    let mut tally: BTreeMap<&str, u64> = BTreeMap::new();
    let tallies = std::thread::scope(|threads| {
        let halves = [0, 1].map(|first| threads.spawn(move || simulations((first..seeds).step_by(2))));
        halves.map(|half| half.join().unwrap_or_else(|failure| std::panic::resume_unwind(failure)))
    });
    for (what, count) in tallies.into_iter().flatten() {
        *tally.entry(what).or_default() += count;
    }
    for (what, count) in &tally {
        println!("{count:>8}  {what}");
    }
    for what in REACHED {
        assert!(tally.get(what).is_some_and(|count| *count > 0), "never reached: {what}");
    }
}

fn simulations(seeds: impl Iterator<Item = u64>) -> BTreeMap<&'static str, u64> {
    let mut tally = BTreeMap::new();
    for seed in seeds {
        let report = sim::run(seed, false);
        if let Some(failure) = report.failure {
            panic!("seed {seed}: {failure}; replay it: SIM_SEED={seed} cargo test -p sim -- --nocapture");
        }
        for (what, count) in report.tally {
            *tally.entry(what).or_default() += count;
        }
    }
    tally
}

/// What a run must have met, or it showed less than it says.
const REACHED: &[&str] = &[
    "answer: contents",
    "answer: no change",
    "answer: offer",
    "answer: replayed",
    "answer: skewed",
    "fault: all cut off",
    "fault: clock off",
    "fault: control plane broken into",
    "fault: control plane killed",
    "fault: database down or up",
    "fault: disk full",
    "fault: killed",
    "fault: log lost",
    "fault: node cut off",
    "fault: old sets forgotten",
    "fault: power lost at a write",
    "host: changed by hand",
    "host: trait changed",
    "hostile: a flipped bit",
    "hostile: an older release",
    "hostile: another key",
    "hostile: another node's proof",
    "hostile: other contents",
    "hostile: unsigned",
    "hostile: wrong sizes",
    "machine: died",
    "network: answer lost",
    "network: request lost",
    "network: request replayed",
    "network: request sent twice",
    "node: adopted",
    "node: refused an offer",
    "node: warned of no contact",
    "node: went back to a named fallback",
    "not-entitled",
    "operator: beacons",
    "operator: publishes",
    "operator: requests runs by tag",
    "operator: run requests",
    "runs: by a tag that nothing has",
    "runs: by tag",
    "runs: drift put right",
    "runs: intended change",
    "store-unavailable",
];

#[test]
fn a_seed_is_one_life() {
    let (one, two) = (sim::run(3, true), sim::run(3, true));
    assert!(one.trace.len() > 100);
    assert_eq!((one.trace, one.tally), (two.trace, two.tally));
}

fn replay(seed: u64) {
    let report = sim::run(seed, true);
    for line in &report.trace {
        println!("{line}");
    }
    if let Some(failure) = report.failure {
        panic!("seed {seed}: {failure}");
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
