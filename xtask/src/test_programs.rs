//! All tests: cargo builds their programs, and this runs them, as many at a time as there are processors.
//!
//! `cargo test` runs one program after the other. Most of the tests that take long wait for an agent's next contact, so
//! that a third of the time nothing ran.
//!
//! What else needs debug builds (packages, benchmarks, the demo) takes those of the tests: cargo gives other features to what they
//! depend on where other packages or targets are chosen, and would build nearly all crates again.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Outcome;

/// How many tests of a program run at a time, for each processor.
const TESTS_PER_PROCESSOR: usize = 2;
/// How long a program may run: several times what the longest takes on two processors. One that hangs ends so, and what
/// it printed says in which test.
const LONGEST_RUN: Duration = Duration::from_secs(20 * 60);
/// How often is looked whether a program has ended.
const PAUSE: Duration = Duration::from_millis(20);
/// Programs that compute for a minute or longer. They begin first: the others wait more than they compute, and run well
/// beside them.
const COMPUTE_LONG: [&str; 4] = [
    "crates/rollout/tests/all.rs",
    "crates/sync/tests/sets_become_equal.rs",
    "crates/sync/tests/links_resume_inside_a_pass.rs",
    "crates/node/tests/both_steps_are_driven_together.rs",
];

/// Builds the programs of all tests and runs them. A program's output is printed as a whole, once it has ended.
///
/// # Errors
/// When they cannot be built, or names those that failed.
pub fn run(root: &Path) -> Outcome {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let queue = Mutex::new(VecDeque::from(in_order(root, build(root)?)));
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while let Some(program) = next(&queue) {
                    if let Err(why) = program.run(root, TESTS_PER_PROCESSOR * processors) {
                        println!("{}: {why}", program.shown(root));
                        locked(&failed).push(format!("{}: {why}", program.shown(root)));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_default();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("{} test programs failed:\n    {}", failed.len(), failed.join("\n    "))),
    }
}

/// A program that holds tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestProgram {
    /// The package's directory: tests run in it.
    package: PathBuf,
    /// Its main source file.
    source: PathBuf,
    /// What is run.
    executable: PathBuf,
}

/// Builds them all, and with them the debug builds of all binaries, in `target/debug`. Documentation has no examples that are
/// compiled (`cargo xtask tidy` holds that).
///
/// # Errors
/// When they cannot be built.
pub fn build(root: &Path) -> Result<Vec<TestProgram>, String> {
    let arguments = ["test", "--workspace", "--lib", "--bins", "--tests", "--no-run"];
    let format = "--message-format=json-render-diagnostics";
    println!("$ cargo {} {format}", arguments.join(" "));
    let output = Command::new("cargo")
        .args(arguments)
        .arg(format)
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo could not be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("the tests could not be built: {}", output.status));
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    let programs: Vec<TestProgram> = printed.lines().filter_map(TestProgram::read).collect();
    // Else a cargo that words its lines differently would pass all tests by running none.
    let is_there = |source: &&str| programs.iter().any(|program| program.source == root.join(*source));
    match COMPUTE_LONG.iter().find(|source| !is_there(source)) {
        None => Ok(programs),
        Some(missing) => {
            Err(format!("of {} test programs that were built none is {missing}", programs.len()))
        }
    }
}

/// Those first that are to begin first: what computes long, then the largest, which have the most tests.
fn in_order(root: &Path, mut programs: Vec<TestProgram>) -> Vec<TestProgram> {
    programs.sort_by_cached_key(|program| {
        let place = COMPUTE_LONG.iter().position(|source| program.source == root.join(source));
        let place = place.unwrap_or(COMPUTE_LONG.len());
        let size = fs::metadata(&program.executable).map_or(0, |metadata| metadata.len());
        (place, std::cmp::Reverse(size))
    });
    programs
}

impl TestProgram {
    /// One of a line that cargo prints of what it built; `None` for anything else that it built.
    fn read(line: &str) -> Option<TestProgram> {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        let path = |value: &Value| value.as_str().map(PathBuf::from);
        Some(TestProgram {
            package: path(&message["manifest_path"])?.parent()?.to_owned(),
            source: path(&message["target"]["src_path"])?,
            executable: path(&message["executable"]).filter(|_| is_test)?,
        })
    }

