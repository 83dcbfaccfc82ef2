//! ROL-1, ROL-5, ROL-7, ROL-12: the step of rollouts and the step of activations, driven together: budgets are never
//! exceeded, a node is confirmed only with its declared enforcing probes passed since the activation, no wave opens before
//! its gate or its `notBefore`, a halted rollout starts nothing, nobody is stranded.
//!
//! The worlds, their faults and their judges are those of the model of rollouts
//! (`crates/rollout/tests/rollouts_keep_their_promises.rs`): control planes that decide at once, die and restart, partitions,
//! lying nodes, clocks set back. Here each node has the real step of activations, with what the agent tells of it: agents
//! that are killed between two effects, watchdogs, power cuts, disks that cannot be written, releases that cut their host
//! off. Then the world heals, and every node must be confirmed on the newest release.
//!
//! `WORLD_SEED=n` replays one world (`ROLLOUT_TRACE=host` tells the story of that host), `WORLD_SEEDS=n` sets how many small
//! ones there are, `WORLD_LARGE_SEED=n` which one of 10,000 nodes is played.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

#[path = "both_steps/host.rs"]
mod host;
#[allow(dead_code, clippy::all)]
#[path = "../../rollout/tests/model/mod.rs"]
mod model;
#[path = "both_steps/reached.rs"]
mod reached;
#[path = "both_steps/release.rs"]
mod release;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::host::RealHost;
use crate::model::world::{Size, World};
use crate::reached::{HOSTS_REACH, LARGE_REACHES, take_reached};

/// How many small worlds there are by default.
const SEEDS: u64 = 3_000;
/// Worlds after which everything must have happened.
const ENOUGH: u64 = 1_000;
const SMALL: Size = Size { nodes: 6, steps: 40, planes: 2, wide_every: 1 };
const LARGE: Size = Size { nodes: 10_000, steps: 30, planes: 1, wide_every: 500 };

/// What happened, by name.
type Reached = BTreeMap<&'static str, u64>;

fn add(total: &mut Reached, more: Reached) {
    more.into_iter().for_each(|(what, times)| *total.entry(what).or_default() += times);
}

/// Plays a world; gives what the world and its hosts went through.
fn run(seed: u64, size: Size) -> Result<Reached, String> {
    take_reached();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::of(seed, size, |node| {
            Some(Box::new(RealHost::new(node.confirmed, node.hostname.as_str())))
        });
        (0..size.steps).for_each(|_| world.step());
        world.heal();
        add(&mut world.reached, take_reached());
        world.reached
    }));
    outcome.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn in_every_world() {
    if let Some(seed) = number("WORLD_SEED") {
        let reached = run(seed, SMALL).unwrap_or_else(|why| panic!("WORLD_SEED={seed} fails: {why}"));
        return println!("{reached:#?}");
    }
    let seeds = number("WORLD_SEEDS").unwrap_or(SEEDS);
    let (next, has_failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let failures: Mutex<Vec<(u64, String)>> = Mutex::default();
    let total: Mutex<Reached> = Mutex::default();
    let began = std::time::Instant::now();
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while !has_failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    match run(seed, SMALL) {
                        Ok(more) => add(&mut total.lock().unwrap(), more),
                        Err(why) => {
                            failures.lock().unwrap().push((seed, why));
                            has_failed.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    if let Some((seed, why)) = failures.into_inner().unwrap().first() {
        panic!("WORLD_SEED={seed} fails: {why}");
    }
    println!("{seeds} worlds in {:?}", began.elapsed());
    let reached = total.into_inner().unwrap();
    println!("{reached:#?}");
    let missed: Vec<_> = HOSTS_REACH.iter().filter(|what| !reached.contains_key(*what)).collect();
    assert!(missed.is_empty() || seeds < ENOUGH, "never happened: {missed:?}");
}

#[test]
fn ten_thousand_nodes_in_one_world() {
    let seed = number("WORLD_LARGE_SEED").unwrap_or(1);
    let began = std::time::Instant::now();
    let reached = run(seed, LARGE).unwrap_or_else(|why| panic!("WORLD_LARGE_SEED={seed} fails: {why}"));
    println!("10,000 nodes in {:?}", began.elapsed());
    println!("{reached:#?}");
    let missed: Vec<_> = LARGE_REACHES.iter().filter(|what| !reached.contains_key(*what)).collect();
    assert!(missed.is_empty(), "never happened: {missed:?}");
}
