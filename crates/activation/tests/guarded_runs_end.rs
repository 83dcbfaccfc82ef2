//! CNV-11: a guarded run ends with a contact that followed it, or with all undone, whatever process goes on with it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use activation::guarded::{
    ContactAnswer, ContactHistory, FoundChanges, GuardAdmission, GuardEffect, GuardInput, GuardSituation,
    GuardedActivation, MAX_UNDO_TRIES, ReleaseTrial, admit_guarded,
};
use activation::{
    ActivationProcess, ActivationRecord, BootMoment, BootTime, FoundRecord, Generation, GenerationId,
    RETURN_RETRY, ReturnCause, SwitchEnd,
};
use model::Digest;
use model::policy::{GuardPolicy, OfflineGuard};

fn at(secs: u64) -> BootMoment {
    BootMoment { boot: "boot-1".parse().unwrap(), at: BootTime::after_boot(Duration::from_secs(secs)) }
}

fn change() -> Generation {
    Generation { id: GenerationId(Digest::of(b"change")), seq: 7, bytes: 0 }
}

/// A guard that was armed at second 1000, of a host that was in contact before or not.
fn armed(was_reached: bool, offline: OfflineGuard) -> (GuardedActivation, Vec<GuardEffect>) {
    let mut contacts = ContactHistory::found(was_reached);
    if was_reached {
        contacts.tried(ContactAnswer::Answered, at(990).at);
    }
    let admission = admit_guarded(&GuardSituation {
        under_way: None,
        trial: ReleaseTrial::None,
        record: &ActivationRecord::default(),
        target: change(),
        contacts: &contacts,
        policy: GuardPolicy { window_secs: 300, offline },
        now: &at(1000),
    });
    let GuardAdmission::Arms(order) = admission else { panic!("{admission:?}") };
    GuardedActivation::begin(*order, &at(1000))
}

/// The guard after its run, with a try to reach the control plane asked for.
fn trying() -> GuardedActivation {
    let (mut guard, _) = armed(true, OfflineGuard::Return);
    guard.handle(GuardInput::RunEnded(SwitchEnd::Done), at(1010).at);
    let effects = guard.handle(GuardInput::Tick, at(1010).at);
    assert_eq!(effects.last(), Some(&GuardEffect::TryContact { number: 1 }), "{effects:?}");
    guard
}

/// The guard in its return, at second 1400.
fn undoing() -> GuardedActivation {
    let mut guard = trying();
    let effects = guard.handle(GuardInput::Tick, at(1400).at);
    assert_eq!(effects.last(), Some(&GuardEffect::Undo { again: false }), "{effects:?}");
    guard
}

fn kinds(effects: &[GuardEffect]) -> Vec<&'static str> {
    let kind = |effect: &GuardEffect| match effect {
        GuardEffect::Persist(_) => "persist",
        GuardEffect::ArmWatchdog => "arm",
        GuardEffect::Disarm => "disarm",
        GuardEffect::Refuse(_) => "refuse",
        GuardEffect::TakeForEnded => "take for ended",
        GuardEffect::RestartAgent => "restart",
        GuardEffect::TryContact { .. } => "try",
        GuardEffect::Undo { .. } => "undo",
        GuardEffect::Keep => "keep",
        GuardEffect::TellUndone(_) => "tell",
        GuardEffect::TellNotUndone(_) => "tell what is left",
        GuardEffect::Log(_) => "log",
    };
    effects.iter().map(kind).collect()
}

#[test]
fn nothing_is_changed_before_it_is_durable_and_armed() {
    let (guard, effects) = armed(true, OfflineGuard::Return);
    assert_eq!(kinds(&effects), ["arm", "persist"]);
    assert!(guard.is_armed());
    let no_room = || "no room".to_owned();
    for (refusal, expected) in [
        (GuardInput::NotArmed(no_room()), vec!["disarm", "refuse"]),
        // What could not be made durable may be so all the same: that there is no guard is written over it.
        (GuardInput::NotPersisted(no_room()), vec!["persist", "disarm", "refuse"]),
    ] {
        let (mut guard, _) = armed(true, OfflineGuard::Return);
        let effects = guard.handle(refusal, at(1000).at);
        assert_eq!(kinds(&effects), expected);
        assert!(guard.is_over() && !guard.is_armed());
    }
}

#[test]
fn a_contact_keeps_the_change() {
    let mut guard = trying();
    // A try that failed ends no window.
    let effects = guard.handle(GuardInput::ContactTried(Err("no route".to_owned())), at(1020).at);
    assert_eq!((kinds(&effects), guard.is_over()), (vec!["log"], false));
    assert!(kinds(&guard.handle(GuardInput::Tick, at(1100).at)).contains(&"try"));
    let effects = guard.handle(GuardInput::ContactTried(Ok(())), at(1101).at);
    assert_eq!(kinds(&effects), ["persist", "disarm", "keep"]);
    guard.handle(GuardInput::Kept, at(1101).at);
    assert!(guard.is_over());
    // What a contact followed is remembered as such.
    assert_eq!(guard.record().kept, [change()]);
    // An answer that nobody asked for counts for nothing.
    assert!(guard.handle(GuardInput::ContactTried(Ok(())), at(1102).at).is_empty());
}

