//! Benchmarks: which there are, how each is run, and the agent's own: its size, its memory, and runs that
//! change nothing beside a bare loop and cf-agent.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use figures::{Figure, FigureLine, Unit};

use crate::figures::BenchRecord;
use crate::{Outcome, dist, run, run_with};

/// How often each command is timed; the median counts.
const TIMES: usize = 7;
/// Small files that a run looks at.
const FILES: usize = 1000;
/// The most memory that a daemon may have while nothing is to be done, in MiB.
const RESIDENT_MIB: f64 = 15.0;
/// The most of a peer's time that a run from cold may take.
const COLD_TIMES: f64 = 0.1;

/// A benchmark whose figures are kept.
#[derive(Clone, Copy, Debug)]
pub struct Benchmark {
    /// As it is asked for, and as its records name it.
    pub name: &'static str,
    measured_by: MeasuredBy,
}

/// The program that makes the figures.
#[derive(Clone, Copy, Debug)]
enum MeasuredBy {
    /// `muster bench NAME`.
    Muster,
    /// [`agent`].
    Agent,
    /// `crates/muster/benches/hosts`.
    Hosts,
}

/// Its figures are part of `checkin`, and kept there.
pub const FLOOR: Benchmark = Benchmark { name: "floor", measured_by: MeasuredBy::Muster };
/// All whose figures are kept.
pub const BENCHMARKS: &[Benchmark] = &[
    Benchmark { name: "checkin", measured_by: MeasuredBy::Muster },
    Benchmark { name: "check", measured_by: MeasuredBy::Muster },
    Benchmark { name: "publish", measured_by: MeasuredBy::Muster },
    Benchmark { name: "rehearse", measured_by: MeasuredBy::Muster },
    Benchmark { name: "rollout", measured_by: MeasuredBy::Muster },
    Benchmark { name: "proof", measured_by: MeasuredBy::Muster },
    Benchmark { name: "secrets", measured_by: MeasuredBy::Muster },
    Benchmark { name: "sync", measured_by: MeasuredBy::Muster },
    Benchmark { name: "status", measured_by: MeasuredBy::Muster },
    Benchmark { name: "flood", measured_by: MeasuredBy::Muster },
    Benchmark { name: "renewals", measured_by: MeasuredBy::Muster },
    Benchmark { name: "joins", measured_by: MeasuredBy::Muster },
    Benchmark { name: "agent", measured_by: MeasuredBy::Agent },
    Benchmark { name: "hosts", measured_by: MeasuredBy::Hosts },
];

/// `cargo xtask bench`: the agent's figures; with `--hosts` those of booted hosts; with `--quick` and without
/// `--hosts` every benchmark there is, small and in debug builds.
///
/// # Errors
/// When something needed cannot be built or started, what is measured does not do what it should, or a limit
/// is missed.
pub fn measure(root: &Path, args: &[String]) -> Outcome {
    let has = |word: &str| args.iter().any(|arg| arg == word);
    let others: Vec<String> = args.iter().filter(|arg| *arg != "--hosts").cloned().collect();
    match (has("--hosts"), has("--quick")) {
        (true, _) => limits_kept(&hosts(root, &others)?),
        (false, false) => limits_kept(&agent(root, dist::BuildProfile::Shipped)?),
        (false, true) => quick(root),
    }
}

/// Measures one at its full size, of the builds in `target/dist`, and writes a record of it; gives the record's
/// path. A limit that is missed is a figure as any other.
///
/// # Errors
/// When it cannot be measured or written.
pub fn record(root: &Path, benchmark: &Benchmark) -> Result<String, String> {
    let mut record = BenchRecord::begin(root, benchmark.name)?;
    let lines = match benchmark.measured_by {
        MeasuredBy::Muster => control_plane(root, benchmark.name)?,
        MeasuredBy::Agent => agent(root, dist::BuildProfile::Shipped)?,
        MeasuredBy::Hosts => hosts(root, &[])?,
    };
    if lines.is_empty() {
        return Err("it cannot be measured on this machine, and says why above".to_owned());
    }
    record.take(&lines)?;
    record.write(root)
}

