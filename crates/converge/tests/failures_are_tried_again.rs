//! CFG-5: a resource with `retries` that fails is tried again after `retry_delay`; other modules
//! go on meanwhile; what an earlier try may have changed is not forgotten.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use catalog::module::MAX_RETRIES;
use converge::kinds::{Applied, Checked, Surroundings};
use converge::{Desired, JobDone, JobWork, Ledger, Pending, Prior, Run, RunMode, RunScope};
use model::{Action, Edit, Fields, PathState, Timestamp};
use serde_json::{Value, json};

use crate::common::{Host, Set, apply, drive_in, id, lines, options, plan, set};

fn retried(retries: u64) -> Value {
    json!({"type": "file", "name": "/a", "id": "a", "notify": ["h"], "retries": retries, "retry_delay": 7,
        "attributes": {"content": "x"}})
}

fn module(resource: &Value) -> Set {
    set(json!([{"name": "m", "resources": [resource],
        "handlers": [{"type": "exec", "name": "h", "attributes": {"command": ["h"]}}]}]))
}

#[test]
fn it_is_tried_so_often_and_then_has_failed() {
    let mut host = Host::default();
    host.broken.insert("/a".into());
    let report = apply(&mut host, &module(&retried(2)));
    assert_eq!(lines(&report), ["m/file:/a failed: tried 3 times: /a: read-only"]);
    assert_eq!(host.log, ["apply m/file:/a", "wait 7 s", "apply m/file:/a", "wait 7 s", "apply m/file:/a"]);
    assert!(host.disk.pending.is_empty(), "nobody is notified of what failed");
    assert_eq!(host.disk.ledger.entries.len(), 1, "half a change may have happened");
}

#[test]
fn a_repair_tries_once_as_other_repairs_wait_for_its_end() {
    let mut host = Host::default();
    host.broken.insert("/a".into());
    let scope = RunScope::Resources([id("m/file:/a")].into());
    let finished = drive_in(&mut host, &module(&retried(2)).bind(), RunMode::Apply, 0, scope).unwrap();
    assert_eq!(lines(&finished.report), ["m/file:/a failed: /a: read-only"]);
    assert_eq!(host.log, ["apply m/file:/a"]);
}

#[test]
fn the_bound_holds_whoever_made_the_release() {
    let mut host = Host::default();
    host.broken.insert("/a".into());
    apply(&mut host, &module(&retried(200)));
    assert_eq!(host.count("apply m/file:/a"), usize::from(MAX_RETRIES) + 1);
    let mut slow = retried(1);
    slow["retry_delay"] = json!(1_000_000);
    assert_eq!(module(&slow).bind().modules[0].resources[0].retry.delay, Duration::from_secs(600));
}

#[test]
fn a_plan_looks_once() {
    let mut host = Host::default();
    let line = json!({"type": "line", "name": "l", "retries": 3,
        "attributes": {"path": "/missing", "line": "x"}});
    let report = plan(&mut host, &set(json!([{"name": "m", "resources": [line]}])));
    assert_eq!(lines(&report), ["m/line:l failed: /missing is missing"]);
}

/// A run whose jobs a test answers one by one.
struct Script {
    run: Run,
    jobs: Vec<converge::Job>,
}

impl Script {
    fn new(desired: Desired) -> Script {
        let run = Run::new(desired, Ledger::default(), Pending::default(), RunMode::Apply, options());
        Script { run, jobs: Vec::new() }
    }

    /// The job that fits, answered.
    fn answer(&mut self, fits: impl Fn(&JobWork) -> bool, outcome: Result<JobDone, String>) {
        self.jobs.extend(self.run.ready(Timestamp(1)));
        let at = self.jobs.iter().position(|job| fits(&job.what));
        let job = self.jobs.remove(at.unwrap_or_else(|| panic!("{:?}", self.jobs)));
        self.run.done(job.id, outcome.map_err(Into::into), Timestamp(1));
    }

    fn finish(mut self) -> converge::FinishedRun {
        loop {
            self.jobs.extend(self.run.ready(Timestamp(1)));
            let Some(job) = self.jobs.pop() else { return self.run.finish().unwrap() };
            let outcome = match job.what {
                JobWork::Persist { .. } => JobDone::Persisted,
                JobWork::Check { .. } => JobDone::Checked(Checked::in_sync(Prior::Path(PathState::Missing))),
                JobWork::Apply { .. } => {
                    JobDone::Applied(Applied { edit: None, changed: true, output: None })
                }
                other => panic!("{other:?}"),
            };
            self.run.done(job.id, Ok(outcome), Timestamp(1));
        }
    }
}

fn is_check(of: &'static str) -> impl Fn(&JobWork) -> bool {
    move |work| matches!(work, JobWork::Check { resource, .. } if resource.name == of)
}

