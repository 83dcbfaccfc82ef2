//! ROL-7, ROL-12, CNV-11: what a look of the watchdog, or of an agent that starts, means: whether the watch ends, the look
//! waits, or who looks goes on with which record, and as whom.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use activation::{
    AGENT_LOOKS, AGENT_PATIENCE, ActivationProcess, ActivationRecord, ActivationStage, ActivationTerms,
    AgentWatch, BootMoment, BootTime, FoundRecord, Generation, GenerationId, GenerationReturn, LookDecision,
    LookingProcess, Probation, ProbeTopology, ReturnCause, StateHolder, Trial, WatchdogLook, WatchedRecord,
};
use model::Digest;

use LookDecision::{EndWatch, GoOn, Wait};
use LookingProcess::{StartingAgent, Watchdog};
use StateHolder::{Nobody, Process};

const DEADLINE: u64 = 5000;
/// Before the deadline, at it, and when the watchdog's patience with an agent that lives is over.
const EARLY: u64 = 2000;
const LATE: u64 = 6000;
const TRIAL: LookDecision = GoOn(WatchedRecord::Trial, ActivationProcess::Watchdog);
const GUARD: LookDecision = GoOn(WatchedRecord::Guard, ActivationProcess::Watchdog);
const ALONE: LookDecision = GoOn(WatchedRecord::Trial, ActivationProcess::WatchdogAlone);

fn at(boot: &str, secs: u64) -> BootMoment {
    BootMoment { boot: boot.parse().unwrap(), at: BootTime::after_boot(Duration::from_secs(secs)) }
}

fn generation(seq: u64) -> Generation {
    Generation { id: GenerationId(Digest::of(&seq.to_be_bytes())), seq, bytes: 1 }
}

fn trial(boots_left: u8) -> Trial {
    let at = |secs| BootTime::after_boot(Duration::from_secs(secs));
    Trial {
        target: generation(2),
        boot: "now".parse().unwrap(),
        deadline: at(DEADLINE),
        switched: at(1000),
        next_try: 0,
        deaths: 0,
        boots_left,
        terms: ActivationTerms::default(),
        probes: ProbeTopology::default(),
    }
}

fn record(under_way: ActivationStage) -> FoundRecord {
    let record = ActivationRecord { confirmed: generation(1), under_way, ..ActivationRecord::default() };
    FoundRecord::Record(Box::new(record))
}

fn armed() -> FoundRecord {
    record(ActivationStage::Armed(trial(0)))
}

fn returning() -> FoundRecord {
    record(ActivationStage::Returning(GenerationReturn {
        from: generation(2),
        cause: ReturnCause::NotConfirmed,
        boot: "now".parse().unwrap(),
        deadline: BootTime::after_boot(Duration::from_secs(DEADLINE)),
    }))
}

/// The looks at a switch up to a time, as the shell remembers them; the same process was there until `lived`.
fn watched(lived: u64, until: u64) -> AgentWatch {
    let alive = AgentWatch::look(None, Process(41), &at("now", lived));
    let gone = (lived..=until).step_by(15).skip(1);
    gone.fold(alive, |watch, secs| AgentWatch::look(Some(watch), Nobody, &at("now", secs)))
}

/// The decision about two records, where what a look does not ask for is not given.
fn look(
    looking: LookingProcess,
    (trial, guard): (&FoundRecord, &FoundRecord),
    now: &BootMoment,
    holder: StateHolder,
    watch: Option<&AgentWatch>,
) -> LookDecision {
    let look = WatchdogLook { looking, trial, guard, now };
    assert!(look.asks_holder() || !look.watches_agent(), "who watches an agent asks who has the state");
    look.decide(look.asks_holder().then_some(holder), watch.filter(|_| look.watches_agent()))
}

