//! ROL-7, ROL-10: the files of generations are as before or as written, whatever operation of the disk fails or is
//! torn; what a kept generation needs is no garbage, and what is forgotten is gone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use activation::{
    Activation, ActivationEffect, ActivationInput, ActivationOrder, ActivationProcess, ActivationRecord,
    ActivationStage, ActivationTerms, BootMoment, BootTime, FoundHost, Generation, GenerationId,
    GenerationLimits, ProbeTopology,
};
use agent::generations::{GenerationFiles, InstalledAgent, ReturnUnits, ReturnWatchdog};
use agent::state::{Durable, StateDir};
use model::Digest;
use node::Adoption;
use spool::{Disk, FaultAction, Faults, PeekedFile, Point};
use test_support::agent_state::{file, join, module, release};

fn files(state: &Path, disk: &Disk) -> GenerationFiles {
    let installed =
        InstalledAgent { program: "/bin/true".into(), files: Vec::new(), directories: Vec::new() };
    let units = ReturnUnits::at(&state.join("units"), Path::new("/bin/true"), disk);
    GenerationFiles::with(state, disk, installed, ReturnWatchdog::Units(units))
}

fn of(seq: u64) -> (Adoption, Vec<Vec<u8>>) {
    let mut app = module("app");
    app.resources = vec![file("/etc/app.conf", &format!("{seq}\n"))];
    release(seq, vec![app], None)
}

fn fetched(durable: &Durable, seq: u64) -> Adoption {
    let (adoption, contents) = of(seq);
    for bytes in contents {
        durable.keep(&bytes, Digest::of(&bytes)).unwrap();
    }
    adoption
}

fn record(seq: u64) -> ActivationRecord {
    let confirmed = Generation { id: GenerationId(Digest::of(&[seq as u8])), seq, bytes: 1 };
    ActivationRecord { confirmed, kept: vec![confirmed], ..ActivationRecord::default() }
}

/// One operation fails, and those after it in the same step do not come.
struct FailAt(u64, FaultAction);

impl Faults for FailAt {
    fn before(&self, point: Point<'_>) -> FaultAction {
        if point.number == self.0 { self.1 } else { FaultAction::Go }
    }
}

/// Each operation with each fault at each point: what is read afterwards is before or after, by whether it succeeded or
/// not.
fn at_each_point(
    state: &Path,
    before: impl Fn(&GenerationFiles),
    operation: impl Fn(&GenerationFiles) -> bool,
    judge: impl Fn(&GenerationFiles, bool, u64),
) {
    for fault in [FaultAction::Fail(ErrorKind::StorageFull), FaultAction::Tear(ErrorKind::Other)] {
        for point in 0.. {
            assert!(point < 100, "it has no end");
            before(&files(state, &Disk::new()));
            let disk = Disk::with_faults(Arc::new(FailAt(point, fault)));
            let succeeded = operation(&files(state, &disk));
            judge(&files(state, &Disk::new()), succeeded, point);
            if disk.points() <= point {
                assert!(succeeded && point > 0);
                break;
            }
        }
    }
}

#[test]
fn the_record_is_before_or_after() {
    let dir = tempfile::tempdir().unwrap();
    at_each_point(
        dir.path(),
        |files| files.persist(&record(1)).unwrap(),
        |files| files.persist(&record(2)).is_ok(),
        |files, succeeded, point| match files.peek().unwrap() {
            PeekedFile::Value(found) if succeeded => assert_eq!(found, record(2), "point {point}"),
            PeekedFile::Value(found) => assert!(found == record(1) || found == record(2), "point {point}"),
            other => panic!("point {point}: {other:?}"),
        },
    );
}

#[test]
fn the_mark_is_gone_before_the_host_is_touched_and_there_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (record(1).confirmed.id, record(2).confirmed.id);
    at_each_point(
        dir.path(),
        |files| files.arrive(one).unwrap(),
        |files| files.leave().is_ok(),
        |files, succeeded, point| {
            let running = files.running().unwrap();
            assert!(running.is_none() || (!succeeded && running == Some(one)), "point {point}: {running:?}");
        },
    );
    at_each_point(
        dir.path(),
        |files| files.leave().unwrap(),
        |files| files.arrive(two).is_ok(),
        |files, succeeded, point| {
            let running = files.running().unwrap();
            assert!(running == Some(two) || (!succeeded && running.is_none()), "point {point}: {running:?}");
        },
    );
    std::fs::write(dir.path().join("running.json"), "nothing").unwrap();
    assert_eq!(files(dir.path(), &Disk::new()).running().unwrap(), None, "a damaged mark is none");
}

