//! SEC-3: values that were planted as secrets are in no log, database, report, diff, plan, snapshot, command line,
//! environment, temporary file or core dump of either program: they are where they are declared to be, and nowhere else.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use data_encoding::{BASE64, HEXLOWER};
use test_support::programs::{Host, Prefix, Server, muster, text, write};
use test_support::wait::until_blocking as until;
use trust::SealingKey;
use trust::sealing::age;

/// First values, and what they are rotated to.
const PLANTED: [&str; 8] = [
    "planted-in-content-7f3a",
    "planted-in-template-91bc",
    "planted-in-params-c04d",
    "planted-in-stdin-55e1",
    "rotated-in-content-7f3a",
    "rotated-in-template-91bc",
    "rotated-in-params-c04d",
    "rotated-in-stdin-55e1",
];
const NAMES: [&str; 4] = ["app/content", "app/template", "app/params", "app/stdin"];

/// The value, and the forms in which it could be carried off.
fn forms(value: &str) -> Vec<Vec<u8>> {
    let sha256 = model::Digest::of(value.as_bytes()).to_string();
    vec![
        value.as_bytes().to_vec(),
        value.to_uppercase().into_bytes(),
        BASE64.encode(value.as_bytes()).trim_end_matches('=').as_bytes()[..20].to_vec(),
        HEXLOWER.encode(value.as_bytes()).into_bytes(),
        // Of a short value a plain digest is as good as the value.
        sha256.into_bytes(),
    ]
}

#[track_caller]
fn clean(what: &str, bytes: &[u8]) {
    for value in PLANTED {
        for form in forms(value) {
            let found = bytes.windows(form.len()).any(|part| part == form);
            assert!(!found, "{value} is in {what}: {}", String::from_utf8_lossy(&form));
        }
    }
}

/// Every file below a directory, but for these.
fn files(dir: &Path, but: &[PathBuf], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if but.contains(&path) {
            continue;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&path, but, found),
            Ok(kind) if kind.is_file() => found.push(path),
            _ => {}
        }
    }
}

fn set(server: &Server, repo: &Path, name: &str, value: &str) {
    let identity = SealingKey::from_secret(&[9; 32]).unwrap();
    write(&server.dir.join("age.key"), &identity.to_file());
    let seed = trust::SigningKey::from_seed(&[7; 32]).sign(value.as_bytes())[..32].try_into().unwrap();
    let encrypted = age::encrypt(value.as_bytes(), &[identity.public()], &seed).unwrap();
    write(&repo.join(format!("secrets/{name}.age")), &age::armor(&encrypted));
}

const MODULE: &str = "\
params:
  password: {type: secret, required: true}
