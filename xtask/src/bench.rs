//! The agent's figures: size, memory, and runs that change nothing beside a bare loop and
//! cf-agent.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Outcome, dist, run, run_with};

/// How often each command is timed; the median counts.
const TIMES: usize = 7;
/// Small files that a run looks at.
const FILES: usize = 1000;

/// Small sizes for what `muster bench` measures: whether each figure can still be made.
const QUICK_CONTROL_PLANE: [&[&str]; 4] = [
    &["bench", "checkin", "--secs", "1", "--nodes", "200", "--idle", "100"],
    &["bench", "check", "--quick"],
    &["bench", "publish", "--nodes", "500"],
    &[
        "bench",
        "sync",
        "--streams",
        "50",
        "--objects",
        "1000",
        "--agents",
        "10",
        "--seconds",
        "1",
        "--idle-seconds",
        "3",
    ],
];

/// `cargo xtask bench`: the agent's figures; with `--hosts` those of booted hosts; with `--quick` and without
/// `--hosts` every benchmark there is, small and in debug builds.
///
/// # Errors
/// When something needed cannot be built or started, or what is measured does not do what it should.
pub fn measure(root: &Path, args: &[String]) -> Outcome {
    let has = |word: &str| args.iter().any(|arg| arg == word);
    let others: Vec<String> = args.iter().filter(|arg| *arg != "--hosts").cloned().collect();
    match (has("--hosts"), has("--quick")) {
        (true, _) => hosts(root, &others),
        (false, false) => agent(root, dist::BuildProfile::Shipped),
        (false, true) => quick(root),
    }
}

/// Every benchmark, so that none stops to work unseen. Of debug builds at small sizes the figures themselves
/// say nothing.
fn quick(root: &Path) -> Outcome {
    println!("debug builds at small sizes: whether each figure can be made, and not what it is");
    let program = dist::programs(root, dist::BuildProfile::Debug)?.join("muster").display().to_string();
    for command in QUICK_CONTROL_PLANE {
        run(&program, command)?;
    }
    agent(root, dist::BuildProfile::Debug)?;
    hosts(root, &["--quick".to_owned()])
}

/// Measures the agent, as it is shipped or in a debug build.
fn agent(root: &Path, profile: dist::BuildProfile) -> Outcome {
    let examples = match profile {
        dist::BuildProfile::Shipped => {
            dist::build_agent(&["--examples"])?;
            "target/agent/examples"
        }
        dist::BuildProfile::Debug => {
            run("cargo", &["build", "--workspace", "--examples"])?;
            "target/debug/examples"
        }
    };
    let programs = dist::programs(root, profile)?;
    let example = root.join(examples).join("noop_run");
    let size = fs::metadata(programs.join("muster-agent")).map_err(|error| error.to_string())?.len();
    row("muster-agent, stripped", size as f64 / 1048576.0, dist::MAX_AGENT as f64 / 1048576.0, "MiB");
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    figures(&programs, &example, dir.path())?;
    row(
        "resident memory of a daemon that converged and calls every 2 s",
        resident_mib(&programs)?,
        15.0,
        "MiB",
    );
    Ok(())
}

/// Measures the agent on booted hosts (`crates/muster/benches/hosts`): as it is shipped, or in a debug build
/// and at small sizes with `--quick`.
fn hosts(root: &Path, args: &[String]) -> Outcome {
    let quick = args.iter().any(|arg| arg == "--quick");
    let profile = if quick { dist::BuildProfile::Debug } else { dist::BuildProfile::Shipped };
    dist::make(root, &dist::DistOptions { profile, version: None })?;
    let place = dist::place(root, profile);
    let ledger = root.join("target/bench-ledger.tsv");
    fs::write(&ledger, "").map_err(|error| format!("{}: {error}", ledger.display()))?;
    let text = |path: &Path| path.display().to_string();
    let (ledger, program) = (text(&ledger), text(&place.join("muster-agent")));
    let package = text(&newest_package(&place)?);
    let environment = [
        ("MUSTER_BOOTED", ledger.as_str()),
        ("MUSTER_BENCH_AGENT", program.as_str()),
        ("MUSTER_BENCH_PACKAGE", package.as_str()),
    ];
    // Built as the tests are: what is measured are other processes.
    let words: Vec<&str> = ["test", "--workspace", "--bench", "hosts", "--"]
        .into_iter()
        .chain(args.iter().map(String::as_str))
        .collect();
    run_with(&environment, "cargo", &words)
}

/// The agent's package that was made last.
fn newest_package(place: &Path) -> Result<PathBuf, String> {
    let entries = fs::read_dir(place).map_err(|error| format!("{}: {error}", place.display()))?;
    let is_package = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("muster-agent_") && name.ends_with(".deb")
    };
    let packages = entries.flatten().map(|entry| entry.path()).filter(is_package);
    let newest = packages.max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
    newest.ok_or_else(|| format!("{} has no package of the agent", place.display()))
}

