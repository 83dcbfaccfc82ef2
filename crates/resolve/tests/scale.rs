//! SCL-1, CFG-1: a fleet of 100,000 entries is checked whole in seconds, and an edit of one
//! of its files costs what that file holds. Figures: `cargo test --release -p resolve
//! --test scale -- --nocapture`; the bounds hold for a debug build too, on a smaller fleet.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::time::Instant;

use resolve::{RepoFile, Resolver, Tree};

const NODES: usize = if cfg!(debug_assertions) { 5_000 } else { 100_000 };
const FILES: usize = 100;

fn common() -> Tree {
    Tree::of([
        (
            "fleet.yaml",
            "format: 1\nname: big\nchannels:\n  stable: {freshness: 24h}\ndefaults: {channel: stable}\n\
             sync:\n  a: {nodes: [\"node-0*.example.com\"], mode: managed, kinds: [App]}\n  b: {mode: autonomous, kinds: [App]}\n\
             delegations:\n  all: {queries: [traits]}\n  some: {nodes: [\"node-*7.example.com\", node-000003.example.com], commands: [/usr/bin/uptime]}\n  \
             rest: {nodes: [\"**.example.org\"], commands: [/usr/bin/uptime]}\n",
        ),
        ("environments.yaml", "environments: {production: {vars: {web.workers: 4}}, staging: {}}\n"),
        ("roles/base.yaml", "modules: [base]\n"),
        ("roles/web.yaml", "modules: [web]\nvars: {web.workers: 3}\n"),
        (
            "groups.yaml",
            "groups:\n  - where: labels.region == \"eu\"\n    vars: {base.ntp: [ntp.eu.example.com]}\n",
        ),
        (
            "modules/base/module.yaml",
            "params: {ntp: [a]}\nresources:\n  - file: /etc/motd\n    content: hi\n",
        ),
        (
            "modules/web/module.yaml",
            "depends_on: [base]\nparams: {port: 80, workers: 2, name: x}\nresources:\n  - file: /etc/site\n    content: ${{ params.port }}\n",
        ),
    ])
}

fn entry(number: usize, port: usize) -> String {
    format!(
        "  - match: [node-{number:06}.example.com]\n    roles: [base, web]\n    environment: production\n    labels: {{region: eu, rack: r{}}}\n    vars: {{web.port: {port}, web.name: \"shop {number}\"}}\n",
        number % 200
    )
}

fn nodes_file(file: usize, port: usize) -> RepoFile {
    let each = NODES / FILES;
    let entries: String = (file * each..(file + 1) * each).map(|number| entry(number, port)).collect();
    format!("nodes:\n{entries}").into_bytes().into()
}

fn changes(tree: &Tree) -> BTreeMap<String, Option<RepoFile>> {
    tree.files.iter().map(|(path, bytes)| (path.clone(), Some(bytes.clone()))).collect()
}

fn resident_mib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).unwrap_or(0) / 1024
}

#[test]
fn entries_in_files_of_a_thousand() {
    let mut tree = common();
    for file in 0..FILES {
        tree.files.insert(format!("nodes/{file:03}.yaml"), nodes_file(file, 8080));
    }
    let bytes: usize = tree.files.values().map(|bytes| bytes.len()).sum();
    let mut resolver = Resolver::new();
    let start = Instant::now();
    let (fleet, _) = resolver.update(changes(&tree)).unwrap();
    let whole = start.elapsed();
    assert_eq!(fleet.specialize().exact.size(), NODES);

    let edit = BTreeMap::from([("nodes/050.yaml".to_owned(), Some(nodes_file(50, 9090)))]);
    let start = Instant::now();
    let (_, changed) = resolver.update(edit).unwrap();
    let part = start.elapsed();
    assert_eq!(changed.hostnames.len(), NODES / FILES);
    assert!(!changed.patterns && !changed.modules && !changed.channels);
    println!(
        "{NODES} entries, {} KiB: whole {whole:?}, one file {part:?}, peak {} MiB",
        bytes / 1024,
        resident_mib()
    );
    assert!(part * 5 < whole, "an edit of one file costs {part:?}, all of it {whole:?}");
}

#[test]
fn a_host_file_each() {
    let mut tree = common();
    let nodes = "nodes:\n  - match: [\"node-*.example.com\"]\n    roles: [base, web]\n    environment: production\n    labels: {region: eu}\n";
    tree.files.insert("nodes.yaml".into(), nodes.as_bytes().into());
    let host = |port: usize| -> RepoFile { format!("vars: {{web.port: {port}}}\n").into_bytes().into() };
    for number in 0..NODES {
        tree.files.insert(format!("hosts/node-{number:06}.example.com.yaml"), host(8000));
    }
    let mut resolver = Resolver::new();
    let start = Instant::now();
    let (fleet, _) = resolver.update(changes(&tree)).unwrap();
    let whole = start.elapsed();
    assert_eq!(fleet.specialize().exact.size(), NODES);
    let before = fleet.specialize().exact.get("node-000007.example.com").unwrap().clone();

    let edit = BTreeMap::from([("hosts/node-000007.example.com.yaml".to_owned(), Some(host(9000)))]);
    let start = Instant::now();
    let (fleet, changed) = resolver.update(edit).unwrap();
    let part = start.elapsed();
    assert_eq!(changed.hostnames.iter().map(|name| &**name).collect::<Vec<_>>(), ["node-000007.example.com"]);
    assert_ne!(*fleet.specialize().exact.get("node-000007.example.com").unwrap(), before);
    println!("{NODES} host files: whole {whole:?}, one edit {part:?}, peak {} MiB", resident_mib());
    assert!(part * 5 < whole, "an edit of one file costs {part:?}, all of it {whole:?}");
}
