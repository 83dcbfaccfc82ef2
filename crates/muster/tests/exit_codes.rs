//! OPS-1, ROL-11: exit codes say what happened: 0 same or done, 1 error, 2 differences, 3 some nodes
//! failed, 4 unreachable, 5 refused.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use cli::exit::Exit;
use model::status::Overall;
use test_support::programs::repo::{
    Control, app_module, code, err, fleet_yaml, muster, nodes_yaml, out, write,
};

fn repo() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let ids: BTreeMap<String, String> = [("web-1.test".to_owned(), "1".to_owned())].into();
    let files = [
        ("fleet.yaml", fleet_yaml()),
        ("modules/app/module.yaml", app_module("hello")),
        ("nodes.yaml", nodes_yaml(&ids)),
    ];
    write(dir.path(), &files);
    dir
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_of_a_change() {
    let control = Control::start().await;
    let (repo, operator) = (repo(), control.operator_file().display().to_string());
    let run = async |arguments: &[&str]| {
        let mut all = arguments.to_vec();
        all.extend(["--operator", &operator]);
        muster(repo.path(), &all).await
    };
    let checked = muster(repo.path(), &["check"]).await;
    assert_eq!((code(&checked), out(&checked).contains("1 named node,")), (0, true));
    assert_eq!(code(&run(&["diff"]).await), 2);
    assert_eq!(code(&run(&["publish", "--dry-run"]).await), 2);
    let unasked = run(&["publish"]).await;
    assert_eq!(code(&unasked), 5);
    assert!(err(&unasked).contains("say --yes"), "{}", err(&unasked));
    assert_eq!(code(&run(&["publish", "--yes", "--ref", "first"]).await), 0);
    assert_eq!(code(&run(&["diff"]).await), 0);
    assert_eq!(code(&run(&["publish", "--dry-run"]).await), 0);
    let status = run(&["status"]).await;
    assert_eq!(code(&status), 0);
    assert!(out(&status).contains("first"), "{}", out(&status));
    let shown = run(&["release", "show", "--json"]).await;
    let json: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((&json["seq"], &json["ref"]), (&1.into(), &"first".into()));
    assert_eq!(code(&run(&["release", "show", "7"]).await), 1);
    assert_eq!(code(&run(&["node", "show", "web-1.test"]).await), 1, "nobody enrolled it");
    assert_eq!(code(&run(&["beacon"]).await), 0);
    assert_eq!(code(&run(&["beacon", "--channel", "nowhere"]).await), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_repo_is_an_error_of_everything_that_reads_it() {
    let control = Control::start().await;
    let (repo, operator) = (repo(), control.operator_file().display().to_string());
    write(
        repo.path(),
        &[("nodes.yaml", "nodes:\n  - match: [web-1.test]\n    roles: [nothing]\n".to_owned())],
    );
    let checked = muster(repo.path(), &["check"]).await;
    assert_eq!(code(&checked), 1);
    assert!(
        out(&checked).contains("nodes.yaml:3:13  E040") && out(&checked).contains("1 mistake;"),
        "{}",
        out(&checked)
    );
    let json = muster(repo.path(), &["check", "--json"]).await;
    let parsed: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(parsed["diagnostics"][0]["code"], "E040");
    for verb in [&["diff"][..], &["publish", "--yes"], &["render", "web-1.test"]] {
        let mut all = verb.to_vec();
        all.extend(["--operator", &operator]);
        let output = muster(repo.path(), &all).await;
        assert_eq!(code(&output), 1, "{verb:?}");
        assert!(err(&output).contains("E040"), "{verb:?}: {}", err(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_answers() {
    let control = Control::start().await;
    let dir = tempfile::tempdir().unwrap();
    let mut credentials: serde_json::Value =
        serde_json::from_slice(&std::fs::read(control.operator_file()).unwrap()).unwrap();
    // Bound and dropped: nobody listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    credentials["url"] = format!("https://{free}").into();
    std::fs::write(dir.path().join("operator.json"), credentials.to_string()).unwrap();
    for verb in [&["status"][..], &["node", "list"], &["run", "list"], &["release", "list"]] {
        let mut all = verb.to_vec();
        all.extend(["--operator", "operator.json"]);
        let output = muster(dir.path(), &all).await;
        assert_eq!(code(&output), 4, "{verb:?}: {}", err(&output));
        assert!(err(&output).contains("hint: is `muster server` running"), "{}", err(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_release_key_is_refused() {
    let control = Control::start().await;
    let repo = repo();
    let stranger = trust::SigningKey::from_seed(&[9; 32]);
    std::fs::write(repo.path().join("other.key"), stranger.to_file().as_bytes()).unwrap();
    let operator = control.operator_file().display().to_string();
    let output =
        muster(repo.path(), &["publish", "--yes", "--key", "other.key", "--operator", &operator]).await;
    assert_eq!(code(&output), 5);
    assert!(err(&output).contains("do not believe the release key"), "{}", err(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_nodes_make_status_end_with_three() {
    let control = Control::start().await;
    let mut view =
        control.operator().await.call(&server::api::STATUS, server::api::operation::Empty {}).await.unwrap();
    assert_eq!(cli::status::exit(&view), Exit::Ok);
    for (state, exit) in [
        (Overall::Converged, Exit::Ok),
        (Overall::Offline, Exit::Ok),
        (Overall::Failed, Exit::SomeFailed),
        (Overall::Stalled, Exit::SomeFailed),
        (Overall::Degraded, Exit::SomeFailed),
        (Overall::Diverged, Exit::SomeFailed),
    ] {
        view.states = [(state, 1)].into();
        assert_eq!(cli::status::exit(&view), exit, "{state}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistyped_command_is_an_error_and_no_difference() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(code(&muster(dir.path(), &["publihs"]).await), 1);
    assert_eq!(code(&muster(dir.path(), &["publish", "--nothing"]).await), 1);
    assert_eq!(code(&muster(dir.path(), &["--version"]).await), 0);
    assert_eq!(code(&muster(dir.path(), &["help", "publish"]).await), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_on_a_node_fails_every_verb_before_it_is_signed() {
    let control = Control::start().await;
    let (repo, operator) = (repo(), control.operator_file().display().to_string());
    let run = async |arguments: &[&str]| {
        let mut all = arguments.to_vec();
        all.extend(["--operator", &operator]);
        muster(repo.path(), &all).await
    };
    let module = |content: &str| {
        let text = format!(
            "params:\n  id: x\n  mp: {{a: 1}}\n  l: [a]\nresources:\n  - file: /etc/a\n    content: {content}\n"
        );
        [("modules/app/module.yaml", text)]
    };
    let contents = [
        "${{ params.mp.typo }}",
        "x ${{ params.l }}",
        "${{ params.mp.a + \"b\" }}",
        "${{ 1 // 0 }}",
        "${{ node.labels.nosuch }}",
    ];
    for content in contents {
        write(repo.path(), &module(content));
        let checked = muster(repo.path(), &["check"]).await;
        assert_eq!(code(&checked), 1, "{content}: {}", out(&checked));
        let told = out(&checked).lines().next().unwrap_or_default().to_owned();
        assert!(told.starts_with("modules/app/module.yaml:7:"), "{told}");
        for verb in
            [&["render", "web-1.test"][..], &["publish", "--dry-run"], &["publish", "--yes"], &["diff"]]
        {
            let output = run(verb).await;
            assert_eq!(code(&output), 1, "{verb:?}, {content}: {}", out(&output));
            assert!(err(&output).contains(&told), "{verb:?}, {content}: {}", err(&output));
        }
    }
    // What only a node observes is named, and judged by what it recorded.
    write(repo.path(), &module("${{ traits.external.site.rack }}"));
    let checked = muster(repo.path(), &["check"]).await;
    assert_eq!(code(&checked), 0, "{}", out(&checked));
    assert!(out(&checked).contains("  modules/app/module.yaml:7:14  content: traits.external.site.rack\n"));
    write(repo.path(), &[("traits/web-1.test.json", "{\"os\": {\"family\": \"debian\"}}".to_owned())]);
    let checked = muster(repo.path(), &["check", "--traits", "traits"]).await;
    assert_eq!(code(&checked), 1, "{}", out(&checked));
    assert!(out(&checked).contains("E066") && out(&checked).contains("for web-1.test"), "{}", out(&checked));
    let rendered = run(&["render", "web-1.test", "--traits", "traits/web-1.test.json"]).await;
    assert_eq!(code(&rendered), 1, "{}", out(&rendered));
    assert!(err(&rendered).contains("E066"), "{}", err(&rendered));
    let known = "{\"external\": {\"site\": {\"rack\": \"r1\"}}}";
    write(repo.path(), &[("traits/web-1.test.json", known.to_owned())]);
    let checked = muster(repo.path(), &["check", "--traits", "traits"]).await;
    assert_eq!(code(&checked), 0, "{}", out(&checked));
    assert!(out(&checked).contains("1 node judged by recorded traits\n"), "{}", out(&checked));
    // Nobody enrolled, so nobody recorded anything; the directory is made.
    let kept = run(&["node", "traits", "--out", &repo.path().join("kept").display().to_string()]).await;
    assert_eq!((code(&kept), repo.path().join("kept").is_dir()), (0, true), "{}", err(&kept));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rehearsal_ends_by_what_the_rollout_comes_to() {
    let repo = repo();
    let fleet = "format: 1\nname: test\nchannels: {stable: {contact: 1m, freshness: 1d}}\ndefaults: {channel: stable}\n";
    let nodes = "nodes:\n  - {match: [web-1.test, web-2.test], modules: [app]}\n".to_owned();
    let module = "resources:\n  - {file: /etc/motd, content: hello}\n".to_owned();
    write(
        repo.path(),
        &[("fleet.yaml", fleet.to_owned()), ("nodes.yaml", nodes), ("modules/app/module.yaml", module)],
    );
    let late = "{waves: [{name: first, nodes: [web-1.test], notBefore: +366d, gate: {soak: 30d}}, \
                {name: rest, gate: {soak: 30d}}]}";
    let probes = "probes:\n  web: {tcp: \"localhost:80\"}\n";
    for (terms, more, expected, outcome, said) in [
        ("{}", &[][..], 0, "through", "it is through after"),
        ("{}", &["--fail", "100%"], 3, "halted", "it stops after"),
        ("{onFailure: rollback}", &["--fail", "100%"], 3, "wentBack", "it stops after"),
        (late, &[], 3, "unfinished", "it is not through after 400 days"),
    ] {
        write(repo.path(), &[("rollouts.yaml", format!("rollouts: {{stable: {terms}}}\n{probes}"))]);
        let arguments = [&["rehearse", "--at", "2027-01-15T12:00:00Z"][..], more].concat();
        let output = muster(repo.path(), &arguments).await;
        assert_eq!(code(&output), expected, "{terms} {more:?}: {}{}", out(&output), err(&output));
        assert!(out(&output).contains(said), "{terms} {more:?}: {}", out(&output));
        let json = muster(repo.path(), &[&arguments[..], &["--json"]].concat()).await;
        assert_eq!(code(&json), expected);
        let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(report["outcome"], outcome, "{terms} {more:?}");
    }
}
