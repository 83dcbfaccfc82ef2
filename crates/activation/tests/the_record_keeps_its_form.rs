//! LIF-4, ROL-7: a watchdog of the release before reads the record that the agent under trial wrote, so that its form
//! is kept.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use activation::{
    ActivationRecord, ActivationStage, ActivationTerms, AgentDeath, BootTime, Generation, GenerationId,
    GenerationReturn, HealthProbe, HealthProbeKind, HealthProbeMode, MetricBound, Probation, ProbeFailure,
    ProbeTopology, ReturnCause, Trial,
};
use model::Digest;
use serde_json::{Value, json};

const ONE: &str = "4bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a";
const TWO: &str = "dbc1b4c900ffe48d575b5da5c638040125f65db0fe3e24494b76ea986457d986";

fn generation(number: u8) -> Generation {
    Generation { id: GenerationId(Digest::of(&[number])), seq: 40 + u64::from(number), bytes: 1000 }
}

fn probes() -> ProbeTopology {
    let kinds = [
        HealthProbeKind::Http { url: "http://localhost/health".to_owned(), expect: 200 },
        HealthProbeKind::Tcp { address: "localhost:22".to_owned() },
        HealthProbeKind::Command { argv: vec!["/bin/true".to_owned()] },
        HealthProbeKind::Unit { unit: "nginx.service".to_owned() },
        HealthProbeKind::Metric {
            url: "http://localhost/metrics".to_owned(),
            metric: "up".to_owned(),
            bound: MetricBound::AtLeast,
            threshold_milli: 1000,
        },
    ];
    let probe = |(number, kind)| HealthProbe {
        name: format!("p{number}"),
        kind,
        mode: HealthProbeMode::Enforce,
        grace: Duration::from_secs(30),
        sustained: Duration::from_secs(60),
        every: Duration::from_secs(10),
        timeout: Duration::from_secs(5),
    };
    ProbeTopology::declare(kinds.into_iter().enumerate().map(probe).collect()).unwrap()
}

fn probes_json() -> Value {
    let asked = [
        json!({"kind": "http", "url": "http://localhost/health", "expect": 200}),
        json!({"kind": "tcp", "address": "localhost:22"}),
        json!({"kind": "command", "argv": ["/bin/true"]}),
        json!({"kind": "unit", "unit": "nginx.service"}),
        json!({"kind": "metric", "url": "http://localhost/metrics", "metric": "up", "bound": "at-least",
               "thresholdMilli": 1000}),
    ];
    let probes = asked.into_iter().enumerate().map(|(number, mut probe)| {
        let all = json!({"name": format!("p{number}"), "mode": "enforce", "graceMillis": 30_000,
                         "sustainedMillis": 60_000, "everyMillis": 10_000, "timeoutMillis": 5_000});
        probe.as_object_mut().unwrap().extend(all.as_object().unwrap().clone());
        probe
    });
    Value::Array(probes.collect())
}

fn terms_json() -> Value {
    json!({"switchMillis": 3_600_000, "windowMillis": 600_000, "tries": 5, "boots": 3, "contact": "required",
           "afterConfirm": "stay"})
}

fn trial() -> Trial {
    Trial {
        target: generation(2),
        boot: "0c7d".parse().unwrap(),
        deadline: BootTime::after_boot(Duration::from_secs(734)),
        switched: BootTime::after_boot(Duration::from_secs(134)),
        next_try: 2,
        deaths: 1,
        boots_left: 0,
        terms: ActivationTerms::default(),
        probes: probes(),
    }
}

fn trial_json(stage: &str) -> Value {
    json!({"stage": stage, "target": {"id": TWO, "seq": 42, "bytes": 1000}, "boot": "0c7d",
           "deadlineMillis": 734_000, "switchedMillis": 134_000, "nextTry": 2, "deaths": 1, "bootsLeft": 0,
           "terms": terms_json(), "probes": probes_json()})
}

fn back(cause: ReturnCause) -> ActivationStage {
    let deadline = BootTime::after_boot(Duration::from_secs(900));
    ActivationStage::Returning(GenerationReturn {
        from: generation(2),
        cause,
        boot: "0c7d".parse().unwrap(),
        deadline,
    })
}

fn back_json(mut cause: Value) -> Value {
    let rest = json!({"stage": "returning", "from": {"id": TWO, "seq": 42, "bytes": 1000}, "boot": "0c7d",
                      "deadlineMillis": 900_000});
    cause.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    cause
}

