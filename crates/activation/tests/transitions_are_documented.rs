//! ROL-7, ROL-12: which stage follows which is the table in the crate's documentation, and nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, unused_imports)]
mod simulated;

use activation::{
    Activation, ActivationInput, ActivationOrder, ActivationProcess, ActivationRecord, ActivationStage,
    ActivationTerms, AfterConfirm, BootMoment, BootTime, ContactRule, FoundHost, GenerationId,
    GenerationLimits, HealthProbeMode, HealthProbeOutcome, HealthProbeResult, ProbeTopology, SwitchEnd,
    WATCHDOG_SLACK,
};
use simulated::{SECOND, boot_id, generation, id, probe};

const START: BootTime = BootTime::BOOT;

fn terms(after_confirm: AfterConfirm, contact: ContactRule) -> ActivationTerms {
    let (switch, window) = (60 * SECOND, 100 * SECOND);
    ActivationTerms { switch, window, after_confirm, contact, ..ActivationTerms::default() }
}

fn activate(number: u8, terms: ActivationTerms) -> ActivationInput {
    let probes = ProbeTopology::declare(vec![probe("web", HealthProbeMode::Enforce)]).unwrap();
    ActivationInput::Activate(Box::new(ActivationOrder { target: generation(number), terms, probes }))
}

fn start(record: ActivationRecord, process: ActivationProcess, boot: u32, at: BootTime) -> Activation {
    let moment = BootMoment { boot: boot_id(boot), at };
    let found = FoundHost { process, runs: Some(id(1)) };
    Activation::start(record, GenerationLimits::default(), found, &moment).0
}

fn result(generation: GenerationId, outcome: HealthProbeOutcome) -> ActivationInput {
    let (probe, boot) = ("web".to_owned(), boot_id(1));
    ActivationInput::Probe(HealthProbeResult { probe, generation, boot, began: START, outcome })
}

fn switched(end: SwitchEnd) -> ActivationInput {
    ActivationInput::Switched { target: id(1), end }
}

fn answered(boot: u32) -> ActivationInput {
    ActivationInput::ConfirmAnswered { generation: id(1), boot: boot_id(boot) }
}

/// An activation of generation 1 on a host that has generation 0 confirmed, brought to a stage.
fn at(stage: &str, terms: ActivationTerms) -> Activation {
    let record = ActivationRecord { confirmed: generation(0), ..ActivationRecord::default() };
    let mut host = start(record, ActivationProcess::Agent, 1, START);
    let reboot = SwitchEnd::NeedsReboot { component: "kernel".to_owned() };
    let passed = result(id(1), HealthProbeOutcome::Passed);
    let inputs = match stage {
        "settled" => vec![],
        "armed" => vec![activate(1, terms)],
        "confirming" => vec![activate(1, terms), switched(SwitchEnd::Done), passed],
        "deferred" => vec![activate(1, terms), switched(reboot)],
        "probation" => vec![activate(1, terms), switched(SwitchEnd::Done), passed, answered(1)],
        "returning" => vec![activate(1, terms), switched(SwitchEnd::Failed { reason: String::new() })],
        _ => panic!("no such stage"),
    };
    for input in inputs {
        host.handle(input, START);
    }
    assert_eq!(stage_of(&host), stage);
    host
}

fn stage_of(host: &Activation) -> &'static str {
    match host.record().under_way {
        ActivationStage::Settled => "settled",
        ActivationStage::Armed(_) => "armed",
        ActivationStage::Confirming(_) => "confirming",
        ActivationStage::Deferred(_) => "deferred",
        ActivationStage::Probation(_) => "probation",
        ActivationStage::Returning(_) => "returning",
    }
}

type Happening = Box<dyn Fn(Activation) -> Activation>;

fn given(input: ActivationInput) -> Happening {
    Box::new(move |mut host| {
        host.handle(input.clone(), START);
        host
    })
}

/// The same record under another process.
fn process(process: ActivationProcess, times: usize, boot: u32, at: BootTime) -> Happening {
    Box::new(move |host| (0..times).fold(host, |host, _| start(host.record().clone(), process, boot, at)))
}

