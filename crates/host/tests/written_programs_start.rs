//! A program that was just written starts, also where something holds it open for a moment yet (EXE-2, ROL-7).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// As long as it is looked that nothing is given up.
const HELD: Duration = Duration::from_millis(100);

fn program(dir: &Path) -> std::path::PathBuf {
    let program = dir.join("just-written");
    fs::copy("/bin/true", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[test]
fn once_it_is_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path());
    let writer = OpenOptions::new().append(true).open(&program).unwrap();
    let starting = std::thread::spawn(move || host::start_program(&mut Command::new(program)));
    let until = Instant::now() + HELD;
    while Instant::now() < until {
        assert!(!starting.is_finished(), "it gave up while the program was held");
        std::thread::yield_now();
    }
    drop(writer);
    assert!(starting.join().unwrap().unwrap().wait().unwrap().success());
}

#[test]
fn and_who_never_lets_go_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path());
    let _writer = OpenOptions::new().append(true).open(&program).unwrap();
    let error = host::start_program(&mut Command::new(&program)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ExecutableFileBusy);
}
