//! OPS-2 and SYN-10, in tables: offline targets are answered at once or waited for, a spent
//! budget calls off what has not begun, cancelling ends what runs, silence has an end.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::work::{ActionOutcome, MAX_TIMEOUT_SECS, Order, Work};
use model::{NodeId, Timestamp};
use plane::work::{
    MAX_TARGETS, NodeStage, Reach, Share, SpecError, Task, TaskEffect, TaskInput, TaskProgress, TaskSpec,
    TaskState,
};

fn node(n: u8) -> NodeId {
    NodeId::of_key(&[n; 32])
}

fn spec() -> TaskSpec {
    TaskSpec {
        id: "t1".to_owned(),
        by: "ada".to_owned(),
        selector: "*".to_owned(),
        work: Work::Command { argv: vec!["/bin/true".into()] },
        batch: Share::ALL,
        max_failures: None,
        canaries: 0,
        timeout_secs: 60,
        wait_secs: 0,
        begin_secs: plane::work::BEGIN_SECS,
        workflow: None,
    }
}

fn begun(spec: TaskSpec, targets: u8, reach: &dyn Fn(&NodeId) -> Reach) -> (Task, Vec<TaskEffect>) {
    let mut task = Task::new(spec, (0..targets).map(node).collect(), Timestamp(0)).unwrap();
    let effects = task.handle(TaskInput::Begin, Timestamp(0), reach);
    (task, effects)
}

fn online(_: &NodeId) -> Reach {
    Reach::Online
}

fn puts(effects: &[TaskEffect]) -> Vec<(NodeId, Order)> {
    let put = |effect: &TaskEffect| match effect {
        TaskEffect::Put { node, order, .. } => Some((node.clone(), (**order).clone())),
        _ => None,
    };
    effects.iter().filter_map(put).collect()
}

fn ended(n: u8, code: i32) -> TaskInput {
    TaskInput::Ended { node: node(n), outcome: ActionOutcome::Exited { code }, duration_ms: 1 }
}

fn stages(task: &Task, targets: u8) -> Vec<NodeStage> {
    (0..targets).map(|n| task.nodes()[&node(n)].stage).collect()
}

#[test]
fn offline_is_an_answer_at_once() {
    let reach = |n: &NodeId| match n {
        n if *n == node(0) => Reach::Online,
        n if *n == node(1) => Reach::Promotable { within_secs: 900 },
        n if *n == node(2) => Reach::Offline,
        _ => Reach::Removed,
    };
    let (mut task, effects) = begun(TaskSpec { batch: Share::Count(1), ..spec() }, 4, &reach);
    use NodeStage::{Ended, Issued, Offline, Removed, Waiting};
    assert_eq!(stages(&task, 4), [Issued, Waiting, Offline, Removed]);
    assert_eq!(puts(&effects)[0].1.expires, Timestamp(300_000));
    let effects = task.handle(ended(0, 0), Timestamp(0), &reach);
    // Who polls has until after the next contact.
    assert_eq!(puts(&effects)[0].1.expires, Timestamp(1_200_000));
    let effects = task.handle(ended(1, 3), Timestamp(0), &reach);
    assert_eq!(stages(&task, 4), [Ended, Ended, Offline, Removed]);
    let progress =
        TaskProgress { total: 4, succeeded: 1, failed: 1, offline: 1, removed: 1, ..TaskProgress::default() };
    assert_eq!((task.summary().state, task.summary().progress), (TaskState::Done, progress));
    assert!(matches!(effects.last(), Some(TaskEffect::Finished(_))));
    // What was not saved must not be done.
    assert!(
        matches!(effects[0], TaskEffect::SaveNodes(_)) && matches!(effects[1], TaskEffect::SaveDocument(_))
    );
    assert!(matches!(effects[2], TaskEffect::Drop { .. }));
}

