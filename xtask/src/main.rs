//! `cargo xtask`: every development command.

use std::process::ExitCode;

use xtask::dist::DistOptions;
use xtask::{Outcome, bench, booted, codegen, dist, figures, fuzz, promises, root, run, run_with, tidy};

const USAGE: &str = "cargo xtask COMMAND

  test        build the binaries and run every test
  booted      the tests on hosts with systemd as PID 1, with the ledger of their minutes; as
              root, else they say that they are skipped (further words choose tests)
  lint        formatting, and clippy with warnings as errors
  tidy        the layers, the rules of core crates, sizes of files
  promises    requirement id -> code -> test -> figure; fails on a claim without a test, and where
              docs/promises.md is not what the tree gives (--write renders it)
  codegen     the Rust code of the protobuf files
  demo        the README's first command, once, without waiting
  bench       the agent's figures, beside a bare loop and cf-agent (muster bench has the
              control plane's); with --hosts on booted hosts, beside other tools (mixed, first,
              repair choose parts; --quick for small sizes and debug builds); with --quick
              alone every benchmark, small
  figures     docs/benchmarks.md from its template and the records in docs/figures; with --check
              whether it is; `figures measure [NAME...]` runs benchmarks at full size and
              writes a record of each (on an idle machine)
  dist        the binaries as they are shipped, in target/dist: muster built for speed, the
              agent for size; and their Debian packages (--debug packages the debug builds,
              in target/dist/debug; --version VERSION names another version)
  fuzz        the fuzz targets under libFuzzer, a minute each (--minutes N; further words choose
              targets); needs nightly Rust and cargo-fuzz. `test` replays their seeds
  ci          all that CI runs, in its order
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match command(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn command(args: &[String]) -> Outcome {
    match args.first().map(String::as_str) {
        Some("test") => test(),
        Some("booted") => booted::test(&root(), args.get(1..).unwrap_or_default()),
        Some("lint") => lint(),
        Some("tidy") => tidy::check(&root()),
        Some("promises") => promises::run(&root(), args.iter().any(|arg| arg == "--write")),
        Some("codegen") => codegen::write(&root()),
        Some("demo") => demo(),
        Some("bench") => bench::measure(&root(), &args[1..]),
        Some("figures") => figures::command(&root(), &args[1..]),
        Some("dist") => dist::make(&root(), &DistOptions::parse(&args[1..])?),
        Some("fuzz") => fuzz::run(&root(), args.get(1..).unwrap_or_default()),
        Some("ci") => ci(),
        _ => Err(USAGE.to_owned()),
    }
}

fn ci() -> Outcome {
    test()?;
    booted::test(&root(), &[])?;
    lint()?;
    bench::measure(&root(), &["--quick".to_owned()])?;
    demo()
}

/// How many tests of a program run at a time. Most of those that take long wait for an agent's next contact, and leave
/// the processors idle.
fn test_threads() -> usize {
    const PER_PROCESSOR: usize = 2;
    PER_PROCESSOR * std::thread::available_parallelism().map_or(1, usize::from)
}

/// Tests start real binaries, so these are built first.
fn test() -> Outcome {
    run("cargo", &["build", "--workspace", "--bins"])?;
    let threads = test_threads().to_string();
    run_with(&[("RUST_TEST_THREADS", &threads)], "cargo", &["test", "--workspace", "--no-fail-fast"])?;
    promises::run(&root(), false)
}

fn lint() -> Outcome {
    run("cargo", &["fmt", "--all", "--check"])?;
    run("cargo", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

fn demo() -> Outcome {
    run("cargo", &["run", "--", "demo", "--once"])
}
