//! OPS-1, CNV-6: a daemon that is stopped (SIGSTOP, a frozen cgroup) keeps its socket and answers nobody. `status` and
//! `doctor` say so soon, and what is on disk.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use rustix::process::{Pid, Signal, kill_process};
use test_support::agent_local::{LocalHost, printed};
use test_support::agent_state::{file, module};

const TOLD: &str = "the agent does not answer (it may be stopped): shown is what is on disk";

#[test]
fn what_is_on_disk_is_shown_and_what_to_do() {
    let mut base = module("base");
    base.resources = vec![file("/etc/motd", "hello\n")];
    let mut host = LocalHost::new(vec![base]);
    host.start();
    let pid = host.json(&["status"])["daemon"]["pid"].as_i64().unwrap();
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let (code, status) = printed(&host.agent(&["status"]));
    let json = host.json(&["status"]);
    let (doctor_code, doctor) = printed(&host.agent(&["doctor"]));
    kill_process(pid, Signal::CONT).unwrap();

    assert_eq!(code, Some(1), "{status}");
    assert!(status.contains(&format!("DAEMON         {TOLD}")), "{status}");
    assert!(status.contains("next: where it was stopped: kill -CONT its process; else "), "{status}");
    assert!(status.contains("release        1 of channel"), "{status}");
    assert_eq!((&json["daemonAbsence"], json["daemon"].is_null()), (&"silent".into(), true), "{json:#}");
    assert_eq!(doctor_code, Some(1), "{doctor}");
    let line = doctor
        .lines()
        .position(|line| line.starts_with("FAIL  daemon"))
        .unwrap_or_else(|| panic!("{doctor}"));
    assert!(doctor.lines().nth(line).unwrap().ends_with(TOLD), "{doctor}");
    assert!(
        doctor.lines().nth(line + 1).unwrap().contains("next: where it was stopped: kill -CONT"),
        "{doctor}"
    );
    assert!(printed(&host.agent(&["status"])).1.contains("daemon         runs since"), "it goes on");
}