/// The record of the end cannot be written: it is tried until it can be.
#[test]
fn a_full_disk_delays_the_end() {
    let mut guard = trying();
    guard.handle(GuardInput::ContactTried(Ok(())), at(1101).at);
    guard.handle(GuardInput::Kept, at(1101).at);
    guard.handle(GuardInput::NotPersisted("no room".to_owned()), at(1101).at);
    assert!(!guard.is_over());
    let again = guard.next_deadline().expect("it is tried again");
    assert_eq!(guard.handle(GuardInput::Tick, again), [GuardEffect::Keep]);
    guard.handle(GuardInput::Kept, again);
    assert!(guard.is_over());
}

#[test]
fn without_a_contact_it_is_undone() {
    let mut guard = undoing();
    assert!(guard.is_undoing());
    let effects = guard.handle(GuardInput::Undone(Vec::new()), at(1401).at);
    // Told first: whoever comes after the record is at its end knows of nothing to tell.
    assert_eq!(kinds(&effects), ["tell", "persist", "disarm"]);
    assert!(effects.contains(&GuardEffect::TellUndone(ReturnCause::NotConfirmed)));
    assert!(guard.is_over());
    assert!(guard.record().quarantine.of(change().id).is_some());
    assert!(guard.record().kept.is_empty());
}

#[test]
fn a_unit_that_fails_is_reason_enough() {
    let (mut guard, _) = armed(true, OfflineGuard::Return);
    let end = SwitchEnd::Failed { reason: "ssh failed".to_owned() };
    assert!(kinds(&guard.handle(GuardInput::RunEnded(end), at(1010).at)).contains(&"undo"));
}

/// What could not be undone is tried a few times, and then named: it holds nothing up for ever.
#[test]
fn undoing_is_tried_again_and_ends() {
    let mut guard = undoing();
    let (left, mut now) = (vec!["/etc/a: no room".to_owned()], at(1401).at);
    for number in 1..MAX_UNDO_TRIES {
        let effects = guard.handle(GuardInput::Undone(left.clone()), now);
        assert!(!kinds(&effects).contains(&"tell"), "try {number}: {effects:?}");
        assert_eq!(guard.next_deadline(), Some(now.plus(RETURN_RETRY)));
        now = now.plus(RETURN_RETRY);
        let effects = guard.handle(GuardInput::Tick, now);
        assert_eq!(effects.last(), Some(&GuardEffect::Undo { again: true }), "try {number}");
    }
    let effects = guard.handle(GuardInput::Undone(left.clone()), now);
    assert_eq!(effects.first(), Some(&GuardEffect::TellNotUndone(left)));
    assert!(kinds(&effects).contains(&"tell") && guard.is_over());
    // The one that works ends it as well, and names nothing.
    let mut guard = undoing();
    guard.handle(GuardInput::Undone(vec!["busy".to_owned()]), at(1401).at);
    let effects = guard.handle(GuardInput::Undone(Vec::new()), at(1431).at);
    assert!(!kinds(&effects).contains(&"tell what is left") && guard.is_over());
}

/// A host that was offline before does not wait out a window: an agent that lives keeps the change.
#[test]
fn an_offline_host_waits_for_no_contact_where_its_channel_says_so() {
    let (mut guard, _) = armed(false, OfflineGuard::Confirm);
    guard.handle(GuardInput::RunEnded(SwitchEnd::Done), at(1010).at);
    guard.handle(GuardInput::Tick, at(1010).at);
    guard.handle(GuardInput::ContactTried(Err("no route".to_owned())), at(1011).at);
    assert!(kinds(&guard.handle(GuardInput::Tick, at(1040).at)).contains(&"keep"));
    // Where it does not, it is undone at the end of the window.
    let (mut guard, _) = armed(false, OfflineGuard::Return);
    guard.handle(GuardInput::RunEnded(SwitchEnd::Done), at(1010).at);
    assert!(!kinds(&guard.handle(GuardInput::Tick, at(1040).at)).contains(&"keep"));
    assert!(kinds(&guard.handle(GuardInput::Tick, at(1310).at)).contains(&"undo"));
}

