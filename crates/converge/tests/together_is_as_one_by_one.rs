//! EXE-1: resources that are applied in one go end as if each were applied by itself: the same host,
//! report, ledger and debts, whatever fails, notifies or depends on another, and after a kill.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use crate::common::{Host, Set, drive, lines, set};
use converge::{FinishedRun, LedgerEntry, Prior, ResourceId, RunMode};
use model::{ResourceReport, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

/// What a module declares, in order.
#[derive(Clone, Debug)]
struct DrawnItem {
    kind: DrawnKind,
    /// An earlier item that must have succeeded.
    depends_on: Option<usize>,
    /// An earlier item that it hears of.
    subscribes: Option<usize>,
    notifies: bool,
    ignored: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrawnKind {
    /// One that drags has the next item installed with it.
    Package {
        there: bool,
        broken: bool,
        drags: bool,
    },
    File,
}

#[derive(Clone, Debug)]
struct DrawnModule {
    items: Vec<DrawnItem>,
    verify: Option<bool>,
    after_first: bool,
}

fn item(at: usize) -> impl Strategy<Value = DrawnItem> {
    let package = (any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.3))
        .prop_map(|(there, broken, drags)| DrawnKind::Package { there, broken, drags });
    let kind = prop_oneof![5 => package, 1 => Just(DrawnKind::File)];
    let earlier = || prop::option::weighted(0.2, 0..at.max(1));
    (kind, earlier(), earlier(), any::<bool>(), prop::bool::weighted(0.1)).prop_map(
        move |(kind, depends_on, subscribes, notifies, ignored)| DrawnItem {
            kind,
            depends_on: depends_on.filter(|_| at > 0),
            subscribes: subscribes.filter(|other| at > 0 && Some(*other) != depends_on),
            notifies,
            ignored,
        },
    )
}

fn module() -> impl Strategy<Value = DrawnModule> {
    let items = (1..8usize).prop_flat_map(|count| (0..count).map(item).collect::<Vec<_>>());
    let verify = prop::option::weighted(0.4, prop::bool::weighted(0.6));
    (items, verify, any::<bool>()).prop_map(|(items, verify, after_first)| DrawnModule {
        items,
        verify,
        after_first,
    })
}

fn name(m: usize, i: usize, item: &DrawnItem) -> (&'static str, String) {
    match item.kind {
        DrawnKind::Package { .. } => ("package", format!("pkg-{m}-{i}")),
        DrawnKind::File => ("file", format!("/m{m}/f{i}")),
    }
}

/// `alone` gives each package a condition, so that it is applied by itself.
fn as_set(fleet: &[DrawnModule], alone: bool) -> Set {
    let module = |(m, drawn): (usize, &DrawnModule)| -> Value {
        let item = |(i, item): (usize, &DrawnItem)| {
            let (kind, name) = name(m, i, item);
            let id = |other: usize| json!([format!("i{other}")]);
            let mut declared = json!({"type": kind, "name": name, "id": format!("i{i}"), "attributes": {}});
            if item.kind == DrawnKind::File {
                declared["attributes"] = json!({"content": "new"});
            } else if alone {
                declared["only_if"] = json!({"argv": ["true"]});
            }
            declared["ignore_failure"] = json!(item.ignored);
            if let Some(other) = item.depends_on {
                declared["depends_on"] = id(other);
            }
            if let Some(other) = item.subscribes {
                declared["subscribes"] = id(other);
            }
            if item.notifies {
                declared["notify"] = json!(["reload"]);
            }
            declared
        };
        let mut module = json!({
            "name": format!("m{m}"),
            "resources": drawn.items.iter().enumerate().map(item).collect::<Vec<_>>(),
            "handlers": [{"type": "exec", "name": "reload", "attributes": {"command": [format!("reload{m}")]}}],
        });
        if drawn.verify.is_some() {
            module["verify"] = json!({"argv": [format!("check{m}")]});
        }
        if m > 0 && drawn.after_first {
            module["depends_on"] = json!(["m0"]);
        }
        module
    };
    set(fleet.iter().enumerate().map(module).collect())
}

fn as_host(fleet: &[DrawnModule]) -> Host {
    let mut host = Host::default();
    for (m, drawn) in fleet.iter().enumerate() {
        host.broken.extend(drawn.verify.filter(|good| !good).map(|_| format!("check{m}")));
        for (i, item) in drawn.items.iter().enumerate() {
            let (_, name) = name(m, i, item);
            if let DrawnKind::Package { there, broken, drags } = item.kind {
                host.drags.extend(drags.then(|| (name.clone(), format!("pkg-{m}-{}", i + 1))));
                host.broken.extend(broken.then(|| name.clone()));
                host.packages.extend(there.then_some(name));
            }
        }
    }
    host
}

/// A run as far as time does not matter.
fn outcome(
    host: &Host,
    finished: &FinishedRun,
) -> (Vec<ResourceReport>, BTreeMap<ResourceId, LedgerEntry>, Vec<String>) {
    let mut items = finished.report.items.clone();
    items.iter_mut().for_each(|item| item.duration_ms = 0);
    let mut ledger = finished.ledger.entries.clone();
    ledger.values_mut().for_each(|entry| entry.at = Timestamp(0));
    let mut handlers: Vec<String> = host
        .log
        .iter()
        .filter(|line| line.starts_with("run ") || line.starts_with("verify "))
        .cloned()
        .collect();
    handlers.sort();
    (items, ledger, handlers)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_transaction_changes_nothing_but_time(
        fleet in prop::collection::vec(module(), 1..4),
        seed in any::<u64>(),
    ) {
        let (mut host, mut model) = (as_host(&fleet), as_host(&fleet));
        let finished = drive(&mut host, &as_set(&fleet, false).bind(), RunMode::Apply, seed).unwrap();
        let expected = drive(&mut model, &as_set(&fleet, true).bind(), RunMode::Apply, seed).unwrap();
        prop_assert_eq!(&host.packages, &model.packages, "{:?}", &host.log);
        prop_assert_eq!(&host.nodes, &model.nodes);
        prop_assert_eq!(outcome(&host, &finished), outcome(&model, &expected));
        prop_assert_eq!(&finished.report.counts, &expected.report.counts);
        prop_assert_eq!(&finished.pending, &expected.pending);
        prop_assert_eq!((&finished.pending, &finished.ledger), (&host.disk.pending, &host.disk.ledger));
    }

    #[test]
    fn killed_anywhere_it_ends_as_one_by_one(
        fleet in prop::collection::vec(module(), 1..4),
        seed in any::<u64>(),
        kills in prop::collection::vec(0..40u32, 1..4),
    ) {
        let (mut host, mut model) = (as_host(&fleet), as_host(&fleet));
        // After a kill nobody knows whether a package that another one brings was there before: verify
        // takes it back with the other one.
        (host.drags, model.drags) = Default::default();
        for lives in kills {
            host.lives = Some(lives);
            let _ = drive(&mut host, &as_set(&fleet, false).bind(), RunMode::Apply, seed);
        }
        host.lives = None;
        let finished = drive(&mut host, &as_set(&fleet, false).bind(), RunMode::Apply, seed).unwrap();
        drive(&mut model, &as_set(&fleet, true).bind(), RunMode::Apply, seed).unwrap();
        prop_assert_eq!(&host.packages, &model.packages, "{:?}", &host.log);
        prop_assert_eq!(&host.nodes, &model.nodes);
        for line in model.log.iter().filter(|line| line.starts_with("run reload")) {
            prop_assert!(host.count(line) >= 1, "{} was lost: {:?}", line, &host.log);
        }
        prop_assert!(host.disk.pending.unverified.is_empty());
        prop_assert_eq!((&finished.pending, &finished.ledger), (&host.disk.pending, &host.disk.ledger));
    }
}

fn packages(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({"type": "package", "name": name})).collect()
}

