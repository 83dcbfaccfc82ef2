//! ROL-11: `muster rehearse` plays the rollout that a fleet repo declares, over the nodes that it names or that are made
//! of it; what cannot be rehearsed is named. `MUSTER_BLESS=1` writes the reports anew.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::fs;
use std::path::Path;

use clap::Parser;
use cli::check;
use cli::folder::RepoFolder;
use cli::rehearse::{RehearsalRequest, RehearseArgs, prepare};
use model::Timestamp;
use rehearsal::{FaultShares, Rehearsal, RehearsalOutcome, RehearsalReport, rehearse};

/// A Friday at noon, UTC.
const BEGINS: Timestamp = Timestamp::from_secs(1_800_014_400);

fn request(channel: Option<&str>, nodes: Option<usize>) -> RehearsalRequest {
    RehearsalRequest {
        channel: channel.map(|name| name.parse().unwrap()),
        nodes,
        faults: FaultShares::default(),
        seed: 1,
        begins: BEGINS,
    }
}

/// What is rehearsed of a repo, or the error as it is shown.
fn prepared(repo: &Path, request: RehearsalRequest) -> Result<Rehearsal, String> {
    let checked = check::read(&mut RepoFolder::open(repo).unwrap()).unwrap();
    prepare(&checked, request).map_err(|failure| failure.text())
}

fn example() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rollouts")
}

fn golden(name: &str, report: &RehearsalReport) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rehearsals").join(name);
    let text = report.to_string();
    if std::env::var_os("MUSTER_BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "{} is not current: MUSTER_BLESS=1 writes it anew\n{text}", path.display());
}

#[test]
fn the_example_is_rehearsed() {
    let rehearsal = prepared(&example(), request(Some("stable"), Some(40))).unwrap();
    let report = rehearse(&rehearsal).unwrap();
    golden("example.txt", &report);
    assert_eq!(report.outcome, RehearsalOutcome::Through);
    assert_eq!(report.waves[0].nodes, 2, "the canaries are the two named ones");
    assert!(report.budgets.iter().all(|budget| budget.peak.most <= budget.limit));
    let pinned = report.nodes.iter().find(|node| node.hostname.as_str() == "web-7.example.com").unwrap();
    assert!(pinned.began_secs.is_none() && pinned.cause.as_ref().unwrap().contains("vendor audit"));
    let faults = FaultShares { fail: "100%".parse().unwrap(), ..FaultShares::default() };
    let report = rehearse(&Rehearsal { faults, ..rehearsal }).unwrap();
    golden("example_bad.txt", &report);
    assert_eq!(report.outcome, RehearsalOutcome::WentBack);
    assert_eq!(report.stop.unwrap().wave, "canary");
}

#[test]
fn nodes_are_made_of_patterns_and_are_what_the_repo_says_of_them() {
    let rehearsal = prepared(&example(), request(Some("stable"), Some(8))).unwrap();
    let names: Vec<&str> = rehearsal.nodes.iter().map(|node| node.hostname.as_str()).collect();
    let of_patterns = ["db-2", "db-3", "db-4", "web-2", "web-3", "web-4"];
    let mut expected: Vec<String> =
        ["db-1", "web-1"].iter().chain(&of_patterns).map(|label| format!("{label}.example.com")).collect();
    let mut sorted: Vec<String> = names.iter().map(ToString::to_string).collect();
    sorted.sort();
    expected.sort();
    assert_eq!(sorted, expected);
    for node in &rehearsal.nodes {
        let (of, probe) = match node.hostname.as_str().starts_with("db-") {
            true => ("database", "database"),
            false => ("web", "shop"),
        };
        let tier = node.declared.path("labels").and_then(|labels| labels.path("tier"));
        assert_eq!(tier, Some(&lang::Value::from(of)), "{}", node.hostname);
        assert!(node.probes.probes().iter().any(|declared| declared.name == probe), "{}", node.hostname);
    }
    let fewer = prepared(&example(), request(Some("stable"), Some(1))).unwrap();
    assert_eq!(fewer.nodes.len(), 1);
}

const MODULE: &str = "resources:\n  - file: /etc/motd\n    content: hello\n";

