//! A resident agent's run that changes nothing, beside a bare stat-read-hash loop over the
//! same files in the same process, as figures in JSON. `cargo xtask bench` runs it:
//! `noop_run STATE ROOT FILES`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agent::clock::now;
use agent::machine::Machine;
use agent::runner::Runner;
use agent::storage::Storage;
use converge::{RunMode, RunScope};
use figures::{Figure, Unit};
use node::RunOrder;
use sha2::{Digest as _, Sha256};

const TIMES: usize = 21;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (state, root) = (PathBuf::from(&args[1]), PathBuf::from(&args[2]));
    let count: usize = args[3].parse().unwrap();
    std::fs::create_dir_all(root.join("etc/bench")).unwrap();
    test_support::agent_state::join(&state, &root, false);
    let mut module = test_support::agent_state::module("bench");
    for number in 0..count {
        let path = format!("/etc/bench/file-{number:04}.conf");
        module.resources.push(test_support::agent_state::file(&path, &format!("setting = {number}\n")));
    }
    test_support::agent_state::adopt(&state, 1, vec![module]);
    let machine = Machine::open(&test_support::agent_state::machine_options(&state, &root, false)).unwrap();
    let adoption = machine.durable.adoption().unwrap().unwrap();
    let storage = Storage::start(machine.durable.clone()).unwrap();
    let runner = Runner::new(machine.kinds.clone(), storage, "host.test".to_owned());
    let traits = providers::traits::collect(machine.kinds.host(), "bench", now()).traits;
    let order = RunOrder {
        unfinished: Vec::new(),
        seq: 1,
        root: adoption.root,
        intended: true,
        pause: None,
        scope: RunScope::All,
        requested_tags: Default::default(),
    };
    let first = runner.run(&order, &traits, RunMode::Apply).unwrap().report;
    assert_eq!((first.counts.changed, first.counts.failed), (count as u32, 0));
    let agent = median(|| {
        let report = runner.run(&order, &traits, RunMode::Apply).unwrap().report;
        assert_eq!((report.counts.ok, report.counts.changed), (count as u32, 0));
    });
    let files: Vec<PathBuf> =
        (0..count).map(|number| root.join(format!("etc/bench/file-{number:04}.conf"))).collect();
    let bare = median(|| files.iter().for_each(|path| look(path)));
    let (ratio, millis) =
        (agent.as_secs_f64() / bare.as_secs_f64(), |time: Duration| time.as_secs_f64() * 1e3);
    let rows = [
        Figure::plain("bare open-stat-read-hash loop", millis(bare), Unit::Millis),
        Figure::plain("resident run", millis(agent), Unit::Millis),
        Figure::at_most("resident run to the bare loop", ratio, 3.0, Unit::Times),
        Figure::at_most("resident memory of that process", resident_mib(), 15.0, Unit::Mib),
    ];
    println!("{}", serde_json::to_string(&rows).unwrap());
}

fn look(path: &Path) {
    let mut file = std::fs::File::open(path).unwrap();
    let metadata = file.metadata().unwrap();
    let mut bytes = Vec::with_capacity(metadata.len() as usize + 1);
    file.read_to_end(&mut bytes).unwrap();
    std::hint::black_box(Sha256::digest(&bytes));
}

fn median(mut work: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..TIMES)
        .map(|_| {
            let started = Instant::now();
            work();
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[TIMES / 2]
}

fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}
