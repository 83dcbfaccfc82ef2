//! OPS-1, OPS-2: the verbs over objects and work against a control plane: what they print
//! and end with where there is nobody yet, and that a refusal is one with a reason.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use test_support::programs::repo::{Control, code, err, fleet_yaml, muster, out, write};

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_is_enrolled() {
    let control = Control::start().await;
    let operator = control.operator_file().display().to_string();
    let run = async |line: &str, command: &[&str]| {
        let mut all: Vec<&str> = line.split(' ').collect();
        all.extend(["--operator", &operator]);
        all.extend(command);
        muster(control.dir.path(), &all).await
    };
    for (line, head) in [
        ("object list", "no object\nnext: muster object status"),
        ("object list --kind App --namespace shop", "no object of kind App in namespace shop\n"),
        ("object status", "no node"),
        ("task list", "TASK  BEGUN"),
        ("workflow list", "WORKFLOW  NAME"),
        ("rollout list", "ROLLOUT  RELEASE"),
    ] {
        let output = run(line, &[]).await;
        assert_eq!(code(&output), 0, "{line}: {}", err(&output));
        assert!(out(&output).starts_with(head), "{line}: {}", out(&output));
        let json = run(&format!("{line} --json"), &[]).await;
        assert_eq!(out(&json), "[]\n", "{line}");
    }
    for (line, command) in [
        ("task run * --yes", &["--", "/bin/true"][..]),
        ("query * disks", &[]),
        ("object list * --kind App", &[]),
        ("object resync * --yes", &[]),
        ("node list *", &[]),
        ("node run * --yes", &[]),
    ] {
        let output = run(line, command).await;
        assert_eq!(code(&output), 1, "{line}: {}", err(&output));
        assert!(err(&output).contains("no enrolled node matches \"*\""), "{line}: {}", err(&output));
    }
    for line in ["task show t-1", "task cancel t-1", "workflow approve w-1", "object get web-1 App/shop"] {
        let output = run(line, &[]).await;
        assert_eq!(code(&output), 1, "{line}: {}", err(&output));
        assert!(err(&output).contains("(not-found)"), "{line}: {}", err(&output));
    }
    let wrong = run("object status !web-1", &[]).await;
    assert!(err(&wrong).contains("hint: `muster help selectors`"), "{}", err(&wrong));
    let status = run("status", &[]).await;
    assert_eq!((code(&status), out(&status).contains("synchronization")), (0, false), "{}", err(&status));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_no_node_is_refused_with_a_reason() {
    let control = Control::start().await;
    let operator = control.operator_file().display().to_string();
    write(
        control.dir.path(),
        &[("a.yaml", "kind: App\nmetadata: {name: a, namespace: web-1.test}\n".to_owned())],
    );
    for verb in ["apply", "diff"] {
        let line = ["object", verb, "-f", "a.yaml", "--operator", &operator];
        let output = muster(control.dir.path(), &line).await;
        assert_eq!(code(&output), 5, "{verb}: {}{}", out(&output), err(&output));
        assert!(out(&output).contains("web-1.test  App/web-1.test/a"), "{verb}: {}", out(&output));
        assert!(out(&output).contains("1 refused"), "{verb}: {}", out(&output));
    }
}

/// A13: a node that nobody enrolled ends every verb with 1, however it is named.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_node_ends_every_verb_with_the_same_code() {
    let control = Control::start().await;
    let operator = control.operator_file().display().to_string();
    let manifest = "kind: App\nmetadata: {name: a}\n".to_owned();
    write(control.dir.path(), &[(".m/a.yaml", manifest), ("fleet.yaml", fleet_yaml())]);
    for line in [
        "node show nobody.test",
        "node list nobody.test",
        "node run nobody.test",
        "node facts nobody.test",
        "node remove nobody.test --yes",
        "run list --node nobody.test",
        "run show nobody.test",
        "diff nobody.test",
        "render nobody.test",
        "explain nobody.test",
        "query nobody.test disks",
        "task run nobody.test -- /bin/true",
        "object list nobody.test",
        "object status nobody.test",
        "object get nobody.test App/a",
        "object resync nobody.test",
        "object apply --node nobody.test -f .m/a.yaml",
        "object diff --node nobody.test -f .m/a.yaml",
        "object delete nobody.test App/a",
    ] {
        let (verb, rest) = line.split_once(" -- ").unwrap_or((line, ""));
        let mut args: Vec<&str> = verb.split(" ").collect();
        // It works offline.
        if !verb.starts_with("explain") {
            args.extend(["--operator", &operator]);
        }
        if !rest.is_empty() {
            args.extend(["--", rest]);
        }
        let output = muster(control.dir.path(), &args).await;
        assert_eq!(code(&output), 1, "{line}: {}{}", out(&output), err(&output));
        assert!(
            err(&output).contains("nobody.test") || err(&output).contains("no node"),
            "{line}: {}",
            err(&output)
        );
    }
}
