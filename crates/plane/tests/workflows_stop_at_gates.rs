//! OPS-2: the steps of a workflow follow one another through gates; what fails stands still
//! until an operator resumes or aborts it; resuming asks only nodes that did not succeed; a
//! restart of the control plane begins no task twice.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::Timestamp;
use model::work::Work;
use plane::work::{
    Gate, MAX_ATTEMPTS, MAX_STEPS, Share, StepSpec, TaskProgress, TaskState, TaskSummary, Workflow,
    WorkflowEffect, WorkflowError, WorkflowInput, WorkflowPhase, WorkflowSpec,
};
use serde_json::{Value, json};

fn step(name: &str, gate: Value) -> Value {
    json!({"name": name, "on": "edge-*", "command": ["/bin/true"], "gate": gate})
}

fn spec(steps: Vec<Value>) -> WorkflowSpec {
    serde_json::from_value(json!({"name": "renew", "steps": steps})).unwrap()
}

struct Bench {
    flow: Workflow,
    now: i64,
    effects: Vec<WorkflowEffect>,
}

impl Bench {
    fn new(steps: Vec<Value>) -> Bench {
        let flow = Workflow::new("w7", "ada", spec(steps), Timestamp(0)).unwrap();
        let mut bench = Bench { flow, now: 0, effects: vec![] };
        bench.tell(WorkflowInput::Begin);
        bench
    }

    /// Every input finds the workflow as it was kept last.
    fn tell(&mut self, input: WorkflowInput) {
        let kept = serde_json::to_string(&self.flow).unwrap();
        self.flow = serde_json::from_str(&kept).unwrap();
        let before = self.flow.clone();
        self.effects = self.flow.handle(input, Timestamp(self.now));
        let saved = matches!(self.effects.first(), Some(WorkflowEffect::Save));
        assert_eq!(saved, self.flow != before, "what changed is kept, before anything is done");
    }

    fn finished(&mut self, task: &str, state: TaskState, progress: TaskProgress) {
        let summary = TaskSummary { state, why: None, progress };
        self.tell(WorkflowInput::TaskFinished { task: task.into(), summary });
    }

    fn succeeded(&mut self, task: &str) {
        self.finished(
            task,
            TaskState::Done,
            TaskProgress { total: 4, succeeded: 4, ..TaskProgress::default() },
        );
    }

    /// The task that was begun, and those whose nodes are left out.
    fn begun(&self) -> Option<(String, Vec<String>, Vec<String>)> {
        self.effects.iter().find_map(|effect| match effect {
            WorkflowEffect::StartTask { spec, not_succeeded_in, not_unknown_in } => {
                Some((spec.id.clone(), not_succeeded_in.clone(), not_unknown_in.clone()))
            }
            _ => None,
        })
    }

