//! CFG-2, CFG-4, CNV-1, CNV-6 against a model: random modules, edges, failures, verifies,
//! job orders and kills.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Host, Set, drive, set};
use converge::RunMode;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A module as drawn: what it depends on (smaller numbers), its files, its verify.
#[derive(Clone, Debug)]
struct Drawn {
    depends_on: Vec<usize>,
    /// Handlers that each file notifies, by module (its own or a larger number).
    files: Vec<Vec<usize>>,
    /// The file that cannot be written.
    broken: Option<usize>,
    verify: Option<bool>,
}

fn drawn(m: usize, count: usize) -> impl Strategy<Value = Drawn> {
    let smaller = prop::collection::vec(0..m.max(1), 0..=m.min(2));
    let files = prop::collection::vec(prop::collection::vec(m..count, 0..3), 1..4);
    let broken = prop::option::weighted(0.2, 0..3usize);
    let verify = prop::option::weighted(0.4, prop::bool::weighted(0.7));
    (smaller, files, broken, verify).prop_map(move |(smaller, files, broken, verify)| Drawn {
        depends_on: if m == 0 { Vec::new() } else { smaller },
        broken: broken.filter(|f| *f < files.len()),
        files,
        verify,
    })
}

fn fleet() -> impl Strategy<Value = Vec<Drawn>> {
    (1..6usize).prop_flat_map(|count| (0..count).map(|m| drawn(m, count)).collect::<Vec<_>>())
}

fn path(m: usize, f: usize) -> String {
    format!("/m{m}/f{f}")
}

/// The modules as JSON, named in reverse, so that order comes from edges alone.
fn as_set(fleet: &[Drawn]) -> Set {
    let module = |(m, drawn): (usize, &Drawn)| -> Value {
        let file = |(f, notify): (usize, &Vec<usize>)| {
            let notify: BTreeSet<String> = notify.iter().map(|to| format!("m{to}/reload{to}")).collect();
            json!({"type": "file", "name": path(m, f), "notify": notify, "attributes": {"content": "new"}})
        };
        let depends_on: BTreeSet<String> = drawn.depends_on.iter().map(|d| format!("m{d}")).collect();
        let mut module = json!({
            "name": format!("m{m}"),
            "depends_on": depends_on,
            "resources": drawn.files.iter().enumerate().map(file).collect::<Vec<_>>(),
            "handlers": [{"type": "exec", "name": format!("reload{m}"), "attributes": {"command": [format!("reload{m}")]}}],
        });
        if drawn.verify.is_some() {
            module["verify"] = json!({"argv": [format!("check{m}")]});
        }
        module
    };
    set(fleet.iter().enumerate().rev().map(module).collect())
}

fn as_host(fleet: &[Drawn], old: &BTreeSet<(usize, usize)>) -> Host {
    let mut host = Host::default();
    for (m, drawn) in fleet.iter().enumerate() {
        host.broken.extend(drawn.broken.map(|f| path(m, f)));
        host.broken.extend(drawn.verify.filter(|good| !good).map(|_| format!("check{m}")));
        for f in (0..drawn.files.len()).filter(|f| old.contains(&(m, *f))) {
            host.write(&path(m, f), "old");
        }
    }
    host
}

/// What a run comes to: files, and how often each handler runs.
struct Expected {
    files: BTreeMap<String, String>,
    handlers: BTreeMap<usize, usize>,
    failed: bool,
}

/// The model: modules in number order (edges only go up), no jobs, no machine.
fn expected(fleet: &[Drawn], old: &BTreeSet<(usize, usize)>) -> Expected {
    let mut result = Expected { files: BTreeMap::new(), handlers: BTreeMap::new(), failed: false };
    let mut bad = BTreeSet::new();
    let mut notified: BTreeSet<usize> = BTreeSet::new();
    for (m, drawn) in fleet.iter().enumerate() {
        let before = |f: usize| old.contains(&(m, f)).then(|| "old".to_owned());
        let blocked = drawn.depends_on.iter().any(|d| bad.contains(d));
        let written: Vec<usize> =
            (0..drawn.files.len()).filter(|f| !blocked && drawn.broken != Some(*f)).collect();
        // A write that fails may have changed something, so it is verified as well.
        let refused = drawn.verify == Some(false) && !blocked;
        for f in 0..drawn.files.len() {
            let kept = if written.contains(&f) && !refused { Some("new".to_owned()) } else { before(f) };
            result.files.extend(kept.map(|text| (path(m, f), text)));
        }
        if !refused {
            notified.extend(written.iter().flat_map(|f| drawn.files[*f].iter().copied()));
        }
        if !blocked && !refused && notified.contains(&m) {
            result.handlers.insert(m, 1);
        }
        if blocked || refused || drawn.broken.is_some() {
            bad.insert(m);
        }
    }
    result.failed = !bad.is_empty();
    result
}