/// LIF-1: a node is not asked from its third missed contact on, and the task says the word that status says.
#[test]
fn who_is_not_asked_is_unreachable_or_offline() {
    let away = |n: &NodeId| if *n == node(0) { Reach::Unreachable } else { Reach::Offline };
    let (task, _) = begun(spec(), 2, &away);
    assert_eq!(stages(&task, 2), [NodeStage::Unreachable, NodeStage::Offline]);
    let progress = TaskProgress { total: 2, unreachable: 1, offline: 1, ..TaskProgress::default() };
    assert_eq!((task.summary().state, task.summary().progress), (TaskState::Done, progress));
    // Those that are waited for are as they are then.
    let (mut task, _) = begun(TaskSpec { wait_secs: 10, ..spec() }, 3, &away);
    assert_eq!(stages(&task, 3), [NodeStage::Deferred; 3]);
    let later = |n: &NodeId| match n {
        n if *n == node(0) => Reach::Offline,
        n if *n == node(1) => Reach::Unreachable,
        _ => Reach::Removed,
    };
    task.handle(TaskInput::Tick, Timestamp(10_000), &later);
    assert_eq!(stages(&task, 3), [NodeStage::Offline, NodeStage::Unreachable, NodeStage::Removed]);
}

#[test]
fn who_is_waited_for_is_asked_when_it_calls_and_holds_nobody_up() {
    let spec = TaskSpec { wait_secs: 3600, batch: Share::Count(1), ..spec() };
    let first_away = |n: &NodeId| if *n == node(0) { Reach::Offline } else { Reach::Online };
    let (mut task, effects) = begun(spec, 2, &first_away);
    assert_eq!(puts(&effects)[0].0, node(1));
    task.handle(ended(1, 0), Timestamp(1), &first_away);
    assert_eq!((task.summary().state, task.summary().progress.deferred), (TaskState::Running, 1));
    assert_eq!(task.next_deadline(), Some(Timestamp(3_600_000)));
    let mut other = task.clone();
    let effects = task.handle(TaskInput::Online(node(0)), Timestamp(9), &online);
    assert_eq!(puts(&effects)[0].0, node(0));
    other.handle(TaskInput::Tick, Timestamp(3_600_000), &first_away);
    assert_eq!((other.summary().state, other.summary().progress.offline), (TaskState::Done, 1));
}

#[test]
fn a_spent_budget_withdraws_what_has_not_begun_and_leaves_what_runs() {
    let spec = TaskSpec { batch: Share::Count(3), max_failures: Some(Share::Count(2)), ..spec() };
    let (mut task, effects) = begun(spec, 10, &online);
    assert_eq!(puts(&effects).len(), 3);
    task.handle(TaskInput::Started(node(0)), Timestamp(0), &online);
    task.handle(ended(1, 1), Timestamp(0), &online);
    // One failed and two are in flight: a third place would be one too many to fail.
    assert_eq!(task.summary().progress.in_flight(), 2);
    task.handle(ended(2, 1), Timestamp(0), &online);
    assert_eq!((task.summary().state, task.summary().progress.in_flight()), (TaskState::Running, 1));
    task.handle(ended(0, 0), Timestamp(0), &online);
    assert_eq!(task.summary().progress.in_flight(), 1, "one at a time, since the next failure is the last");
    let effects = task.handle(ended(3, 1), Timestamp(0), &online);
    let summary = task.summary();
    assert_eq!((summary.state, summary.progress.failed), (TaskState::Halted, 3));
    assert_eq!(summary.progress.withdrawn, 6);
    assert_eq!(summary.why.as_deref(), Some("3 failed, and 2 may"));
    let TaskEffect::SaveDocument(decided) = &effects[0] else { panic!("{effects:?}") };
    assert_eq!(decided.summary.state, TaskState::Halting, "the decision is durable first");
}