#[test]
fn by_what_is_recorded_and_the_time() {
    let absent = || FoundRecord::Absent;
    let settled = || record(ActivationStage::Settled);
    let confirming = |boots| record(ActivationStage::Confirming(trial(boots)));
    let deferred = |boots| record(ActivationStage::Deferred(trial(boots)));
    let probation = || {
        let (terms, probes) = (ActivationTerms::default(), ProbeTopology::default());
        record(ActivationStage::Probation(Probation { previous: generation(1), deaths: 0, terms, probes }))
    };
    // What is found of releases and of guarded runs; then what a look means in this boot, before the deadline and after
    // it, and in the boot after.
    let table = [
        ("nothing was ever tried", absent(), absent(), [EndWatch, EndWatch, EndWatch]),
        ("all is settled", settled(), settled(), [EndWatch, EndWatch, EndWatch]),
        ("it is confirmed", probation(), absent(), [EndWatch, EndWatch, EndWatch]),
        ("the record is damaged", FoundRecord::Damaged, absent(), [TRIAL, TRIAL, TRIAL]),
        ("the other record is damaged", settled(), FoundRecord::Damaged, [GUARD, GUARD, GUARD]),
        ("the host is switched", armed(), absent(), [Wait, TRIAL, TRIAL]),
        ("it is to be confirmed", confirming(0), absent(), [Wait, TRIAL, TRIAL]),
        ("it may boot once more", confirming(1), absent(), [Wait, TRIAL, TRIAL]),
        ("it waits for its boot", deferred(1), absent(), [Wait, Wait, TRIAL]),
        ("the host goes back", returning(), absent(), [Wait, TRIAL, TRIAL]),
        ("a guarded run waits for its contact", settled(), confirming(0), [Wait, GUARD, GUARD]),
        ("it does, beside a boot to come", deferred(1), confirming(0), [Wait, GUARD, TRIAL]),
        ("both are due, and a trial undoes more", armed(), confirming(0), [Wait, TRIAL, TRIAL]),
    ];
    for (what, trial, guard, expected) in table {
        let moments = [at("now", EARLY), at("now", LATE), at("next", 5)];
        for (now, expected) in moments.iter().zip(expected) {
            for looking in [Watchdog, StartingAgent] {
                let found = look(looking, (&trial, &guard), now, Process(41), None);
                assert_eq!(found, expected, "{what}, at {now:?}, for {looking:?}");
            }
        }
    }
}

#[test]
fn by_who_has_the_state() {
    let now = at("now", EARLY);
    let settled = record(ActivationStage::Settled);
    let lived = EARLY - AGENT_PATIENCE.as_secs() - 30;
    let (gone, alive) = (watched(lived, EARLY), watched(EARLY - 15, EARLY));
    assert!(AGENT_PATIENCE.as_secs() / 15 >= u64::from(AGENT_LOOKS), "so often is looked in that time");
    let (switched, back) = (armed(), returning());
    // What is found; who looks, who has the state, and what the looks before saw.
    let table = [
        ("an agent switches", &switched, Watchdog, Process(41), Some(&alive), Wait),
        ("one is restarted", &switched, Watchdog, Nobody, Some(&alive), Wait),
        ("none was there for minutes", &switched, Watchdog, Nobody, Some(&gone), ALONE),
        ("nobody can remember that", &switched, Watchdog, Nobody, None, Wait),
        ("it starts now", &switched, StartingAgent, Nobody, Some(&gone), Wait),
        ("somebody returns", &back, Watchdog, Process(41), None, Wait),
        ("one who did not say its number", &back, Watchdog, StateHolder::Unnamed, None, Wait),
        ("whoever returned is gone", &back, Watchdog, Nobody, None, TRIAL),
        ("so an agent finds it", &back, StartingAgent, Nobody, None, TRIAL),
        ("nothing is under way", &settled, Watchdog, Nobody, Some(&gone), EndWatch),
    ];
    for (what, trial, looking, holder, watch, expected) in table {
        let found = look(looking, (trial, &FoundRecord::Absent), &now, holder, watch);
        assert_eq!(found, expected, "{what}");
    }
    let guard = look(Watchdog, (&settled, &back), &now, Nobody, None);
    assert_eq!(guard, GUARD, "it is gone on with as well");
}

#[test]
fn the_state_is_asked_for_only_where_that_matters() {
    let settled = record(ActivationStage::Settled);
    let confirming = record(ActivationStage::Confirming(trial(0)));
    // Whether the holder is asked for, and whether the looks are remembered.
    let table = [
        (Watchdog, &settled, EARLY, (false, false)),
        (Watchdog, &confirming, EARLY, (false, false)),
        (Watchdog, &armed(), EARLY, (true, true)),
        (StartingAgent, &armed(), EARLY, (false, false)),
        // It goes back in any case.
        (Watchdog, &armed(), LATE, (false, false)),
        (Watchdog, &returning(), EARLY, (true, false)),
        (StartingAgent, &returning(), EARLY, (true, false)),
    ];
    for (looking, found, secs, expected) in table {
        let now = at("now", secs);
        for (trial, guard) in [(found, &settled), (&settled, found)] {
            let look = WatchdogLook { looking, trial, guard, now: &now };
            assert_eq!(
                (look.asks_holder(), look.watches_agent()),
                expected,
                "{looking:?}, {found:?}, {secs}"
            );
        }
    }
}
