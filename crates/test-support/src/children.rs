//! What a test starts: a program of this workspace, or a test again as a child to be killed.

use std::path::PathBuf;
use std::process::Command;

/// The command that runs the test `name` beside the calling test (same file), alone, in a process
/// of its own. In a harness of many files a test's name begins with its file's.
pub fn test_beside(name: &str) -> Command {
    let thread = std::thread::current();
    let own = thread.name().expect("a test runs on a thread with its name");
    let full = match own.rsplit_once("::") {
        Some((file, _)) => format!("{file}::{name}"),
        None => name.to_owned(),
    };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &full, "--nocapture", "--test-threads=1"]);
    command
}

/// A program that cargo built for the calling test: tests lie in `deps`, programs above it.
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().and_then(std::path::Path::parent).unwrap().join(name)
}

/// Takes the proxies of this environment from a program: `muster-agent join` goes by them.
pub fn without_proxies(command: &mut Command) {
    for name in ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
}
