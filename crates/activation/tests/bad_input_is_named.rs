//! ROL-7, ROL-12: what comes too late, from another boot, from before the switch, in too large a number or without room
//! changes nothing, and is named.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, unused_imports)]
mod simulated;

use std::time::Duration;

use activation::{
    Activation, ActivationEffect, ActivationFact, ActivationInput, ActivationOrder, ActivationProcess,
    ActivationRecord, ActivationRefusal, ActivationStage, ActivationTerms, AgentDeath, BootId, BootMoment,
    BootTime, CheckTermsError, ContactRule, DeclareProbesError, FoundHost, GenerationLimits, HealthProbe,
    HealthProbeMode, HealthProbeOutcome, HealthProbeResult, MAX_PROBES, MAX_QUARANTINED, PERSIST_RETRY,
    ProbeTopology, ReturnCause, SwitchEnd,
};
use simulated::{SECOND, boot_id, generation, id, probe};

const START: BootTime = BootTime::BOOT;

fn host(limits: GenerationLimits) -> Activation {
    let record = ActivationRecord { confirmed: generation(0), ..ActivationRecord::default() };
    let found = FoundHost { process: ActivationProcess::Agent, runs: Some(id(1)) };
    Activation::start(record, limits, found, &BootMoment { boot: boot_id(1), at: START }).0
}

fn activate(number: u8, terms: ActivationTerms) -> ActivationInput {
    let probes = ProbeTopology::declare(vec![probe("web", HealthProbeMode::Enforce)]).unwrap();
    ActivationInput::Activate(Box::new(ActivationOrder { target: generation(number), terms, probes }))
}

fn refusal(effects: Vec<ActivationEffect>) -> ActivationRefusal {
    let switches = effects.iter().any(|effect| matches!(effect, ActivationEffect::Switch(_)));
    assert!(!switches, "it is refused and switched to");
    let told = effects.into_iter().find_map(|effect| match effect {
        ActivationEffect::Report(ActivationFact::Refused { refusal, .. }) => Some(refusal),
        _ => None,
    });
    told.expect("nothing is refused")
}

fn confirming() -> Activation {
    let mut host = host(GenerationLimits::default());
    host.handle(activate(1, ActivationTerms::default()), START);
    host.handle(ActivationInput::Switched { target: id(1), end: SwitchEnd::Done }, at(100));
    host
}

fn at_millis(millis: u64) -> BootTime {
    BootTime::after_boot(Duration::from_millis(millis))
}

fn at(secs: u64) -> BootTime {
    BootTime::after_boot(Duration::from_secs(secs))
}

fn passed(generation: u8, boot: u32, began: u64) -> HealthProbeResult {
    let (probe, outcome) = ("web".to_owned(), HealthProbeOutcome::Passed);
    HealthProbeResult { probe, generation: id(generation), boot: boot_id(boot), began: at(began), outcome }
}

fn tries(host: &mut Activation, now: BootTime) -> bool {
    let effects = host.handle(ActivationInput::Tick, now);
    effects.iter().any(|effect| matches!(effect, ActivationEffect::TryConfirm { .. }))
}

#[test]
fn a_probe_that_passed_before_the_switch_in_another_boot_or_elsewhere_has_not_passed() {
    for result in [passed(1, 1, 99), passed(1, 2, 101), passed(2, 1, 101)] {
        let mut host = confirming();
        assert!(host.handle(ActivationInput::Probe(result), at(110)).is_empty());
        assert!(!tries(&mut host, at(110)));
    }
    let mut host = confirming();
    let undeclared = HealthProbeResult { probe: "db".to_owned(), ..passed(1, 1, 101) };
    assert!(host.handle(ActivationInput::Probe(undeclared), at(110)).is_empty());
    assert!(!tries(&mut host, at(110)));
    host.handle(ActivationInput::Probe(passed(1, 1, 101)), at(110));
    assert!(tries(&mut host, at(110)));
}

#[test]
fn a_failed_try_neither_shortens_nor_ends_the_window() {
    let mut host = confirming();
    host.handle(ActivationInput::Probe(passed(1, 1, 101)), at(101));
    let deadline = |host: &Activation| match &host.record().under_way {
        ActivationStage::Confirming(trial) => trial.deadline,
        other => panic!("{other:?}"),
    };
    let before = deadline(&host);
    let mut tried = Vec::new();
    for secs in 101..700 {
        if tries(&mut host, at(secs)) {
            tried.push(secs - 100);
            host.handle(ActivationInput::TryFailed { reason: "unreachable".to_owned() }, at(secs));
        }
        assert_eq!(deadline(&host), before);
    }
    assert_eq!(tried, [1, 120, 240, 360, 480]);
    let effects = host.handle(ActivationInput::Tick, at(700));
    let returns = effects
        .iter()
        .any(|effect| matches!(effect, ActivationEffect::Return { to, .. } if *to == generation(0)));
    assert!(returns, "the window ended: {effects:?}");
}