/// What `muster bench NAME --json` prints.
fn control_plane(root: &Path, name: &str) -> Result<String, String> {
    let program = dist::place(root, dist::BuildProfile::Shipped).join("muster");
    let shown = format!("{} --json bench {name}", program.display());
    println!("$ {shown}");
    let mut command = Command::new(&program);
    command.args(["--json", "bench", name]).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("{shown}: {error}"))?;
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{lines}");
    // It fails as well when a limit is missed, and its figures are still what they are.
    match output.status.success() || lines.contains("\"kept\":false") {
        true => Ok(lines),
        false => Err(format!("{shown}: {}", output.status)),
    }
}

/// Every benchmark, so that none stops to work unseen. Of debug builds at small sizes the figures themselves
/// say nothing.
fn quick(root: &Path) -> Outcome {
    println!("debug builds at small sizes: whether each figure can be made, and not what it is");
    let program = dist::programs(root, dist::BuildProfile::Debug)?.join("muster").display().to_string();
    let by_muster = |benchmark: &&Benchmark| matches!(benchmark.measured_by, MeasuredBy::Muster);
    for benchmark in [&FLOOR].into_iter().chain(BENCHMARKS.iter().filter(by_muster)) {
        run(&program, &["bench", benchmark.name, "--quick"])?;
    }
    limits_kept(&agent(root, dist::BuildProfile::Debug)?)?;
    limits_kept(&hosts(root, &["--quick".to_owned()])?)
}

/// Fails when one of these figures misses its limit.
fn limits_kept(lines: &str) -> Outcome {
    let read = |line| serde_json::from_str::<FigureLine>(line).map_err(|error| format!("{error}: {line}"));
    let lines: Vec<FigureLine> = lines.lines().map(read).collect::<Result<_, _>>()?;
    let missed: Vec<String> = lines
        .iter()
        .filter(|line| !line.kept)
        .map(|line| format!("{}: {} is {}", line.title, line.figure.name, line.figure.shown()))
        .collect();
    if missed.is_empty() { Ok(()) } else { Err(format!("limits are missed: {}", missed.join("; "))) }
}

/// Prints a table of the agent's, and gives its figures one a line.
fn table(
    name: &'static str,
    title: &str,
    rows: Vec<Figure>,
    profile: dist::BuildProfile,
) -> Result<String, String> {
    let quick = profile == dist::BuildProfile::Debug;
    let rows: Vec<Figure> = if quick { rows.into_iter().map(Figure::quick).collect() } else { rows };
    print!("{}", figures::text(title, &rows));
    figures::lines("agent", name, title, &rows, quick).map_err(|error| format!("{title}: {error}"))
}

/// Measures the agent, as it is shipped or in a debug build.
fn agent(root: &Path, profile: dist::BuildProfile) -> Result<String, String> {
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
    let program = programs.join("muster-agent");
    let size = fs::metadata(&program).map_err(dist::failed(&program))?.len();
    let mib = |bytes: u64| bytes as f64 / 1048576.0;
    let rows = vec![
        Figure::at_most("muster-agent, stripped", mib(size), mib(dist::MAX_AGENT), Unit::Mib),
        Figure::at_most(
            "resident memory of a daemon that converged",
            resident_mib(&programs)?,
            RESIDENT_MIB,
            Unit::Mib,
        ),
    ];
    let lines = table("agent", "the agent, and a daemon of the demo that calls every 2 s", rows, profile)?;
    let dir = tempfile::tempdir().map_err(|error| format!("a temporary directory: {error}"))?;
    let rows = no_op_runs(&programs, &root.join(examples).join("noop_run"), dir.path())?;
    Ok(lines + &table("agent, no-op", &format!("a run that finds {FILES} files right"), rows, profile)?)
}

