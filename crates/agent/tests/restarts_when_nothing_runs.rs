//! LIF-3, OPS-6: an agent that is asked to restart (SIGUSR1), as its package does when the agent
//! itself installed it, lets the run under way end first, however long it takes, and then ends.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command};
use std::time::Duration;

use test_support::agent_state::{adopt, handler, join, module};

use crate::stops_in_order::{certify, start, wait_for, wait_for_end};

fn ask(agent: &Child) {
    let asked = Command::new("kill").args(["-USR1", &agent.id().to_string()]).status().unwrap();
    assert!(asked.success());
}

#[test]
fn the_run_under_way_ends_first() {
    let dir = tempfile::tempdir().unwrap();
    let (state, root) = (dir.path().join("state"), dir.path().join("root"));
    join(&state, &root, true);
    certify(&state, &root);
    let mut slow = module("slow");
    // It ends only after the agent was asked, and did not go.
    let script = "touch $MUSTER_ROOT/started; until test -e $MUSTER_ROOT/go; do sleep 0.05; done; \
                  touch $MUSTER_ROOT/ended";
    let mut resource = handler("slow", script);
    resource.attributes.insert("creates".to_owned(), "/ended".into());
    slow.resources = vec![resource];
    adopt(&state, 1, vec![slow]);
    let log = dir.path().join("log");
    let mut agent = start(&state, &root).stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    let said = || std::fs::read_to_string(&log).unwrap();
    wait_for("the run starts", &mut agent, || root.join("started").exists());
    ask(&agent);
    wait_for("the agent knows", &mut agent, || said().contains("restarting once nothing runs"));
    std::fs::write(root.join("go"), "").unwrap();
    let ended = wait_for_end(&mut agent);
    assert!(ended.success(), "{ended:?}");
    assert!(root.join("ended").exists(), "the command was cut off");
    // A stop bounds what it waits for, so it must come after the run.
    let (run, stop) = (said().find("a run ended").unwrap(), said().find("stopping").unwrap());
    assert!(run < stop, "it was stopping before the run ended:\n{}", said());
}

#[test]
fn the_service_manager_hears_when_it_serves_and_when_it_stops() {
    let dir = tempfile::tempdir().unwrap();
    let (state, root, socket) =
        (dir.path().join("state"), dir.path().join("root"), dir.path().join("notify"));
    join(&state, &root, true);
    certify(&state, &root);
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let heard = || {
        let mut message = [0; 64];
        let length = manager.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    let mut agent = start(&state, &root).env("NOTIFY_SOCKET", &socket).spawn().unwrap();
    assert_eq!(heard(), "READY=1\n");
    // It is idle, so it ends at once.
    ask(&agent);
    assert_eq!(heard(), "STOPPING=1\n");
    assert!(wait_for_end(&mut agent).success());
}
