//! OPS-2: a command line says exactly whom and what: nothing is implied, and what cannot be
//! is told before anybody is asked.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use clap::Parser;
use cli::task::{NewTaskError, TaskRunArgs, new_task};
use model::work::Work;
use muster::args::Cli;
use plane::work::{Share, SpecError};
use server::api::work::Selected;
use test_support::programs::repo::{code, err, muster};

#[derive(Parser)]
struct Only {
    #[command(flatten)]
    run: TaskRunArgs,
}

fn parsed(arguments: &[&str]) -> Result<TaskRunArgs, clap::Error> {
    let all = ["run"].iter().chain(arguments);
    Only::try_parse_from(all).map(|only| only.run)
}

fn selected(count: usize) -> Selected {
    Selected { count, first: vec![], online: 0, promotable: count, unreachable: 0, offline: 0 }
}

#[test]
fn a_command_comes_after_two_dashes_and_keeps_its_own_options() {
    let run =
        parsed(&["web-*", "--batch", "10%", "--timeout", "60s", "--", "/bin/ls", "-l", "--batch"]).unwrap();
    let task = new_task(&run, &selected(12)).unwrap();
    let argv = ["/bin/ls", "-l", "--batch"].map(str::to_owned).to_vec();
    assert_eq!(task.work, Work::Command { argv });
    assert_eq!((task.batch, task.timeout_secs, task.expected), (Some(Share::Percent(10)), 60, Some(12)));
    assert_eq!((task.max_failures, task.canaries, task.wait_secs), (None, 0, 0));
}

#[test]
fn a_named_action_has_arguments_by_name() {
    let line = [
        "@edge",
        "--action",
        "renew",
        "ca=new",
        "text=a=b",
        "--canaries",
        "2",
        "--max-failures",
        "1",
        "--wait",
        "1h",
    ];
    let task = new_task(&parsed(&line).unwrap(), &selected(3)).unwrap();
    let args = [("ca", "new"), ("text", "a=b")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(task.work, Work::Action { name: "renew".to_owned(), args: args.into() });
    assert_eq!((task.max_failures, task.canaries, task.wait_secs), (Some(Share::Count(1)), 2, 3600));
}

#[test]
fn what_cannot_be_asked_for_is_refused() {
    for line in [
        &["web-1"][..],
        &["web-1", "uptime"],
        &["web-1", "a=b", "--", "/bin/ls"],
        &["web-1", "--action", "x", "--", "/bin/ls"],
        &["web-1", "--batch", "101%", "--", "/bin/ls"],
        &["web-1", "--timeout", "60", "--", "/bin/ls"],
        &["--", "/bin/ls"],
    ] {
        assert!(parsed(line).is_err(), "{line:?}");
    }
    let refused = |line: &[&str]| new_task(&parsed(line).unwrap(), &selected(2)).unwrap_err();
    assert_eq!(refused(&["web-1", "--", "uptime"]), NewTaskError::Relative("uptime".to_owned()));
    assert_eq!(refused(&["web-1", "--action", "x", "a=1", "a=2"]), NewTaskError::Twice("a".to_owned()));
    let spec = |line: &[&str]| match refused(line) {
        NewTaskError::Spec(error) => error,
        other => panic!("{other}"),
    };
    assert_eq!(spec(&["*", "--timeout", "2d", "--", "/bin/ls"]), SpecError::Timeout);
    assert_eq!(spec(&["*", "--batch", "0", "--", "/bin/ls"]), SpecError::Batch);
}

#[test]
fn every_verb_of_work_and_objects_is_read() {
    for line in [
        "task run web-* --yes --detach -- /bin/ls",
        "task run web-* --output --cancel-on-interrupt -- /bin/ls",
        "task list --limit 5",
        "task show t-1 --nodes --follow",
        "task output t-1 web-1",
        "task cancel t-1 --json",
        "query web-* traits os.version --wait 1h",
        "query web-* file /etc/hosts --timeout 10s",
        "query web-* processes",
        "query web-* listeners",
        "query web-* disks --operator operator.json",
        "workflow run renew.yaml --yes --detach",
        "workflow list",
        "workflow show w-1 --follow",
        "workflow approve w-1",
        "workflow abort w-1",
        "workflow resume w-1 --include-unknown",
        "object list",
        "object list web-* --kind App --namespace shop",
        "object get web-1 App/shop",
        "object apply -f a.yaml -f b --mapping destination --dry-run",
        "object apply -f - --node web-1",
        "object diff -f a.yaml",
        "object delete web-1 App/shop App/team/other --yes",
        "object delete -f a.yaml --dry-run",
        "object resync web-* --approve-deletions --yes",
        "object status --wrong",
        "--log-format json status",
    ] {
        let words = ["muster"].into_iter().chain(line.split(' '));
        Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    for line in [
        "task run",
        "query web-*",
        "object delete web-1",
        "object delete",
        "object apply",
        "object apply -f a --node n --mapping destination",
        "object get web-1 shop",
        "object resync",
        "workflow run",
    ] {
        let words = ["muster"].into_iter().chain(line.split(' '));
        assert!(Cli::try_parse_from(words).is_err(), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_told_before_a_control_plane_is_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    let relative = muster(dir.path(), &["task", "run", "*", "--", "uptime"]).await;
    assert_eq!(code(&relative), 1);
    assert!(err(&relative).contains("\"uptime\" is no absolute path"), "{}", err(&relative));
    assert!(err(&relative).contains("hint: no shell and no PATH"), "{}", err(&relative));
    std::fs::write(dir.path().join("w.yaml"), "name: x\nsteps: []\n").unwrap();
    let workflow = muster(dir.path(), &["workflow", "run", "w.yaml"]).await;
    assert!(err(&workflow).contains("because: the workflow has no steps"), "{}", err(&workflow));
    let selectors = muster(dir.path(), &["help", "selectors"]).await;
    assert_eq!(code(&selectors), 0);
}
