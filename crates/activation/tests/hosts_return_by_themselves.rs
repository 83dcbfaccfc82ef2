//! ROL-7, ROL-12: whatever an activation does to its host, and wherever the power is cut, the host ends on its
//! confirmed generation or on a newly confirmed one, is guarded on the whole way, and confirms nothing whose enforcing
//! probes did not pass after the switch in this boot.
//!
//! Random histories (releases that break what they touch, kills before any effect, power cuts, a full disk, records
//! that cannot be synced, no bus, a cut network, halts, answers of another boot) in virtual time; then the faults end, with the network cut, and the
//! host must come to rest. `ACTIVATION_SEED=n` replays one history and prints it, `ACTIVATION_SEEDS=n` sets how many
//! there are.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

mod simulated;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use simulated::{MUST_REACH, SimulatedHost};

/// Histories of one host each.
const SEEDS: u64 = 100_000;
/// Histories after which everything must have happened.
const ENOUGH: u64 = 5_000;
/// Things that happen in one history before the faults end.
const STEPS: usize = 120;
/// Lines of a failed history that are printed.
const LINES: usize = 60;
/// No seed: none failed.
const NONE: u64 = u64::MAX;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn in_every_history() {
    if let Some(seed) = number("ACTIVATION_SEED") {
        return tell(seed);
    }
    let seeds = number("ACTIVATION_SEEDS").unwrap_or(SEEDS);
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(NONE));
    let reached: Mutex<BTreeSet<&str>> = Mutex::default();
    let began = std::time::Instant::now();
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let mut here = BTreeSet::new();
                while failed.load(Ordering::Relaxed) == NONE {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    let mut host = SimulatedHost::new(seed);
                    if catch_unwind(AssertUnwindSafe(|| run(&mut host, seed))).is_err() {
                        failed.fetch_min(seed, Ordering::Relaxed);
                    }
                    here.extend(host.reached);
                }
                reached.lock().unwrap().extend(here);
            });
        }
    });
    let failed = failed.into_inner();
    if failed != NONE {
        eprintln!("ACTIVATION_SEED={failed} replays it:");
        tell(failed);
        panic!("seed {failed} failed once, and not when it was replayed");
    }
    println!("{seeds} histories in {:?}", began.elapsed());
    let reached = reached.into_inner().unwrap();
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
        std::panic::resume_unwind(panic);
    }
}
