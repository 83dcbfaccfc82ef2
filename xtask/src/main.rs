//! `cargo xtask`: every development command.

use std::process::ExitCode;

use xtask::dist::DistOptions;
use xtask::{Outcome, bench, booted, codegen, dist, figures, fuzz, promises, root, run, test_programs, tidy};

const USAGE: &str = "cargo xtask COMMAND

  test        build the binaries and run every test
  booted      the tests on hosts with systemd as PID 1, with the ledger of their minutes; as
              root, else they say that they are skipped (further words choose tests)
  lint        formatting, clippy with warnings as errors, and what is shipped with its own features
  tidy        the layers, the rules of core crates, sizes of files
  promises    requirement id -> code -> test -> figure; fails on a claim without a test, and where
              docs/promises.md is not what the tree gives (--write renders it)
  codegen     the Rust code of the protobuf files
  demo        what the README's first command shows, once, without waiting
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

fn test() -> Outcome {
    test_programs::run(&root())?;
    promises::run(&root(), false)
}

fn lint() -> Outcome {
    run("cargo", &["fmt", "--all", "--check"])?;
    run("cargo", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    // With the features that they are shipped with: tests have more.
    ["muster", "agent"].iter().try_for_each(|name| run("cargo", &["check", "--package", name]))
}

fn demo() -> Outcome {
    test_programs::build(&root())?;
    run(&root().join("target/debug/muster").display().to_string(), &["demo", "--once"])
}
