//! ROL-7, ROL-10: a host that leaves a generation which failed takes back what only that one made, whatever its
//! `on_remove` says; the host as it was found is all that was there before.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use converge::{RunMode, RunOptions, TakeBack};
use model::{Digest, RunReport};
use serde_json::{Value, json};

use crate::common::{Host, Set, apply, drive_by, id, lines, options, plan, set};

fn file(path: &str, content: &str, on_remove: &str) -> Value {
    json!({"type": "file", "name": path, "on_remove": on_remove, "attributes": {"content": content}})
}

fn module(resources: Vec<Value>) -> Set {
    set(json!([{"name": "m", "resources": resources}]))
}

fn root(generation: u8) -> Digest {
    Digest::of(&[generation])
}

/// A run of a generation on a host that leaves another one.
fn run(host: &mut Host, set: &Set, generation: u8, taken_back: TakeBack) -> RunReport {
    let options = RunOptions { root: root(generation), taken_back, ..options() };
    drive_by(host, &set.bind(), RunMode::Apply, 0, options).unwrap().report
}

fn of(generation: u8) -> TakeBack {
    TakeBack::MadeIn(root(generation))
}

/// One was confirmed, two is on trial.
fn on_trial() -> (Host, Set) {
    let mut host = Host::default();
    for path in ["/shared", "/kept", "/deleted"] {
        host.write(path, "as found");
    }
    let one = module(vec![file("/shared", "one", "restore"), file("/of-one", "one", "keep")]);
    let two = module(vec![
        file("/shared", "two", "keep"),
        file("/kept", "two", "keep"),
        file("/deleted", "two", "delete"),
        file("/made", "two", "keep"),
    ]);
    run(&mut host, &one, 1, TakeBack::Nothing);
    run(&mut host, &two, 2, TakeBack::Nothing);
    (host, one)
}

#[test]
fn what_only_the_failed_one_made_is_restored() {
    let (mut host, one) = on_trial();
    let report = run(&mut host, &one, 1, of(2));
    assert_eq!(
        lines(&report),
        [
            "m/file:/shared changed",
            "m/file:/made restored",
            "m/file:/kept restored",
            "m/file:/deleted restored"
        ]
    );
    assert_eq!(host.file("/shared"), Some("one"));
    assert_eq!(host.file("/kept"), Some("as found"));
    assert_eq!(host.file("/deleted"), Some("as found"), "what was there before, and not nothing");
    assert_eq!(host.file("/made"), None);
    assert_eq!(host.file("/of-one"), Some("one"), "it is declared again");
    // What is left is the confirmed generation's.
    let ledger = &host.disk.ledger.entries;
    assert_eq!(ledger[&id("m/file:/shared")].generation, Some(root(1)));
    assert!(!ledger.contains_key(&id("m/file:/kept")));
    host.log.clear();
    assert!(
        run(&mut host, &one, 1, of(2)).items.is_empty() && host.log.is_empty(),
        "a return may be done again"
    );
}

#[test]
fn a_run_that_takes_nothing_back_follows_on_remove() {
    let (mut host, one) = on_trial();
    run(&mut host, &one, 1, TakeBack::Nothing);
    assert_eq!(host.file("/kept"), Some("two"));
    assert_eq!(host.file("/made"), Some("two"));
    assert_eq!(host.file("/deleted"), None);
}

#[test]
fn what_another_generation_made_is_left_to_its_on_remove() {
    let (mut host, _) = on_trial();
    run(&mut host, &module(Vec::new()), 1, of(2));
    assert_eq!(host.file("/shared"), Some("two"), "generation 1 made it, and it was declared to stay last");
    assert_eq!(host.file("/kept"), Some("as found"));
}

#[test]
fn the_host_as_it_was_found_has_nothing_of_muster() {
    let (mut host, _) = on_trial();
    run(&mut host, &module(Vec::new()), 0, TakeBack::Everything);
    for path in ["/shared", "/kept", "/deleted"] {
        assert_eq!(host.file(path), Some("as found"), "{path}");
    }
    assert_eq!(host.file("/made"), None);
    assert!(host.disk.ledger.entries.is_empty());
}

#[test]
fn what_is_only_observed_again_is_taken_back_too() {
    let (mut host, _) = on_trial();
    let mut observed = module(vec![file("/kept", "two", "keep"), file("/shared", "two", "keep")]);
    observed.edit("m", |module| module.observe = true);
    run(&mut host, &observed, 1, of(2));
    assert_eq!(host.file("/kept"), Some("as found"), "only the failed generation enforced it");
    assert_eq!(host.file("/shared"), Some("two"), "it was there before the trial");
}

#[test]
fn a_kill_at_any_moment_is_made_good_by_the_next_return() {
    let (begun, one) = on_trial();
    let mut killed = 0;
    for lives in 0..60 {
        let mut host = Host { lives: Some(lives), ..begun.clone() };
        let options = || RunOptions { root: root(1), taken_back: of(2), ..options() };
        killed += u32::from(drive_by(&mut host, &one.bind(), RunMode::Apply, 0, options()).is_err());
        host.lives = None;
        drive_by(&mut host, &one.bind(), RunMode::Apply, 0, options()).unwrap();
        let now = ["/shared", "/kept", "/deleted", "/made", "/of-one"].map(|path| host.file(path));
        assert_eq!(
            now,
            [Some("one"), Some("as found"), Some("as found"), None, Some("one")],
            "after {lives} steps"
        );
    }
    assert!(killed > 3);
}

#[test]
fn a_ledger_of_before_names_no_generation() {
    let (mut host, one) = on_trial();
    for entry in host.disk.ledger.entries.values_mut() {
        entry.generation = None;
    }
    run(&mut host, &one, 1, of(2));
    assert_eq!(host.file("/kept"), Some("two"), "nobody knows who made it: it follows its on_remove");
    let text = serde_json::to_string(&host.disk.ledger).unwrap();
    assert!(!text.contains("generation\":null"), "{text}");
    // A plan of such a run says what would be put back.
    apply(&mut host, &one);
    assert!(plan(&mut host, &one).items.is_empty());
}
