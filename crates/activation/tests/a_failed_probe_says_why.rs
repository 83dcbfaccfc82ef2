//! ROL-7: a host that goes back for a probe, or stays in spite of it, says what that probe came to the last time, and not
//! what another one did. SEC-3: what a probe's command printed is for the journal alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, unused_imports)]
mod simulated;

use std::time::Duration;

use activation::{
    Activation, ActivationEffect, ActivationFact, ActivationInput, ActivationOrder, ActivationProcess,
    ActivationRecord, ActivationStage, ActivationTerms, AfterConfirm, BootMoment, BootTime, FoundHost,
    GenerationLimits, HealthProbeMode, HealthProbeOutcome, HealthProbeResult, MAX_REASON, ProbeFailure,
    ProbeTopology, ReturnCause, SwitchEnd,
};
use simulated::{boot_id, generation, id, probe};

const NOT_200: &str = "it answers 503 Service Unavailable, not 200";

fn at(secs: u64) -> BootTime {
    BootTime::after_boot(Duration::from_secs(secs))
}

/// Switched to at 100 s, with two probes that decide and one that does not. Grace 5 s, sustained 10 s.
fn confirming(terms: ActivationTerms) -> Activation {
    let record = ActivationRecord { confirmed: generation(0), ..ActivationRecord::default() };
    let found = FoundHost { process: ActivationProcess::Agent, runs: Some(id(0)) };
    let start = BootMoment { boot: boot_id(1), at: at(0) };
    let mut host = Activation::start(record, GenerationLimits::default(), found, &start).0;
    let probes = [
        probe("db", HealthProbeMode::Enforce),
        probe("eye", HealthProbeMode::Observe),
        probe("web", HealthProbeMode::Enforce),
    ];
    let probes = ProbeTopology::declare(probes.into()).unwrap();
    let order = ActivationOrder { target: generation(1), terms, probes };
    host.handle(ActivationInput::Activate(Box::new(order)), at(0));
    host.handle(ActivationInput::Switched { target: id(1), end: SwitchEnd::Done }, at(100));
    host
}

fn failed(reason: &str) -> HealthProbeOutcome {
    HealthProbeOutcome::Failed { reason: reason.to_owned() }
}

fn asked(
    host: &mut Activation,
    probe: &str,
    outcome: HealthProbeOutcome,
    secs: u64,
) -> Vec<ActivationEffect> {
    let (probe, generation, boot) = (probe.to_owned(), id(1), boot_id(1));
    host.handle(
        ActivationInput::Probe(HealthProbeResult { probe, generation, boot, began: at(secs), outcome }),
        at(secs),
    )
}

/// Why a host goes back that does.
fn cause(host: &Activation) -> &ReturnCause {
    match &host.record().under_way {
        ActivationStage::Returning(back) => &back.cause,
        other => panic!("{other:?}"),
    }
}

fn failure(probe: &str, reason: &str) -> ProbeFailure {
    ProbeFailure { probe: probe.to_owned(), reason: Some(reason.to_owned()) }
}

#[test]
fn a_return_has_the_last_outcome_of_the_probe_that_went_on_failing() {
    let mut host = confirming(ActivationTerms::default());
    for secs in [101, 110] {
        asked(&mut host, "eye", failed("it is blind"), secs);
        asked(&mut host, "web", failed("connection refused"), secs);
    }
    asked(&mut host, "db", HealthProbeOutcome::Passed, 111);
    // It comes before the other one by its name, and has not failed for long enough.
    asked(&mut host, "db", failed("it is down"), 119);
    asked(&mut host, "web", failed(NOT_200), 119);
    host.handle(ActivationInput::Tick, at(120));
    assert_eq!(*cause(&host), ReturnCause::ProbeFailed(failure("web", NOT_200)));
    assert_eq!(cause(&host).to_string(), format!("the probe web failed: {NOT_200}"));
    // It is durable, and what follows has it too.
    let kept = serde_json::to_vec(host.record()).unwrap();
    assert_eq!(serde_json::from_slice::<ActivationRecord>(&kept).unwrap(), *host.record());
    let told = host.handle(ActivationInput::Returned, at(130));
    let (from, to, cause) = (id(1), id(0), ReturnCause::ProbeFailed(failure("web", NOT_200)));
    let fact = ActivationFact::Returned { from, to, cause };
    assert!(told.contains(&ActivationEffect::Report(fact)), "{told:?}");
    assert!(host.record().quarantine.of(id(1)).unwrap().cause.to_string().contains(NOT_200));
}

#[test]
fn a_failure_after_confirm_has_it_too() {
    let stays = ActivationTerms { after_confirm: AfterConfirm::Stay, ..ActivationTerms::default() };
    let returns = ActivationTerms { after_confirm: AfterConfirm::Return, ..ActivationTerms::default() };
    for terms in [stays, returns] {
        let mut host = confirming(terms);
        for probe in ["db", "web"] {
            asked(&mut host, probe, HealthProbeOutcome::Passed, 101);
        }
        host.handle(ActivationInput::ConfirmAnswered { generation: id(1), boot: boot_id(1) }, at(102));
        asked(&mut host, "web", failed("connection refused"), 200);
        asked(&mut host, "web", failed(NOT_200), 205);
        let told = host.handle(ActivationInput::Tick, at(210));
        match terms.after_confirm {
            AfterConfirm::Stay => {
                let (generation, failure) = (id(1), failure("web", NOT_200));
                let fact = ActivationFact::FailedAfterConfirm { generation, failure };
                assert_eq!(told, [ActivationEffect::Report(fact)]);
            }
            AfterConfirm::Return => {
                assert_eq!(*cause(&host), ReturnCause::ProbeFailed(failure("web", NOT_200)));
            }
        }
    }
}

/// Reasons are of the shell, and of what it asked.
#[test]
fn a_reason_is_one_line_and_bounded() {
    let mut host = confirming(ActivationTerms::default());
    let long = format!("\u{1b}[2J\n{}", "é".repeat(MAX_REASON));
    for secs in [110, 120] {
        asked(&mut host, "web", failed(&long), secs);
    }
    host.handle(ActivationInput::Tick, at(120));
    let ReturnCause::ProbeFailed(ProbeFailure { reason: Some(reason), .. }) = cause(&host) else {
        panic!("{:?}", cause(&host))
    };
    assert!((MAX_REASON - 1..=MAX_REASON).contains(&reason.len()), "{}", reason.len());
    assert!(!reason.contains(char::is_control), "{reason:?}");
}

/// SEC-3: a probe cannot be declared sensitive, so that what its command prints may be a secret.
#[test]
fn what_a_command_printed_is_in_no_record_and_in_no_cause() {
    const SECRET: &str = "planted-5d02";
    let mut host = confirming(ActivationTerms::default());
    let exited = HealthProbeOutcome::Exited { code: 3, printed: format!("no such user: {SECRET}") };
    let told = asked(&mut host, "web", exited, 110);
    assert!(format!("{told:?}").contains(SECRET), "the journal has it");
    host.handle(ActivationInput::Tick, at(120));
    assert_eq!(cause(&host).to_string(), "the probe web failed: it exits with 3");
    host.handle(ActivationInput::Returned, at(130));
    let record = serde_json::to_string(host.record()).unwrap();
    assert!(record.contains("it exits with 3") && !record.contains(SECRET), "{record}");
}
