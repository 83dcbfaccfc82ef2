//! ROL-1, ROL-5: budgets are never exceeded, a node is confirmed only with its declared enforcing probes
//! passed since the activation, no wave opens before its gate or its `notBefore`, a halted rollout starts
//! nothing, nobody is asked for a way back that was given up, who counts as confirmed is on the release and who went back
//! from it is not told to go on with it, nobody is stranded.
//!
//! Random worlds in virtual time: two control planes over one store that decide at once, die before they
//! store, and restart; nodes that fail in every way, are cut off, lie, come and go; events lost, twice and out
//! of order; clocks set back. Every stored decision is judged by plain functions over all that is stored, and
//! what is held in memory by what is rebuilt. Then the world heals, and every node must come to the newest
//! release. `ROLLOUT_SEED=n` replays one world, with `ROLLOUT_TRACE=host` the story of that host; `ROLLOUT_SEEDS=n`
//! sets how many there are.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::model::world::{Size, World};

/// Most worlds are short.
const SHORT: Size = Size { nodes: 4, steps: 16, planes: 2, wide_every: 2 };
const SMALL: Size = Size { nodes: 6, steps: 40, planes: 2, wide_every: 1 };
/// One world of so many is not short.
const SMALL_EVERY: u64 = 12;
/// How many worlds there are by default.
const SEEDS: u64 = 100_000;
const LARGE: Size = Size { nodes: 10_000, steps: 40, planes: 1, wide_every: 500 };

/// What the worlds must have gone through.
const MUST_REACH: &[&str] = &[
    "published",
    "went to all at once",
    "contact",
    "command",
    "command refused",
    "restart",
    "died before it stored",
    "decision lost",
    "joined",
    "joined fresh",
    "removed",
    "log lost",
    "clock set",
    "lie",
    "answer lost",
    "event twice",
    "event gap",
    "event refused",
    "rebuilt",
    "pointer of a plane that is behind",
    "calls later",
    "slot left",
    "told of the end of an earlier rollout",
    "halted once it was through",
    "went back once it was confirmed",
    "paused by its administrator",
    "held off for long",
    "held off once it acknowledged",
    "Active",
    "Converging",
    "Terminal",
    "Reverted",
    "Failed",
    "Superseded",
    "Pruned",
    "DispatchAck",
    "DispatchReject",
    "ActivationStarted",
    "ActivationComplete",
    "ActivationFailed",
    "ActivationDeferred",
    "ProbeTopologyDeclared",
    "ProbeResult",
    "node Failed",
    "RollbackComplete",
    "Converged",
];

/// What a world of very many nodes must have gone through, beside what its rollouts come to.
const LARGE_MUST_REACH: &[&str] = &[
    "restart",
    "died before it stored",
    "contact",
    "lie",
    "answer lost",
    "event twice",
    "event gap",
    "rebuilt",
];

fn size(seed: u64) -> Size {
    if seed.is_multiple_of(SMALL_EVERY) { SMALL } else { SHORT }
}

fn run(seed: u64, size: Size) -> Result<BTreeMap<&'static str, u64>, String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(seed, size);
        for step in 0..size.steps {
            world.step();
            if step % 16 == 12 {
                world.rebuilt_is_held();
            }
        }
        world.heal();
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
fn rollouts_keep_their_promises() {
    if let Some(seed) = number("ROLLOUT_SEED") {
        match run(seed, size(seed)) {
            Ok(reached) => println!("{reached:#?}"),
            Err(why) => panic!("ROLLOUT_SEED={seed} fails: {why}"),
        }
        return;
    }
    let seeds = number("ROLLOUT_SEEDS").unwrap_or(SEEDS);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (next, has_failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let total: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());
    let failures: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());
    let began = std::time::Instant::now();
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let mut reached: BTreeMap<&'static str, u64> = BTreeMap::new();
                while !has_failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    match run(seed, size(seed)) {
                        Ok(more) => {
                            more.into_iter().for_each(|(what, n)| *reached.entry(what).or_default() += n)
                        }
                        Err(why) => {
                            failures.lock().unwrap().push((seed, why));
                            has_failed.store(true, Ordering::Relaxed);
                        }
                    }
                }
                let mut total = total.lock().unwrap();
                reached.into_iter().for_each(|(what, n)| *total.entry(what).or_default() += n);
            });
        }
    });
    std::panic::set_hook(hook);
    let failures = failures.into_inner().unwrap();
    if let Some((seed, why)) = failures.first() {
        panic!("ROLLOUT_SEED={seed} fails: {why}");
    }
    let total = total.into_inner().unwrap();
    println!("{seeds} worlds in {:?}", began.elapsed());
    for (what, n) in &total {
        println!("{n:>12}  {what}");
    }
    let missed: Vec<_> = MUST_REACH.iter().filter(|what| !total.contains_key(*what)).collect();
    assert!(missed.is_empty() || seeds < 2000, "never reached: {missed:?}");
}

#[test]
fn ten_thousand_nodes_in_one_world() {
    let seed = number("ROLLOUT_LARGE_SEED").unwrap_or(1);
    let began = std::time::Instant::now();
    let reached = run(seed, LARGE).unwrap_or_else(|why| panic!("ROLLOUT_LARGE_SEED={seed} fails: {why}"));
    println!("10,000 nodes in {:?}", began.elapsed());
    println!("{reached:#?}");
    let missed: Vec<_> = LARGE_MUST_REACH.iter().filter(|what| !reached.contains_key(*what)).collect();
    assert!(missed.is_empty(), "never reached: {missed:?}");
}