resources:
  - file: /etc/content
    content: secret:app/content
    notify: reload
  - file: /etc/template
    template: app.j2
    on_remove: restore
  - custom: executor
    script: executors/record.sh
    params: {token: \"${{ secret(\\\"app/params\\\") }}\", plain: seen}
    on_remove: delete
  - shell: 'wc -c > \"$MUSTER_ROOT/etc/stdin-length\"'
    name: feeds
    creates: /etc/stdin-length
    stdin: secret:app/stdin
verify: test -e \"$MUSTER_ROOT/etc/content\"
handlers:
  - id: reload
    shell: 'true'
";

/// Records what everybody on the host could see of it.
const RECORD: &str = "#!/bin/sh
cat > /dev/null
{ env; echo \"$0 $*\"; } > \"$MUSTER_ROOT/etc/seen\"
echo '{\"changed\": false}'
";

/// Programs begin in this directory, with leave to dump core there and a place of their own for temporary files.
fn observed(dir: &Path) -> Prefix {
    let begin =
        "mkdir -p \"$0/tmp\"; ulimit -c unlimited; cd \"$0\"; TMPDIR=\"$0/tmp\"; export TMPDIR; exec \"$@\"";
    vec!["sh".to_owned(), "-c".to_owned(), begin.to_owned(), dir.to_str().unwrap().to_owned()]
}

/// Whether a process that may dump core, and is killed so, leaves a file where this looks for it.
fn leaves_cores(dir: &Path) -> bool {
    let elsewhere = dir.join("control");
    fs::create_dir(&elsewhere).unwrap();
    let script = "ulimit -c unlimited; cd \"$0\"; kill -ABRT $$";
    Command::new("sh").args(["-c", script]).arg(&elsewhere).output().unwrap();
    let found = !cores(&elsewhere).is_empty();
    fs::remove_dir_all(&elsewhere).unwrap();
    found
}

/// Of a process with a secret in memory: it gave up its leave to dump core.
#[track_caller]
fn dumps_nothing(limits: &str) {
    let line = limits.lines().find(|line| line.starts_with("Max core file size")).expect(limits);
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[4..6], ["0", "0"], "{line}");
}

#[test]
fn planted_values_are_nowhere_but_where_they_are_declared() {
    let temp = tempfile::tempdir().unwrap();
    let dumps = leaves_cores(temp.path());
    let mut server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &observed(temp.path()));
    let repo = temp.path().join("repo");
    write(
        &repo.join("fleet.yaml"),
        "format: 1\nname: e2e\nchannels:\n  fast: {contact: 1s, converge: 1s, jitter: 10%, freshness: 24h}\n\
         defaults: {channel: fast}\nsecrets: {sources: {files: {age: secrets/}}}\n",
    );
    write(
        &repo.join("nodes.yaml"),
        "nodes:\n  - match: [web-1]\n    modules: [app]\n    vars: {app.password: secret:app/template}\n",
    );
    write(&repo.join("modules/app/module.yaml"), MODULE);
    write(
        &repo.join("modules/app/templates/app.j2"),
        "x={{ params.password|upper }} {{ params.password }}\n",
    );
    let script = repo.join("modules/app/executors/record.sh");
    write(&script, RECORD);
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let running = server.start();
    let host = Host::new(temp.path(), "web-1", &observed(temp.path())).with_commands();
    server.token("web-1", &host.token_file());
    host.join();
    let printed: serde_json::Value =
        serde_json::from_slice(&host.run(&["identity", "--json"]).stdout).unwrap();
    let key = printed["recipient"].as_str().unwrap().to_owned();
    let repo_dir = repo.to_str().unwrap().to_owned();
    server.ok(&["secret", "trust", "web-1", &key, "--repo", &repo_dir, "--yes"]);
    let mut outputs: Vec<(String, Vec<u8>)> = Vec::new();
    let mut agent = None;
    for round in 0..2 {
        for (name, value) in NAMES.iter().zip(&PLANTED[4 * round..]) {
            set(&server, &repo, name, value);
        }
        let mut said = |verb: &[&str]| {
            let output = server.muster(verb);
            outputs.push((verb.join(" "), [output.stdout, output.stderr].concat()));
        };
        for verb in [
            &["check", &repo_dir][..],
            &["diff", "--repo", &repo_dir],
            &["diff", "--repo", &repo_dir, "--json"],
        ] {
            said(verb);
        }
        for verb in ["render", "explain"] {
            said(&[verb, "web-1", "--repo", &repo_dir]);
            said(&[verb, "web-1", "--repo", &repo_dir, "--json"]);
        }
        said(&["-v", "-v", "publish", "--repo", &repo_dir, "--yes", "--json"]);
        agent.get_or_insert_with(|| host.start());
        let content = PLANTED[4 * round];
        host.until_read("/etc/content", content);
        let template = PLANTED[4 * round + 1];
        host.until_read("/etc/template", &format!("x={} {template}\n", template.to_uppercase()));
        until("the executor ran", || host.path("/etc/seen").exists().then_some(()));
        server.until_state("web-1", "converged");
        for verb in [
            &["status", "--json"][..],
            &["node", "show", "web-1", "--json"],
            &["run", "list"],
            &["run", "show", "web-1", "--json"],
            &["prove", "web-1", "/etc/content"],
            &["secret", "list", "--repo", &repo_dir],
            &["secret", "reach", "--repo", &repo_dir],
            &["release", "list", "--json"],
            &["audit", "list", "--json"],
        ] {
            said(verb);
        }
        for verb in [
            &["status", "--all", "--json"][..],
            &["plan", "--json"],
            &["plan"],
            &["why", "/etc/content", "--json"],
            &["why", "/etc/template"],
            &["why", "app/custom:executor", "--json"],
            &["file", "versions"],
            &["doctor"],
        ] {
            let output = host.run(verb);
            outputs
                .push((format!("muster-agent {}", verb.join(" ")), [output.stdout, output.stderr].concat()));
        }
    }
    // A backup is no archive that hides anything: it is searched with all other files.
    server.ok(&["backup", temp.path().join("backup.tar").to_str().unwrap()]);
    let seen = temp.path().join("seen.json");
    assert!(host.run(&["seen", "--out", seen.to_str().unwrap()]).status.success());
    let bundle = temp.path().join("bundle.tar.gz");
    host.run(&["bundle", "--output", bundle.to_str().unwrap()]);
    let unpacked = Command::new("tar").args(["xzOf", bundle.to_str().unwrap()]).output().unwrap();
    outputs.push(("the bundle".to_owned(), unpacked.stdout));
    for (what, bytes) in &outputs {
        clean(what, bytes);
    }
    // The executor writes it anew at each run.
    let recorded = until("the executor says what it sees", || {
        Some(host.read("/etc/seen")).filter(|recorded| recorded.contains("MUSTER_ROOT"))
    });
    clean("what the executor sees", recorded.as_bytes());
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        if text(&line).contains(temp.path().to_str().unwrap()) {
            clean("a command line", &line);
            clean("an environment", &fs::read(process.path().join("environ")).unwrap_or_default());
        }
    }

    // A core dump is asked for while both programs have secrets in memory.
    let agent = agent.unwrap();
    core_of_the_publisher(&server, &repo);
    let mut pid = None;
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let state = host.dir.join("state");
        if text(&line).contains(state.to_str().unwrap()) && text(&line).contains("daemon") {
            pid = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        }
    }
    let pid = pid.expect("the daemon runs");
    dumps_nothing(&fs::read_to_string(format!("/proc/{pid}/limits")).unwrap());
    let aborted = Command::new("kill").args(["-ABRT", &pid.to_string()]).status().unwrap();
    assert!(aborted.success());
    drop((agent, running));

    let mut found = Vec::new();
    // What is declared to hold them.
    let declared = ["/etc/content", "/etc/template"].map(|path| host.path(path));
    files(temp.path(), &declared, &mut found);
    assert!(found.iter().any(|path| path.ends_with("ledger")) || found.len() > 20, "the state was looked at");
    for path in found.iter().filter(|path| path.file_name().is_some_and(|name| name != "age.key")) {
        clean(&path.display().to_string(), &fs::read(path).unwrap_or_default());
    }
    let left = cores(temp.path());
    assert!(!dumps || left.is_empty(), "a program with a secret in memory left {left:?}");
}

