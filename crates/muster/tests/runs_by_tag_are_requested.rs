//! CFG-7, DLT-5: `muster node run --tags` with the real programs: what has a tag is run on a host that holds it,
//! the request stands until the host confirmed it, a tag that nothing has is named, and what cannot be one is
//! refused.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::Value;
use test_support::programs::{Host, Prefix, Server, text, write, write_repo};
use test_support::wait::until_blocking as until;

/// Each run of it adds a line, so a run by tag shows; a full run may not come by itself for an hour.
const MODULE: &str = "resources:\n  - shell: count\n    command: echo run >> $MUSTER_ROOT/etc/counted\n    \
                      always: true\n    tags: [counted]\n  - shell: other\n    command: echo run >> \
                      $MUSTER_ROOT/etc/others\n    always: true\n    tags: [others]\n";
const FLEET: &str = "format: 1\nname: e2e\nchannels:\n  fast: {contact: 1s, converge: 1h, jitter: 10%, freshness: \
                     24h}\ndefaults: {channel: fast}\n";

fn partial_runs(server: &Server) -> Vec<Value> {
    let runs = server.json(&["run", "list", "--node", "web-1"]);
    let partial = |run: &&Value| !run["report"]["partial"].is_null();
    runs.as_array().unwrap().iter().filter(partial).map(|run| run["report"].clone()).collect()
}

/// How often the host ran what is tagged `counted`, and what has another tag: a run by tag makes the first alone
/// more, a full one both.
#[track_caller]
fn ran(host: &Host, counted: usize, others: usize) {
    let lines = |path: &str| host.read(path).lines().count();
    assert_eq!((lines("etc/counted"), lines("etc/others")), (counted, others));
}

#[test]
fn what_is_tagged_runs_and_what_nothing_has_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, repo) = (temp.path(), temp.path().join("repo"));
    let mut server = Server::new(dir, &["127.0.0.1"], "127.0.0.1", &Prefix::new());
    let control = server.start();
    write_repo(&repo, "hello");
    write(&repo.join("fleet.yaml"), FLEET);
    write(&repo.join("modules/hello/module.yaml"), MODULE);
    server.publish(&repo);
    let host = Host::new(dir, "web-1", &Prefix::new()).with_commands();
    server.token("web-1", &host.token_file());
    host.join();
    let daemon = host.start();
    server.until_state("web-1", "converged");
    host.until_read("etc/counted", "run\n");
    ran(&host, 1, 1);

    let printed = server.ok(&["node", "run", "web-1", "--tags", "counted,nope"]);
    assert!(
        printed.contains("1 node(s) are requested to run what is tagged counted or nope now"),
        "{printed}"
    );
    host.until_read("etc/counted", "run\nrun\n");
    until("the host confirmed it", || server.node("web-1")["taggedRun"].is_null().then_some(()));
    let run = until("the run is told", || partial_runs(&server).pop());
    assert_eq!(run["partial"]["tags"], serde_json::json!(["counted", "nope"]));
    assert_eq!(
        (&run["unknownTags"][0], run["counts"]["changed"].as_u64()),
        (&"nope".into(), Some(1)),
        "{run}"
    );
    let shown = server.ok(&["run", "show", "web-1"]);
    assert!(shown.contains("(only counted, nope); no resource is tagged nope"), "{shown}");
    ran(&host, 2, 1);

    // What is waited for says what it came to.
    let waited = server.muster(&["node", "run", "web-1", "--tags", "counted", "--wait", "30s"]);
    assert_eq!(
        (waited.status.code(), text(&waited.stdout)),
        (Some(0), "1 node(s) ran: 1 changed\n".to_owned())
    );
    ran(&host, 3, 1);
    let waited = server.muster(&["node", "run", "web-1", "--tags", "typpo", "--wait", "30s"]);
    assert_eq!(waited.status.code(), Some(3), "{waited:?}");
    assert!(text(&waited.stdout).contains("no resource is tagged typpo on 1 of them"), "{waited:?}");
    ran(&host, 3, 1);
    let waited = server.muster(&["node", "run", "web-1", "--wait", "30s"]);
    assert_eq!((waited.status.code(), text(&waited.stdout)), (Some(0), "1 node(s) ran\n".to_owned()));
    ran(&host, 4, 2);

    // Where no resource has it nothing runs, and that is said.
    server.ok(&["node", "run", "web-1", "--tags", "typo"]);
    let run =
        until("it is told", || partial_runs(&server).into_iter().find(|run| run["unknownTags"][0] == "typo"));
    assert_eq!(run["counts"]["changed"], 0, "{run}");
    ran(&host, 4, 2);

    // While the host is away the request stands, and is carried out when it calls.
    assert!(daemon.end().success());
    let before = partial_runs(&server).len();
    // The next step reaches the same control plane: credentials that were named are named there.
    let copy = dir.join("copy.json");
    std::fs::copy(server.dir.join("operator.json"), &copy).unwrap();
    let copy = copy.to_str().unwrap();
    let requests = ["node", "run", "web-1", "--tags", "counted", "--wait", "1s", "--operator", copy];
    let waited = server.muster(&requests);
    assert_eq!(waited.status.code(), Some(3), "{waited:?}");
    assert!(text(&waited.stdout).contains("1 node(s) did not confirm it within 1 s: web-1"), "{waited:?}");
    let next = format!("next: muster node show web-1 --operator {copy};");
    assert!(text(&waited.stdout).contains(&next), "{waited:?}");
    let shown = server.ok(&["node", "show", "web-1"]);
    assert!(shown.contains("requested for what is tagged counted; not confirmed yet"), "{shown}");
    let daemon = host.start();
    until("the host confirmed it", || server.node("web-1")["taggedRun"].is_null().then_some(()));
    // The full run of the start carried it out if the request came before that began; else one by tag did.
    let by_tag = until("the run by tag is told, if there was one", || {
        let by_tag = partial_runs(&server).len() - before;
        (host.read("etc/counted").lines().count() == 5 + by_tag).then_some(by_tag)
    });
    ran(&host, 5 + by_tag, 3);

    for (tags, why) in [("No Tag", "`No Tag` cannot be a tag"), ("", "`` cannot be a tag")] {
        let refused = server.muster(&["node", "run", "web-1", "--tags", tags]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(text(&refused.stderr).contains(why), "{refused:?}");
    }
    assert!(daemon.end().success());
    assert!(control.end().success());
}