    fn resume(&mut self, include_unknown: bool) {
        self.tell(WorkflowInput::Resume { by: "bob".into(), include_unknown });
    }
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

#[test]
fn steps_follow_one_another() {
    let mut bench = Bench::new(vec![step("one", json!({})), step("two", json!({}))]);
    assert_eq!(bench.begun(), Some(("w7-1-1".into(), vec![], vec![])));
    bench.succeeded("w7-2-1");
    assert_eq!(bench.effects, [], "a task that is not the step's is nothing to it");
    bench.succeeded("w7-1-1");
    assert_eq!(bench.begun().unwrap().0, "w7-2-1");
    bench.succeeded("w7-1-1");
    assert_eq!(bench.effects, [], "and so is one that is over");
    bench.succeeded("w7-2-1");
    assert_eq!(bench.flow.phase, WorkflowPhase::Done);
    assert_eq!(bench.effects.last(), Some(&WorkflowEffect::Finished));
    bench.tell(WorkflowInput::Tick);
    assert_eq!(bench.effects, []);
}

#[test]
fn a_gate_is_share_then_soak_then_approval() {
    let gate = json!({"success_percent": 50, "soak": "10m", "approve": true});
    let mut bench = Bench::new(vec![step("one", gate), step("two", json!({}))]);
    let half = TaskProgress { total: 4, succeeded: 2, failed: 2, ..TaskProgress::default() };
    bench.now = 1000;
    bench.finished("w7-1-1", TaskState::Done, half);
    assert_eq!(bench.flow.next_deadline(), Some(Timestamp(601_000)));
    bench.tell(WorkflowInput::Approve { by: "bob".into(), step: 0 });
    assert_eq!(bench.effects, [], "not before its time");
    bench.now = 600_999;
    bench.tell(WorkflowInput::Tick);
    assert!(matches!(bench.flow.phase, WorkflowPhase::Soaking { .. }));
    bench.now = 601_000;
    bench.tell(WorkflowInput::Tick);
    assert_eq!(bench.flow.phase, WorkflowPhase::AwaitingApproval);
    bench.tell(WorkflowInput::Approve { by: "bob".into(), step: 1 });
    assert_eq!(bench.effects, [], "an approval is of its own step");
    bench.tell(WorkflowInput::Approve { by: "bob".into(), step: 0 });
    assert_eq!(bench.begun().unwrap().0, "w7-2-1");
    assert_eq!(bench.flow.by, "bob");
}

#[test]
fn what_does_not_pass_stands_still() {
    let all = TaskProgress { total: 4, succeeded: 4, ..TaskProgress::default() };
    let offline = TaskProgress { total: 4, succeeded: 3, offline: 1, ..TaskProgress::default() };
    let table = [
        (TaskState::Halted, all, "halted"),
        (TaskState::Cancelled, all, "cancelled"),
        (TaskState::Done, offline, "3 of 4 succeeded, and 100 % must"),
    ];
    for (state, progress, wanted) in table {
        let mut bench = Bench::new(vec![step("one", json!({})), step("two", json!({}))]);
        bench.finished("w7-1-1", state, progress);
        let WorkflowPhase::Failed { why } = &bench.flow.phase else { panic!("{:?}", bench.flow.phase) };
        assert!(why.contains(wanted), "{why}");
        assert_eq!((bench.begun(), bench.flow.is_final()), (None, false));
    }
    let mut bench = Bench::new(vec![step("one", json!({}))]);
    bench.tell(WorkflowInput::TaskRefused { task: "w7-1-1".into(), why: "means no node".into() });
    assert_eq!(bench.flow.phase, WorkflowPhase::Failed { why: "means no node".into() });
}

#[test]
fn resuming_asks_who_did_not_succeed_and_the_gate_counts_all_attempts() {
    let mut bench = Bench::new(vec![step("one", json!({"success_percent": 90})), step("two", json!({}))]);
    // 10 targets: 5 succeeded, 3 failed, 1 unknown, 1 silent.
    let first =
        TaskProgress { total: 10, succeeded: 5, failed: 3, unknown: 1, silent: 1, ..TaskProgress::default() };
    bench.finished("w7-1-1", TaskState::Done, first);
    bench.resume(false);
    let earlier = names(&["w7-1-1"]);
    assert_eq!(bench.begun(), Some(("w7-1-2".into(), earlier.clone(), earlier.clone())));
    // The three that failed succeed; the two of whom nobody knows are still no success.
    bench.finished(
        "w7-1-2",
        TaskState::Done,
        TaskProgress { total: 3, succeeded: 3, ..TaskProgress::default() },
    );
    let WorkflowPhase::Failed { why } = &bench.flow.phase else { panic!() };
    assert!(why.contains("8 of 10"), "{why}");
    bench.resume(true);
    let earlier = names(&["w7-1-1", "w7-1-2"]);
    assert_eq!(bench.begun(), Some(("w7-1-3".into(), earlier, vec![])));
    bench.finished(
        "w7-1-3",
        TaskState::Done,
        TaskProgress { total: 2, succeeded: 1, unknown: 1, ..TaskProgress::default() },
    );
    assert_eq!(bench.begun().unwrap().0, "w7-2-1", "9 of 10 are enough");
    // Of the third attempt the unknown counts, of the first it does not any more.
    let mut strict = Bench::new(vec![step("one", json!({}))]);
    strict.finished("w7-1-1", TaskState::Done, first);
    strict.resume(true);
    strict.finished(
        "w7-1-2",
        TaskState::Done,
        TaskProgress { total: 5, succeeded: 4, unknown: 1, ..TaskProgress::default() },
    );
    strict.resume(false);
    let wanted = (names(&["w7-1-1", "w7-1-2"]), names(&["w7-1-2"]));
    let (_, succeeded, unknown) = strict.begun().unwrap();
    assert_eq!((succeeded, unknown), wanted);
    strict.finished("w7-1-3", TaskState::Done, TaskProgress::default());
    let WorkflowPhase::Failed { why } = &strict.flow.phase else { panic!() };
    assert!(why.contains("9 of 10"), "{why}");
}

#[test]
fn a_step_is_not_begun_for_ever() {
    let mut bench = Bench::new(vec![step("one", json!({}))]);
    for attempt in 1..=MAX_ATTEMPTS {
        bench.finished(&format!("w7-1-{attempt}"), TaskState::Halted, TaskProgress::default());
        bench.resume(false);
    }
    assert_eq!(bench.begun(), None);
    assert_eq!(bench.flow.attempts.len(), MAX_ATTEMPTS);
    let WorkflowPhase::Failed { why } = &bench.flow.phase else { panic!() };
    assert!(why.contains("at most"), "{why}");
}

#[test]
fn aborting_ends_the_task_and_then_the_workflow() {
    let mut bench = Bench::new(vec![step("one", json!({}))]);
    bench.resume(false);
    assert_eq!(bench.effects, [], "there is nothing to resume");
    bench.tell(WorkflowInput::Abort { by: "eve".into() });
    let cancel = WorkflowEffect::CancelTask { task: "w7-1-1".into(), by: "eve".into() };
    assert_eq!(bench.effects, [WorkflowEffect::Save, cancel.clone()]);
    assert_eq!(bench.flow.resume_after_restart(), [cancel]);
    bench.finished("w7-1-1", TaskState::Cancelled, TaskProgress::default());
    assert_eq!(
        (&bench.flow.phase, bench.effects.last()),
        (&WorkflowPhase::Aborted, Some(&WorkflowEffect::Finished))
    );
    let mut idle = Bench::new(vec![step("one", json!({"approve": true})), step("two", json!({}))]);
    idle.succeeded("w7-1-1");
    idle.tell(WorkflowInput::Abort { by: "eve".into() });
    assert_eq!(idle.flow.phase, WorkflowPhase::Aborted);
}

#[test]
fn a_restart_says_the_same_task_again() {
    let mut bench = Bench::new(vec![step("one", json!({})), step("two", json!({}))]);
    bench.succeeded("w7-1-1");
    let begun = bench.effects[1].clone();
    assert_eq!(bench.flow.resume_after_restart(), [begun]);
    bench.finished(
        "w7-2-1",
        TaskState::Halted,
        TaskProgress { total: 2, failed: 2, ..TaskProgress::default() },
    );
    assert_eq!(bench.flow.resume_after_restart(), []);
    bench.resume(true);
    let begun = bench.effects[1].clone();
    assert_eq!(bench.flow.resume_after_restart(), [begun]);
}

#[test]
fn the_file_is_strict_and_complete() {
    let full = json!({"name": "renew-certificates", "steps": [
        {"name": "try one", "on": "@canary", "action": {"name": "renew", "args": {"ca": "new"}}},
        {"name": "the edge", "on": "edge-**,!@canary", "command": ["/usr/bin/certbot", "renew"],
         "batch": "10%", "max_failures": 2, "canaries": 3, "timeout": "5m", "wait": "2h",
         "gate": {"success_percent": 95, "soak": "30m", "approve": true}},
        {"name": "now", "on": "*", "query": {"what": "file", "path": "/etc/ssl/edge.pem"},
         "gate": {"success_percent": 0}},
    ]});
    let spec: WorkflowSpec = serde_json::from_value(full.clone()).unwrap();
    spec.check().unwrap();
    let again: WorkflowSpec = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
    assert_eq!(again, spec);
    assert_eq!(spec.steps[0].gate, Gate::default());
    let task = spec.steps[1].task("w-2-1", "ada", "w").unwrap();
    let numbers = (task.batch, task.max_failures, task.canaries, task.timeout_secs, task.wait_secs);
    assert_eq!(numbers, (Share::Percent(10), Some(Share::Count(2)), 3, 300, 7200));
    assert!(matches!(task.work, Work::Command { .. }) && task.check(5) == Ok(()));
    let first = spec.steps[0].task("w-1-1", "ada", "w").unwrap();
    assert_eq!(
        (first.max_failures, first.timeout_secs),
        (Some(Share::Count(0)), 300),
        "what is not said is strict"
    );
    for pointer in ["", "/steps/0", "/steps/0/action", "/steps/1/gate", "/steps/2/query"] {
        let mut extra = full.clone();
        extra.pointer_mut(pointer).unwrap()["surprise"] = json!(1);
        assert!(serde_json::from_value::<WorkflowSpec>(extra).is_err(), "{pointer:?}");
    }
    for (pointer, bad) in [
        ("/steps/0/on", json!("")),
        ("/steps/1/batch", json!("101%")),
        ("/steps/1/timeout", json!("5")),
        ("/steps/1/timeout", json!(5)),
        ("/steps/1/gate/soak", json!("soon")),
    ] {
        let mut wrong = full.clone();
        *wrong.pointer_mut(pointer).unwrap() = bad;
        assert!(serde_json::from_value::<WorkflowSpec>(wrong).is_err(), "{pointer}");
    }
}

#[test]
fn mistakes_have_names() {
    let with = |change: &dyn Fn(&mut WorkflowSpec)| {
        let mut spec = spec(vec![step("one", json!({}))]);
        change(&mut spec);
        spec.check()
    };
    type E = WorkflowError;
    let first = |change: fn(&mut StepSpec)| with(&|spec| change(&mut spec.steps[0]));
    assert_eq!(with(&|_| ()), Ok(()));
    assert_eq!(with(&|spec| spec.name = "A".into()), Err(E::Name("A".into())));
    assert_eq!(with(&|spec| spec.steps.clear()), Err(E::NoSteps));
    assert_eq!(with(&|spec| spec.steps = vec![spec.steps[0].clone(); MAX_STEPS + 1]), Err(E::TooManySteps));
    assert_eq!(with(&|spec| spec.steps.push(spec.steps[0].clone())), Err(E::SameName("one".into())));
    assert_eq!(first(|step| step.name = " ".into()), Err(E::StepName(1)));
    assert_eq!(first(|step| step.command.clear()), Err(E::NoWork("one".into())));
    assert_eq!(first(|step| step.gate.success_percent = 101), Err(E::Percent("one".into())));
    for broken in [
        first(|step| step.command[0] = "relative".into()),
        first(|step| step.timeout = 0),
        first(|step| step.wait = u32::MAX),
        first(|step| step.gate.soak = u32::MAX),
        first(|step| step.batch = Share::Count(0)),
    ] {
        assert!(matches!(broken, Err(E::Step { .. })), "{broken:?}");
    }
}
