//! OPS-2, SYN-10, LIF-5: commands and queries of the real programs. What a command prints is shown
//! while it runs, through a restart of the control plane; a command runs once, whatever is killed;
//! cancelled, it ends; what is not delegated is refused; and exit codes say what it came to.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::json;
use test_support::programs::{Host, Prefix, Running, Server, text, write};
use test_support::wait::until_blocking as until;

/// What the hosts can run: each waits until the test lets it go on, or a minute.
const SCRIPTS: [(&str, &str); 3] = [
    ("live.sh", "echo first; . ./wait.sh; echo second; echo third >&2"),
    ("once.sh", "echo $$ >> began; . ./wait.sh; echo ended >> ended"),
    ("wait.sh", "n=0; until [ -e go ] || [ $n = 600 ]; do n=$((n + 1)); sleep 0.1; done"),
];

fn write_fleet(repo: &Path) {
    let fleet = "format: 1\nname: e2e\nchannels:\n  fast: {contact: 1s, jitter: 10%, freshness: 24h}\n\
                 defaults: {channel: fast}\ndelegations:\n  ops:\n    nodes: [\"web-*\"]\n    \
                 commands: [\"/bin/sh *.sh\", /bin/false]\n    queries: [traits, {file: [\"/etc/*\"]}]\n";
    write(&repo.join("fleet.yaml"), fleet);
    write(&repo.join("nodes.yaml"), "nodes:\n  - {match: [\"web-*\"]}\n");
}

/// A control plane, and hosts that hold the release.
struct Place {
    server: Server,
    control: Option<Running>,
    hosts: Vec<(Host, Running)>,
    _temp: tempfile::TempDir,
}

impl Place {
    fn new(names: &[&str]) -> Place {
        let temp = tempfile::tempdir().unwrap();
        let mut server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
        let control = Some(server.start());
        let repo = temp.path().join("repo");
        write_fleet(&repo);
        server.publish(&repo);
        let join = |name: &&str| {
            let host = Host::new(temp.path(), name, &Prefix::new()).with_commands();
            for (script, text) in SCRIPTS {
                write(&host.path(script), text);
            }
            server.token(name, &host.token_file());
            host.join();
            let daemon = host.start();
            (host, daemon)
        };
        let hosts = names.iter().map(join).collect();
        names.iter().for_each(|name| server.until_state(name, "converged"));
        Place { server, control, hosts, _temp: temp }
    }

    fn host(&self) -> &Host {
        &self.hosts[0].0
    }

    /// Types a task for the first host, which goes on meanwhile.
    fn run(&self, script: &str) -> Running {
        self.server.begin("task", &["task", "run", &self.host().name, "--", "/bin/sh", script])
    }

    /// Waits until `once.sh` began; gives the line that it wrote, which names its process.
    fn until_began(&self) -> String {
        until("it began", || Some(self.host().read("began")).filter(|began| began.ends_with('\n')))
    }

    /// The newest task.
    fn task(&self) -> String {
        self.server.json(&["task", "list"])[0]["id"].as_str().unwrap().to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Whatever still waits comes to its end.
        for (host, _) in &self.hosts {
            let _ = std::fs::write(host.path("go"), "");
        }
    }
}

#[test]
fn output_is_shown_while_a_command_runs_through_a_restart_of_the_control_plane() {
    let mut place = Place::new(&["web-1"]);
    let mut typed = place.run("live.sh");
    until("the first line is shown", || typed.out().contains("web-1 | first\n").then_some(()));
    assert!(!place.host().path("go").exists() && typed.is_there(), "the command still runs");
    assert!(!typed.out().contains("second"), "{}", typed.out());

    place.control.take().unwrap().kill();
    place.control = Some(place.server.start());
    write(&place.host().path("go"), "");
    let out = typed.out_at_end(0);
    for line in ["web-1 | first\n", "web-1 | second\n", "web-1 ! third\n"] {
        assert_eq!(out.matches(line).count(), 1, "once: {out}");
    }
    assert!(out.contains("1x  succeeded  web-1"), "{out}");
    // Both streams are kept; which of two pipes is read first is nobody's promise.
    let kept = place.server.ok(&["task", "output", &place.task(), "web-1"]);
    let kept: BTreeSet<&str> = kept.lines().collect();
    assert_eq!(kept, ["first", "second", "third"].into());
}

