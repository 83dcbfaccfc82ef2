//! CNV-12 and EXE-2: a command is bounded in time and memory, and its whole process group
//! ends with it; issue: an executor that prints 1 GB, never ends, forks and stays.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use host::{Cancel, Command, End, FinishedCommand, Host, HostOptions, Program, RunError, SealedScript};

const LIMIT: usize = 10_000;
const LONG: Duration = Duration::from_secs(60);

fn host() -> Host {
    Host::open(Path::new("/"), HostOptions::default()).unwrap()
}

fn shell(text: &str, timeout: Duration) -> Command {
    Command::new(Program::Shell(text.to_owned()), timeout, LIMIT)
}

fn run(command: &Command) -> FinishedCommand {
    host().run(command).unwrap()
}

fn text(finished: &FinishedCommand) -> String {
    String::from_utf8(finished.stdout.bytes.clone()).unwrap()
}

/// Whether a process with this text as its whole argument list's end runs.
fn running(marker: &str) -> bool {
    fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok()).any(
        |cmdline| {
            let args: Vec<&[u8]> = cmdline.split(|byte| *byte == 0).collect();
            args.first() == Some(&b"sleep".as_slice()) && args.get(1) == Some(&marker.as_bytes())
        },
    )
}

#[test]
fn input_output_and_exit_code_come_through() {
    let mut command = shell("cat; echo err >&2; exit 3", LONG);
    command.stdin = vec![b'x'; 300_000];
    command.output_limit = 400_000;
    let finished = run(&command);
    assert_eq!(finished.end, End::Exited(3));
    assert_eq!(finished.stdout.bytes, command.stdin);
    assert_eq!(finished.stderr.bytes, b"err\n");
    assert_eq!(run(&shell("kill -9 $$", LONG)).end, End::Signaled(9));
}

/// CNV-12: the agent's service is shielded when memory runs out; a command that eats it is not.
#[test]
fn commands_are_not_shielded_when_memory_runs_out() {
    const OWN: &str = "/proc/self/oom_score_adj";
    let before = fs::read_to_string(OWN).unwrap();
    if fs::write(OWN, "-500").is_err() {
        println!("skipped: this process may not shield itself (CAP_SYS_RESOURCE)");
        return;
    }
    let seen = run(&shell("until read s < /proc/$$/oom_score_adj && test $s = 0; do :; done", LONG));
    fs::write(OWN, before).unwrap();
    assert_eq!(seen.end, End::Exited(0), "the command kept the agent's shield");
}

#[test]
fn a_gigabyte_is_counted_and_not_kept() {
    let finished = run(&shell("head -c 1000000000 /dev/zero", LONG));
    assert_eq!(finished.end, End::Exited(0));
    assert_eq!(finished.stdout.total, 1_000_000_000);
    assert_eq!(finished.stdout.bytes.len(), LIMIT);
}

#[test]
fn an_endless_command_is_ended_with_its_children() {
    let started = Instant::now();
    let finished = run(&shell("sleep 7651 & sleep 7652", Duration::from_millis(300)));
    assert_eq!(finished.end, End::TimedOut);
    assert!(started.elapsed() < Duration::from_secs(2), "asked to end, it ends at once");
    assert!(!running("7651") && !running("7652"));
    let started = Instant::now();
    let stubborn = run(&shell("trap '' TERM; while :; do sleep 7653; done", Duration::from_millis(300)));
    assert_eq!(stubborn.end, End::TimedOut);
    assert!(started.elapsed() < Duration::from_secs(6), "what does not listen is killed");
    assert!(!running("7653"));
    let noisy = run(&shell("exec yes", Duration::from_millis(300)));
    assert_eq!(noisy.end, End::TimedOut);
    assert_eq!(noisy.stdout.bytes.len(), LIMIT);
}

