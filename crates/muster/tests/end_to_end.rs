//! ENR-6, CNV-1, CNV-5, CNV-10, SCL-3, OPS-1: the real programs, from an empty machine to healed
//! drift: a control plane, hosts that join with one command, releases that converge, hands
//! that interfere, and each side killed and started again.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use test_support::programs::{Host, Prefix, Running, Server, text, write_repo};
use test_support::wait::until_blocking as until;

/// A control plane on loopback in a directory.
fn server(dir: &Path) -> Server {
    Server::new(dir, &["127.0.0.1"], "127.0.0.1", &Prefix::new())
}

/// A host that joined, with its daemon.
fn joined(server: &Server, dir: &Path, name: &str) -> (Host, Running) {
    let host = Host::new(dir, name, &Prefix::new());
    server.token(name, &host.token_file());
    host.join();
    let daemon = host.start();
    (host, daemon)
}

#[test]
fn a_fleet_converges_and_stays_so() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, repo) = (temp.path(), temp.path().join("repo"));
    let mut server = server(dir);
    let control = server.start();
    let status = server.json(&["status"]);
    assert_eq!((&status["nodes"], &status["posture"]), (&0.into(), &"lab".into()));

    // Joining takes one command; the token's file is gone afterwards (ENR-6).
    let (web, daemon) = joined(&server, dir, "web-1");
    assert!(!web.token_file().exists());
    let (stray, stray_daemon) = joined(&server, dir, "stray-1");

    // Nothing is published yet: they wait, and converge once it is.
    write_repo(&repo, "hello");
    server.publish(&repo);
    web.until_read("etc/hello", "hello web-1\n");
    let mode = std::fs::metadata(web.dir.join("root/etc/hello")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    server.until_state("web-1", "converged");
    server.until_state("stray-1", "unassigned");
    assert!(!stray.dir.join("root/etc/hello").exists());
    let status = server.json(&["status"]);
    assert_eq!(status["states"], serde_json::json!({ "converged": 1, "unassigned": 1 }));
    assert!(server.ok(&["status"]).contains("2 nodes"));

    // An edit behind its back is healed and told.
    web.edit("etc/hello", "by hand\n");
    web.until_read("etc/hello", "hello web-1\n");
    until("the correction is told", || {
        let runs = server.json(&["run", "list", "--node", "web-1"]);
        let corrective = |run: &serde_json::Value| {
            run["report"]["intended"] == false && run["report"]["counts"]["changed"] == 1
        };
        runs.as_array().unwrap().iter().any(corrective).then_some(())
    });

    // A second release takes the place of the first.
    write_repo(&repo, "good day");
    server.publish(&repo);
    web.until_read("etc/hello", "good day web-1\n");
    assert_eq!(server.json(&["status"])["seq"], 2);
    until("it holds release 2", || (server.node("web-1")["held"]["seq"] == 2).then_some(()));

    // A file of the repo, too large to travel in an answer.
    let large: Vec<u8> = (0..3_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::create_dir_all(repo.join("modules/hello/files")).unwrap();
    std::fs::write(repo.join("modules/hello/files/large.bin"), &large).unwrap();
    let module = repo.join("modules/hello/module.yaml");
    let with_large =
        std::fs::read_to_string(&module).unwrap() + "  - file: /etc/large\n    source: large.bin\n";
    std::fs::write(&module, with_large).unwrap();
    server.publish(&repo);
    let target = web.dir.join("root/etc/large");
    until("the large file is there", || (std::fs::read(&target).ok()? == large).then_some(()));

    // A repo with a mistake publishes nothing.
    std::fs::write(repo.join("modules/hello/module.yaml"), "resources:\n  - fiel: /etc/hello\n").unwrap();
    let refused = server.muster(&["publish", "--repo", repo.to_str().unwrap(), "--yes"]);
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("module.yaml:2:"), "{refused:?}");
    assert_eq!(server.json(&["status"])["seq"], 3);

    // All end when they are asked to.
    assert!(daemon.end().success());
    assert!(stray_daemon.end().success());
    assert!(control.end().success());
}

