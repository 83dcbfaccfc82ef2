//! CNV-11: whatever moment of a guarded run, or of its undoing, a host went down at: either a contact had followed and was
//! written down, or the host is as before the run; and the next agent makes the change as ever.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use activation::ActivationProcess;
use agent::generations::return_verb::{ReturnLook, look_at};
use spool::Disk;
use test_support::kills::{doomed, killed_in, step};

use crate::guarded_runs_are_undone::{Host, RULES};

/// Far more than a guarded run or its return has.
const MOST_POINTS: u64 = 1000;

/// What the parents start this test binary for; a plain test run finds nothing to do.
#[test]
fn child() {
    let Some((disk, dir)) = doomed() else { return };
    let host = Host::at(&dir);
    match step().as_str() {
        "run" => host.run_and_confirm(&disk),
        _ => drop(look_at(&host.options(), &host.files(&disk)).unwrap()),
    }
}

fn at_every_point(step: &str, prepare: impl Fn(&Host), check: impl Fn(&Host, &str, bool)) {
    for point in 0..MOST_POINTS {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::new(dir.path());
        prepare(&host);
        let was_killed = killed_in(&host.dir, step, point);
        check(&host, &format!("{step}, killed at point {point}"), was_killed);
        if !was_killed {
            assert!(point > 20, "only {point} points: the faults do not reach what they should");
            return;
        }
    }
    panic!("more than {MOST_POINTS} persistence points");
}

#[test]
fn whatever_moment_of_a_guarded_run_it_went_down_at() {
    at_every_point(
        "run",
        |_| {},
        |host, when, was_killed| {
            host.goes_down();
            look_at(&host.options(), &host.files(&Disk::new()))
                .unwrap_or_else(|error| panic!("{when}: {error:?}"));
            let record = host.record();
            let was_confirmed = record.as_ref().is_some_and(|record| !record.kept.is_empty());
            let expected = if was_confirmed { "two" } else { "as found" };
            assert_eq!(host.read(RULES), expected, "{when}");
            assert!(was_killed || was_confirmed, "{when}");
            // An agent that starts ends what the one before could not end.
            let (machine, storage, guard) = host.guard(&Disk::new());
            assert!(!guard.resume(ActivationProcess::Agent).unwrap(), "{when}");
            drop((guard, storage, machine));
            host.run_and_confirm(&Disk::new());
            assert_eq!(host.read(RULES), "two", "{when}");
            assert!(matches!(host.boots(), ReturnLook::Over), "{when}");
            assert_eq!(host.read(RULES), "two", "{when}");
            assert!(!host.path("state/guarded-changes.json").exists(), "{when}");
            assert!(!host.path("units/muster-return.service").exists(), "{when}");
        },
    );
}

#[test]
fn whatever_moment_of_the_undoing_it_went_down_at() {
    let prepare = |host: &Host| {
        drop(host.run());
        host.goes_down();
    };
    at_every_point("undo", prepare, |host, when, _| {
        host.boots();
        assert_eq!(host.read(RULES), "as found", "{when}");
        assert_eq!(host.read("root/etc/motd"), "two", "{when}");
        assert!(matches!(host.boots(), ReturnLook::Over), "{when}");
        assert_eq!(host.record().unwrap().quarantine.all()[0].returns, 1, "{when}");
        assert!(!host.told().is_empty(), "{when}: it is said when there is a network again");
    });
}
