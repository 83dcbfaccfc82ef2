//! OPS-2: what became of a task is told by outcome, every one that is not a success with
//! what to do; what is not known is told as such; exit codes say it to scripts.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use cli::exit::Exit;
use cli::screen::Screen;
use cli::task::{Lines, exit, groups, line, list, show, summary, why_it_waits};
use model::Timestamp;
use model::work::{ActionOutcome, OutputStream, Work};
use plane::work::{NodeStage, TaskProgress, TaskState, TaskSummary};
use serde_json::json;
use server::api::NodeView;
use server::api::work::{OutputView, TaskNodeView, TaskView};

fn screen() -> Screen {
    Screen::of_process(false)
}

fn node(name: &str, stage: NodeStage, outcome: Option<ActionOutcome>) -> TaskNodeView {
    TaskNodeView {
        node: format!("n-{}", &model::Digest::of(name.as_bytes()).to_string()[..32]).parse().unwrap(),
        hostname: Some(format!("{name}.test").parse().unwrap()),
        stage,
        since: Timestamp(0),
        expires: None,
        outcome,
        duration_ms: Some(1200),
    }
}

fn ended(name: &str, outcome: ActionOutcome) -> TaskNodeView {
    node(name, NodeStage::Ended, Some(outcome))
}

fn task(state: TaskState, progress: TaskProgress) -> TaskView {
    TaskView {
        id: "t-1".to_owned(),
        by: "ada".to_owned(),
        selector: "web-*".to_owned(),
        work: Work::Command { argv: vec!["/bin/echo".to_owned(), "two words".to_owned()] },
        created: Timestamp(1_000),
        finished: Some(Timestamp(13_000)),
        workflow: None,
        version: 9,
        summary: TaskSummary { state, why: None, progress },
    }
}

fn mixed() -> (TaskView, Vec<TaskNodeView>) {
    let nodes = vec![
        ended("web-1", ActionOutcome::Exited { code: 0 }),
        ended("web-2", ActionOutcome::Exited { code: 0 }),
        ended("web-3", ActionOutcome::Exited { code: 7 }),
        ended("web-4", ActionOutcome::Exited { code: 7 }),
        ended("web-5", ActionOutcome::Exited { code: 7 }),
        ended("web-6", ActionOutcome::Exited { code: 7 }),
        ended("web-7", ActionOutcome::Unknown),
        node("web-8", NodeStage::Offline, None),
        node("web-9", NodeStage::Silent, None),
    ];
    let progress = TaskProgress {
        total: 9,
        succeeded: 2,
        failed: 4,
        unknown: 1,
        offline: 1,
        silent: 1,
        ..TaskProgress::default()
    };
    (task(TaskState::Done, progress), nodes)
}

#[test]
fn the_summary_groups_nodes_and_says_what_to_do() {
    let (task, nodes) = mixed();
    let text = summary(&task, &nodes, screen());
    let want = "\
task t-1 is done, 9 nodes: 2 succeeded, 4 failed, 1 unknown, 1 silent, 1 offline after 12 s
     2x  succeeded  web-1.test, web-2.test
     4x  exit 7  web-3.test, web-4.test, web-5.test +1
         next: muster task output t-1 web-3.test
     1x  asked, and never heard of again  web-9.test
         next: it may have been done: muster node show web-9.test
     1x  offline, so it was not asked  web-8.test
         next: --wait 1h waits for nodes that cannot be reached
     1x  unknown: the agent died while it ran  web-7.test
         next: it may have been done, or still run: look at web-7.test, then run it again if it is to
";
    assert_eq!(text, want);
}

#[test]
fn a_task_is_shown_with_what_it_does_and_each_node() {
    let (task, nodes) = mixed();
    let text = show(&task, &nodes, &[], true, screen());
    assert!(text.starts_with("task t-1  /bin/echo 'two words'\non web-*  by ada, "), "{text}");
    assert!(text.contains("\nweb-7.test  unknown: the agent died while it ran"), "{text}");
    let listed = list(&[task], screen());
    assert!(listed.starts_with("TASK  BEGUN"), "{listed}");
    assert!(listed.contains("/bin/echo 'two words'  done   2/9   6"), "{listed}");
}

#[test]
fn a_query_is_shown_with_its_answers_in_words() {
    let (_, mut nodes) = mixed();
    for node in &mut nodes[..2] {
        node.outcome = Some(ActionOutcome::Answered { result: json!({"os": {"id": "debian"}}) });
    }
    let work = Work::Query { what: "traits".to_owned(), path: None };
    let query = TaskView { work, ..task(TaskState::Done, TaskProgress::default()) };
    let text = show(&query, &nodes, &[], false, screen());
    let answers =
        "\n9 nodes: 1 answer\n\n     2x  web-1.test, web-2.test\n         os:\n           id: debian\n";
    assert!(text.ends_with(answers), "{text}");
    // Who did not answer is told once.
    assert_eq!(text.matches("web-8.test").count(), 1, "{text}");
    assert!(!show(&query, &nodes[2..], &[], false, screen()).contains("answer\n"));
}

