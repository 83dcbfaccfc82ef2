//! CNV-1: a second run changes nothing, persists nothing and reports only counts.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{Host, apply, drive, set};
use converge::{JobWork, Run, RunMode};
use model::Timestamp;
use serde_json::json;

fn many(files: usize) -> crate::common::Set {
    let resources: Vec<_> = (0..files)
        .map(|i| json!({"type": "file", "name": format!("/srv/f{i:04}"), "notify": ["reload"], "attributes": {"content": "text ${{ params.n }}"}}))
        .collect();
    set(json!([{"name": "m", "params": {"n": {"type": "int", "default": 1}}, "verify": {"argv": ["true"]},
                "resources": resources,
                "handlers": [{"type": "exec", "name": "reload", "attributes": {"command": ["reload"]}}]}]))
}

#[test]
fn everything_once_and_then_nothing() {
    let set = many(50);
    let mut host = Host::default();
    let first = apply(&mut host, &set);
    assert_eq!((first.counts.changed, first.counts.ok), (51, 0));
    let (nodes, ledger) = (host.nodes.clone(), host.disk.ledger.clone());
    assert_eq!(ledger.entries.len(), 50);

    host.log.clear();
    let second = apply(&mut host, &set);
    assert_eq!((second.counts.changed, second.counts.ok, second.counts.failed), (0, 50, 0));
    assert!(second.items.is_empty() && host.log.is_empty());
    assert_eq!((host.nodes, host.disk.ledger), (nodes, ledger));
}

#[test]
fn a_run_that_changes_nothing_asks_only_for_checks() {
    let set = many(20);
    let mut host = Host::default();
    apply(&mut host, &set);
    let mut run = Run::new(
        set.bind(),
        host.disk.ledger.clone(),
        host.disk.pending.clone(),
        RunMode::Apply,
        crate::common::options(),
    );
    let mut checks = 0;
    loop {
        let jobs = run.ready(Timestamp(1));
        if jobs.is_empty() {
            break;
        }
        for job in jobs {
            let JobWork::Check { resource, .. } = job.what else { panic!("{:?}", job.what) };
            checks += 1;
            let prior = converge::kinds::Checked::NOTHING;
            drop(resource);
            run.done(
                job.id,
                Ok(converge::JobDone::Checked(converge::kinds::Checked::in_sync(prior))),
                Timestamp(2),
            );
        }
    }
    assert_eq!(checks, 20);
    assert_eq!(run.finish().unwrap().report.counts.ok, 20);
}

#[test]
fn a_thing_changed_by_hand_is_put_right_alone() {
    let set = many(5);
    let mut host = Host::default();
    apply(&mut host, &set);
    let right = host.nodes.clone();
    host.write("/srv/f0003", "by hand");
    host.log.clear();
    let finished = drive(&mut host, &set.bind(), RunMode::Apply, 7).unwrap();
    assert_eq!(host.nodes, right);
    assert_eq!(
        host.log,
        ["apply m/file:/srv/f0003", "verify m", "run true", "apply m/exec:reload", "run reload"]
    );
    assert_eq!(finished.report.items.len(), 2);
}

/// An unknown, late or repeated answer confuses nobody.
#[test]
fn stray_outcomes_are_ignored() {
    let set = many(2);
    let mut run = Run::new(
        set.bind(),
        Default::default(),
        Default::default(),
        RunMode::Apply,
        crate::common::options(),
    );
    let job = run.ready(Timestamp(1)).remove(0);
    assert!(run.ready(Timestamp(1)).is_empty(), "a module waits for its job");
    assert!(run.finish().is_none());
    let missing = || Err("no".into());
    run.done(converge::JobId(99), missing(), Timestamp(1));
    run.done(job.id, Ok(converge::JobDone::Undone), Timestamp(1));
    run.done(job.id, missing(), Timestamp(1));
    let job = run.ready(Timestamp(1)).remove(0);
    run.done(job.id, missing(), Timestamp(1));
    assert!(run.ready(Timestamp(1)).is_empty());
    assert_eq!(run.finish().unwrap().report.counts.failed, 2);
}