/// Where the agent itself was changed, only one that started since may confirm.
#[test]
fn the_agent_that_changed_itself_confirms_nothing() {
    let (mut guard, _) = armed(true, OfflineGuard::Return);
    guard.touches_agent();
    let effects = guard.handle(GuardInput::RunEnded(SwitchEnd::Done), at(1010).at);
    assert_eq!(kinds(&effects), ["arm", "persist", "restart"]);
    assert!(guard.handle(GuardInput::Tick, at(1010).at).is_empty());
    assert!(guard.handle(GuardInput::ContactTried(Ok(())), at(1020).at).is_empty());
    let found = FoundChanges { target: change().id, seq: 7, agent: true };
    let record = FoundRecord::Record(Box::new(guard.record().clone()));
    let (mut next, _) =
        GuardedActivation::resume(record, Some(found), ActivationProcess::Agent, &at(1030)).unwrap();
    assert!(kinds(&next.handle(GuardInput::Tick, at(1080).at)).contains(&"try"));
    let kept = next.handle(GuardInput::ContactTried(Ok(())), at(1081).at);
    assert!(kinds(&kept).contains(&"keep"));
    // Offline too: the one that made the change lives on, and that says nothing.
    let (mut guard, _) = armed(false, OfflineGuard::Confirm);
    guard.touches_agent();
    guard.handle(GuardInput::RunEnded(SwitchEnd::Done), at(1010).at);
    let effects = guard.handle(GuardInput::Tick, at(1040).at);
    assert!(kinds(&effects).contains(&"undo") && !kinds(&effects).contains(&"keep"), "{effects:?}");
    // A unit that the service manager refuses is reason enough.
    let (mut guard, _) = armed(true, OfflineGuard::Return);
    guard.touches_agent();
    guard.handle(GuardInput::RunEnded(SwitchEnd::Done), at(1010).at);
    assert!(
        kinds(&guard.handle(GuardInput::NotStartedAnew("bad unit".to_owned()), at(1011).at))
            .contains(&"undo")
    );
    // The run was cut off: the next agent was started by what was known before, and makes way for another one.
    let (guard, _) = armed(true, OfflineGuard::Return);
    let record = FoundRecord::Record(Box::new(guard.record().clone()));
    let (mut next, _) =
        GuardedActivation::resume(record, Some(found), ActivationProcess::AgentAfterDeath, &at(1030))
            .unwrap();
    assert_eq!(kinds(&next.handle(GuardInput::RunCutOff, at(1030).at)), ["arm", "persist", "restart"]);
    assert!(next.handle(GuardInput::Tick, at(1090).at).is_empty());
}

/// Whoever comes after a process that ended goes on where it was.
#[test]
fn each_process_goes_on_with_each_stage() {
    let (armed, _) = armed(true, OfflineGuard::Return);
    let found = Some(FoundChanges { target: change().id, seq: 7, agent: false });
    let resume = |record: &ActivationRecord, process, now: BootMoment| {
        GuardedActivation::resume(FoundRecord::Record(Box::new(record.clone())), found, process, &now)
    };
    // The run ended with its process: a contact is to follow what it changed so far.
    let (mut guard, effects) = resume(armed.record(), ActivationProcess::Agent, at(1020)).unwrap();
    assert_eq!(kinds(&effects).last(), Some(&"take for ended"));
    guard.handle(GuardInput::RunCutOff, at(1020).at);
    assert!(kinds(&guard.handle(GuardInput::Tick, at(1020).at)).contains(&"try"));
    // The watchdog leaves it alone until it is due, and undoes it after a boot.
    let (_, effects) = resume(armed.record(), ActivationProcess::Watchdog, at(1020)).unwrap();
    assert_eq!(kinds(&effects), ["arm"]);
    let booted = BootMoment { boot: "boot-2".parse().unwrap(), ..at(1) };
    let (guard, effects) = resume(armed.record(), ActivationProcess::Watchdog, booted.clone()).unwrap();
    assert!(guard.is_undoing() && kinds(&effects).contains(&"undo"));
    // A return goes on.
    let back = undoing();
    for process in [ActivationProcess::Agent, ActivationProcess::AgentAfterDeath, ActivationProcess::Watchdog]
    {
        let (_, effects) = resume(back.record(), process, at(1500)).unwrap();
        assert!(kinds(&effects).contains(&"undo"), "{process:?}");
    }
    // It was confirmed, and its process ended before that was written down as the end.
    let mut confirmed = trying();
    confirmed.handle(GuardInput::ContactTried(Ok(())), at(1101).at);
    let (mut guard, effects) = resume(confirmed.record(), ActivationProcess::Agent, at(1110)).unwrap();
    assert_eq!(kinds(&effects), ["keep"]);
    guard.handle(GuardInput::Kept, at(1110).at);
    assert!(guard.is_over());
    // Nothing is under way.
    assert!(resume(guard.record(), ActivationProcess::Agent, at(1120)).is_none());
    assert!(
        GuardedActivation::resume(FoundRecord::Absent, found, ActivationProcess::Agent, &at(1120)).is_none()
    );
    // A record that is damaged: what is known to have been changed is undone.
    let (guard, effects) =
        GuardedActivation::resume(FoundRecord::Damaged, found, ActivationProcess::Agent, &at(1120)).unwrap();
    assert!(guard.is_undoing() && kinds(&effects).contains(&"undo"));
    assert!(
        GuardedActivation::resume(FoundRecord::Damaged, None, ActivationProcess::Agent, &at(1120)).is_none()
    );
}