/// Has a publish killed by its own source of secrets, with leave to dump core.
fn core_of_the_publisher(server: &Server, repo: &Path) {
    let other = repo.with_file_name("aborted");
    let copied = Command::new("cp").arg("-r").arg(repo).arg(&other).status().unwrap();
    assert!(copied.success());
    let fleet = fs::read_to_string(other.join("fleet.yaml")).unwrap();
    // The shell's parent is the publisher.
    let source = "aborts: {prefix: app/stdin, command: [sh, -c, 'cat /proc/$PPID/limits > limits; sleep 0.3; \
                  kill -ABRT $PPID; sleep 1']}, files:";
    write(&other.join("fleet.yaml"), &fleet.replace("files:", source));
    let line = format!(
        "ulimit -c unlimited; cd {}; exec {} publish --repo . --yes --operator {}",
        other.display(),
        muster().display(),
        server.dir.join("operator.json").display()
    );
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert!(!output.status.success(), "it was killed: {}", text(&output.stderr));
    dumps_nothing(&fs::read_to_string(other.join("limits")).unwrap());
    clean("what the killed publisher printed", &[output.stdout, output.stderr].concat());
}

/// Core files in the places where they may lie.
fn cores(temp: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(temp, &[], &mut found);
    found.retain(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("core"))
    });
    found
}
