//! The agent's package of the release before, for the tests that go from it to the present one and
//! back: `target/dist/previous`. Built from the commit that `packaging/previous-release` names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dist::package::Squeeze;
use crate::dist::packages::{self, Release};
use crate::dist::{self, BuildProfile, failed};
use crate::{Outcome, run, run_with};

/// Names the commit of the release before, as its first word.
pub const COMMIT_FILE: &str = "packaging/previous-release";
/// Below every version of ours.
const VERSION: &str = "0~previous";
/// What the agent's unit says of an agent that tells systemd when it is ready, and of one that does not.
const READINESS: [(&str, &str); 2] = [("Type=notify", "Type=exec"), ("NotifyAccess=main\n", "")];

/// That commit's agent, built, before what is packaged with it.
pub struct PreviousAgent {
    /// The files of the commit.
    tree: PathBuf,
    /// The directory with the program.
    binaries: PathBuf,
}

/// Builds that commit's agent, unless it was built before.
///
/// # Errors
/// Why it cannot be built: for example in a shallow clone.
pub fn build(root: &Path) -> Result<PreviousAgent, String> {
    let to = place(root);
    let named = root.join(COMMIT_FILE);
    let named = fs::read_to_string(&named).map_err(failed(&named))?;
    let commit = named.split_whitespace().next().ok_or("packaging/previous-release names no commit")?;
    let previous = PreviousAgent { tree: to.join("tree"), binaries: to.join(commit) };
    let agent = previous.binaries.join("muster-agent");
    if !agent.exists() || !previous.tree.exists() {
        check_out(root, commit, &previous.tree)?;
        fs::create_dir_all(&previous.binaries).map_err(failed(&previous.binaries))?;
        build_agent(root, &previous.tree, &agent)?;
    }
    Ok(previous)
}

/// Builds its package, once the present packages are built. Where the agent could not be built, says
/// why, on the terminal and in the file `why-not` beside it: tests print it when they are skipped.
///
/// # Errors
/// When not even that can be written.
pub fn package(root: &Path, previous: Result<PreviousAgent, String>) -> Outcome {
    let to = place(root);
    fs::create_dir_all(&to).map_err(failed(&to))?;
    let why_not = to.join("why-not");
    match previous.and_then(|previous| previous.package(root, &to)) {
        Ok(package) => {
            println!("{}", package.display());
            let _ = fs::remove_file(why_not);
            Ok(())
        }
        Err(why) => {
            println!("no package of the release before: {why}");
            fs::write(&why_not, why).map_err(failed(&why_not))
        }
    }
}

fn place(root: &Path) -> PathBuf {
    root.join("target/dist/previous")
}

impl PreviousAgent {
    /// What is beside the program in the package is the present one's where that commit has none.
    fn package(&self, root: &Path, to: &Path) -> Result<PathBuf, String> {
        let is_packaged = self.tree.join("packaging/muster-agent").exists();
        let sources = if is_packaged { &self.tree } else { root };
        let manual = dist::place(root, BuildProfile::Debug).join("manual");
        let release = Release::of(root, BuildProfile::Debug, Some(VERSION))?;
        let mut package = packages::agent(sources, &self.binaries, &manual, &release)?;
        if !is_packaged {
            for file in package.files.iter_mut().filter(|file| file.path.ends_with("/muster-agent.service")) {
                let unit = String::from_utf8_lossy(&file.bytes).into_owned();
                let without = |unit: String, (from, to): &(&str, &str)| unit.replace(from, to);
                file.bytes = READINESS.iter().fold(unit, without).into_bytes();
            }
        }
        package.build(to, release.epoch, Squeeze::Fast)
    }
}

/// Puts the files of a commit into a directory, with the commit's time: cargo then sees what changed.
fn check_out(root: &Path, commit: &str, tree: &Path) -> Outcome {
    let object = format!("{commit}^{{commit}}");
    let known = Command::new("git").args(["cat-file", "-e", &object]).current_dir(root).output();
    if !known.is_ok_and(|output| output.status.success()) {
        return Err(format!("git has no commit {commit} here; is this a shallow clone?"));
    }
    let _ = fs::remove_dir_all(tree);
    fs::create_dir_all(tree).map_err(failed(tree))?;
    let script = "set -e; git archive \"$1\" | tar -x -C \"$2\"";
    run("sh", &["-c", script, "sh", commit, &tree.display().to_string()])
}

/// Builds that commit's agent in a target directory of its own: in ours, cargo would take its crates, which
/// have our names at the same places of their workspace and are newer, for ours.
fn build_agent(root: &Path, tree: &Path, to: &Path) -> Outcome {
    let manifest = tree.join("Cargo.toml").display().to_string();
    let target = place(root).join("target");
    let shown = target.display().to_string();
    let build = ["build", "--package", "agent", "--bin", "muster-agent", "--manifest-path", &manifest];
    run_with(&[("CARGO_TARGET_DIR", &shown)], "cargo", &build)?;
    let built = target.join("debug/muster-agent").display().to_string();
    run("strip", &["--strip-unneeded", "-o", &to.display().to_string(), &built])?;
    // Only space: the program is what is wanted.
    let _ = fs::remove_dir_all(target);
    Ok(())
}
