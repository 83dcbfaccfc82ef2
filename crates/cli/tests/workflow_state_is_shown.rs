//! OPS-2: a workflow says where it stands, why it stands still, and what to do; exit codes
//! say it to scripts.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use cli::exit::Exit;
use cli::screen::Screen;
use cli::workflow::{WorkflowProgress, exit, line, list, progress_of, show};
use model::Timestamp;
use plane::work::{TaskProgress, TaskState, TaskSummary};
use server::api::work::{StepView, WorkflowView};

fn view(state: &str) -> WorkflowView {
    let progress = TaskProgress { total: 4, succeeded: 3, failed: 1, ..TaskProgress::default() };
    let step = |name: &str, state: &str, tasks: &[&str]| StepView {
        name: name.to_owned(),
        state: state.to_owned(),
        tasks: tasks.iter().map(|task| (*task).to_owned()).collect(),
        summary: (!tasks.is_empty()).then_some(TaskSummary { state: TaskState::Halted, why: None, progress }),
    };
    WorkflowView {
        id: "w-1".to_owned(),
        name: "renew".to_owned(),
        by: "ada".to_owned(),
        created: Timestamp(0),
        finished: matches!(state, "done" | "aborted").then_some(Timestamp(60_000)),
        state: state.to_owned(),
        why: (state == "failed").then(|| "1 of 4 failed".to_owned()),
        steps: vec![step("try one", "failed", &["t-1", "t-2"]), step("the edge", "waiting", &[])],
        version: 3,
    }
}

#[test]
fn what_stands_still_says_why_and_what_to_do() {
    let screen = Screen::of_process(false);
    let text = show(&view("failed"), screen);
    assert!(text.contains("\nit is failed\nbecause 1 of 4 failed\nnext: muster task show t-2, then muster workflow resume w-1, or abort w-1\n"), "{text}");
    assert!(
        text.contains("1  try one   failed   t-2   2 tries  halted, 4 nodes: 3 succeeded, 1 failed"),
        "{text}"
    );
    let waits = show(&view("awaiting-approval"), screen);
    assert!(waits.contains("it is awaiting approval\nnext: muster workflow approve w-1"), "{waits}");
    assert!(!show(&view("running"), screen).contains("next:"));
    let listed = list(&[view("failed")], screen);
    assert!(listed.contains("failed  1/2 try one  1 of 4 failed"), "{listed}");
    assert!(line(&view("running")).starts_with("workflow w-1 running, step 1/2 try one: halted, 4 nodes"));
}

#[test]
fn exit_codes_say_what_a_workflow_came_to() {
    for (state, stands, code) in [
        ("done", WorkflowProgress::Done, Exit::Ok),
        ("failed", WorkflowProgress::Still, Exit::SomeFailed),
        ("aborted", WorkflowProgress::Aborted, Exit::SomeFailed),
        ("running", WorkflowProgress::GoesOn, Exit::Ok),
        ("soaking", WorkflowProgress::GoesOn, Exit::Ok),
        ("awaiting-approval", WorkflowProgress::GoesOn, Exit::Ok),
        ("aborting", WorkflowProgress::GoesOn, Exit::Ok),
    ] {
        assert_eq!((progress_of(&view(state)), exit(&view(state))), (stands, code), "{state}");
    }
}