fn is_apply(work: &JobWork) -> bool {
    matches!(work, JobWork::Apply { .. })
}

fn is_wait(work: &JobWork) -> bool {
    matches!(work, JobWork::Wait { .. })
}

fn differs() -> JobDone {
    let edit = Edit::Add { to: Fields::from([("content".to_owned(), "x".to_owned())]) };
    JobDone::Checked(Checked::differs(Prior::Path(PathState::Missing), edit))
}

/// CNV-10: what a failed try made around a thing and took back may be another's when it is there again.
#[test]
fn what_is_missing_around_a_thing_after_a_failed_try_is_not_muster_s() {
    for (what, missing, left) in
        [("it was taken back", &["/srv"][..], &[][..]), ("it is there still", &[], &["/srv"])]
    {
        let mount = json!({"type": "mount", "name": "/srv", "retries": 1,
            "attributes": {"device": "/dev/x", "fstype": "ext4"}});
        let mut script = Script::new(set(json!([{"name": "m", "resources": [mount]}])).bind());
        let mut made = Vec::new();
        for tried in 0..2 {
            let checked = Checked {
                surroundings: Surroundings { missing: vec!["/srv".to_owned()], there: Vec::new() },
                ..Checked::differs(
                    Prior::State(None),
                    Edit::Add { to: Fields::from([("a".to_owned(), "b".to_owned())]) },
                )
            };
            script.answer(is_check("/srv"), Ok(JobDone::Checked(checked)));
            script.jobs.extend(script.run.ready(Timestamp(1)));
            let Some(JobWork::Apply { record, .. }) = script.jobs.first().map(|job| &job.what) else {
                panic!()
            };
            made.extend(record.put.iter().map(|(_, entry)| entry.made.clone()));
            let missing = missing.iter().map(|path| (*path).to_owned()).collect();
            script.answer(is_apply, Ok(JobDone::NotApplied { failure: "no such device".into(), missing }));
            if tried == 0 {
                script.answer(is_wait, Ok(JobDone::Waited));
            }
        }
        assert!(made.iter().all(|made| *made == ["/srv"]), "{what}: it is noted before each try: {made:?}");
        let finished = script.finish();
        let entry = finished.ledger.entries.values().next().unwrap();
        assert_eq!(entry.made, left, "{what}");
    }
}

#[test]
fn a_try_that_changed_something_and_failed_still_notifies() {
    let mut script = Script::new(module(&retried(1)).bind());
    script.answer(is_check("/a"), Ok(differs()));
    script.answer(is_apply, Err("the service did not come up".into()));
    script.answer(is_wait, Ok(JobDone::Waited));
    script.answer(is_check("/a"), Ok(JobDone::Checked(Checked::in_sync(Prior::Path(PathState::Missing)))));
    // The handler has been notified by the first try, and its check is the next job.
    script.answer(is_check("h"), Ok(differs()));
    let finished = script.finish();
    assert_eq!(
        finished.report.items.iter().map(|item| item.action).collect::<Vec<_>>(),
        [Action::Changed, Action::Changed]
    );
    assert!(finished.report.items[0].edit.is_some(), "the change is that of the first try");
    assert!(finished.pending.is_empty());
}

#[test]
fn a_wait_that_is_cut_short_ends_the_trying() {
    let mut script = Script::new(module(&retried(5)).bind());
    script.answer(is_check("/a"), Err("no".into()));
    script.answer(is_wait, Err("the agent is stopping".into()));
    let finished = script.finish();
    assert_eq!(lines(&finished.report), ["m/file:/a failed: no"]);
}

#[test]
fn other_modules_go_on_while_one_waits() {
    let modules: Vec<Value> = (0..6)
        .map(|n| {
            let mut file = retried(1);
            (file["name"], file["notify"]) = (json!(format!("/{n}")), json!([]));
            json!({"name": format!("m{n}"), "resources": [file]})
        })
        .collect();
    let mut script = Script::new(set(json!(modules)).bind());
    for name in ["/0", "/1", "/2", "/3", "/4", "/5"] {
        let check =
            move |work: &JobWork| matches!(work, JobWork::Check { resource, .. } if resource.name == name);
        script.answer(check, Err("not yet".into()));
    }
    script.jobs.extend(script.run.ready(Timestamp(1)));
    assert_eq!(script.jobs.iter().filter(|job| is_wait(&job.what)).count(), 6, "more than run at once");
    assert!(script.run.finish().is_none());
    for _ in 0..6 {
        script.answer(is_wait, Ok(JobDone::Waited));
    }
    script.jobs.extend(script.run.ready(Timestamp(1)));
    assert_eq!(script.jobs.len(), 4, "no more than run at once come back");
    assert_eq!(script.finish().report.counts.ok, 6);
}