#[test]
fn what_stands_side_by_side_is_one_transaction() {
    let mut resources = packages(&["nginx", "curl"]);
    resources.push(json!({"type": "file", "name": "/etc/x", "attributes": {"content": "x"}}));
    resources.extend(packages(&["git", "jq"]));
    let set = set(json!([{"name": "web", "resources": resources}]));
    let mut host = Host::default();
    host.packages.insert("jq".to_owned());
    drive(&mut host, &set.bind(), RunMode::Apply, 0).unwrap();
    let transactions: Vec<&String> = host.log.iter().filter(|line| !line.starts_with("apply")).collect();
    assert_eq!(transactions, ["together nginx curl"]);
    assert_eq!(host.count("apply web/package:git"), 1);
}

#[test]
fn modules_beside_each_other_share_a_transaction() {
    let set = set(json!([
        {"name": "base", "resources": packages(&["curl", "vim"])},
        {"name": "web", "resources": packages(&["nginx"])},
        {"name": "late", "depends_on": ["web"], "resources": packages(&["php", "redis"])},
    ]));
    let mut host = Host::default();
    let finished = drive(&mut host, &set.bind(), RunMode::Apply, 0).unwrap();
    let transactions: Vec<&String> = host.log.iter().filter(|line| line.starts_with("together")).collect();
    assert_eq!(transactions, ["together curl vim nginx", "together php redis"]);
    assert_eq!(finished.report.counts.changed, 5);
    let priors: Vec<&Prior> = finished.ledger.entries.values().map(|entry| &entry.prior).collect();
    assert!(priors.iter().all(|prior| **prior == Prior::State(None)) && priors.len() == 5);
}

#[test]
fn a_bad_one_fails_alone() {
    let set = set(json!([{"name": "web", "resources": packages(&["curl", "nope", "vim"])}]));
    let mut host = Host::default();
    host.broken.insert("nope".to_owned());
    let finished = drive(&mut host, &set.bind(), RunMode::Apply, 0).unwrap();
    assert_eq!(
        lines(&finished.report),
        [
            "web/package:curl changed",
            "web/package:nope failed: nope cannot be installed",
            "web/package:vim changed"
        ]
    );
}

#[test]
fn a_change_is_verified_although_the_first_of_its_module_changed_nothing() {
    let set = set(json!([
        {"name": "base", "resources": packages(&["aa", "zz"])},
        {"name": "web", "resources": packages(&["b1", "b2"]), "verify": {"argv": ["check"]}},
    ]));
    let mut host = Host::default();
    host.drags.insert("aa".to_owned(), "b1".to_owned());
    let finished = drive(&mut host, &set.bind(), RunMode::Apply, 0).unwrap();
    assert_eq!(host.count("together aa zz b1 b2"), 1, "{:?}", host.log);
    assert_eq!((finished.report.counts.changed, finished.report.counts.ok), (3, 1));
    assert_eq!(host.count("verify web"), 1);
}