#[test]
fn children_that_stay_behind_hold_nobody_up() {
    let started = Instant::now();
    let finished = run(&shell("sleep 7661 & echo done", LONG));
    assert_eq!((finished.end, text(&finished).as_str()), (End::Exited(0), "done\n"));
    assert!(!running("7661"), "it held the output open and was ended");
    assert!(started.elapsed() < Duration::from_millis(1800), "it was asked to end before it was killed");
    let quiet = run(&shell("sleep 7662 >/dev/null 2>&1 </dev/null & exit 0", LONG));
    assert_eq!(quiet.end, End::Exited(0));
    assert!(!running("7662"), "it held nothing open and was ended all the same");
    let stubborn = run(&shell("(trap '' TERM; sleep 7663; sleep 7663) & sleep 0.1", LONG));
    assert_eq!(stubborn.end, End::Exited(0));
    assert!(!running("7663"));
    let session = run(&shell("setsid sleep 20 & sleep 0.1; echo out", LONG));
    assert_eq!(
        text(&session),
        "out\n",
        "a daemon with a session of its own keeps its pipe, and nobody waits"
    );
    assert!(started.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_command_that_does_not_read_its_input_is_no_failure() {
    for text in ["exec <&-; sleep 0.1; echo fine", "echo fine"] {
        let mut command = shell(text, LONG);
        command.stdin = vec![b'x'; 1_000_000];
        let finished = run(&command);
        assert_eq!(finished.end, End::Exited(0));
        assert_eq!(finished.stdout.bytes, b"fine\n");
    }
}

#[test]
fn a_stopping_agent_ends_what_runs() {
    let cancel = Cancel::default();
    let host =
        Host::open(Path::new("/"), HostOptions { cancel: cancel.clone(), ..HostOptions::default() }).unwrap();
    let started = Instant::now();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| host.run(&shell("sleep 7671", LONG)).unwrap());
        while !running("7671") {
            std::thread::yield_now();
        }
        cancel.cancel();
        assert_eq!(run.join().unwrap().end, End::Cancelled);
    });
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(!running("7671"));
}

#[test]
fn the_environment_is_small_and_known() {
    let mut command = shell("env | grep -v ^_= | grep -v ^SHLVL= | sort; pwd", LONG);
    command.env.insert("MINE".to_owned(), "1".to_owned());
    let finished = run(&command);
    let text = text(&finished);
    let names: Vec<&str> =
        text.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| *name != "PWD").collect();
    assert_eq!(names, ["HOME", "LANG", "MINE", "PATH"]);
    assert!(text.ends_with("/\n"), "it starts in the root directory: {text}");
}

#[test]
fn under_a_root_commands_need_to_be_allowed() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("work")).unwrap();
    let refused = Host::open(dir.path(), HostOptions::default()).unwrap();
    assert!(matches!(refused.run(&shell("true", LONG)), Err(RunError::Rooted)));
    let allowed = Host::open(dir.path(), HostOptions { allow_exec: true, ..HostOptions::default() }).unwrap();
    let mut command = shell("echo $MUSTER_ROOT; pwd -P", LONG);
    command.cwd = Some("/work".to_owned());
    let root = dir.path().canonicalize().unwrap();
    let finished = allowed.run(&command).unwrap();
    assert_eq!(text(&finished), format!("{0}\n{0}/work\n", root.display()));
    command.cwd = Some("/tmp".to_owned());
    assert!(
        matches!(allowed.run(&command), Err(RunError::ChangeDirectory { .. })),
        "the real /tmp is outside"
    );
}

#[test]
fn another_user_is_become_whole() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let mut command = shell("id -u; id -g; id -G", LONG);
    command.user = Some("65533".to_owned());
    assert_eq!(text(&run(&command)), "65533\n65533\n65533\n", "no group of the agent's is kept");
    command.user = Some("no-such-user".to_owned());
    assert!(matches!(host().run(&command), Err(RunError::UnknownUser(_))));
}

#[test]
fn what_cannot_start_says_why() {
    let argv = |argv: &[&str]| Program::Argv(argv.iter().map(|arg| (*arg).to_owned()).collect());
    let failed = |program: Program| host().run(&Command::new(program, LONG, LIMIT)).unwrap_err().to_string();
    assert_eq!(
        failed(argv(&["no-such-program"])),
        "cannot start `no-such-program`: there is no such program, or not the one after its `#!`"
    );
    assert_eq!(
        failed(argv(&["/etc/passwd"])),
        "cannot start `/etc/passwd`: it is not executable for the agent's user"
    );
    assert_eq!(failed(argv(&[])), "the command is empty");
    assert_eq!(failed(argv(&["echo", "a\0b"])), "cannot start `echo`: nul byte found in provided data");
    let script = |bytes: &[u8]| Program::Script(SealedScript::new("s", bytes).unwrap());
    assert_eq!(failed(script(b"echo hi")), "it is not executable: it has no `#!` line and is no program");
    assert!(failed(script(b"#!/no/such/interpreter\n")).contains("cannot start `s`"));
}

#[test]
fn a_script_runs_from_memory() {
    let script = SealedScript::new("hello.sh", b"#!/bin/sh\necho \"$1\"; cat").unwrap();
    let mut command = Command::new(Program::Script(script), LONG, LIMIT);
    command.stdin = b"in".to_vec();
    assert_eq!(text(&run(&command)), "\nin");
}