#[test]
fn a_confirm_of_the_wrong_boot_or_of_another_generation_is_refused() {
    for (generation, boot) in [(id(1), boot_id(2)), (id(2), boot_id(1))] {
        let mut host = confirming();
        host.handle(ActivationInput::Probe(passed(1, 1, 101)), at(101));
        let told = host.handle(ActivationInput::ConfirmAnswered { generation, boot: boot.clone() }, at(102));
        assert_eq!(told, [ActivationEffect::Report(ActivationFact::ConfirmRefused { generation, boot })]);
        assert_eq!(host.record().confirmed, simulated::generation(0));
    }
}

#[test]
fn nothing_is_switched_where_the_way_back_cannot_be_made_durable() {
    let full = ActivationInput::NotPersisted { reason: "the disk is full".to_owned() };
    let unarmed = ActivationInput::NotArmed { reason: "no bus".to_owned() };
    for failure in [full, unarmed] {
        let mut host = host(GenerationLimits::default());
        let before = host.record().clone();
        let effects = host.handle(activate(1, ActivationTerms::default()), START);
        let position = |is_it: fn(&ActivationEffect) -> bool| effects.iter().position(is_it).unwrap();
        let persisted = position(|effect| matches!(effect, ActivationEffect::Persist(_)));
        let armed = position(|effect| matches!(effect, ActivationEffect::ArmWatchdog(_)));
        let switched = position(|effect| matches!(effect, ActivationEffect::Switch(_)));
        assert!(persisted.max(armed) < switched);
        assert!(matches!(refusal(host.handle(failure, START)), ActivationRefusal::NotArmed { .. }));
        assert_eq!(*host.record(), before);
    }
}

/// A record that could not be synced may be durable all the same: what counts is written in its place.
#[test]
fn what_was_given_up_is_overwritten() {
    let unsynced = || ActivationInput::NotPersisted { reason: "it cannot be synced".to_owned() };
    let persisted = |effects: &[ActivationEffect]| {
        effects.iter().find_map(|effect| match effect {
            ActivationEffect::Persist(record) => Some(ActivationRecord::clone(record)),
            _ => None,
        })
    };
    // A refused activation would be gone on with at the next start.
    let mut refusing = host(GenerationLimits::default());
    let before = refusing.record().clone();
    refusing.handle(activate(1, ActivationTerms::default()), START);
    let refused = refusing.handle(unsynced(), START);
    assert_eq!(persisted(&refused), Some(before.clone()), "before anything is told");
    assert!(refusing.is_at_rest(), "unless that fails too");
    assert!(matches!(refusal(refusing.handle(unsynced(), START)), ActivationRefusal::NotArmed { .. }));
    assert!(!refusing.is_at_rest());
    let (due, _) = refusing.next_deadline().unwrap();
    assert_eq!(due, START.plus(PERSIST_RETRY));
    assert!(refusing.handle(ActivationInput::Tick, at_millis(4999)).is_empty());
    assert_eq!(persisted(&refusing.handle(ActivationInput::Tick, due)), Some(before));
    assert!(refusing.is_at_rest());
    // A generation that was not confirmed would be.
    let mut tried = confirming();
    tried.handle(ActivationInput::Probe(passed(1, 1, 101)), at(101));
    let trial = tried.record().clone();
    let answer = ActivationInput::ConfirmAnswered { generation: id(1), boot: boot_id(1) };
    assert!(persisted(&tried.handle(answer, at(102))).is_some());
    tried.handle(unsynced(), at(102));
    assert!(!tries(&mut tried, at(103)), "nothing is tried that could not be written down");
    assert_eq!(persisted(&tried.handle(ActivationInput::Tick, at(107))), Some(trial));
    assert!(tries(&mut tried, at(107)));
}

