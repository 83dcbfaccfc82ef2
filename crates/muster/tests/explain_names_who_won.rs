//! CFG-6: `muster explain` says offline which layer set a value, where it stands and who won; of a
//! resource what brought it, what holds it back and what its attributes come to. It shows no secret.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use serde_json::Value;
use test_support::programs::repo::{code, err, fleet_yaml, muster, out, write};

const MODULE: &str = "\
when: traits.os.family == \"debian\"
params:
  greeting: hello
  password: {type: string, default: none}
  number: {type: int, default: 7}
resources:
  - file: /etc/motd
    id: motd
    content: ${{ params.greeting }}
    mode: \"0640\"
    timeout: 90s
    only_if: [test, -d, /etc]
  - file: /etc/secret
    content: \"pw=${{ params.password }} n=${{ params.number }}\"
    sensitive: true
  - foreach: [one, two]
    file: /etc/${{ item }}
    content: x
    when: file_exists(\"/etc/os-release\")
";

fn repo(dir: &Path) {
    let nodes = "\
nodes:
  - match: [\"web-*.test\"]
    modules: [app]
    vars: {app.greeting: from the entry}
    conditional_vars:
      - when: traits.memory.total_mb > 4096
        vars: {app.greeting: much memory}
";
    let files = [
        ("fleet.yaml", fleet_yaml()),
        ("modules/app/module.yaml", MODULE.to_owned()),
        ("nodes.yaml", nodes.to_owned()),
        ("hosts/web-1.test.yaml", "vars: {app.password: hunter2}\n".to_owned()),
        ("large.json", "{\"os\": {\"family\": \"debian\"}, \"memory\": {\"total_mb\": 8192}}".to_owned()),
    ];
    write(dir, &files);
}

async fn explain(dir: &Path, args: &[&str]) -> String {
    let args: Vec<&str> = ["explain", "web-1.test"].into_iter().chain(args.iter().copied()).collect();
    let output = muster(dir, &args).await;
    assert_eq!(code(&output), 0, "{}", err(&output));
    out(&output)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_var_names_its_layers_and_the_winner_by_the_traits() {
    let dir = tempfile::tempdir().unwrap();
    repo(dir.path());
    let text = explain(dir.path(), &["app.greeting"]).await;
    assert!(text.contains("app.greeting = from the entry\n"), "{text}");
    assert!(text.contains("module default "), "{text}");
    assert!(text.contains("modules/app/module.yaml:3"), "{text}");
    assert!(text.contains("does not hold"), "{text}");
    let large = explain(dir.path(), &["app.greeting", "--traits", "large.json", "--json"]).await;
    let large: Value = serde_json::from_str(&large).unwrap();
    assert_eq!(large["value"]["value"], "much memory");
    let outcomes: Vec<&str> =
        large["value"]["layers"].as_array().unwrap().iter().map(|l| l["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["overridden", "overridden", "wins"]);
    assert_eq!(large["value"]["layers"][2]["source"]["file"], "nodes.yaml");
    assert_eq!(large["value"]["layers"][2]["source"]["line"], 7);
    assert_eq!(large["traits"], "large.json");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_says_how_it_was_classified_and_why_it_has_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    repo(dir.path());
    let text = explain(dir.path(), &[]).await;
    for wanted in
        ["matched by", "nodes.yaml:2", "hosts/web-1.test.yaml", "node entry (nodes.yaml:3)", "app.greeting"]
    {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let node: Value = serde_json::from_str(&explain(dir.path(), &["--json"]).await).unwrap();
    assert_eq!(node["classified"]["matched"]["pattern"], "web-*.test");
    assert_eq!(node["classified"]["modules"][0]["because"][0]["reason"], "node entry");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_names_what_holds_it_back_and_whence_its_attributes_are() {
    let dir = tempfile::tempdir().unwrap();
    repo(dir.path());
    for name in ["file:/etc/motd", "/etc/motd", "motd", "app/motd", "app/file:/etc/motd"] {
        let text = explain(dir.path(), &[name]).await;
        assert!(text.contains("declared at modules/app/module.yaml:7"), "{name}: {text}");
    }
    let text = explain(dir.path(), &["motd"]).await;
    assert!(text.contains("when of module app: traits.os.family == \"debian\"  -> holds"), "{text}");
    assert!(text.contains("traits.os.family = debian"), "{text}");
    assert!(text.contains("only_if: [test, -d, /etc]  -> asked on the node in each run"), "{text}");
    assert!(text.contains("content: from the entry  (modules/app/module.yaml:9)"), "{text}");
    assert!(text.contains("params.greeting = from the entry  node entry (nodes.yaml:4)"), "{text}");
    assert!(text.contains("timeout: 90 s"), "{text}");
    let one: Value = serde_json::from_str(&explain(dir.path(), &["/etc/motd.mode", "--json"]).await).unwrap();
    assert_eq!(one["resource"]["attributes"].as_array().unwrap().len(), 1);
    assert_eq!(one["resource"]["attributes"][0]["value"], "0640");
    let looped = explain(dir.path(), &["/etc/two"]).await;
    assert!(looped.contains("item = two"), "{looped}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    repo(dir.path());
    for args in [&[][..], &["app.password"], &["/etc/secret"], &["/etc/secret.content"], &["--json"]] {
        let text = explain(dir.path(), args).await;
        assert!(!text.contains("hunter2"), "{args:?}: {text}");
    }
    let text = explain(dir.path(), &["app.number"]).await;
    assert!(text.contains("app.number = 7"), "a number is no secret: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_names_the_nearest() {
    let dir = tempfile::tempdir().unwrap();
    repo(dir.path());
    let output = muster(dir.path(), &["explain", "web-1.test", "app.greting"]).await;
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("hint: did you mean app.greeting?"), "{}", err(&output));
    let output = muster(dir.path(), &["explain", "db-1.test"]).await;
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("no entry of the fleet repo matches \"db-1.test\""), "{}", err(&output));
}