fn repo(fleet: &str, nodes: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("modules/app/module.yaml", MODULE);
    let channels =
        "channels:\n  stable: {contact: 1m, freshness: 1d}\n  edge: {contact: 1m, freshness: 1d}\n";
    write("fleet.yaml", &format!("format: 1\nname: test\n{channels}defaults: {{channel: stable}}\n{fleet}"));
    write("nodes.yaml", nodes);
    dir
}

const STABLE: &str = "rollouts:\n  stable:\n    waves: [{name: first, percent: 50}]\n";

#[test]
fn a_repo_without_patterns_gives_its_named_nodes_once_more() {
    let dir = repo(STABLE, "nodes:\n  - {match: [a.test, b.test], modules: [app]}\n");
    let names = |nodes: Option<usize>| {
        let rehearsal = prepared(dir.path(), request(None, nodes)).unwrap();
        rehearsal.nodes.iter().map(|node| node.hostname.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(None), ["a.test", "b.test"]);
    assert_eq!(names(Some(5)), ["a.test", "b.test", "a-r2.test", "b-r2.test", "a-r3.test"]);
}

#[test]
fn what_cannot_be_rehearsed_is_named() {
    let named = "nodes:\n  - {match: [a.test], modules: [app]}\n";
    let said = |fleet: &str, nodes: &str, request: RehearsalRequest| {
        prepared(repo(fleet, nodes).path(), request).unwrap_err()
    };
    let text = said("", named, request(None, None));
    assert!(
        text.starts_with(
            "error: no channel has `rollouts`: a release reaches all nodes of its channel at once"
        )
    );
    let text = said(STABLE, named, request(Some("edge"), None));
    assert!(
        text.starts_with("error: channel edge has no `rollouts`: a release reaches all of its nodes at once")
    );
    assert!(text.contains("hint: declare its waves under `rollouts:`"), "{text}");
    let text = said(STABLE, named, request(Some("egde"), None));
    assert!(text.starts_with("error: there is no channel egde\nhint: there are edge, stable"), "{text}");
    let text = said("rollouts: {stable: {}, edge: {}}\n", named, request(None, None));
    assert!(text.starts_with("error: 2 channels have `rollouts`, and one is rehearsed at a time"), "{text}");
    assert!(text.contains("hint: name one with --channel: edge, stable"), "{text}");
    let text = said("rollouts: {edge: {}}\n", named, request(None, None));
    assert!(text.contains("because: the repo names no node of it\nhint: say with --nodes N"), "{text}");
    let text =
        said(STABLE, "nodes:\n  - {match: [\"/a[0-9]+.test/\"], modules: [app]}\n", request(None, Some(3)));
    assert!(text.contains("because: nothing of the repo gives 3 nodes of it; there are 0"), "{text}");
    for size in [0, 100_001] {
        let text = said(STABLE, named, request(None, Some(size)));
        assert!(text.contains(&format!("because: a rehearsal has 1 to 100000 nodes, not {size}")), "{text}");
    }
    // A repo with mistakes, as `muster check`.
    let text = said("rollouts: {stable: {budgets: [{max: 0}]}}\n", named, request(None, None));
    assert!(text.starts_with("error: 1 mistake in the fleet repo"), "{text}");
}

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: RehearseArgs,
}

#[test]
fn what_is_typed_wrong_is_named() {
    for (arguments, wanted) in [
        (["--fail", "120%"], "\"120%\" is no share of the nodes"),
        (["--offline", "5"], "\"5\" is no share of the nodes"),
        (
            ["--seed", "seven"],
            "invalid value 'seven' for '--seed <N>': a seed is a whole number from 0 to 18446744073709551615; another",
        ),
        (["--seed", "-1"], "unexpected argument '-1'"),
        (["--nodes", "many"], "invalid value 'many' for '--nodes <N>'"),
        (["--at", "noon"], "not an RFC 3339 instant such as 2026-11-21T08:00:00Z"),
    ] {
        let line = ["rehearse"].into_iter().chain(arguments);
        let text = Line::try_parse_from(line).unwrap_err().to_string();
        assert!(text.contains(wanted), "{arguments:?}: {text}");
    }
    let line =
        ["rehearse", "--fail", "5%", "--cut-off", "0.25%", "--seed", "7", "--at", "2027-01-15T12:00:00Z"];
    assert!(Line::try_parse_from(line).is_ok());
}
