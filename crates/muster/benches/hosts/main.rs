//! `cargo xtask bench --hosts`: what an agent costs and gains on a booted host (issue figures of CNV-1,
//! CNV-7, CNV-12, EXE-1). Each figure stands beside its limit or beside a peer measured on the same host.
//!
//! ```text
//! mixed    a no-op run over files, packages, units and users, beside cf-agent, Puppet and Salt; what the daemon uses
//! first    a first run of many packages, beside apt itself
//! repair   from an edit by hand to its repair, with thousands of managed files; what the daemon uses
//! ```
//!
//! Arguments: `--quick` for small sizes, and names of the parts that are to be measured.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]

mod daemon;
mod first;
#[allow(dead_code, reason = "the tests use the rest of it")]
#[path = "../../tests/booted/held.rs"]
mod held;
mod mixed;
mod peers;
mod repair;
mod report;
mod timing;

use std::path::PathBuf;
use std::process::ExitCode;

use test_support::booted::Testbed;
use test_support::programs::muster_agent;

/// The variable that names the agent's program that is measured; without it, a debug build.
const PROGRAM: &str = "MUSTER_BENCH_AGENT";
/// The variable that names the package of it.
const PACKAGE: &str = "MUSTER_BENCH_PACKAGE";

/// At which sizes it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Those of the figures that are kept.
    Full,
    /// Small ones, with limits that hold there: whether each figure can be made.
    Quick,
}

/// How large what is measured is.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Of which scale these are.
    pub scale: Scale,
    /// Of a mixed host.
    pub files: usize,
    /// Packages of a mixed host, and of a first run.
    pub packages: usize,
    /// Units of a mixed host.
    pub units: usize,
    /// Users of a mixed host.
    pub users: usize,
    /// Managed files while edits are repaired.
    pub watched: usize,
    /// Edits by hand that are repaired.
    pub edits: usize,
    /// How often a command is timed; the median counts.
    pub times: usize,
    /// How long an idle daemon is observed.
    pub idle_secs: u64,
}

const FULL: Sizes = Sizes {
    scale: Scale::Full,
    files: 200,
    packages: 100,
    units: 50,
    users: 20,
    watched: 5_000,
    edits: 200,
    times: 5,
    idle_secs: 120,
};
const QUICK: Sizes = Sizes {
    scale: Scale::Quick,
    files: 20,
    packages: 10,
    units: 5,
    users: 2,
    watched: 200,
    edits: 20,
    times: 1,
    idle_secs: 10,
};

/// The agent that is measured.
fn agent_program() -> PathBuf {
    std::env::var_os(PROGRAM).map_or_else(muster_agent, PathBuf::from)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let sizes = if words.iter().any(|word| word == "--quick") { QUICK } else { FULL };
    let parts: Vec<&str> = words.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    let Some(testbed) = Testbed::open() else { return ExitCode::SUCCESS };
    if wanted("mixed") {
        mixed::measure(&testbed, sizes);
    }
    if wanted("first") {
        first::measure(&testbed, sizes);
    }
    if wanted("repair") {
        repair::measure(&testbed, sizes);
    }
    ExitCode::SUCCESS
}
