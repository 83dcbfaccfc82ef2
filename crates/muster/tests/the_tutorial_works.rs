//! OPS-1: `docs/tutorial.md` leads from an empty folder to `examples/company`: its files are written and
//! its commands typed as the page has them, with the real program and a real control plane, and they print
//! what the page says. What it shows of hosts (other prompts than `$`) is of `booted/a_small_company.rs`'s
//! kind, and is not typed here.
//!
//! ROL-1, ROL-7: `docs/tutorial-rollouts.md` breaks a release on purpose and watches it stop, with real agents.
//!
//! `MUSTER_BLESS=1` writes what the commands print into the page.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::Path;

use test_support::programs::repo::Control;
use test_support::programs::{Host, Prefix, Server, muster};

/// Before a command that a reader types on the control plane's machine.
const PROMPT: &str = "$ ";
/// What the last command compares.
const END: &str = "$ diff -r company examples/company\n```\n";

/// Follows the page in a directory; gives the page with what its commands print now.
async fn followed(page: &str, dir: &Path) -> String {
    let mut shown = String::new();
    let mut above = "";
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        shown += &format!("{line}\n");
        let Some(language) = line.strip_prefix("```") else {
            above = if line.is_empty() { above } else { line };
            continue;
        };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let text: String = block.iter().map(|line| format!("{line}\n")).collect();
        if language != "console" {
            // A file: the last name in backquotes above it is its path.
            let path = above.rsplit('`').nth(1).unwrap_or_else(|| panic!("no path above {text}"));
            let path = dir.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, &text).unwrap();
            shown += &text;
        } else if block.iter().any(|line| line.starts_with(PROMPT)) {
            for command in block.iter().filter_map(|line| line.strip_prefix(PROMPT)) {
                shown += &format!("{PROMPT}{command}\n{}", typed(command, dir).await);
            }
        } else {
            shown += &text;
        }
        shown += "```\n";
    }
    shown
}

/// What a command prints, on either stream.
async fn typed(command: &str, dir: &Path) -> String {
    let programs = muster().parent().unwrap().display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let mut shell = tokio::process::Command::new("sh");
    shell.arg("-c").arg(format!("{{ {command}\n}} 2>&1")).current_dir(dir).env("PATH", path);
    shell.env("NO_COLOR", "1").env_remove("MUSTER_OPERATOR").env_remove("MUSTER_RELEASE_KEY");
    let output = shell.stdin(std::process::Stdio::null()).output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A line without what differs from one time to another: amounts, moments, columns' widths, the fleet's random id, digests.
fn steady(line: &str) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "ms", "s"];
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_amount = |at: usize| {
        let unit = words.get(at + 1).map(|unit| unit.trim_end_matches([',', ':']));
        words[at].parse::<f64>().is_ok() && unit.is_some_and(|unit| UNITS.contains(&unit))
    };
    let steady = words.iter().enumerate().map(|(at, word)| {
        let id = word.rsplit('-').next().unwrap_or_default();
        let has_id = id.len() == 8 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) && id != *word;
        let is_moment = word.starts_with("20") && word.contains('T') && word.contains('Z');
        let is_unit = at > 0 && is_amount(at - 1);
        let has_id = has_id || word.bytes().filter(u8::is_ascii_hexdigit).count() >= 64;
        if has_id || is_moment || is_unit || is_amount(at) { "~" } else { word }
    });
    let indent = &line[..line.len() - line.trim_start().len()];
    format!("{indent}{}", steady.collect::<Vec<_>>().join(" "))
}

/// Follows a page, which prints what it says; gives what it printed.
async fn is_current(path: &Path, dir: &Path) -> String {
    let page = std::fs::read_to_string(path).unwrap();
    let shown = followed(&page, dir).await;
    if std::env::var_os("MUSTER_BLESS").is_some() {
        // Lines that say the same keep the amounts and moments that they have.
        let known: BTreeMap<String, &str> = page.lines().map(|line| (steady(line), line)).collect();
        let kept = |line: &str| format!("{}\n", known.get(&steady(line)).copied().unwrap_or(line));
        std::fs::write(path, shown.lines().map(kept).collect::<String>()).unwrap();
    }
    let page = std::fs::read_to_string(path).unwrap();
    for (said, is) in page.lines().zip(shown.lines()) {
        assert_eq!(steady(said), steady(is), "MUSTER_BLESS=1 writes the page anew");
    }
    assert_eq!(page.lines().count(), shown.lines().count());
    shown
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_broken_on_purpose_stops_and_is_undone() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let mut server = Server::new(dir, &["127.0.0.1"], "127.0.0.1", &Prefix::new());
    let _control = server.start();
    let agent = |name: &str| {
        let host = Host::new(&dir.join("hosts"), name, &Prefix::new()).with_commands();
        server.token(name, &host.token_file());
        host.join();
        host.start()
    };
    let _agents = ["web-1", "web-2", "web-3"].map(agent);
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let shown = is_current(&top.join("docs/tutorial-rollouts.md"), dir).await;
    for seen in [
        "exit code 3\n",
        "the probe shop failed: it exits with 1",
        "starts nothing any more",
        "colour = green",
    ] {
        assert!(shown.contains(seen), "{seen:?} is not in {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_step_prints_what_the_page_says_and_the_end_is_the_example() {
    let control = Control::start().await;
    let dir = tempfile::tempdir().unwrap();
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    std::os::unix::fs::symlink(top.join("examples"), dir.path().join("examples")).unwrap();
    std::os::unix::fs::symlink(control.dir.path().join("data"), dir.path().join("muster-data")).unwrap();

    let shown = is_current(&top.join("docs/tutorial.md"), dir.path()).await;
    assert!(shown.contains(END), "the page does not end in the example");
}
