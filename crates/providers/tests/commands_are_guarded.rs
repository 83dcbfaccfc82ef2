//! fleet-repo.md: an `exec` needs creates, unless, onlyif or `always`; CNV-1: a command
//! whose guard holds it back is in sync.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use catalog::module::CommandLine;
use catalog::types::{ExecSpec, Spec};
use common::{LONG, Lab, exec, file, lab};
use converge::JobDone;
use lang::Probe;

fn shell(text: &str) -> Option<CommandLine> {
    Some(CommandLine::Shell(text.to_owned()))
}

fn would_run(lab: &Lab, spec: ExecSpec) -> bool {
    lab.check(&Spec::Exec(spec)).edit.is_some()
}

#[test]
fn guards_hold_a_command_back() {
    let lab = lab();
    lab.write("/there", b"");
    let guarded = |creates: Option<&str>, unless: Option<&str>, onlyif: Option<&str>| ExecSpec {
        creates: creates.map(str::to_owned),
        unless: unless.and_then(shell),
        onlyif: onlyif.and_then(shell),
        ..exec("true")
    };
    assert!(would_run(&lab, guarded(None, None, None)));
    assert!(!would_run(&lab, guarded(Some("/there"), None, None)));
    assert!(would_run(&lab, guarded(Some("/not-there"), None, None)));
    assert!(!would_run(&lab, guarded(None, Some("true"), None)));
    assert!(would_run(&lab, guarded(None, Some("false"), Some("true"))));
    assert!(!would_run(&lab, guarded(None, None, Some("exit 9"))));
    assert!(!would_run(&lab, guarded(Some("/there"), Some("touch $MUSTER_ROOT/asked"), None)));
    assert!(!lab.path("/asked").exists(), "a guard that says no spares the others");
}

#[test]
fn a_command_reads_its_standard_input_and_a_guard_reads_none_of_it() {
    let lab = lab();
    let long = "line\n".repeat(100_000);
    let spec = ExecSpec {
        stdin: Some(format!("secret\n{long}")),
        onlyif: shell("test \"$(wc -c)\" = 0"),
        ..exec("head -n 1 > $MUSTER_ROOT/first; wc -l")
    };
    let applied = lab.apply(&Spec::Exec(spec.clone())).unwrap();
    assert_eq!((lab.read("/first"), applied.output.unwrap().trim().is_empty()), ("secret\n".into(), false));
    let shown = format!("{spec:?} {:?}", lab.check(&Spec::Exec(spec.clone())));
    assert!(!shown.contains("secret"), "{shown}");
    // A command that reads none of it is none the worse.
    assert!(lab.apply(&Spec::Exec(ExecSpec { command: shell("exit 0").unwrap(), ..spec })).is_ok());
}

