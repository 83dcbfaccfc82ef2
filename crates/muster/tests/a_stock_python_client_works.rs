//! SYN-1, WIR-1, IDN-4, ENR-2, ROL-4: Python's stock grpcio enrolls, checks in, adopts, subscribes
//! and resyncs against the real control plane. Its script reads no code of ours: it is written from
//! docs/protocol.md and the .proto files.
//!
//! Needs python3 with venv, and the packages of `python/requirements.txt`; says why when it is
//! skipped. In CI it is never skipped.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use test_support::programs::{Server, write};

const HOST: &str = "py-1.example";
const KIND: &str = "Item";
/// More than one bucket of a trie holds.
const OBJECTS: usize = 40;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a step of making the environment.
fn step(program: &Path, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let text = || String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{} {arguments:?}: {}", program.display(), text()))
    }
}

/// A Python with the packages that are pinned; made once for each list of them.
fn python() -> Result<PathBuf, String> {
    let list = here("tests/python/requirements.txt");
    let digest = model::Digest::of(&std::fs::read(&list).unwrap()).to_string();
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("python-{}", &digest[..12]));
    let (python, whole) = (dir.join("bin/python"), dir.join("whole"));
    if !whole.exists() {
        let dir = dir.to_str().unwrap();
        step(Path::new("python3"), &["-m", "venv", "--clear", dir])?;
        let list = list.to_str().unwrap();
        step(&python, &["-m", "pip", "install", "--quiet", "--only-binary", ":all:", "-r", list])?;
        std::fs::write(whole, "").unwrap();
    }
    Ok(python)
}

fn write_fleet(repo: &Path) {
    let fleet = format!(
        "format: 1\nname: e2e\nchannels:\n  stable: {{contact: 5s, freshness: 24h}}\nsync:\n  \
         managed: {{nodes: [\"{HOST}\"], mode: managed, kinds: [{KIND}]}}\n"
    );
    write(&repo.join("fleet.yaml"), &fleet);
    write(&repo.join("nodes.yaml"), &format!("nodes:\n  - {{match: [{HOST}], channel: stable}}\n"));
}

fn manifests() -> String {
    let one = |n: usize| {
        format!(
            "kind: {KIND}\nmetadata:\n  namespace: {HOST}\n  name: item-{n}\nspec:\n  text: number {n}\n---\n"
        )
    };
    (0..OBJECTS).map(one).collect()
}

#[test]
fn it_enrolls_adopts_subscribes_and_resyncs() {
    let python = match python() {
        Ok(python) => python,
        Err(why) if std::env::var("CI").is_ok_and(|ci| ci == "true") => panic!("no Python: {why}"),
        Err(why) => return eprintln!("skipped: no Python with the packages: {why}"),
    };
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let mut server = Server::new(dir, &["127.0.0.1"], "127.0.0.1", &Vec::new());
    let running = server.start();
    write_fleet(&dir.join("repo"));
    server.publish(&dir.join("repo"));
    let token = dir.join("token");
    server.token(HOST, &token);
    let token = std::fs::read_to_string(token).unwrap();
    let protos = here("../wire/proto");
    let mut command = Command::new(python);
    command.arg(here("tests/python/client.py")).arg(protos).args([HOST, "managed", KIND, token.trim()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = command.spawn().unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut said: Vec<String> = Vec::new();
    said.extend(lines.by_ref().take_while(|line| !line.starts_with("adopted")));
    let file = dir.join("items.yaml");
    write(&file, &manifests());
    // Nothing enrolled when the client failed before: what it said tells more then.
    if client.try_wait().unwrap().is_none() {
        server.ok(&["object", "apply", "-f", file.to_str().unwrap()]);
        client.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    said.extend(lines);
    let mut failure = String::new();
    client.stderr.take().unwrap().read_to_string(&mut failure).unwrap();
    let status = client.wait().unwrap();
    assert!(status.success(), "{said:#?}\n{failure}\n{}", running.log());
    let subscribed = format!("subscribed: {OBJECTS} objects, roots equal");
    for expected in ["healthy", "reflected", &subscribed, "resynced", "refused with a reason"] {
        assert!(said.iter().any(|line| line == expected), "no {expected:?} in {said:#?}");
    }
    running.kill();
}
