//! OPS-1: logs are one JSON object a line when that is asked for, by option or environment.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use test_support::programs::repo::{Control, app_module, code, fleet_yaml, write};

#[tokio::test(flavor = "multi_thread")]
async fn a_line_is_an_object() {
    let control = Control::start().await;
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("fleet.yaml", fleet_yaml()),
        ("modules/app/module.yaml", app_module("hello")),
        ("nodes.yaml", "nodes:\n  - match: [web-1.test]\n    modules: [app]\n".to_owned()),
    ];
    write(dir.path(), &files);
    let mut credentials: serde_json::Value =
        serde_json::from_slice(&std::fs::read(control.operator_file()).unwrap()).unwrap();
    // Bound and dropped: nobody listens there, which is worth a line of log.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    credentials["url"] = format!("https://{free}").into();
    std::fs::write(dir.path().join("operator.json"), credentials.to_string()).unwrap();
    for (option, environment) in [(true, false), (false, true), (false, false)] {
        let mut command = tokio::process::Command::new(test_support::programs::muster());
        command.args(["-vv", "render", "web-1.test", "--operator", "operator.json"]).current_dir(dir.path());
        command.env_remove("MUSTER_LOG").env_remove("MUSTER_LOG_FORMAT");
        if option {
            command.args(["--log-format", "json"]);
        }
        if environment {
            command.env("MUSTER_LOG_FORMAT", "json");
        }
        let output = command.output().await.unwrap();
        assert_eq!(code(&output), 0);
        let logs = String::from_utf8(output.stderr).unwrap();
        let parsed: Result<Vec<serde_json::Value>, _> = logs.lines().map(serde_json::from_str).collect();
        if !(option || environment) {
            assert!(parsed.is_err(), "{logs}");
            continue;
        }
        let said = parsed.unwrap();
        let told =
            |line: &serde_json::Value| line["message"] == "no control plane to ask for recorded traits";
        assert!(said.iter().any(told), "{logs}");
    }
}