#[test]
fn a_guard_that_cannot_answer_is_a_failure() {
    let lab = lab();
    let spec = |guard: &str| Spec::Exec(ExecSpec { unless: shell(guard), ..exec("true") });
    let killed = lab.failed_check(&spec("kill -9 $$"));
    assert!(killed.starts_with("unless: `kill -9 $$` in / was ended by signal 9"), "{killed}");
    match lab.kinds.check("n", &spec("sleep 60"), Duration::from_millis(100), false) {
        Err(why) => {
            let told =
                why.message.starts_with("unless: `") && why.message.contains("did not end within 0.1 s");
            assert!(told, "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn exit_codes_output_directory_and_environment() {
    let lab = lab();
    std::fs::create_dir(lab.path("/work")).unwrap();
    let mut spec = exec("echo $WHO; pwd -P; exit 3");
    spec.cwd = Some("/work".to_owned());
    spec.environment.insert("WHO".to_owned(), "me".to_owned());
    let failed = lab.apply(&Spec::Exec(spec.clone())).unwrap_err();
    let root = lab.dir.path().canonicalize().unwrap();
    let want = format!("`echo $WHO; pwd -P; exit 3` in /work exited with 3: me\n{}/work", root.display());
    assert_eq!(failed, want);
    spec.returns = vec![0, 3];
    let applied = lab.apply(&Spec::Exec(spec)).unwrap();
    assert!(applied.changed && applied.edit.is_some());
    assert_eq!(applied.output.unwrap(), format!("me\n{}/work", root.display()));
}

#[test]
fn a_validate_command_sees_the_new_bytes_and_can_refuse_them() {
    let lab = lab();
    lab.write("/f", b"old");
    let mut spec = file("/f", "new");
    spec.validate = shell("grep -q new %s && ! grep -q old %s");
    assert!(lab.apply(&Spec::File(spec.clone())).unwrap().changed);
    spec.content = Some(common::text("worse"));
    spec.validate =
        Some(CommandLine::Argv(vec!["sh".into(), "-c".into(), "cat $0; exit 4".into(), "%s".into()]));
    let refused = lab.apply(&Spec::File(spec)).unwrap_err();
    assert_eq!(refused, "cannot write /f: validation failed, nothing was written: exited with 4: worse");
    assert_eq!(lab.read("/f"), "new");
}

#[test]
fn verify_and_probes() {
    let lab = lab();
    lab.write("/there", b"");
    assert_eq!(lab.kinds.verify(&CommandLine::Shell("true".to_owned()), LONG), Ok(()));
    let failed = lab.kinds.verify(&CommandLine::Shell("echo bad >&2; exit 1".to_owned()), LONG);
    assert_eq!(failed.unwrap_err().message, "exited with 1: bad");
    assert_eq!(lab.kinds.probe(&Probe::FileExists("/there".to_owned())), Ok(true));
    assert_eq!(lab.kinds.probe(&Probe::FileExists("/not/there".to_owned())), Ok(false));
    assert!(lab.kinds.probe(&Probe::Changed(None)).is_err());
    assert_eq!(lab.kinds.probe(&Probe::DirExists("/there".to_owned())), Ok(false));
    assert_eq!(lab.kinds.probe(&Probe::DirExists("/not/there".to_owned())), Ok(false));
    std::fs::create_dir(lab.path("/dir")).unwrap();
    std::os::unix::fs::symlink("dir", lab.path("/link")).unwrap();
    for path in ["/dir", "/link", "/"] {
        assert_eq!(lab.kinds.probe(&Probe::DirExists(path.to_owned())), Ok(true), "{path}");
    }
    let command = |argv: &[&str]| Probe::CommandSucceeds(argv.iter().map(|&arg| arg.to_owned()).collect());
    assert_eq!(lab.kinds.probe(&command(&["true"])), Ok(true));
    assert_eq!(lab.kinds.probe(&command(&["false"])), Ok(false));
    assert!(lab.kinds.probe(&command(&["no-such-program"])).is_err());
    assert_eq!(lab.kinds.answer(&command(&["true"])), Ok(JobDone::Probed(true)));
}

#[test]
fn guards_of_any_resource_say_whether_they_succeeded() {
    let lab = lab();
    let guard = |text: &str| lab.kinds.guard(&CommandLine::Shell(text.to_owned()), LONG);
    assert_eq!(guard("true"), Ok(JobDone::Guarded(true)));
    assert_eq!(guard("exit 3"), Ok(JobDone::Guarded(false)));
    assert!(guard("kill -9 $$").unwrap_err().message.starts_with("was ended by signal 9"));
    let late = lab.kinds.guard(&CommandLine::Shell("sleep 60".to_owned()), Duration::from_millis(100));
    assert!(late.unwrap_err().message.starts_with("did not end within 0.1 s"));
}

#[test]
fn processes_and_ports_are_those_of_the_kernel() {
    let lab = lab();
    // Another process of the machine may take a port that was given back.
    let is_free_again = |_| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(lab.kinds.probe(&Probe::PortListening(port)), Ok(true));
        drop(listener);
        lab.kinds.probe(&Probe::PortListening(port)) == Ok(false)
    };
    assert!((0..10).any(is_free_again));
    let running = |name: &str| lab.kinds.probe(&Probe::ProcessRunning(name.to_owned())).unwrap();
    let own = std::env::current_exe().unwrap();
    assert!(running(own.file_name().unwrap().to_str().unwrap()));
    assert!(!running("no-such-program"));
}
