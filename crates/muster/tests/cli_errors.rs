//! OPS-1: an error names what failed, its causes and what to do next; the same as JSON.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use test_support::programs::repo::{Control, app_module, code, err, fleet_yaml, muster, out, write};

#[tokio::test(flavor = "multi_thread")]
async fn missing_credentials_say_where_they_would_be() {
    let dir = tempfile::tempdir().unwrap();
    let output = muster(dir.path(), &["status"]).await;
    assert_eq!(code(&output), 1);
    assert_eq!(
        err(&output),
        "error: there are no operator's credentials at muster-data/operator.json\n\
         hint: run this beside muster-data/, or as root on the control plane's host, or name the file that `muster server` wrote: --operator FILE or MUSTER_OPERATOR\n"
    );
    assert_eq!(out(&output), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_json_when_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let output = muster(dir.path(), &["status", "--json"]).await;
    let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(parsed["error"]["exit"], 1);
    assert!(parsed["error"]["hint"].as_str().unwrap().contains("--operator FILE"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_carries_its_code_and_what_to_do() {
    let control = Control::start().await;
    let operator = control.operator_file().display().to_string();
    let output = muster(control.dir.path(), &["node", "show", "nobody.test", "--operator", &operator]).await;
    assert_eq!(code(&output), 1);
    let text = err(&output);
    assert!(text.contains("(not-found): no node \"nobody.test\" is enrolled"), "{text}");
    assert!(text.contains("hint: Check the name;"), "{text}");
    assert!(text.contains("`muster help not-found` explains it"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn causes_are_named_down_to_the_first() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("operator.json");
    std::fs::write(&file, "{\"url\": 7}").unwrap();
    let open = muster(dir.path(), &["status", "--operator", "operator.json"]).await;
    assert!(err(&open).contains("others can read this private key"), "{}", err(&open));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let output = muster(dir.path(), &["status", "--operator", "operator.json"]).await;
    let text = err(&output);
    assert!(text.starts_with("error: the operator's credentials in operator.json cannot be used\n  because: operator.json is not what"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nodes_certificate_opens_nothing_of_the_operators() {
    let control = Control::start().await;
    let other = Control::start().await;
    let mut credentials: serde_json::Value =
        serde_json::from_slice(&std::fs::read(other.operator_file()).unwrap()).unwrap();
    credentials["url"] = control.running.operator_url.to_string().into();
    std::fs::write(control.dir.path().join("stranger.json"), credentials.to_string()).unwrap();
    let output = muster(control.dir.path(), &["status", "--operator", "stranger.json"]).await;
    assert_eq!(code(&output), 4);
    assert!(err(&output).contains("the credentials are of another control plane"), "{}", err(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn rendering_an_unknown_node_names_the_nearest() {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("fleet.yaml", fleet_yaml()),
        ("modules/app/module.yaml", app_module("hello")),
        ("nodes.yaml", "nodes:\n  - match: [web-1.test]\n    modules: [app]\n".to_owned()),
    ];
    write(dir.path(), &files);
    let output = muster(dir.path(), &["render", "web-2.test"]).await;
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("no entry of the fleet repo matches \"web-2.test\""), "{}", err(&output));
    assert!(err(&output).contains("hint: did you mean web-1.test?"), "{}", err(&output));
    let rendered = muster(dir.path(), &["render", "web-1.test"]).await;
    assert_eq!(code(&rendered), 0);
    assert!(out(&rendered).contains("traits: the built-in sample"), "{}", out(&rendered));
    assert!(out(&rendered).contains("      | hello none\n"), "{}", out(&rendered));
}