#[test]
fn a_node_that_is_waited_for_is_told_with_when_it_was_heard_and_until_when_it_may_begin() {
    let at = |secs: i64| Timestamp(secs * 1000);
    let view = |seen: Option<i64>| -> NodeView {
        let status = json!({
            "result": "ok", "drift": "converged", "contact": "online", "release": "current", "would_change": 0,
        });
        let mut view = json!({
            "id": node("web-1", NodeStage::Issued, None).node, "hostname": "web-1.test", "state": "converged",
            "status": status, "promisedSecs": 60, "fingerprint": "",
        });
        view["lastSeen"] = json!(seen.map(at));
        serde_json::from_value(view).unwrap()
    };
    let asked = |stage, since| TaskNodeView { since: at(since), ..node("web-1", stage, None) };
    let issued = TaskNodeView { expires: Some(at(1360)), ..asked(NodeStage::Issued, 1020) };
    assert_eq!(
        why_it_waits(&issued, &view(Some(1000)), at(1040)),
        "was last heard 40 s ago and calls within 20 s; it is asked at its next contact; expires within 5 min"
    );
    assert_eq!(
        why_it_waits(&issued, &view(Some(1000)), at(1300)),
        "was last heard 5 min ago and is late by 4 min; it is asked at its next contact; expires within 60 s"
    );
    assert_eq!(
        why_it_waits(&issued, &view(Some(1030)), at(1040)),
        "was last heard 10 s ago and calls within 50 s; it was asked, and did not begin yet; expires within 5 min"
    );
    assert_eq!(
        why_it_waits(&asked(NodeStage::Deferred, 1020), &view(Some(0)), at(1040)),
        "was last heard 17 min ago and is late by 16 min; it is waited for, and asked at its next contact"
    );
    assert_eq!(why_it_waits(&issued, &view(None), at(1040)), "was never heard");
}

#[test]
fn every_outcome_that_is_no_success_has_a_next_step_or_an_operators_word() {
    let outcomes = [
        ActionOutcome::Exited { code: 1 },
        ActionOutcome::Signalled { signal: 9 },
        ActionOutcome::TimedOut,
        ActionOutcome::Refused { code: Default::default(), message: "no delegation allows it".to_owned() },
        ActionOutcome::Failed { message: "no such program".to_owned() },
        ActionOutcome::Expired,
        ActionOutcome::Unknown,
    ];
    for outcome in outcomes {
        let found = groups("t-1", &[ended("web-1", outcome.clone())]);
        assert!(found[0].next.is_some(), "{outcome:?}");
    }
    let cancelled = groups("t-1", &[ended("web-1", ActionOutcome::Cancelled)]);
    assert_eq!((cancelled[0].text.as_str(), &cancelled[0].next), ("cancelled", &None));
}

#[test]
fn exit_codes_say_what_a_task_came_to() {
    let (task, nodes) = mixed();
    assert_eq!(exit(&task.summary.progress, &nodes), Exit::SomeFailed);
    let all = TaskProgress { total: 2, succeeded: 2, ..TaskProgress::default() };
    assert_eq!(exit(&all, &nodes[..2]), Exit::Ok);
    let refused = || ActionOutcome::Refused { code: Default::default(), message: String::new() };
    let progress = TaskProgress { total: 2, failed: 2, ..TaskProgress::default() };
    let both = [ended("web-1", refused()), ended("web-2", refused())];
    assert_eq!(exit(&progress, &both), Exit::Refused);
    let one = [ended("web-1", refused()), ended("web-2", ActionOutcome::Exited { code: 1 })];
    assert_eq!(exit(&progress, &one), Exit::SomeFailed);
    let some = TaskProgress { total: 2, succeeded: 1, failed: 1, ..TaskProgress::default() };
    let some_refused = [ended("web-1", refused()), ended("web-2", ActionOutcome::Exited { code: 0 })];
    assert_eq!(exit(&some, &some_refused), Exit::SomeFailed);
    for stage in [NodeStage::Offline, NodeStage::Silent, NodeStage::Withdrawn, NodeStage::Removed] {
        let progress = TaskProgress { total: 1, ..TaskProgress::default() };
        assert_eq!(exit(&progress, &[node("web-1", stage, None)]), Exit::SomeFailed, "{stage:?}");
    }
}

#[test]
fn how_far_a_task_is_fits_on_a_line() {
    let progress = TaskProgress {
        total: 812,
        waiting: 489,
        issued: 3,
        running: 17,
        succeeded: 300,
        failed: 3,
        ..TaskProgress::default()
    };
    let summary = TaskSummary { state: TaskState::Running, why: None, progress };
    let want = "running, 812 nodes: 300 succeeded, 3 failed, 17 running, 3 asked, 489 waiting";
    assert_eq!(line(&summary), want);
    let halted =
        TaskSummary { state: TaskState::Halted, why: Some("4 failed, over 3".to_owned()), ..summary };
    assert!(line(&halted).starts_with("halted (4 failed, over 3), 812 nodes: "));
}

#[test]
fn output_comes_in_whole_lines_under_the_nodes_name() {
    let piece = |number, stream, text: &str, dropped| OutputView {
        number,
        at: Timestamp(0),
        stream,
        text: text.to_owned(),
        dropped,
    };
    let mut lines = Lines::of("web-1");
    assert_eq!(lines.take(&piece(1, OutputStream::Stdout, "one\ntw", 0), screen()), "web-1 | one\n");
    assert_eq!(lines.take(&piece(2, OutputStream::Stderr, "oops\n", 0), screen()), "web-1 ! oops\n");
    assert_eq!(
        lines.take(&piece(3, OutputStream::Stdout, "o\n\nthree", 0), screen()),
        "web-1 | two\nweb-1 | \n"
    );
    let cut = lines.take(&piece(4, OutputStream::Stdout, " and\n", 500), screen());
    assert_eq!(cut, "web-1 | (500 B left out)\nweb-1 | three and\n");
    lines.take(&piece(5, OutputStream::Stdout, "end", 0), screen());
    assert_eq!(lines.rest(screen()), "web-1 | end\n");
    assert_eq!(lines.rest(screen()), "");
    assert_eq!(Lines::bare().take(&piece(1, OutputStream::Stdout, "as it is\n", 0), screen()), "as it is\n");
}
