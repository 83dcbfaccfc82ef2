//! CNV-11: whether a change that can cut the host off is made, on what terms, and how often again after it was undone:
//! the table of `activation::guarded`, and histories of a control plane that is away.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use activation::guarded::{
    ContactAnswer, ContactHistory, GUARDED_RETRY_WAITS, GuardAdmission, GuardEffect, GuardHold, GuardInput,
    GuardSituation, GuardedActivation, HeldUntil, MAX_GUARDED_TRIES, OFFLINE_WINDOW, ReleaseTrial,
    admit_guarded, admit_in_return, held_back,
};
use activation::{
    ActivationRecord, ActivationStage, ActivationTerms, AgentDeath, BootMoment, BootTime, ContactRule,
    Generation, GenerationId, GenerationReturn, Probation, ProbeTopology, Quarantine, ReturnCause, Trial,
};
use model::Digest;
use model::policy::{GuardPolicy, OfflineGuard};
use proptest::prelude::*;

const WINDOW: Duration = Duration::from_secs(300);

fn at(secs: u64) -> BootMoment {
    BootMoment { boot: "boot-1".parse().unwrap(), at: BootTime::after_boot(Duration::from_secs(secs)) }
}

fn change(number: u8) -> Generation {
    Generation { id: GenerationId(Digest::of(&[number])), seq: number.into(), bytes: 0 }
}

fn contacts(answered: bool, secs: u64) -> ContactHistory {
    let mut contacts = ContactHistory::found(false);
    contacts.tried(if answered { ContactAnswer::Answered } else { ContactAnswer::None }, at(secs).at);
    contacts
}

fn undone(cause: ReturnCause, returns: u32, secs: u64) -> Quarantine {
    let cause = serde_json::to_value(cause).unwrap();
    let mut entry =
        serde_json::json!({"id": change(1).id, "seq": 1, "returns": returns, "returned": at(secs)});
    entry.as_object_mut().unwrap().extend(cause.as_object().unwrap().clone());
    serde_json::from_value(serde_json::json!([entry])).unwrap()
}

struct Row {
    trial: ReleaseTrial,
    record: ActivationRecord,
    contacts: ContactHistory,
    offline: OfflineGuard,
}

impl Row {
    fn new() -> Row {
        Row {
            trial: ReleaseTrial::None,
            record: ActivationRecord::default(),
            contacts: contacts(true, 900),
            offline: OfflineGuard::Return,
        }
    }

    fn admit(&self, under_way: Option<&ActivationStage>) -> GuardAdmission {
        admit_guarded(&GuardSituation {
            under_way,
            trial: self.trial,
            record: &self.record,
            target: change(1),
            contacts: &self.contacts,
            policy: GuardPolicy { window_secs: 300, offline: self.offline },
            now: &at(1000),
        })
    }

