//! CNV-12: a file on a file system that does not answer fails after its resource's time, with a cause
//! that names the mount; independent modules go on; later runs do not look at it again, and no threads
//! pile up; hand edits elsewhere are put right by their events all the while. Runs and their commands let the machine's own work go first.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};

use catalog::module::{DeclaredResource, Module};
use serde_json::Value;
use test_support::agent_local::LocalHost;
use test_support::agent_state::{file, module, resource};
use test_support::wait::until_blocking;

/// Mounts in a namespace of its own and becomes the rest of its arguments.
const MOUNT: &str = r#"mount -i -t fuse hung "$1" -o "fd=$2,rootmode=40000,user_id=0,group_id=0" &&
                       shift 2 && exec "$@""#;

/// A FUSE file system whose server reads nothing, so that whoever looks at it waits; `None` where it
/// cannot be had.
fn fuse() -> Option<OwnedFd> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can mount");
        return None;
    }
    match File::options().read(true).write(true).open("/dev/fuse") {
        // What is duplicated stays open in the commands that are started.
        Ok(device) => Some(rustix::io::dup(&device).unwrap()),
        Err(error) => {
            eprintln!("skipped: there is no FUSE here: {error}");
            None
        }
    }
}

fn of(name: &str, mut resources: Vec<DeclaredResource>) -> Module {
    for resource in &mut resources {
        resource.timeout = Some(1);
    }
    Module { resources, ..module(name) }
}

fn modules() -> Vec<Module> {
    let line = |path: &str| {
        resource("line", path, &[("path", path.into()), ("line", "x".into()), ("create", true.into())])
    };
    let link = resource("symlink", "/mnt/hung/link", &[("target", "elsewhere".into())]);
    vec![
        of("a-hung", vec![line("/mnt/hung/limits")]),
        of("b-hung", vec![file("/mnt/hung/deep/motd", "x\n")]),
        of("c-linked", vec![file("/etc/linked/motd", "x\n")]),
        of("d-hung", vec![link]),
        of("e-sound", vec![file("/etc/motd", "hello\n"), line("/etc/limits")]),
    ]
}

/// The reason of each resource's failure.
fn failures(report: &Value) -> Vec<(String, String)> {
    let items = report["items"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let failed = items.iter().filter(|item| item["action"] == "failed");
    failed.map(|item| (text(&item["resource"]), text(&item["reason"]))).collect()
}

#[test]
fn independent_modules_go_on_and_no_threads_pile_up() {
    let Some(fuse) = fuse() else { return };
    let mut host = LocalHost::new(modules());
    let point = host.root().join("mnt/hung");
    std::fs::create_dir_all(&point).unwrap();
    std::os::unix::fs::symlink("../mnt/hung", host.root().join("etc/linked")).unwrap();
    let agent = host.command(&["daemon"]);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", MOUNT, "sh"]).arg(&point).arg(fuse.as_raw_fd().to_string());
    command.arg(agent.get_program()).args(agent.get_args()).stdin(Stdio::null());
    host.start_as(command);
    assert_eq!(host.read("etc/motd").unwrap(), "hello\n");
    assert_eq!(host.read("etc/limits").unwrap(), "x\n", "others edit files meanwhile");
    let first = failures(&host.json(&["status"])["lastRun"]);
    assert_eq!(first.len(), 4, "{first:?}");
    for (resource, reason) in &first {
        let named = reason.contains("the file system at /mnt/hung (fuse of hung) did not answer");
        assert!(named, "{resource}: {reason}");
    }
    let waited = "did not answer within 1 s; the run goes on without it";
    assert!(first.iter().any(|(_, reason)| reason.contains(waited)), "{first:?}");

    let pid = host.json(&["status"])["daemon"]["pid"].as_u64().unwrap();
    let jobs = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let name = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
        };
        tasks.filter_map(name).filter(|name| name.starts_with("muster job")).count()
    };
    let hanging = jobs();
    assert!(hanging >= 1, "nothing hung, so nothing was shown");
    // The watch over paths does not wait for it either, behind the link too.
    host.write("etc/motd", "by hand\n");
    until_blocking("a hand edit is put right by its event", || {
        (host.read("etc/motd").as_deref() == Some("hello\n")).then_some(())
    });
    host.write("etc/motd", "by hand\n");
    for _ in 0..3 {
        let report = host.json(&["apply"]);
        let failed = failures(&report);
        assert_eq!(failed.len(), 4, "{report}");
        assert!(
            failed.iter().all(|(_, reason)| reason.contains("is not looked at again before it does")),
            "{failed:?}"
        );
        assert_eq!(host.read("etc/motd").unwrap(), "hello\n", "it is kept all the same");
    }
    assert_eq!(jobs(), hanging, "threads piled up");
}

#[test]
fn runs_let_the_machines_own_work_go_first() {
    let field = "cut -d ' ' -f 19 /proc/self/stat > ";
    let shell = |name: &str, root: &LocalHost| {
        let command = format!("{field}{}", root.root().join(name).display());
        resource("shell", name, &[("command", command.into()), ("always", true.into())])
    };
    let first = LocalHost::new(Vec::new());
    let mut host = LocalHost::new(vec![Module { resources: vec![shell("nice", &first)], ..module("base") }]);
    host.start();
    let nice = first.read("nice").unwrap();
    assert_eq!(nice.trim(), "10", "the commands of a run are nice");
    let pid = host.json(&["status"])["daemon"]["pid"].as_u64().unwrap();
    let nice_of = |process: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(16).unwrap().to_owned()
    };
    assert_eq!(nice_of(&pid.to_string()), nice_of("self"), "the daemon, which answers, is not");
}
