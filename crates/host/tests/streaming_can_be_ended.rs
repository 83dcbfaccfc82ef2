//! OPS-2, LIF-5: what a command prints is told as it comes, it ends when it is told to, when
//! its time is over and when the agent stops, always with its whole process group, and it
//! inherits nothing of the agent's environment.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use host::{Cancel, Command, CommandEvent, End, Host, HostOptions, Program, RunError, StreamingCommand};
use model::work::OutputStream;

const LONG: Duration = Duration::from_secs(60);

#[derive(Debug)]
enum Heard {
    Output(OutputStream, String),
    Ended(Result<End, RunError>),
}

fn host_with(options: HostOptions) -> Arc<Host> {
    Arc::new(Host::open(Path::new("/"), options).unwrap())
}

fn start(host: &Arc<Host>, text: &str, timeout: Duration) -> (StreamingCommand, Receiver<Heard>) {
    let command = Command::new(Program::Shell(text.to_owned()), timeout, 0);
    let (tell, heard) = channel();
    let streaming = host
        .run_streaming(command, move |event| {
            let event = match event {
                CommandEvent::Output(stream, bytes) => {
                    assert!(bytes.len() <= 64 * 1024);
                    Heard::Output(stream, String::from_utf8_lossy(bytes).into_owned())
                }
                CommandEvent::Ended(end) => Heard::Ended(end),
            };
            let _ = tell.send(event);
        })
        .unwrap();
    (streaming, heard)
}

/// All that comes until the end, and the end.
fn rest(heard: &Receiver<Heard>) -> (String, End) {
    let mut all = String::new();
    loop {
        match heard.recv_timeout(LONG).unwrap() {
            Heard::Output(_, text) => all.push_str(&text),
            Heard::Ended(end) => return (all, end.unwrap()),
        }
    }
}

/// A time to sleep that no other run of this test on the machine has.
fn secs(number: u32) -> String {
    format!("{number}.{}", std::process::id())
}

/// Whether a `sleep` of this many seconds runs.
fn sleeps(number: u32) -> bool {
    let secs = secs(number);
    fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok()).any(
        |cmdline| {
            let args: Vec<&[u8]> = cmdline.split(|byte| *byte == 0).collect();
            args.first() == Some(&b"sleep".as_slice()) && args.get(1) == Some(&secs.as_bytes())
        },
    )
}

#[test]
fn output_comes_while_the_command_runs() {
    let dir = tempfile::tempdir().unwrap();
    let gate = dir.path().join("gate");
    let text =
        format!("echo first; until [ -e {0} ]; do sleep 0.02; done; echo second >&2; exit 3", gate.display());
    let (streaming, heard) = start(&host_with(HostOptions::default()), &text, LONG);
    let Heard::Output(OutputStream::Stdout, first) = heard.recv_timeout(LONG).unwrap() else { panic!() };
    assert_eq!(first, "first\n");
    assert!(!streaming.is_over());
    fs::write(&gate, "").unwrap();
    let Heard::Output(OutputStream::Stderr, second) = heard.recv_timeout(LONG).unwrap() else { panic!() };
    assert_eq!(second, "second\n");
    assert_eq!(rest(&heard), (String::new(), End::Exited(3)));
    streaming.wait();
    assert!(heard.recv().is_err(), "the end is the last event");
}

#[test]
fn everything_is_told_and_nothing_is_kept() {
    let (_, heard) = start(&host_with(HostOptions::default()), "head -c 50000000 /dev/zero", LONG);
    let (all, end) = rest(&heard);
    assert_eq!((all.len(), end), (50_000_000, End::Exited(0)));
}

#[test]
fn a_kill_ends_the_whole_group_and_only_this_command() {
    let host = host_with(HostOptions::default());
    let (streaming, heard) =
        start(&host, &format!("sleep {} & echo ready; sleep {}", secs(8101), secs(8102)), LONG);
    let (other, other_heard) = start(&host, "read x < /dev/null; echo ready; sleep 0.5; echo done", LONG);
    heard.recv_timeout(LONG).unwrap();
    other_heard.recv_timeout(LONG).unwrap();
    let asked = Instant::now();
    streaming.kill();
    streaming.kill();
    assert_eq!(rest(&heard).1, End::Cancelled);
    assert!(asked.elapsed() < Duration::from_secs(2), "asked to end, it ends at once");
    assert!(!sleeps(8101) && !sleeps(8102));
    assert_eq!(rest(&other_heard), ("done\n".to_owned(), End::Exited(0)));
    streaming.wait();
    other.wait();
}

#[test]
fn what_does_not_listen_is_killed() {
    let text = format!("trap '' TERM; echo ready; while :; do sleep {}; done", secs(8111));
    let (streaming, heard) = start(&host_with(HostOptions::default()), &text, LONG);
    heard.recv_timeout(LONG).unwrap();
    streaming.kill();
    assert_eq!(rest(&heard).1, End::Cancelled);
    assert!(!sleeps(8111));
}

#[test]
fn time_and_the_stop_of_the_agent_end_it_too() {
    let (_, heard) = start(
        &host_with(HostOptions::default()),
        &format!("sleep {}", secs(8121)),
        Duration::from_millis(200),
    );
    assert_eq!(rest(&heard).1, End::TimedOut);
    assert!(!sleeps(8121));
    let cancel = Cancel::default();
    let host = host_with(HostOptions { cancel: cancel.clone(), ..HostOptions::default() });
    let (_, heard) = start(&host, &format!("echo ready; sleep {}", secs(8122)), LONG);
    heard.recv_timeout(LONG).unwrap();
    cancel.cancel();
    assert_eq!(rest(&heard).1, End::Cancelled);
    assert!(!sleeps(8122));
}

#[test]
fn children_that_stay_behind_end_with_it() {
    let (_, heard) = start(
        &host_with(HostOptions::default()),
        &format!("sleep {} >/dev/null 2>&1 & echo done", secs(8131)),
        LONG,
    );
    assert_eq!(rest(&heard), ("done\n".to_owned(), End::Exited(0)));
    assert!(!sleeps(8131));
}

#[test]
fn the_environment_is_made_for_it() {
    // The test runner has many more.
    let (_, heard) =
        start(&host_with(HostOptions::default()), "env | sed 's/=.*//' | sort | tr '\\n' ' '; pwd", LONG);
    let (all, _) = rest(&heard);
    assert_eq!(all, "HOME LANG PATH PWD /\n");
}

#[test]
fn what_cannot_start_is_told_as_its_end() {
    let host = host_with(HostOptions::default());
    let argv = vec!["/no/such/program".to_owned()];
    let (tell, heard) = channel();
    let command = Command::new(Program::Argv(argv), LONG, 0);
    host.run_streaming(command, move |event| {
        let CommandEvent::Ended(end) = event else { panic!("it printed") };
        tell.send(end.unwrap_err()).unwrap();
    })
    .unwrap();
    let error = heard.recv_timeout(LONG).unwrap();
    assert!(error.to_string().contains("/no/such/program"), "{error}");
}