    #[track_caller]
    fn arms(&self) -> (ContactRule, Duration) {
        match self.admit(None) {
            GuardAdmission::Arms(order) => (order.order.terms.contact, order.order.terms.window),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn until(&self) -> HeldUntil {
        match self.admit(None) {
            GuardAdmission::HeldBack(GuardHold::Undone { change, .. }) => change.until,
            other => panic!("{other:?}"),
        }
    }
}

fn begun(row: &Row) -> (GuardedActivation, Vec<GuardEffect>) {
    let GuardAdmission::Arms(order) = row.admit(None) else { panic!("not armed") };
    GuardedActivation::begin(*order, &at(1000))
}

#[test]
fn each_row_of_the_table() {
    let row = Row::new();
    let (guard, _) = begun(&row);
    let armed = guard.record().under_way.clone();
    assert_eq!(row.admit(Some(&armed)), GuardAdmission::Joins);
    // Whatever else is so.
    let on_trial = Row { trial: ReleaseTrial::UnderWay, ..Row::new() };
    assert_eq!(on_trial.admit(Some(&armed)), GuardAdmission::Joins);
    let back = ActivationStage::Returning(GenerationReturn {
        from: change(1),
        cause: ReturnCause::NotConfirmed,
        boot: at(0).boot,
        deadline: at(2000).at,
    });
    assert_eq!(row.admit(Some(&back)), GuardAdmission::HeldBack(GuardHold::AwaitsContact));
    assert_eq!(on_trial.admit(None), GuardAdmission::GuardedByTrial);
    let confirming = Row { trial: ReleaseTrial::Confirming, ..Row::new() };
    assert_eq!(confirming.admit(None), GuardAdmission::HeldBack(GuardHold::AwaitsContact));
    let record = ActivationRecord { under_way: back, ..ActivationRecord::default() };
    let left = Row { record, ..Row::new() };
    assert_eq!(
        left.admit(None),
        GuardAdmission::HeldBack(GuardHold::NotResumed),
        "its undo is not forgotten"
    );
    assert_eq!(row.arms(), (ContactRule::Required, WINDOW));
    // A host that was offline before: what a contact followed once is kept, of the rest the channel decides.
    let offline = || Row { contacts: contacts(false, 900), ..Row::new() };
    assert_eq!(offline().arms(), (ContactRule::Required, WINDOW));
    let kept = ActivationRecord { kept: vec![change(1)], ..ActivationRecord::default() };
    assert_eq!(Row { record: kept.clone(), ..offline() }.arms(), (ContactRule::ProbesAlone, OFFLINE_WINDOW));
    assert_eq!(
        Row { offline: OfflineGuard::Confirm, ..offline() }.arms(),
        (ContactRule::ProbesAlone, OFFLINE_WINDOW)
    );
    // In contact it must follow all the same.
    assert_eq!(Row { record: kept, ..Row::new() }.arms().0, ContactRule::Required);
    assert_eq!(Row { offline: OfflineGuard::Confirm, ..Row::new() }.arms().0, ContactRule::Required);
}

/// Nothing would undo once more what a return makes.
#[test]
fn a_return_makes_nothing_that_was_undone() {
    let record = ActivationRecord {
        quarantine: undone(ReturnCause::NotConfirmed, 1, 950),
        ..ActivationRecord::default()
    };
    assert_eq!(admit_in_return(&record, change(1).id), Err(GuardHold::UndoneBeforeReturn));
    assert_eq!(admit_in_return(&record, change(2).id), Ok(()));
    assert_eq!(admit_in_return(&ActivationRecord::default(), change(1).id), Ok(()));
}

/// A release guards what changes in its time only where a watchdog would take the host back from it.
#[test]
fn a_release_guards_while_it_may_be_returned_from() {
    let trial = Trial {
        target: change(1),
        boot: at(0).boot,
        deadline: at(2000).at,
        switched: at(0).at,
        next_try: 0,
        deaths: 0,
        boots_left: 0,
        terms: ActivationTerms::default(),
        probes: ProbeTopology::default(),
    };
    let (terms, probes) = (trial.terms, trial.probes.clone());
    let probation = Probation { previous: change(2), deaths: 0, terms, probes };
    let back = GenerationReturn {
        from: change(1),
        cause: ReturnCause::Halted,
        boot: at(0).boot,
        deadline: at(2000).at,
    };
    for (under_way, expected) in [
        (ActivationStage::Settled, ReleaseTrial::None),
        (ActivationStage::Armed(trial.clone()), ReleaseTrial::UnderWay),
        (ActivationStage::Confirming(trial.clone()), ReleaseTrial::Confirming),
        (ActivationStage::Deferred(trial), ReleaseTrial::None),
        (ActivationStage::Probation(probation), ReleaseTrial::None),
        (ActivationStage::Returning(back), ReleaseTrial::UnderWay),
    ] {
        let record = ActivationRecord { under_way, ..ActivationRecord::default() };
        assert_eq!(ReleaseTrial::of(&record), expected, "{:?}", record.under_way);
    }
}

/// One try that fails does not make a host an offline one, of which less is asked.
#[test]
fn a_host_is_offline_after_a_window_without_an_answer() {
    for (answered, is_reached) in [(999, true), (701, true), (700, false), (10, false)] {
        let mut history = contacts(true, answered);
        history.tried(ContactAnswer::None, at(999).at);
        assert_eq!(history.is_reached(WINDOW, at(1000).at), is_reached, "answered at {answered}");
    }
    assert!(ContactHistory::found(true).is_reached(WINDOW, at(1000).at));
    assert!(!ContactHistory::found(false).is_reached(WINDOW, at(1000).at));
}

/// What counts as a contact: any answer of the control plane, and of a proxy in its place none that says that it failed.
#[test]
fn any_answer_of_the_control_plane_is_a_contact() {
    for (answer, is_contact) in [
        (ContactAnswer::Answered, true),
        (ContactAnswer::ThroughProxy(404), true),
        (ContactAnswer::ThroughProxy(499), true),
        (ContactAnswer::ThroughProxy(500), false),
        (ContactAnswer::ThroughProxy(502), false),
        (ContactAnswer::None, false),
    ] {
        assert_eq!(answer.is_contact(), is_contact, "{answer:?}");
    }
}

#[test]
fn what_was_undone_is_tried_again_a_few_times_after_a_contact() {
    let not_confirmed = |returns, secs| ActivationRecord {
        quarantine: undone(ReturnCause::NotConfirmed, returns, secs),
        ..ActivationRecord::default()
    };
    // Nothing was heard since.
    let row = Row { record: not_confirmed(1, 950), contacts: contacts(true, 949), ..Row::new() };
    assert_eq!(row.until(), HeldUntil::Contact);
    // The control plane is back.
    let row = Row { record: not_confirmed(1, 950), contacts: contacts(true, 951), ..Row::new() };
    assert_eq!(row.arms().0, ContactRule::Required);
    // The second time it is left alone for longer, contact or not.
    let row = Row { record: not_confirmed(2, 950), contacts: contacts(true, 951), ..Row::new() };
    assert_eq!(row.until(), HeldUntil::Wait(at(950).at.plus(GUARDED_RETRY_WAITS[1])));
    // The last time it is another change that is waited for.
    let row =
        Row { record: not_confirmed(MAX_GUARDED_TRIES, 950), contacts: contacts(true, 951), ..Row::new() };
    assert_eq!(row.until(), HeldUntil::Change);
    // What failed by itself fails again.
    for cause in [
        ReturnCause::SwitchFailed { reason: "ssh did not start".to_owned() },
        ReturnCause::AgentDied { how: AgentDeath::default() },
        ReturnCause::SwitchTooLong,
        ReturnCause::FoundElsewhere,
    ] {
        let record = ActivationRecord { quarantine: undone(cause, 1, 950), ..ActivationRecord::default() };
        assert_eq!(Row { record, ..Row::new() }.until(), HeldUntil::Change);
    }
    // A host that went down tries once more, and then no more.
    let rebooted = |returns| ActivationRecord {
        quarantine: undone(ReturnCause::Rebooted, returns, 950),
        ..ActivationRecord::default()
    };
    assert_eq!(Row { record: rebooted(1), ..Row::new() }.arms().0, ContactRule::Required);
    assert_eq!(Row { record: rebooted(2), ..Row::new() }.until(), HeldUntil::Change);
}

/// Waits are counted in the boot that the host undid it in, or from the next one on.
#[test]
fn a_boot_begins_the_wait_anew() {
    let quarantine = undone(ReturnCause::NotConfirmed, 2, 40_000);
    let now = |secs| BootMoment { boot: "boot-2".parse().unwrap(), ..at(secs) };
    let history = contacts(true, 5);
    let wait = GUARDED_RETRY_WAITS[1].as_secs();
    let held = held_back(&quarantine, change(1).id, &history, &now(wait - 1)).unwrap();
    assert_eq!(held.until, HeldUntil::Wait(at(wait).at));
    assert_eq!(held_back(&quarantine, change(1).id, &history, &now(wait)), None);
    let unheard = held_back(&quarantine, change(1).id, &ContactHistory::found(true), &now(wait)).unwrap();
    assert_eq!(unheard.until, HeldUntil::Contact);
}

/// A guarded run whose contacts all fail, to its end: the record that it leaves.
fn run_without_contact(
    record: ActivationRecord,
    mut now: u64,
    contacts: &ContactHistory,
) -> Option<(ActivationRecord, u64)> {
    let admission = admit_guarded(&GuardSituation {
        under_way: None,
        trial: ReleaseTrial::None,
        record: &record,
        target: change(1),
        contacts,
        policy: GuardPolicy::default(),
        now: &at(now),
    });
    let GuardAdmission::Arms(order) = admission else { return None };
    let (mut guard, _) = GuardedActivation::begin(*order, &at(now));
    guard.handle(GuardInput::RunEnded(activation::SwitchEnd::Done), at(now).at);
    while !guard.is_over() {
        now += 10;
        let mut effects = guard.handle(GuardInput::Tick, at(now).at);
        while let Some(effect) = effects.pop() {
            match effect {
                GuardEffect::TryContact { .. } => {
                    guard.handle(GuardInput::ContactTried(Err("no route".to_owned())), at(now).at);
                }
                GuardEffect::Undo { .. } => {
                    effects = guard.handle(GuardInput::Undone(Vec::new()), at(now).at)
                }
                GuardEffect::Keep => panic!("kept without a contact"),
                _ => {}
            }
        }
    }
    Some((guard.record().clone(), now))
}

proptest! {
    /// A control plane that comes and goes: the change is made at most so often, each time after a contact that came since
    /// it was undone, and never in between.
    #[test]
    fn tries_are_bounded(gaps in proptest::collection::vec((1u64..30_000, any::<bool>()), 1..60)) {
        let (mut record, mut now, mut tries) = (ActivationRecord::default(), 1000, 0);
        let mut history = contacts(true, 1000);
        for (gap, answers) in gaps {
            if let Some((after, ended)) = run_without_contact(record.clone(), now, &history) {
                tries += 1;
                prop_assert!(tries == 1 || history.is_last_answered());
                prop_assert!(ended - now >= WINDOW.as_secs());
                (record, now) = (after, ended);
                // Nothing was heard since: it is held back, whatever was before.
                prop_assert!(run_without_contact(record.clone(), now, &history).is_none());
            }
            now += gap;
            let answer = if answers { ContactAnswer::Answered } else { ContactAnswer::None };
            history.tried(answer, at(now).at);
        }
        prop_assert!(tries <= MAX_GUARDED_TRIES);
    }
}
