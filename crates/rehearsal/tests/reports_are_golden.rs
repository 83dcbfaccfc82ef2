//! ROL-11: a rehearsal says who would change when, what would stop it, and how long it takes. Written anew with
//! `MUSTER_BLESS=1`.

use std::path::Path;

use activation::HealthProbeMode;
use rehearsal::{FaultShares, Rehearsal, RehearsalOutcome, RehearsalReport, rehearse};
use trust::RolloutTerms;
use trust::rollout_terms::OnFailure;

use crate::fleet::{budget, node, nodes, probe, rehearsal, shares, terms};

fn golden(name: &str, rehearsal: &Rehearsal) -> RehearsalReport {
    let report = rehearse(rehearsal).unwrap();
    kept(&format!("{name}.txt"), &report.to_string());
    report
}

fn kept(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("MUSTER_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "{} is not current: MUSTER_BLESS=1 writes it anew\n{text}", path.display());
}

#[test]
fn a_good_release_is_through_in_its_waves() {
    let small: Vec<_> = nodes(1000).into_iter().step_by(100).chain(nodes(8).split_off(1)).collect();
    let report = golden("good", &rehearsal(terms(), small, FaultShares::default()));
    assert_eq!(report.outcome, RehearsalOutcome::Through);
    kept("good.json", &(serde_json::to_string_pretty(&report).unwrap() + "\n"));
}

#[test]
fn a_bad_release_stops_in_its_first_wave() {
    let all_fail = shares("100%", "0%", "0%", "0%");
    let report = golden("bad", &rehearsal(terms(), nodes(500), all_fail));
    assert_eq!(report.outcome, RehearsalOutcome::Halted);
    let stop = report.stop.unwrap();
    assert_eq!((stop.wave.as_str(), stop.failed, stop.allowed), ("canary", 1, 0));
    assert_eq!(stop.begun, 10, "nobody of another wave began");
}

#[test]
fn a_bad_release_that_may_go_back_goes_back() {
    let terms = RolloutTerms { on_failure: OnFailure::Rollback, ..terms() };
    let report = golden("goes_back", &rehearsal(terms, nodes(500), shares("20%", "0%", "0%", "0%")));
    assert_eq!(report.outcome, RehearsalOutcome::WentBack);
    let confirmed: usize = report.waves.iter().map(|wave| wave.confirmed + wave.failed).sum();
    assert_eq!(confirmed, 0, "somebody stays on a release that was called back");
}

#[test]
fn offline_nodes_hold_no_wave() {
    let report = golden("offline", &rehearsal(terms(), nodes(500), shares("0%", "40%", "10%", "0%")));
    assert_eq!(report.outcome, RehearsalOutcome::Through);
    assert_eq!(report.waves.iter().map(|wave| wave.offline).sum::<usize>(), 200);
    assert_eq!(report.waves.iter().map(|wave| wave.confirmed).sum::<usize>(), 300);
}

/// A node that calls once an hour is not asked before it called, and holds no slot until then.
#[test]
fn who_calls_seldom_is_asked_once_it_called() {
    let terms = RolloutTerms { budgets: vec![budget("*", 40)], ..terms() };
    let faults = FaultShares { seldom: "50%".parse().unwrap(), ..FaultShares::default() };
    let report = golden("seldom", &rehearsal(terms, nodes(500), faults));
    assert_eq!(report.outcome, RehearsalOutcome::Through);
    assert_eq!((report.faults.seldom, report.budgets[0].peak.most), (250, 40));
    let canary = || report.nodes.iter().filter(|node| node.wave == "canary");
    let begins = |is_seldom| {
        canary().filter(move |node| node.seldom == is_seldom).map(|node| node.asked_secs.unwrap())
    };
    assert!(begins(false).all(|asked| asked == 0), "those that listen are asked at once");
    assert!(begins(true).max().unwrap() > 600 && begins(true).all(|asked| asked <= 3600));
}

#[test]
fn who_is_cut_off_comes_back() {
    let report = golden("cut_off", &rehearsal(terms(), nodes(500), shares("0%", "0%", "0%", "1%")));
    assert_eq!(report.waves.iter().map(|wave| wave.returned).sum::<usize>(), 5);
    assert_eq!(report.waves.iter().map(|wave| wave.failed).sum::<usize>(), 0);
}

#[test]
fn a_budget_bounds_what_is_in_flight() {
    let terms = RolloutTerms { budgets: vec![budget("tier=db", 5), budget("*", 40)], ..terms() };
    let report = golden("budget", &rehearsal(terms, nodes(500), shares("0%", "0%", "5%", "0%")));
    assert_eq!(report.outcome, RehearsalOutcome::Through);
    let most: Vec<_> = report.budgets.iter().map(|budget| (budget.limit, budget.peak.most)).collect();
    assert_eq!(most, [(5, 5), (40, 40)]);
    assert_eq!(report.in_flight.most, 40);
}

#[test]
fn what_no_probe_sees_is_named() {
    let unseen = (0..20).map(|number| node(number, &[], vec![probe(HealthProbeMode::Observe)])).collect();
    let report = golden("unseen", &rehearsal(terms(), unseen, shares("50%", "0%", "0%", "0%")));
    assert_eq!((report.outcome, report.faults.unseen), (RehearsalOutcome::Through, 10));
}

/// Of one node the words are those of one, and a budget without nodes says so.
#[test]
fn one_node_and_none_are_told_as_such() {
    let budgets = vec![budget("tier=none", 1), budget("tier=db", 50)];
    let all_fail = shares("100%", "0%", "0%", "0%");
    let mut report = rehearse(&rehearsal(RolloutTerms { budgets, ..terms() }, nodes(100), all_fail)).unwrap();
    let text = report.to_string();
    assert!(text.contains("budget `tier=none`: no node is in it\n"), "{text}");
    assert!(text.contains("budget `tier=db`: 25 of 25 may be in flight, 1 was, after "), "{text}");
    let canary = &mut report.waves[0];
    (canary.confirmed, canary.failed, canary.returned) = (1, 0, 1);
    let text = report.to_string();
    let want =
        "at the end 1 is confirmed and 0 failed, which stay on the release; 1 is back on the one before\n";
    assert!(text.contains(want), "{text}");
}
