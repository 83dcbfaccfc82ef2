//! LIF-3, CNV-5: an agent that cannot reach its control plane converges on what it holds; when
//! it is told to stop it lets the run under way end, keeps its facts, and goes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agent::identity;
use agent::state::StateDir;
use model::Timestamp;
use model::log::FactBody;
use net::issue::{Ca, CertificateRequest, node_request};
use test_support::agent_state::{adopt, handler, join, module};
use trust::token::KeySource;

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

/// Gives the membership a certificate of the machine's own key.
pub fn certify(state: &Path, root: &Path) {
    let dir = StateDir::create(state).unwrap();
    let mut membership = dir.membership().unwrap().unwrap();
    let key = identity::key(KeySource::Own, state, root).unwrap();
    let now = Timestamp::from_secs(1_795_219_200);
    let (ca, _) = Ca::generate("test", now).unwrap();
    let request = CertificateRequest::read(&node_request(&key, &membership.hostname).unwrap()).unwrap();
    let id = key.public().node_id();
    membership.cert_pem = ca.issue_node(&request, &id, &membership.hostname, [1; 16], now).unwrap();
    membership.ca_pem = ca.cert_pem().to_owned();
    membership.node_id = id;
    dir.save_membership(&membership).unwrap();
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
