//! LIF-3, CNV-5: an agent that cannot reach its control plane converges on what it holds; when
//! it is told to stop it lets the run under way end, keeps its facts, and goes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agent::state::StateDir;
use model::log::FactBody;
use rustix::process::Signal;
pub use test_support::agent_local::certify;
use test_support::agent_state::{adopt, handler, join, module};

const DEADLINE: Duration = Duration::from_secs(60);

#[test]
fn a_run_under_way_ends_before_the_agent_does() {
    let dir = tempfile::tempdir().unwrap();
    let (state, root) = (dir.path().join("state"), dir.path().join("root"));
    join(&state, &root, true);
    certify(&state, &root);
    let mut slow = module("slow");
    let script = "touch $MUSTER_ROOT/started; sleep 2; touch $MUSTER_ROOT/ended";
    let mut resource = handler("slow", script);
    resource.attributes.insert("creates".to_owned(), "/ended".into());
    slow.resources = vec![resource];
    adopt(&state, 1, vec![slow]);
    let mut agent = start(&state, &root).spawn().unwrap();
    wait_for("the run starts without a control plane", &mut agent, || root.join("started").exists());
    let told = Command::new("kill").args(["-TERM", &agent.id().to_string()]).status().unwrap();
    assert!(told.success());
    let ended = wait_for_end(&mut agent);
    assert!(ended.success(), "{ended:?}");
    assert!(root.join("ended").exists(), "the command was cut off");
    let durable = StateDir::create(&state).unwrap().open().unwrap();
    let facts = durable.facts(10, 1 << 20).unwrap();
    let ran = facts.iter().any(|fact| matches!(&fact.body, FactBody::Run(run) if run.counts.changed == 1));
    assert!(ran, "the run is no fact: {facts:#?}");
}

/// Whatever the agent begins with, it can be told to stop by then: SIGTERM ends no thread in the middle.
#[test]
fn a_stop_is_heard_before_anything_begins() {
    let dir = tempfile::tempdir().unwrap();
    let (state, root) = (dir.path().join("state"), dir.path().join("root"));
    join(&state, &root, true);
    certify(&state, &root);
    let mut agent = start(&state, &root).spawn().unwrap();
    let process = Path::new("/proc").join(agent.id().to_string());
    let started = Instant::now();
    // In this order: one that hears it only afterwards is seen, as there are threads for a while before.
    while std::fs::read_dir(process.join("task")).map_or(0, Iterator::count) < 2 {
        assert!(started.elapsed() < DEADLINE && agent.try_wait().unwrap().is_none(), "no thread begins");
    }
    let status = std::fs::read_to_string(process.join("status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap();
    let heard = u64::from_str_radix(caught, 16).unwrap() & (1 << (Signal::TERM.as_raw() - 1)) != 0;
    let told = Command::new("kill").args(["-TERM", &agent.id().to_string()]).status().unwrap();
    assert!(told.success());
    let ended = wait_for_end(&mut agent);
    assert!(heard && ended.success(), "{caught}, {ended:?}");
}

pub fn start(state: &Path, root: &Path) -> Command {
    let mut agent = Command::new(env!("CARGO_BIN_EXE_muster-agent"));
    agent.args(["--state".as_ref(), state.as_os_str(), "--root".as_ref(), root.as_os_str()]);
    agent.arg("daemon").stderr(Stdio::null());
    agent
}

pub fn wait_for(what: &str, agent: &mut Child, mut seen: impl FnMut() -> bool) {
    let started = Instant::now();
    while !seen() {
        if started.elapsed() > DEADLINE || agent.try_wait().unwrap().is_some() {
            let _ = agent.kill();
            panic!("not seen: {what}");
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

pub fn wait_for_end(agent: &mut Child) -> std::process::ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(ended) = agent.try_wait().unwrap() {
            return ended;
        }
        if started.elapsed() > DEADLINE {
            let _ = agent.kill();
            panic!("the agent did not end");
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