/// Measures the agent on booted hosts (`crates/muster/benches/hosts`): as it is shipped, or in a debug build
/// and at small sizes with `--quick`. Gives the figures, one a line; none where hosts cannot be booted.
fn hosts(root: &Path, args: &[String]) -> Result<String, String> {
    let quick = args.iter().any(|arg| arg == "--quick");
    let profile = if quick { dist::BuildProfile::Debug } else { dist::BuildProfile::Shipped };
    dist::make(root, &dist::DistOptions { profile, version: None })?;
    let place = dist::place(root, profile);
    let (ledger, lines) = (root.join("target/bench-ledger.tsv"), root.join("target/bench-figures.jsonl"));
    for file in [&ledger, &lines] {
        fs::write(file, "").map_err(dist::failed(file))?;
    }
    let text = |path: &Path| path.display().to_string();
    let environment = [
        ("MUSTER_BOOTED", text(&ledger)),
        ("MUSTER_BENCH_FIGURES", text(&lines)),
        ("MUSTER_BENCH_AGENT", text(&place.join("muster-agent"))),
        ("MUSTER_BENCH_PACKAGE", text(&newest_package(&place)?)),
    ];
    let environment: Vec<(&str, &str)> =
        environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    // Built as the tests are: what is measured are other processes.
    let words: Vec<&str> = ["test", "--workspace", "--bench", "hosts", "--"]
        .into_iter()
        .chain(args.iter().map(String::as_str))
        .collect();
    run_with(&environment, "cargo", &words)?;
    fs::read_to_string(&lines).map_err(dist::failed(&lines))
}

/// The agent's package that was made last.
fn newest_package(place: &Path) -> Result<PathBuf, String> {
    let entries = fs::read_dir(place).map_err(dist::failed(place))?;
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
    let program = shipped.join("muster");
    let failed = |error: std::io::Error| format!("{} demo: {error}", program.display());
    let mut demo = Command::new(&program)
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

/// Makes a state directory with [`FILES`] file resources, converges them, then measures the resident agent's
/// run beside a bare loop, in one process, and the program's from cold beside cf-agent.
fn no_op_runs(shipped: &Path, example: &Path, dir: &Path) -> Result<Vec<Figure>, String> {
    let (state, tree) = (dir.join("state"), dir.join("root"));
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let output = Command::new(example).args([&text(&state), &text(&tree), &FILES.to_string()]).output();
    let output = output.map_err(dist::failed(example))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{}: {}: {error}", example.display(), output.status));
    }
    let mut rows: Vec<Figure> = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("what {} prints: {error}", example.display()))?;
    let apply = time(|| {
        let mut command = Command::new(shipped.join("muster-agent"));
        command.args(["--state", &text(&state), "--root", &text(&tree), "apply", "--once"]);
        command
    })?;
    rows.push(Figure::plain("apply --once, from cold", millis(apply), Unit::Millis));
    match cfengine(dir)? {
        Some(peer) => {
            let ratio = apply.as_secs_f64() / peer.as_secs_f64();
            rows.push(Figure::plain("cf-agent -K, the same files", millis(peer), Unit::Millis));
            rows.push(Figure::at_most("apply --once to cf-agent -K", ratio, COLD_TIMES, Unit::Times));
        }
        None => println!("cf-agent is not installed (Debian package cfengine3): no peer in this run"),
    }
    Ok(rows)
}

/// The same files kept by cf-agent; `None` when it is not installed.
fn cfengine(dir: &Path) -> Result<Option<Duration>, String> {
    if Command::new("cf-agent").arg("--version").stdout(Stdio::null()).status().is_err() {
        return Ok(None);
    }
    let tree = dir.join("cf");
    fs::create_dir_all(&tree).map_err(dist::failed(&tree))?;
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
    fs::write(&file, policy).map_err(dist::failed(&file))?;
    let command = || {
        let mut command = Command::new("cf-agent");
        command.arg("-K").arg("-f").arg(&file);
        command
    };
    // The first run writes the files; the ones timed find them right.
    ended_well(command())?;
    time(command).map(Some)
}

fn time(command: impl Fn() -> Command) -> Result<Duration, String> {
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let started = Instant::now();
        ended_well(command())?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

/// Runs a command without its output; it must end well.
fn ended_well(mut command: Command) -> Outcome {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