#[test]
fn a_set_is_kept_whole_or_not_at_all_and_is_no_garbage_until_it_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    join(&state, &dir.path().join("root"), true);
    let durable = StateDir::at(&state, Disk::new()).open().unwrap();
    let (held, other) = (fetched(&durable, 1), fetched(&durable, 2));
    durable.adopt(&held).unwrap();
    let id = GenerationId(other.root);
    at_each_point(
        &state,
        |files| files.forget(&[id]).unwrap(),
        |files| files.keep(&durable, &other).is_ok(),
        |files, succeeded, point| {
            let kept = files.kept_adoption(id).unwrap();
            assert!(
                kept.as_ref() == Some(&other) || (!succeeded && kept.is_none()),
                "point {point}: {kept:?}"
            );
        },
    );
    let files = files(&state, &Disk::new());
    let generation = files.keep(&durable, &other).unwrap();
    let size: u64 = of(2).1.iter().map(|bytes| bytes.len() as u64).sum();
    assert_eq!(generation, Generation { id, seq: 2, bytes: size });
    let is_there =
        |adoption: &Adoption| adoption.objects.values().all(|stub| durable.contents().has(&stub.digest));
    // What else lies there is no generation.
    std::fs::write(state.join("generations/lock"), "1\n").unwrap();
    // As if the agent had started anew: nothing is on its way.
    durable.want(&[Digest::of(b"something else")].into());
    durable.collect_garbage(&held).unwrap();
    assert!(is_there(&other), "it is kept");
    assert_eq!(files.kept().unwrap(), [id]);
    files.forget(&[id]).unwrap();
    assert_eq!(files.kept().unwrap(), []);
    durable.collect_garbage(&held).unwrap();
    assert!(!is_there(&other) && is_there(&held), "it is forgotten");
}

/// What was kept for a trial that was refused, or never began, fills no disk: release after release would.
#[test]
fn a_set_that_the_record_does_not_name_goes() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    join(&state, &dir.path().join("root"), true);
    let durable = StateDir::at(&state, Disk::new()).open().unwrap();
    let adoptions = [1, 2, 3].map(|seq| fetched(&durable, seq));
    durable.adopt(&adoptions[0]).unwrap();
    let files = files(&state, &Disk::new());
    let [held, older, refused] = adoptions.each_ref().map(|adoption| files.keep(&durable, adoption).unwrap());
    let record = ActivationRecord { confirmed: held, kept: vec![older, held], ..ActivationRecord::default() };
    files.forget_unnamed(&record).unwrap();
    let mut kept = files.kept().unwrap();
    kept.sort();
    let mut named = [held.id, older.id];
    named.sort();
    assert_eq!(kept, named);
    assert_eq!(files.kept_adoption(refused.id).unwrap(), None);
}

/// ROL-7: a record whose name is there and whose directory could not be synced is written over, so that the next agent goes
/// on with no activation that was refused.
#[test]
fn a_refused_activation_is_not_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let now = BootMoment { boot: "b".parse().unwrap(), at: BootTime::BOOT };
    let target = Generation { id: GenerationId(Digest::of(b"two")), seq: 2, bytes: 1 };
    let refused = std::cell::Cell::new(0);
    at_each_point(
        dir.path(),
        |files| files.persist(&record(1)).unwrap(),
        |files| {
            let found = FoundHost { process: ActivationProcess::Agent, runs: Some(record(1).confirmed.id) };
            let mut host = Activation::start(record(1), GenerationLimits::default(), found, &now).0;
            let (terms, probes) = (ActivationTerms::default(), ProbeTopology::default());
            let order = ActivationOrder { target, terms, probes };
            let mut effects = VecDeque::from(host.handle(ActivationInput::Activate(Box::new(order)), now.at));
            let mut begins = false;
            while let Some(effect) = effects.pop_front() {
                match effect {
                    ActivationEffect::Persist(record) => {
                        if let Err(error) = files.persist(&record) {
                            let reason = error.to_string();
                            effects = host.handle(ActivationInput::NotPersisted { reason }, now.at).into();
                        }
                    }
                    ActivationEffect::Switch(_) => begins = true,
                    _ => {}
                }
            }
            assert!(begins || host.is_at_rest(), "the second write is not the one that fails");
            begins
        },
        |files, begins, point| {
            let PeekedFile::Value(found) = files.peek().unwrap() else { panic!("point {point}") };
            let is_armed = matches!(found.under_way, ActivationStage::Armed(_));
            assert_eq!(is_armed, begins, "point {point}: told to be refused, and {found:?}");
            refused.set(refused.get() + u32::from(!begins));
        },
    );
    assert!(refused.get() > 2, "some point refuses it");
}

#[test]
fn a_full_disk_arms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    join(&state, &dir.path().join("root"), true);
    let durable = StateDir::at(&state, Disk::new()).open().unwrap();
    let held = fetched(&durable, 1);
    durable.adopt(&held).unwrap();
    std::fs::create_dir_all(state.join("units")).unwrap();
    let confirmed = durable.generation_of(&held).unwrap();
    let armed = |record: ActivationRecord| {
        let text = serde_json::json!({
            "stage": "armed", "target": {"id": Digest::of(b"two"), "seq": 2, "bytes": 1}, "boot": "b",
            "deadlineMillis": 1, "switchedMillis": 0, "nextTry": 0, "deaths": 0, "bootsLeft": 0,
            "terms": activation::ActivationTerms::default(), "probes": [],
        });
        ActivationRecord { under_way: serde_json::from_value(text).unwrap(), ..record }
    };
    let to_be = armed(ActivationRecord { confirmed, ..ActivationRecord::default() });
    at_each_point(
        &state,
        |files| {
            files.disarm(&ActivationRecord { confirmed, ..ActivationRecord::default() }).unwrap();
            files.forget(&[confirmed.id]).unwrap();
        },
        |files| files.arm(&durable, &to_be).is_ok(),
        |files, succeeded, point| {
            let kept = files.kept_adoption(confirmed.id).unwrap();
            assert!(!succeeded || kept.as_ref() == Some(&held), "point {point}");
            let program = files.watchdog().is_set_up();
            assert!(!succeeded || program, "point {point}");
        },
    );
}
