//! ROL-7, ROL-12: whatever an activation does to its host, and wherever the power is cut, the host ends on its
//! confirmed generation or on a newly confirmed one, is guarded on the whole way, and confirms nothing whose enforcing
//! probes did not pass after the switch in this boot.
//!
//! Random histories (releases that break what they touch, kills before any effect, power cuts, a full disk, no bus, a
//! cut network, halts, answers of another boot) in virtual time; then the faults end, with the network cut, and the
//! host must come to rest. `ACTIVATION_SEED=n` replays one history and prints it, `ACTIVATION_SEEDS=n` sets how many
//! there are.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod simulated;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use simulated::{MUST_REACH, SimulatedHost};

/// Histories of one host each.
const SEEDS: u64 = 20_000;
/// Histories after which everything must have happened.
const ENOUGH: u64 = 5_000;
/// Things that happen in one history before the faults end.
const STEPS: usize = 120;
/// Lines of a failed history that are printed.
const LINES: usize = 60;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn in_every_history() {
    if let Some(seed) = number("ACTIVATION_SEED") {
        return tell(seed);
    }
    let seeds = number("ACTIVATION_SEEDS").unwrap_or(SEEDS);
    let mut reached = BTreeSet::new();
    for seed in 0..seeds {
        let mut host = SimulatedHost::new(seed);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(&mut host, seed))) {
            eprintln!("ACTIVATION_SEED={seed} replays it:");
            tell(seed);
            resume_unwind(panic);
        }
        reached.extend(host.reached);
    }
    let missing: Vec<_> = MUST_REACH.iter().filter(|name| !reached.contains(*name)).collect();
    assert!(seeds < ENOUGH || missing.is_empty(), "never happened: {missing:?}");
}

fn run(host: &mut SimulatedHost, seed: u64) {
    (0..STEPS).for_each(|_| host.step());
    if seed.is_multiple_of(2) {
        host.disk_full = false;
    }
    host.network = false;
    host.rest();
}

/// Replays a history, and prints its end.
fn tell(seed: u64) {
    let mut host = SimulatedHost::new(seed);
    host.log = Some(Vec::new());
    let ended = catch_unwind(AssertUnwindSafe(|| run(&mut host, seed)));
    let log = host.log.take().unwrap_or_default();
    let last = &log[log.len().saturating_sub(LINES)..];
    eprintln!("{:?}\n{}", host.natures, last.join("\n"));
    if let Err(panic) = ended {
        resume_unwind(panic);
    }
}
