//! ROL-7: a generation that replaces the agent's program or its unit is confirmed only by an agent that started as it says.
//! The process before it, which runs what is not on the disk any more, would confirm an agent that never starts again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, unused_imports)]
mod simulated;

use activation::{
    Activation, ActivationEffect, ActivationInput, ActivationOrder, ActivationProcess, ActivationRecord,
    ActivationStage, ActivationTerms, BootMoment, BootTime, FoundHost, GenerationLimits, ProbeTopology,
    ReturnCause, SwitchEnd,
};
use simulated::{SECOND, boot_id, generation, id};

fn at(seconds: u32) -> BootTime {
    BootTime::after_boot(seconds * SECOND)
}

fn start(
    record: ActivationRecord,
    process: ActivationProcess,
    seconds: u32,
) -> (Activation, Vec<ActivationEffect>) {
    let found = FoundHost { process, runs: Some(id(1)) };
    let moment = BootMoment { boot: boot_id(1), at: at(seconds) };
    Activation::start(record, GenerationLimits::default(), found, &moment)
}

/// Generation 1, which has another agent than generation 0, is switched to.
fn switched() -> (Activation, Vec<ActivationEffect>) {
    let record = ActivationRecord { confirmed: generation(0), ..ActivationRecord::default() };
    let (mut host, _) = start(record, ActivationProcess::Agent, 0);
    let order = ActivationOrder {
        target: generation(1),
        terms: ActivationTerms { window: 100 * SECOND, ..ActivationTerms::default() },
        probes: ProbeTopology::default(),
    };
    host.handle(ActivationInput::Activate(Box::new(order)), at(1));
    let effects =
        host.handle(ActivationInput::Switched { target: id(1), end: SwitchEnd::NeedsNewAgent }, at(2));
    (host, effects)
}

fn tries(effects: &[ActivationEffect]) -> bool {
    effects.iter().any(|effect| matches!(effect, ActivationEffect::TryConfirm { .. }))
}

#[test]
fn the_process_before_it_does_not() {
    let (mut host, effects) = switched();
    assert_eq!(effects.last(), Some(&ActivationEffect::StartAgentAnew), "once it is durable: {effects:?}");
    assert!(effects.iter().any(|effect| matches!(effect, ActivationEffect::Persist(_))));
    for second in 3..102 {
        assert!(!tries(&host.handle(ActivationInput::Tick, at(second))), "at {second} s");
    }
    // It was not replaced, whatever held that up.
    host.handle(ActivationInput::Tick, at(102));
    let ActivationStage::Returning(back) = &host.record().under_way else { panic!("it goes back") };
    assert_eq!(back.cause, ReturnCause::NotConfirmed);
}

#[test]
fn the_one_that_it_starts_does() {
    let (host, _) = switched();
    let (mut host, _) = start(host.record().clone(), ActivationProcess::Agent, 8);
    assert!(tries(&host.handle(ActivationInput::Tick, at(9))));
    host.handle(ActivationInput::ConfirmAnswered { generation: id(1), boot: boot_id(1) }, at(10));
    assert_eq!(host.record().confirmed.id, id(1));
}

#[test]
fn one_that_cannot_start_is_a_switch_that_failed() {
    let (mut host, _) = switched();
    let reason = "its unit is broken".to_owned();
    host.handle(ActivationInput::NotStartedAnew { reason: reason.clone() }, at(3));
    let ActivationStage::Returning(back) = &host.record().under_way else { panic!("it goes back") };
    assert_eq!(back.cause, ReturnCause::SwitchFailed { reason });
}

#[test]
fn a_switch_ends_as_what_it_asks_for() {
    let failed = |why: &str| SwitchEnd::Failed { reason: why.to_owned() };
    let deferred = SwitchEnd::NeedsReboot { component: "kernel".to_owned() };
    // The switch, whether a boot is required, whether one was before, the agent; how it ends, whether an agent is taken up.
    let ends = [
        (Ok(()), false, false, Ok(false), SwitchEnd::Done, true),
        (Ok(()), false, false, Ok(true), SwitchEnd::NeedsNewAgent, true),
        (Ok(()), false, false, Err("its unit"), failed("its unit"), true),
        // The agent of the release starts with the boot.
        (Ok(()), true, false, Ok(true), deferred, false),
        // It was asked for before the switch.
        (Ok(()), true, true, Ok(false), SwitchEnd::Done, true),
        (Err("a tree"), true, false, Ok(true), failed("a tree"), false),
        (Err("a tree"), false, false, Ok(true), failed("a tree"), false),
    ];
    for (switch, is_required, was_required, agent, end, takes_up) in ends {
        let mut is_taken_up = false;
        let take_up = || {
            is_taken_up = true;
            agent.map_err(str::to_owned)
        };
        let boot = is_required.then(|| "kernel".to_owned());
        let ended = SwitchEnd::after(switch.map_err(str::to_owned), boot, was_required, take_up);
        assert_eq!((ended, is_taken_up), (end, takes_up));
    }
}