fn happenings(own: ActivationTerms) -> Vec<(&'static str, Happening)> {
    let reboot = SwitchEnd::NeedsReboot { component: "kernel".to_owned() };
    let failed = || ActivationInput::ReturnFailed { reason: String::new() };
    let then = |first: ActivationInput, second: ActivationInput| -> Happening {
        Box::new(move |mut host| {
            host.handle(first.clone(), START);
            host.handle(second.clone(), START);
            host
        })
    };
    let later = BootTime::after_boot(200 * SECOND);
    let ticked: Happening = Box::new(move |mut host| {
        host.handle(ActivationInput::Tick, later);
        host
    });
    let probe_fails: Happening = Box::new(|mut host| {
        let at = BootTime::after_boot(5 * SECOND);
        host.handle(result(id(1), HealthProbeOutcome::TimedOut), at);
        host.handle(ActivationInput::Tick, at.plus(10 * SECOND));
        host
    });
    let no_disk = ActivationInput::NotPersisted { reason: String::new() };
    let not_started = ActivationInput::NotStartedAnew { reason: String::new() };
    let no_watchdog = ActivationInput::NotArmed { reason: String::new() };
    let overdue = BootTime::after_boot(160 * SECOND + WATCHDOG_SLACK);
    let (agent, died) = (ActivationProcess::Agent, ActivationProcess::AgentAfterDeath);
    let watchdog = ActivationProcess::Watchdog;
    vec![
        ("another release comes", given(activate(2, own))),
        ("the same, and the disk is full", then(activate(2, own), no_disk)),
        ("the same, and no watchdog", then(activate(2, own), no_watchdog)),
        ("the content before comes", given(activate(0, own))),
        ("the switch ends", given(switched(SwitchEnd::Done))),
        ("the switch replaces the agent", given(switched(SwitchEnd::NeedsNewAgent))),
        ("the new agent cannot start", given(not_started)),
        ("the switch asks for a reboot", given(switched(reboot))),
        ("the switch fails", given(switched(SwitchEnd::Failed { reason: String::new() }))),
        ("a try is answered", given(answered(1))),
        ("an answer of another boot", given(answered(7))),
        ("a try fails", given(ActivationInput::TryFailed { reason: String::new() })),
        ("a probe goes on failing", probe_fails),
        ("its time is over", ticked),
        ("its rollout is halted", given(ActivationInput::Halted(id(1)))),
        ("its rollout ends", given(ActivationInput::RolloutEnded(id(1)))),
        ("a content is held back no more", given(ActivationInput::LiftQuarantine(1))),
        ("the host is back", given(ActivationInput::Returned)),
        ("the return fails", given(failed())),
        ("the agent restarts", process(agent, 1, 1, START)),
        ("the agent dies", process(died, 1, 1, START)),
        ("the agent dies three times", process(died, 3, 1, START)),
        ("nobody goes on with it", process(ActivationProcess::WatchdogAlone, 1, 1, START)),
        ("the host boots", process(agent, 1, 2, START)),
        (
            "the host boots once too often",
            Box::new(|host| {
                (2..6).fold(host, |host, boot| {
                    start(host.record().clone(), ActivationProcess::Agent, boot, START)
                })
            }),
        ),
        ("the watchdog comes, too late", process(watchdog, 1, 1, overdue)),
    ]
}

#[test]
fn the_table_is_the_behaviour() {
    let policies = [
        ("returns", terms(AfterConfirm::Return, ContactRule::Required)),
        ("stays", terms(AfterConfirm::Stay, ContactRule::Required)),
        ("probes alone", terms(AfterConfirm::Return, ContactRule::ProbesAlone)),
    ];
    let mut rows: Vec<(String, String)> = Vec::new();
    for stage in ["settled", "armed", "confirming", "deferred", "probation", "returning"] {
        for (happening, (name, _)) in happenings(policies[0].1).iter().enumerate() {
            let after = policies.map(|(_, own)| {
                let (_, happens) = happenings(own).swap_remove(happening);
                stage_of(&happens(at(stage, own)))
            });
            let left = format!("{stage:<11} {name:<31}");
            if after.iter().all(|one| *one == after[0]) {
                if after[0] != stage {
                    rows.push((left, after[0].to_owned()));
                }
                continue;
            }
            let of_returns = after[0];
            for ((policy, _), after) in policies.iter().zip(after).filter(|(_, after)| *after != stage) {
                if *policy == "probes alone" && after == of_returns {
                    continue;
                }
                rows.push((left.clone(), format!("{after} ({policy})")));
            }
        }
    }
    let table: String = rows.iter().map(|(left, after)| format!("//! {left} {after}\n")).collect();
    let documented = include_str!("../src/lib.rs");
    assert!(documented.contains(&table), "src/lib.rs needs this table:\n{table}");
}