    /// As people look for it.
    fn shown<'a>(&'a self, root: &Path) -> std::path::Display<'a> {
        self.source.strip_prefix(root).unwrap_or(&self.source).display()
    }

    fn run(&self, root: &Path, threads: usize) -> Result<(), String> {
        let mut output = tempfile::tempfile().map_err(|error| format!("a temporary file: {error}"))?;
        let began = Instant::now();
        let ended = self.start(&output, threads).and_then(|child| until_ended(child, began + LONGEST_RUN));
        output.rewind().and_then(|()| self.print(root, output)).map_err(|error| error.to_string())?;
        match ended.map_err(|error| format!("{}: {error}", self.executable.display()))? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(status.to_string()),
            None => Err(format!("it ran for over {} minutes", LONGEST_RUN.as_secs() / 60)),
        }
    }

    fn start(&self, output: &File, threads: usize) -> io::Result<Child> {
        Command::new(&self.executable)
            .env("RUST_TEST_THREADS", threads.to_string())
            .env("CARGO_MANIFEST_DIR", &self.package)
            .current_dir(&self.package)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .spawn()
    }

    /// Prints all that it printed, in one piece.
    fn print(&self, root: &Path, mut output: File) -> io::Result<()> {
        let mut out = io::stdout().lock();
        io::Write::write_all(&mut out, format!("\n     Ran {}\n", self.shown(root)).as_bytes())?;
        io::copy(&mut output, &mut out).map(drop)
    }
}

/// How it ended; `None` for one that had to be ended.
fn until_ended(mut child: Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(PAUSE);
    }
}

fn next(queue: &Mutex<VecDeque<TestProgram>>) -> Option<TestProgram> {
    locked(queue).pop_front()
}

/// A thread that panicked while it had the lock left a list of which each step is whole.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn program(source: &str, executable: &Path) -> TestProgram {
        let (package, source) = (PathBuf::from("/w/crates/sync"), Path::new("/w").join(source));
        TestProgram { package, source, executable: executable.to_owned() }
    }

    #[test]
    fn programs_are_read_of_what_cargo_prints() {
        let artifact = |is_test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/sync/Cargo.toml","target":{{"name":"a",
                "src_path":"/w/crates/sync/tests/a.rs"}},"profile":{{"test":{is_test}}},"executable":{executable}}}"#
            )
        };
        let read = TestProgram::read(&artifact(true, "\"/t/a-1\"")).unwrap();
        assert_eq!(read, program("crates/sync/tests/a.rs", Path::new("/t/a-1")));
        assert_eq!(read.shown(Path::new("/w")).to_string(), "crates/sync/tests/a.rs");
        assert_eq!(TestProgram::read(&artifact(false, "\"/t/a\"")), None, "a program of its own");
        assert_eq!(TestProgram::read(&artifact(true, "null")), None, "a library");
        assert_eq!(TestProgram::read(r#"{"reason":"build-finished","success":true}"#), None);
    }

    #[test]
    fn what_computes_long_begins_first_and_then_the_largest() {
        let dir = tempfile::tempdir().unwrap();
        let of = |source: &str, size: usize| {
            let path = dir.path().join(source.replace('/', "-"));
            fs::write(&path, vec![0; size]).unwrap();
            program(source, &path)
        };
        let programs = vec![of("small", 1), of("large", 9), of(COMPUTE_LONG[1], 2), of(COMPUTE_LONG[0], 1)];
        let root = Path::new("/w");
        let sources: Vec<String> =
            in_order(root, programs).iter().map(|program| program.shown(root).to_string()).collect();
        assert_eq!(sources, [COMPUTE_LONG[0], COMPUTE_LONG[1], "large", "small"]);
        // Each is there, under its name.
        assert!(COMPUTE_LONG.iter().all(|source| crate::root().join(source).is_file()));
    }

    #[test]
    fn one_that_fails_or_hangs_is_told() {
        let run = |script: &str, deadline: Duration| {
            let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            until_ended(child, Instant::now() + deadline).unwrap()
        };
        assert_eq!(run("exit 3", LONGEST_RUN).unwrap().code(), Some(3));
        assert!(run("exit 0", LONGEST_RUN).unwrap().success());
        assert_eq!(run("exec sleep 1000", Duration::ZERO), None);
        let missing = program("none", Path::new("/nowhere/none"));
        let why = missing.run(Path::new("/w"), 1).unwrap_err();
        assert!(why.starts_with("/nowhere/none: "), "{why}");
    }
}