/// Where neither the confirmation nor the return from it could be made durable, the mark says where the host is.
#[test]
fn a_host_that_is_on_the_generation_before_is_not_taken_for_confirmed() {
    let mut host = confirming();
    host.handle(ActivationInput::Probe(passed(1, 1, 101)), at(101));
    host.handle(ActivationInput::ConfirmAnswered { generation: id(1), boot: boot_id(1) }, at(102));
    let record = host.record().clone();
    assert!(matches!(record.under_way, ActivationStage::Probation(_)));
    let goes_back = |runs, process| {
        let (found, moment) = (FoundHost { process, runs }, BootMoment { boot: boot_id(1), at: at(110) });
        let (_, effects) = Activation::start(record.clone(), GenerationLimits::default(), found, &moment);
        effects.iter().any(|effect| matches!(effect, ActivationEffect::Return { to, .. } if to.id == id(0)))
    };
    assert!(goes_back(Some(id(0)), ActivationProcess::Agent));
    assert!(goes_back(Some(id(0)), ActivationProcess::AgentAfterDeath));
    assert!(!goes_back(Some(id(1)), ActivationProcess::Agent));
    assert!(!goes_back(None, ActivationProcess::Agent), "a run of the same content may be under way");
    assert!(!goes_back(Some(id(0)), ActivationProcess::Watchdog), "that is the agent's");
}

#[test]
fn terms_out_of_bounds_are_refused() {
    let good = ActivationTerms::default();
    let bad = [
        (ActivationTerms { window: SECOND, ..good }, CheckTermsError::Window(SECOND)),
        (ActivationTerms { tries: 0, ..good }, CheckTermsError::Tries(0)),
        (ActivationTerms { tries: 6, ..good }, CheckTermsError::Tries(6)),
        (ActivationTerms { boots: 4, ..good }, CheckTermsError::Boots(4)),
        (ActivationTerms { switch: Duration::ZERO, ..good }, CheckTermsError::Switch(Duration::ZERO)),
    ];
    for (terms, error) in bad {
        assert_eq!(terms.check(), Err(error));
        let refused = refusal(host(GenerationLimits::default()).handle(activate(1, terms), START));
        assert_eq!(refused, ActivationRefusal::Terms { reason: error.to_string() });
    }
}

#[test]
fn probes_out_of_bounds_are_refused_by_name() {
    let web = || probe("web", HealthProbeMode::Enforce);
    let declare = ProbeTopology::declare;
    let named = |name: &str| HealthProbe { name: name.to_owned(), ..web() };
    assert!(matches!(declare(vec![web(); MAX_PROBES + 1]), Err(DeclareProbesError::TooMany(_))));
    assert!(matches!(declare(vec![web(), web()]), Err(DeclareProbesError::Twice(_))));
    for name in ["", "a b", &"x".repeat(65)] {
        assert!(matches!(declare(vec![named(name)]), Err(DeclareProbesError::Name(_))), "{name}");
    }
    let never = HealthProbe { timeout: Duration::ZERO, ..web() };
    let longer = HealthProbe { timeout: 6 * SECOND, ..web() };
    let busy = HealthProbe { every: Duration::ZERO, ..web() };
    for probe in [never, longer, busy] {
        assert!(matches!(declare(vec![probe]), Err(DeclareProbesError::Times(_))));
    }
    let kind = activation::HealthProbeKind::Command { argv: Vec::new() };
    assert!(matches!(declare(vec![HealthProbe { kind, ..web() }]), Err(DeclareProbesError::Question(_))));
}

#[test]
fn generations_that_do_not_fit_beside_each_other_are_refused() {
    let limits = GenerationLimits { count: 4, bytes: 150 };
    let refused = refusal(host(limits).handle(activate(1, ActivationTerms::default()), START));
    assert_eq!(refused, ActivationRefusal::TooLarge { bytes: 200 });
}