#[test]
fn every_stage_is_written_and_read_as_before() {
    let reason = || "no room".to_owned();
    let probation =
        Probation { previous: generation(2), deaths: 2, terms: ActivationTerms::default(), probes: probes() };
    let probation_json = json!({"stage": "probation", "previous": {"id": TWO, "seq": 42, "bytes": 1000}, "deaths": 2,
                                "terms": terms_json(), "probes": probes_json()});
    let stages = [
        (ActivationStage::Settled, json!({"stage": "settled"})),
        (ActivationStage::Armed(trial()), trial_json("armed")),
        (ActivationStage::Confirming(trial()), trial_json("confirming")),
        (ActivationStage::Deferred(trial()), trial_json("deferred")),
        (ActivationStage::Probation(probation), probation_json),
        (back(ReturnCause::NotConfirmed), back_json(json!({"cause": "not-confirmed"}))),
        (back(ReturnCause::SwitchTooLong), back_json(json!({"cause": "switch-too-long"}))),
        (
            back(ReturnCause::SwitchFailed { reason: reason() }),
            back_json(json!({"cause": "switch-failed", "reason": "no room"})),
        ),
        (
            // As an earlier agent wrote it.
            back(ReturnCause::ProbeFailed(ProbeFailure { probe: "web".to_owned(), reason: None })),
            back_json(json!({"cause": "probe-failed", "probe": "web"})),
        ),
        (
            back(ReturnCause::ProbeFailed(ProbeFailure { probe: "web".to_owned(), reason: Some(reason()) })),
            back_json(json!({"cause": "probe-failed", "probe": "web", "reason": "no room"})),
        ),
        (
            back(ReturnCause::AgentDied { how: AgentDeath::Counted }),
            back_json(json!({"cause": "agent-died"})),
        ),
        (
            back(ReturnCause::AgentDied { how: AgentDeath::Gone }),
            back_json(json!({"cause": "agent-died", "how": "gone"})),
        ),
        (back(ReturnCause::Rebooted), back_json(json!({"cause": "rebooted"}))),
        (back(ReturnCause::FoundElsewhere), back_json(json!({"cause": "found-elsewhere"}))),
        (back(ReturnCause::Halted), back_json(json!({"cause": "halted"}))),
        (back(ReturnCause::Superseded), back_json(json!({"cause": "superseded"}))),
        (
            back(ReturnCause::Unguarded { reason: reason() }),
            back_json(json!({"cause": "unguarded", "reason": "no room"})),
        ),
    ];
    for (under_way, expected) in stages {
        let record = ActivationRecord {
            confirmed: generation(1),
            under_way,
            kept: vec![generation(1), generation(2)],
            ..ActivationRecord::default()
        };
        let form = json!({"confirmed": {"id": ONE, "seq": 41, "bytes": 1000}, "underWay": expected,
                          "kept": [{"id": ONE, "seq": 41, "bytes": 1000}, {"id": TWO, "seq": 42, "bytes": 1000}],
                          "quarantine": []});
        assert_eq!(serde_json::to_value(&record).unwrap(), form);
        // As it is read from a disk, with what a later version adds.
        let mut later = form;
        later["addedLater"] = json!(true);
        later["underWay"]["addedLater"] = json!({"more": 1});
        assert_eq!(serde_json::from_str::<ActivationRecord>(&later.to_string()).unwrap(), record);
    }
}

#[test]
fn what_was_returned_from_is_written_and_read_as_before() {
    let form = json!({"confirmed": {"id": ONE, "seq": 41, "bytes": 1000}, "underWay": {"stage": "settled"},
                      "quarantine": [{"id": TWO, "seq": 42, "cause": "probe-failed", "probe": "web", "returns": 2}]});
    let record: ActivationRecord = serde_json::from_str(&form.to_string()).unwrap();
    assert!(record.quarantine.of(generation(2).id).is_some());
    assert_eq!(serde_json::to_value(&record).unwrap(), form);
    // What its probe came to, when it was, and that one more try was granted, which an earlier agent neither writes nor
    // reads.
    let mut form = form;
    form["quarantine"][0]["reason"] = json!("it exits with 3");
    form["quarantine"][0]["returned"] = json!({"boot": "0c7d", "at": 734_000});
    form["quarantine"][0]["grantedAfter"] = json!(1);
    let record: ActivationRecord = serde_json::from_str(&form.to_string()).unwrap();
    assert!(record.quarantine.of(generation(2).id).is_some(), "it returned again since");
    assert_eq!(serde_json::to_value(&record).unwrap(), form);
    form["quarantine"][0]["grantedAfter"] = json!(2);
    let record: ActivationRecord = serde_json::from_str(&form.to_string()).unwrap();
    assert!(record.quarantine.of(generation(2).id).is_none());
}

#[test]
fn a_return_that_ended_is_written_and_read_as_before() {
    let form = json!({"confirmed": {"id": ONE, "seq": 41, "bytes": 1000}, "underWay": {"stage": "settled"}, "quarantine": [],
                      "returned": {"from": {"id": TWO, "seq": 42, "bytes": 1000}, "cause": "halted",
                                   "at": {"boot": "0c7d", "at": 900_000}}});
    let record: ActivationRecord = serde_json::from_str(&form.to_string()).unwrap();
    assert_eq!(record.returned.as_ref().unwrap().cause, ReturnCause::Halted);
    assert_eq!(serde_json::to_value(&record).unwrap(), form);
}

#[test]
fn a_record_within_its_bounds_is_small() {
    let longest = |number| HealthProbe {
        name: format!("p{number}"),
        kind: HealthProbeKind::Command { argv: vec!["x".repeat(activation::MAX_PROBE_TEXT)] },
        ..probes().probes()[0].clone()
    };
    let probes = ProbeTopology::declare((0..activation::MAX_PROBES).map(longest).collect()).unwrap();
    let record = ActivationRecord {
        under_way: ActivationStage::Armed(Trial { probes, ..trial() }),
        ..ActivationRecord::default()
    };
    assert!(serde_json::to_vec(&record).unwrap().len() < 128 * 1024);
}