#[test]
fn a_command_whose_agent_is_killed_is_unknown_and_never_run_again() {
    let mut place = Place::new(&["web-1"]);
    let typed = place.run("once.sh");
    let began = place.until_began();
    let (host, daemon) = place.hosts.pop().unwrap();
    daemon.kill();
    place.control.take().unwrap().kill();
    place.control = Some(place.server.start());
    let daemon = host.start();
    place.hosts.push((host, daemon));
    // Who followed it all the time is told in the end.
    let out = typed.out_at_end(3);
    assert!(out.contains("1x  unknown"), "{out}");
    assert!(out.contains("next: it may have been done"), "{out}");

    // A later task is done: the agent has dealt with all that was before it.
    write(&place.host().path("go"), "");
    let out = place.run("live.sh").out_at_end(0);
    assert!(out.contains("web-1 | second\n"), "{out}");
    assert_eq!(place.host().read("began"), began, "it began once");
    // What the killed agent left behind comes to its own end, once.
    place.host().until_read("ended", "ended\n");
}

#[test]
fn a_task_is_cancelled_refused_or_fails_and_the_exit_code_says_so() {
    let place = Place::new(&["web-1", "web-2"]);
    let server = &place.server;

    // Who is interrupted while following leaves it running; cancelled, it is ended.
    let typed = place.run("once.sh");
    let process = format!("/proc/{}", place.until_began().trim());
    let task = place.task();
    typed.interrupt();
    typed.out_at_end(1);
    assert!(Path::new(&process).exists(), "it goes on");
    server.ok(&["task", "cancel", &task]);
    let shown = server.muster(&["task", "show", &task, "--follow"]);
    assert_eq!(shown.status.code(), Some(3), "{shown:?}");
    assert!(text(&shown.stdout).contains("cancelled"), "{shown:?}");
    until("its process is gone", || (!Path::new(&process).exists()).then_some(()));
    assert!(!place.host().path("ended").exists());

    // What is not delegated is refused, and nothing of it is done.
    let refused = server.muster(&["task", "run", "web-*", "--yes", "--", "/usr/bin/touch", "touched"]);
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    assert!(text(&refused.stdout).contains("2x  refused"), "{refused:?}");
    assert!(place.hosts.iter().all(|(host, _)| !host.path("touched").exists()));

    // It ran, and did not succeed.
    let failed = server.muster(&["task", "run", "web-*", "--yes", "--", "/bin/false"]);
    assert_eq!(failed.status.code(), Some(3), "{failed:?}");
    assert!(text(&failed.stdout).contains("2x  exit 1  web-1, web-2"), "{failed:?}");
}

#[test]
fn queries_are_answered() {
    let place = Place::new(&["web-1", "web-2"]);
    for (host, _) in &place.hosts {
        host.edit("etc/os-release", "ID=muster\nVERSION_ID=7\n");
        host.edit("etc/motd", &format!("welcome to {}\n", host.name));
        host.edit("secret", "nobody's business\n");
    }
    let version = place.server.json(&["query", "web-*", "traits", "os.version"]);
    let answer = json!({"answer": "7", "nodes": ["web-1", "web-2"]});
    assert_eq!(version, json!({"asked": 2, "answers": [answer]}));

    let file = place.server.json(&["query", "web-*", "file", "/etc/motd"]);
    let texts =
        file["answers"].as_array().unwrap().iter().map(|same| (&same["nodes"][0], &same["answer"]["text"]));
    let texts: BTreeMap<_, _> =
        texts.map(|(node, text)| (node.as_str().unwrap(), text.as_str().unwrap())).collect();
    assert_eq!(texts, [("web-1", "welcome to web-1\n"), ("web-2", "welcome to web-2\n")].into());

    let refused = place.server.muster(&["query", "web-*", "file", "/secret"]);
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    assert!(!text(&refused.stdout).contains("business"), "{refused:?}");
}