#[test]
fn each_side_lives_without_the_other_and_through_kill_9() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, repo) = (temp.path(), temp.path().join("repo"));
    let mut server = server(dir);
    let control = server.start();
    write_repo(&repo, "hello");
    server.publish(&repo);
    let (web, daemon) = joined(&server, dir, "web-1");
    web.until_read("etc/hello", "hello web-1\n");
    server.until_state("web-1", "converged");

    // Without the control plane it converges on what it holds (CNV-5).
    control.kill();
    let facts = |web: &Host| {
        let output = web.run(&["status", "--json"]);
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let waiting = |web: &Host| facts(web)["daemon"]["factsWaiting"].as_u64().unwrap();
    let before = waiting(&web);
    web.edit("etc/hello", "by hand\n");
    web.until_read("etc/hello", "hello web-1\n");
    assert_eq!(facts(&web)["release"]["seq"], 1);
    // The file is right before its run has ended.
    until("the correction is kept for the control plane", || (waiting(&web) > before).then_some(()));

    // Killed as well, and started without a control plane: it goes on from its disk.
    daemon.kill();
    web.edit("etc/hello", "by hand again\n");
    let daemon = web.start();
    web.until_read("etc/hello", "hello web-1\n");
    let told = server.muster(&["status"]);
    assert_eq!(told.status.code(), Some(4), "unreachable: {told:?}");

    // Back again, the control plane learns what happened meanwhile, each thing once.
    let control = server.start();
    let corrections = until("both corrections are told", || {
        let runs = server.json(&["run", "list", "--node", "web-1"]);
        let runs = runs.as_array().unwrap().clone();
        let changed = |run: &&serde_json::Value| {
            run["report"]["intended"] == false && run["report"]["counts"]["changed"] == 1
        };
        let corrections: Vec<_> = runs.iter().filter(changed).cloned().collect();
        (corrections.len() >= 2).then_some(corrections)
    });
    let names: std::collections::BTreeSet<String> =
        corrections.iter().map(|run| format!("{}/{}", run["incarnation"], run["seq"])).collect();
    assert_eq!(names.len(), corrections.len(), "no fact twice: {corrections:#?}");

    let told = server.json(&["node", "facts", "web-1"]);
    let kinds: Vec<_> = told.as_array().unwrap().iter().map(|fact| fact["body"]["kind"].clone()).collect();
    assert!(kinds.iter().any(|kind| kind == "run") && kinds.iter().any(|kind| kind == "started"), "{told:#}");

    // And a release that is published now arrives.
    write_repo(&repo, "back again");
    server.publish(&repo);
    web.until_read("etc/hello", "back again web-1\n");
    assert_eq!(server.json(&["status"])["nodes"], 1, "the same node, not another one");

    // The agent killed while all is well, many times: nothing is torn.
    let mut daemon = daemon;
    for round in 0..5 {
        daemon.kill();
        write_repo(&repo, &format!("round {round}"));
        server.publish(&repo);
        daemon = web.start();
        web.until_read("etc/hello", &format!("round {round} web-1\n"));
    }
    server.until_state("web-1", "converged");

    // Removed, it is refused, and keeps its host as it is declared.
    server.ok(&["node", "remove", "web-1", "--yes"]);
    until("it is told why", || daemon.log().contains("unknown-node").then_some(()));
    web.edit("etc/hello", "by hand\n");
    web.until_read("etc/hello", "round 4 web-1\n");
    drop((daemon, control));
}

/// Bad tokens at the real programs: a clear message, an exit code, and nothing used up.
#[test]
fn a_bad_token_says_what_to_do() {
    let temp = tempfile::tempdir().unwrap();
    let mut server = server(temp.path());
    let control = server.start();
    let host = Host::new(temp.path(), "web-1", &Prefix::new());
    server.token("web-1", &host.token_file());
    let good = std::fs::read_to_string(host.token_file()).unwrap();
    let good = good.trim();
    let forged = {
        let (claims, signature) = good.rsplit_once('.').unwrap();
        let first = if signature.starts_with('A') { "B" } else { "A" };
        format!("{claims}.{first}{}", &signature[1..])
    };
    for (token, arguments, says) in [
        ("nonsense".to_owned(), vec![], "must begin with"),
        (good[..good.len() - 9].to_owned(), vec![], "copy it whole"),
        (forged, vec![], "token-forged"),
        (good.to_owned(), vec!["--hostname", "db-1"], "token-other-host"),
    ] {
        std::fs::write(host.token_file(), &token).unwrap();
        let file = host.token_file();
        let output =
            host.run(&[&["join", "--token-file", file.to_str().unwrap()], arguments.as_slice()].concat());
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{token}");
        assert!(said.contains(says), "{said}");
        assert!(file.exists(), "the file stays until it succeeds (ENR-6)");
    }
    std::fs::write(host.token_file(), good).unwrap();
    host.join();
    // Used, it is of no use to another host.
    let other = Host::new(temp.path(), "other", &Prefix::new());
    std::fs::write(other.token_file(), good).unwrap();
    let output = other.run(&["join", "--token-file", other.token_file().to_str().unwrap()]);
    assert!(text(&output.stderr).contains("token-used"), "{output:?}");
    assert_eq!(server.json(&["status"])["nodes"], 1);
    assert!(control.end().success());
}
