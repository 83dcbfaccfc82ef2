//! CNV-3: four axes, one word; intended change is not drift; contact against what was promised.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use model::status::{
    CertificateTrust, Contact, Drift, Enforcement, ReleaseState, RunEvidence, RunResult, Status, contact_of,
    drift_of, result_of, streak_after,
};
use model::{Digest, RunCounts, RunReport, Timestamp};

#[test]
fn the_word_that_matters_most() {
    use {Contact as C, Drift as D, ReleaseState as R, RunResult as S};
    for (result, drift, contact, release, would_change, overall) in [
        (S::Ok, D::Converged, C::Online, R::Current, 0, "converged"),
        (S::Ok, D::Converged, C::Online, R::Current, 2, "would change"),
        (S::None, D::Converged, C::Online, R::Current, 0, "new"),
        (S::Ok, D::Converged, C::Online, R::Behind, 2, "changing"),
        (S::None, D::Converged, C::Online, R::Behind, 0, "changing"),
        (S::Ok, D::Converged, C::Online, R::NotFresh, 0, "not fresh"),
        (S::Ok, D::Converged, C::Online, R::Unassigned, 0, "unassigned"),
        (S::Ok, D::Relapsed, C::Online, R::Behind, 0, "relapsed"),
        (S::Ok, D::Diverged, C::Online, R::NotFresh, 0, "diverged"),
        (S::Degraded, D::Diverged, C::Online, R::Current, 1, "degraded"),
        (S::Failed, D::Diverged, C::Online, R::Behind, 0, "failed"),
        (S::Failed, D::Diverged, C::Unreachable, R::Behind, 0, "unreachable"),
        (S::Failed, D::Diverged, C::Offline, R::NotFresh, 0, "offline"),
    ] {
        let (evidence, enforcement) = (RunEvidence::Current, Enforcement::On);
        let certificate = CertificateTrust::Trusted;
        let status =
            Status { result, drift, contact, release, evidence, enforcement, certificate, would_change };
        assert_eq!(status.overall().to_string(), overall, "{status:?}");
        // A pause is no excuse for silence or failures, and explains all else.
        let paused = Status { enforcement: Enforcement::Paused, ..status }.overall().to_string();
        let stronger = ["offline", "unreachable", "failed", "degraded"].contains(&overall);
        assert_eq!(paused, if stronger { overall } else { "paused" });
        let revoked = Status { certificate: CertificateTrust::Revoked, ..status };
        assert_eq!(revoked.overall().to_string(), "revoked");
        // What the last run came to is out of date without one that was due.
        let missing = Status { evidence: RunEvidence::Missing, ..status }.overall().to_string();
        assert_eq!(missing, if contact == C::Online { "stalled" } else { overall });
    }
}

#[test]
fn what_a_run_came_to() {
    let counts = |ok, changed, failed, would_change| RunCounts {
        ok,
        changed,
        failed,
        would_change,
        ..RunCounts::default()
    };
    for (counts, want) in [
        (counts(0, 0, 0, 0), RunResult::Ok),
        (counts(5, 1, 0, 0), RunResult::Ok),
        (counts(5, 0, 1, 0), RunResult::Degraded),
        (counts(0, 1, 1, 0), RunResult::Degraded),
        (counts(0, 0, 1, 1), RunResult::Degraded),
        (counts(0, 0, 3, 0), RunResult::Failed),
        // A node may say what it likes.
        (counts(u32::MAX, u32::MAX, 1, u32::MAX), RunResult::Degraded),
    ] {
        assert_eq!(result_of(&counts), want, "{counts:?}");
    }
}

#[test]
fn only_corrections_in_a_row_are_drift() {
    let mut streak = 0;
    // (changed, intended) run by run, and what it makes of the node.
    for (changed, intended, want) in [
        (4, true, Drift::Converged),
        (1, false, Drift::Converged),
        (1, false, Drift::Relapsed),
        (1, false, Drift::Diverged),
        (1, false, Drift::Diverged),
        (0, false, Drift::Converged),
        (1, false, Drift::Converged),
        (9, true, Drift::Converged),
        (1, false, Drift::Converged),
        (2, false, Drift::Relapsed),
    ] {
        let report = RunReport {
            started: Timestamp(0),
            duration_ms: 0,
            seq: 1,
            root: Digest::ZERO,
            intended,
            paused: None,
            partial: None,
            unknown_tags: vec![],
            unswitched: Vec::new(),
            counts: RunCounts { changed, ..RunCounts::default() },
            items: vec![],
        };
        streak = streak_after(streak, &report);
        assert_eq!(drift_of(streak), want, "streak {streak}");
    }
    let report = RunReport {
        started: Timestamp(0),
        duration_ms: 0,
        seq: 1,
        root: Digest::ZERO,
        intended: false,
        paused: None,
        partial: None,
        unknown_tags: vec![],
        unswitched: Vec::new(),
        counts: RunCounts { changed: 1, ..RunCounts::default() },
        items: vec![],
    };
    assert_eq!(streak_after(u32::MAX, &report), u32::MAX, "the count does not wrap");
}

#[test]
fn late_is_against_the_contact_promised() {
    let (seen, minute) = (Timestamp::from_secs(1_000_000), Duration::from_secs(60));
    for (promised, silence, want) in [
        (300, 0, Contact::Online),
        (300, 300, Contact::Online),
        (300, 3 * 300 + 59, Contact::Online),
        (300, 3 * 300 + 60, Contact::Unreachable),
        (300, 10 * 300 + 59, Contact::Unreachable),
        (300, 10 * 300 + 60, Contact::Offline),
        (86_400, 2 * 86_400, Contact::Online),
        // The slack is another contact, within its bounds.
        (30, 3 * 30 + 29, Contact::Online),
        (30, 3 * 30 + 30, Contact::Unreachable),
        (30, 10 * 30 + 30, Contact::Offline),
        (3, 3 * 3 + 9, Contact::Online),
        (3, 3 * 3 + 10, Contact::Unreachable),
        (3, 10 * 3 + 10, Contact::Offline),
        // Nobody promises less than a second.
        (0, 12, Contact::Online),
        (0, 13, Contact::Unreachable),
        (0, 20, Contact::Offline),
    ] {
        let now = seen.plus(Duration::from_secs(silence));
        let contact = contact_of(seen, Duration::from_secs(promised), now);
        assert_eq!(contact, want, "promised {promised} s, silent for {silence} s");
    }
    assert_eq!(contact_of(seen, minute, seen.minus(minute)), Contact::Online, "seen later than now");
    assert_eq!(contact_of(Timestamp(i64::MIN), minute, Timestamp(i64::MAX)), Contact::Offline);
}