fn files(host: &Host) -> BTreeMap<String, String> {
    host.nodes.keys().map(|path| (path.clone(), host.file(path).unwrap().to_owned())).collect()
}

fn position(host: &Host, line: &str) -> Option<usize> {
    host.log.iter().position(|logged| logged == line)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_run_does_what_the_model_does(
        fleet in fleet(),
        old in prop::collection::btree_set((0..6usize, 0..3usize), 0..8),
        seed in any::<u64>(),
    ) {
        let desired = as_set(&fleet).bind();
        let start = as_host(&fleet, &old);
        let model = expected(&fleet, &old);

        let mut planned = start.clone();
        let plan = drive(&mut planned, &desired, RunMode::Plan, seed).unwrap();
        prop_assert!(planned.log.is_empty() && planned.nodes == start.nodes && planned.disk.ledger.entries.is_empty());
        prop_assert_eq!(plan.report.counts.changed, 0);

        let mut host = start.clone();
        let finished = drive(&mut host, &desired, RunMode::Apply, seed).unwrap();
        prop_assert_eq!(files(&host), model.files);
        prop_assert_eq!(finished.report.counts.failed > 0, model.failed);
        prop_assert_eq!(&finished.pending, &host.disk.pending);
        prop_assert_eq!(&finished.ledger, &host.disk.ledger);
        for (m, drawn) in fleet.iter().enumerate() {
            let runs = host.count(&format!("run reload{m}"));
            prop_assert_eq!(runs, model.handlers.get(&m).copied().unwrap_or(0), "reload{} in {:?}", m, &host.log);
            // Everything of a module comes after everything of those that it depends on.
            let own = (0..drawn.files.len()).filter_map(|f| position(&host, &format!("apply m{m}/file:{}", path(m, f)))).min();
            for d in &drawn.depends_on {
                let theirs = host.log.iter().rposition(|line| line.contains(&format!("m{d}/")));
                if let (Some(own), Some(theirs)) = (own, theirs) {
                    prop_assert!(theirs < own, "m{} before m{}: {:?}", m, d, &host.log);
                }
            }
            // A handler comes after each of its notifiers.
            for (f, notify) in drawn.files.iter().enumerate() {
                let notifier = position(&host, &format!("apply m{m}/file:{}", path(m, f)));
                for to in notify {
                    if let (Some(notifier), Some(handler)) = (notifier, position(&host, &format!("run reload{to}"))) {
                        prop_assert!(notifier < handler, "reload{} too early: {:?}", to, &host.log);
                    }
                }
            }
        }

        if !model.failed {
            host.log.clear();
            let again = drive(&mut host, &desired, RunMode::Apply, seed).unwrap();
            prop_assert!(host.log.is_empty() && again.report.counts.changed == 0);
        }
    }

    #[test]
    fn killed_anywhere_the_next_run_ends_the_same(
        fleet in fleet(),
        old in prop::collection::btree_set((0..6usize, 0..3usize), 0..8),
        seed in any::<u64>(),
        kills in prop::collection::vec(0..60u32, 1..4),
    ) {
        let desired = as_set(&fleet).bind();
        let mut host = as_host(&fleet, &old);
        let model = expected(&fleet, &old);
        for lives in kills {
            host.lives = Some(lives);
            let _ = drive(&mut host, &desired, RunMode::Apply, seed);
        }
        host.lives = None;
        let finished = drive(&mut host, &desired, RunMode::Apply, seed).unwrap();
        prop_assert_eq!(files(&host), model.files);
        for m in model.handlers.keys() {
            prop_assert!(host.count(&format!("run reload{m}")) >= 1, "reload{} was lost: {:?}", m, &host.log);
        }
        prop_assert_eq!(&finished.pending, &host.disk.pending);
        prop_assert!(host.disk.pending.unverified.is_empty());
        if !model.failed {
            prop_assert!(host.disk.pending.is_empty());
        }
    }
}