/// The most memory that an agent of the demo has once its host converged.
fn resident_mib(shipped: &Path) -> Result<f64, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut demo = Command::new(shipped.join("muster"))
        .arg("demo")
        // Else it takes itself for a part of a build, and builds its agents anew.
        .env_remove("CARGO")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let out = demo.stdout.take().ok_or("the demo has no output")?;
    let mut lines = BufReader::new(out).lines().map_while(Result::ok);
    let up = lines.any(|line| line.starts_with("Try next"));
    let most = agents_of(demo.id()).into_iter().filter_map(|pid| rss_kib(&pid)).max();
    let _ = Command::new("kill").args(["-INT", &demo.id().to_string()]).status();
    demo.wait().map_err(failed)?;
    match (up, most) {
        (true, Some(kib)) => Ok(kib as f64 / 1024.0),
        _ => Err("the demo did not come up".to_owned()),
    }
}

fn agents_of(parent: u32) -> Vec<String> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    let mut agents: Vec<String> = children.split_whitespace().map(str::to_owned).collect();
    // Started from other threads of the demo.
    for task in fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten() {
        let more = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        agents.extend(more.split_whitespace().map(str::to_owned));
    }
    agents
}

fn rss_kib(pid: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn figures(shipped: &Path, example: &Path, dir: &Path) -> Outcome {
    // Makes a state directory with FILES file resources, converges them, then measures the
    // resident agent's run beside a bare loop, in one process.
    let (state, tree) = (dir.join("state"), dir.join("root"));
    let count = FILES.to_string();
    let text = |path: &Path| path.to_string_lossy().into_owned();
    run(&text(example), &[&text(&state), &text(&tree), &count])?;
    let apply = time(|| {
        let mut command = Command::new(shipped.join("muster-agent"));
        command.args(["--state", &text(&state), "--root", &text(&tree), "apply", "--once"]);
        command
    })?;
    println!("muster-agent apply --once, {FILES} files, from cold: {:.1} ms", millis(apply));
    match cfengine(dir)? {
        Some(peer) => {
            println!("cf-agent -K, the same files: {:.1} ms", millis(peer));
            let ratio = apply.as_secs_f64() / peer.as_secs_f64();
            row("apply --once to cf-agent -K", ratio, 0.1, "times");
        }
        None => println!("cf-agent is not installed (Debian package cfengine3): no peer in this run"),
    }
    Ok(())
}

/// The same files kept by cf-agent; `None` when it is not installed.
fn cfengine(dir: &Path) -> Result<Option<Duration>, String> {
    if Command::new("cf-agent").arg("--version").stdout(Stdio::null()).status().is_err() {
        return Ok(None);
    }
    let tree = dir.join("cf");
    fs::create_dir_all(&tree).map_err(|error| error.to_string())?;
    let mut policy =
        "body common control { bundlesequence => { \"main\" }; }\nbundle agent main {\nfiles:\n".to_owned();
    for number in 0..FILES {
        let path = tree.join(format!("file-{number:04}.conf"));
        policy.push_str(&format!(
            "  \"{}\" create => \"true\", perms => m0644, edit_defaults => empty, edit_line => put(\"setting = {number}\");\n",
            path.display()
        ));
    }
    policy.push_str(
        "}\nbody perms m0644 { mode => \"0644\"; }\nbody edit_defaults empty { empty_file_before_editing => \"true\"; edit_backup => \"false\"; }\nbundle edit_line put(text) { insert_lines: \"$(text)\"; }\n",
    );
    let file = dir.join("promises.cf");
    fs::write(&file, policy).map_err(|error| error.to_string())?;
    let command = || {
        let mut command = Command::new("cf-agent");
        command.arg("-K").arg("-f").arg(&file);
        command
    };
    // The first run writes the files; the ones timed find them right.
    command().stdout(Stdio::null()).stderr(Stdio::null()).status().map_err(|error| error.to_string())?;
    time(command).map(Some)
}

fn time(command: impl Fn() -> Command) -> Result<Duration, String> {
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let started = Instant::now();
        let status = command().stdout(Stdio::null()).stderr(Stdio::null()).status();
        let status = status.map_err(|error| error.to_string())?;
        times.push(started.elapsed());
        if !status.success() {
            return Err(format!("a measured command failed: {status}"));
        }
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

fn row(what: &str, figure: f64, limit: f64, unit: &str) {
    let kept = if figure <= limit { "kept" } else { "MISSED" };
    println!("{what}: {figure:.3} {unit}  at most {limit} {unit}: {kept}");
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