/// What was unpacked counts once it is there: the oldest generation that nothing needs goes for it.
#[test]
fn a_generation_that_was_measured_leaves_less_room_for_others() {
    let mut host = host(GenerationLimits { count: 4, bytes: 500 });
    let mut confirm = |number: u8, from: u64| {
        host.handle(activate(number, ActivationTerms::default()), at(from));
        host.handle(ActivationInput::Switched { target: id(number), end: SwitchEnd::Done }, at(from + 1));
        host.handle(ActivationInput::Probe(passed(number, 1, from + 2)), at(from + 2));
        let answered = ActivationInput::ConfirmAnswered { generation: id(number), boot: boot_id(1) };
        host.handle(answered, at(from + 3));
        host.handle(ActivationInput::RolloutEnded(id(number)), at(from + 4));
        assert_eq!(host.record().confirmed.id, id(number));
    };
    (1..=3).for_each(|number| confirm(number, u64::from(number) * 100));
    let kept = |host: &Activation| host.record().kept.iter().map(|kept| kept.bytes).collect::<Vec<_>>();
    assert_eq!(kept(&host), [100; 3]);
    let forgotten = |effects: &[ActivationEffect]| {
        let ids = effects.iter().find_map(|effect| match effect {
            ActivationEffect::Forget(ids) => Some(ids.clone()),
            _ => None,
        });
        ids.unwrap_or_default()
    };
    let measured = |number: u8, bytes| ActivationInput::Measured { generation: id(number), bytes };
    assert_eq!(host.handle(measured(3, 100), at(500)), [], "nothing new");
    assert_eq!(forgotten(&host.handle(measured(3, 300), at(500))), []);
    assert_eq!((kept(&host), host.record().confirmed.bytes), (vec![100, 100, 300], 100));
    assert_eq!(forgotten(&host.handle(measured(3, 350), at(501))), [id(1)]);
    assert_eq!(kept(&host), [100, 350]);
    // What is confirmed stays, whatever it takes; of a generation that is not kept nothing is known.
    assert_eq!(forgotten(&host.handle(measured(3, 9000), at(502))), [id(2)]);
    assert_eq!(host.handle(measured(1, 7), at(503)), []);
    assert_eq!(kept(&host), [9000]);
    // And it keeps no later release out.
    host.handle(activate(4, ActivationTerms::default()), at(504));
    let under_way = &host.record().under_way;
    assert!(matches!(under_way, ActivationStage::Armed(trial) if trial.target.id == id(4)), "{under_way:?}");
}

#[test]
fn a_generation_in_which_the_agent_died_three_times_stays_in_quarantine() {
    let record = confirming().record().clone();
    let found = FoundHost { process: ActivationProcess::AgentAfterDeath, runs: Some(id(1)) };
    let moment = BootMoment { boot: boot_id(1), at: at(101) };
    let die =
        |record: ActivationRecord| Activation::start(record, GenerationLimits::default(), found, &moment).0;
    let twice = die(die(record).record().clone());
    assert!(matches!(twice.record().under_way, ActivationStage::Confirming(_)));
    let mut host = die(twice.record().clone());
    host.handle(ActivationInput::Returned, at(120));
    assert_eq!(host.record().confirmed, generation(0));
    let refused = refusal(host.handle(activate(1, ActivationTerms::default()), at(130)));
    assert_eq!(
        refused,
        ActivationRefusal::Quarantined { cause: ReturnCause::AgentDied { how: AgentDeath::Counted } }
    );
    let long_after = at(30 * 86_400);
    assert_eq!(refusal(host.handle(activate(1, ActivationTerms::default()), long_after)), refused);
}

#[test]
fn a_host_that_went_down_tries_once_more_and_the_quarantine_is_bounded() {
    let mut host = host(GenerationLimits::default());
    let mut boot = 1;
    let mut power_cut = |host: &mut Activation, number: u8| {
        let effects = host.handle(activate(number, ActivationTerms::default()), START);
        if effects.iter().any(|effect| matches!(effect, ActivationEffect::Switch(_))) {
            boot += 1;
            let found = FoundHost { process: ActivationProcess::Agent, runs: Some(id(1)) };
            let moment = BootMoment { boot: boot_id(boot), at: START };
            *host = Activation::start(host.record().clone(), GenerationLimits::default(), found, &moment).0;
            host.handle(ActivationInput::Returned, START);
            return true;
        }
        false
    };
    assert!([true, true, false].iter().all(|tried| power_cut(&mut host, 1) == *tried));
    for number in 2..=200 {
        power_cut(&mut host, number);
        power_cut(&mut host, number);
    }
    assert_eq!(host.record().quarantine.all().len(), MAX_QUARANTINED);
    assert_eq!(host.record().confirmed, generation(0));
}

#[test]
fn a_boot_id_is_a_short_name() {
    for text in ["", "a/b", &"x".repeat(65)] {
        assert!(text.parse::<BootId>().is_err());
    }
    assert!("3b6f5a4e-7d1f-4f56-9e0e-0d8f6f2b1c11".parse::<BootId>().is_ok());
}

#[test]
fn probes_alone_confirm_a_node_that_may_be_offline() {
    let mut host = host(GenerationLimits::default());
    let terms = ActivationTerms { contact: ContactRule::ProbesAlone, ..ActivationTerms::default() };
    host.handle(activate(1, terms), START);
    host.handle(ActivationInput::Switched { target: id(1), end: SwitchEnd::Done }, at(100));
    host.handle(ActivationInput::Probe(passed(1, 1, 101)), at(101));
    host.handle(ActivationInput::Tick, at(699));
    assert_eq!(host.record().confirmed, generation(0));
    host.handle(ActivationInput::Tick, at(700));
    assert_eq!(host.record().confirmed, generation(1));
}