#[test]
fn silence_has_an_end_and_a_late_word_counts() {
    let spec = TaskSpec { batch: Share::Count(2), max_failures: Some(Share::Count(1)), ..spec() };
    let (mut task, _) = begun(spec, 4, &online);
    task.handle(ended(0, 1), Timestamp(0), &online);
    // Node 1 is asked; it goes silent, which is the second failure.
    let due = task.next_deadline().unwrap();
    assert_eq!(due, Timestamp(300_000 + 60_000 + 600_000));
    let effects = task.handle(TaskInput::Tick, due, &online);
    assert_eq!(task.summary().state, TaskState::Halted);
    let [(silent, order)] = &puts(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((silent, order.cancel, order.expires), (&node(1), true, Timestamp(0)));
    // It comes back after all: its word counts, and the object goes.
    let late = TaskInput::Ended { node: node(1), outcome: ActionOutcome::Unknown, duration_ms: 0 };
    let effects = task.handle(late, Timestamp(due.0 + 1), &online);
    assert!(effects.iter().any(|effect| matches!(effect, TaskEffect::Drop { .. })));
    assert!(!effects.iter().any(|effect| matches!(effect, TaskEffect::Finished(_))));
    let progress = task.summary().progress;
    assert_eq!((progress.unknown, progress.silent, progress.withdrawn), (1, 0, 2));
}

#[test]
fn canaries_go_first_and_alone() {
    let spec = TaskSpec { canaries: 2, ..spec() };
    let (mut task, effects) = begun(spec, 5, &online);
    assert_eq!(puts(&effects).len(), 2);
    let mut failing = task.clone();
    assert!(puts(&task.handle(ended(0, 0), Timestamp(0), &online)).is_empty());
    assert_eq!(puts(&task.handle(ended(1, 0), Timestamp(0), &online)).len(), 3);
    // A failed canary calls everything off, and the other canary back.
    let effects = failing.handle(ended(0, 1), Timestamp(0), &online);
    let [(other, order)] = &puts(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((other, order.cancel, order.expires), (&node(1), false, Timestamp::default()));
    assert_eq!(failing.summary().state, TaskState::Halting);
    let expired = TaskInput::Ended { node: node(1), outcome: ActionOutcome::Expired, duration_ms: 0 };
    failing.handle(expired, Timestamp(0), &online);
    let summary = failing.summary();
    assert_eq!(
        (summary.state, summary.progress.withdrawn, summary.progress.failed),
        (TaskState::Halted, 4, 1)
    );
}

#[test]
fn cancelling_ends_what_runs_and_begins_nothing() {
    let (mut task, _) = begun(TaskSpec { batch: Share::Count(2), ..spec() }, 4, &online);
    task.handle(TaskInput::Started(node(0)), Timestamp(0), &online);
    let effects = task.handle(TaskInput::Cancel { by: "bob".into() }, Timestamp(5), &online);
    assert!(puts(&effects).iter().all(|(_, order)| order.cancel) && puts(&effects).len() == 2);
    assert!(task.handle(TaskInput::Cancel { by: "eve".into() }, Timestamp(5), &online).is_empty(), "once");
    for n in [0, 1] {
        let cancelled = TaskInput::Ended { node: node(n), outcome: ActionOutcome::Cancelled, duration_ms: 0 };
        task.handle(cancelled, Timestamp(6), &online);
    }
    let summary = task.summary();
    let wanted = TaskProgress { total: 4, cancelled: 1, withdrawn: 3, ..TaskProgress::default() };
    assert_eq!((summary.state, summary.progress), (TaskState::Cancelled, wanted));
    assert_eq!(summary.why.as_deref(), Some("cancelled by bob"));
    assert_eq!(task.document().finished, Some(Timestamp(6)));
}

#[test]
fn every_way_of_not_succeeding_is_counted() {
    let outcomes = [
        ActionOutcome::Exited { code: 1 },
        ActionOutcome::Signalled { signal: 9 },
        ActionOutcome::TimedOut,
        ActionOutcome::Cancelled,
        ActionOutcome::Refused { code: Default::default(), message: "x".repeat(5000) },
        ActionOutcome::Failed { message: String::new() },
        ActionOutcome::Expired,
        ActionOutcome::Unknown,
    ];
    let targets = u8::try_from(outcomes.len()).unwrap();
    let (mut task, _) = begun(spec(), targets + 1, &online);
    for (n, outcome) in (0u8..).zip(outcomes) {
        task.handle(TaskInput::Ended { node: node(n), outcome, duration_ms: 1 }, Timestamp(0), &online);
    }
    let answer = ActionOutcome::Answered { result: serde_json::json!({"large": "answer"}) };
    task.handle(
        TaskInput::Ended { node: node(targets), outcome: answer, duration_ms: 1 },
        Timestamp(0),
        &online,
    );
    let progress = task.summary().progress;
    assert_eq!((progress.failures(), progress.unknown, progress.succeeded), (8, 1, 1));
    let rows = serde_json::to_string(task.nodes()).unwrap();
    assert!(!rows.contains("answer\":\"") && !rows.contains("large") && !rows.contains(&"x".repeat(1025)));
    // The first word counts.
    task.handle(ended(0, 0), Timestamp(1), &online);
    assert_eq!(task.summary().progress, progress);
}

#[test]
fn a_task_that_was_never_begun_is_called_off_by_a_restart() {
    let task = Task::new(spec(), vec![node(0), node(1), node(0)], Timestamp(0)).unwrap();
    assert_eq!(task.nodes().len(), 2, "a target that is named twice is one");
    let mut task = Task::restore(task.document(), task.nodes().clone());
    let effects = task.resume(Timestamp(9), &online);
    assert!(puts(&effects).is_empty());
    assert_eq!((task.summary().state, task.summary().progress.withdrawn), (TaskState::Cancelled, 2));
}

#[test]
fn bounds_have_names() {
    let work = |work: Work| TaskSpec { work, ..spec() }.check(1);
    let command =
        |argv: &[&str]| work(Work::Command { argv: argv.iter().map(ToString::to_string).collect() });
    let query = |what: &str, path: Option<&str>| {
        work(Work::Query { what: what.into(), path: path.map(ToOwned::to_owned) })
    };
    let table = [
        (spec().check(0), Err(SpecError::NoTargets)),
        (spec().check(MAX_TARGETS), Ok(())),
        (spec().check(MAX_TARGETS + 1), Err(SpecError::TooManyTargets)),
        (TaskSpec { id: "T1".into(), ..spec() }.check(1), Err(SpecError::Id)),
        (TaskSpec { id: "t".repeat(65), ..spec() }.check(1), Err(SpecError::Id)),
        (TaskSpec { timeout_secs: 0, ..spec() }.check(1), Err(SpecError::Timeout)),
        (TaskSpec { timeout_secs: MAX_TIMEOUT_SECS + 1, ..spec() }.check(1), Err(SpecError::Timeout)),
        (TaskSpec { wait_secs: u64::MAX, ..spec() }.check(1), Err(SpecError::Wait)),
        (TaskSpec { batch: Share::Count(0), ..spec() }.check(1), Err(SpecError::Batch)),
        (command(&["/bin/echo", "x"]), Ok(())),
        (command(&[]), Err(SpecError::Command)),
        (command(&["echo"]), Err(SpecError::Command)),
        (command(&["/bin/echo", "a\0"]), Err(SpecError::Command)),
        (command(&["/bin/echo", &"x".repeat(40_000)]), Err(SpecError::TooLarge)),
        (query("traits", None), Ok(())),
        (query("file", Some("/etc/hosts")), Ok(())),
        (query("file", None), Err(SpecError::Query("file".into()))),
        (query("secrets", None), Err(SpecError::Query("secrets".into()))),
    ];
    for (number, (said, wanted)) in table.into_iter().enumerate() {
        assert_eq!(said, wanted, "row {number}");
    }
}

#[test]
fn shares_read_back_and_round_to_the_safe_side() {
    for text in ["0", "10", "0%", "7%", "100%"] {
        let share: Share = text.parse().unwrap();
        assert_eq!(share.to_string(), text);
        assert_eq!(serde_json::from_str::<Share>(&serde_json::to_string(&share).unwrap()).unwrap(), share);
    }
    for bad in ["", "%", "101%", "-1", "1.5", "ten", "99999999999"] {
        assert!(bad.parse::<Share>().is_err(), "{bad}");
    }
    let half = Share::Percent(50);
    assert_eq!((half.at_least_one(3), half.at_most(3)), (2, 1));
    assert_eq!((Share::Percent(1).at_least_one(3), Share::Percent(1).at_most(3)), (1, 0));
    assert_eq!((Share::Count(9).at_least_one(3), Share::Count(9).at_most(3)), (3, 9));
}
