//! ROL-3, ROL-5, ROL-6: docs/exchanges/rollout.txt shows a node's part in a rollout as it travels in the form of the source
//! document: dispatch, each event, the signed header, heartbeat; MUSTER_BLESS=1 writes it anew.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use data_encoding::{BASE64, HEXLOWER};
use model::exchange::Signature;
use model::rollout::{DeclaredProbe, ProbeMode, ProbeOutcome, RolloutEventBody, RolloutId, RolloutTask};
use model::{Channel, Digest, Timestamp};
use trust::rollout_terms::{GateTerms, WaveMembers, WaveTerms};
use trust::{Header, RolloutTerms, SigningKey, signed};
use wire::rollout::{DispatchAnswer, DispatchKind, Heartbeat, HeartbeatAnswer, PostedEvent};
use wire::{Code, Problem, body, route};

const AT: Timestamp = Timestamp::from_secs(1_800_000_000);
const COMMIT: &str = "4f1c2a90d3b7e6581c0a9f24d7b83e61c5a0f9d2";

fn text<T: serde::Serialize>(value: &T) -> String {
    String::from_utf8(body::encode(value).unwrap()).unwrap()
}

fn channel() -> Channel {
    "stable".parse().unwrap()
}

fn id() -> RolloutId {
    RolloutId::of_release(&channel(), Some(COMMIT), &Digest::of(b"header"), |_| false)
}

fn refusal(code: Code, next_number: Option<u64>) -> String {
    let problem = Problem { request_id: Some("5e0f2a11-7".to_owned()), next_number, ..Problem::from(code) };
    let retry = problem.retry_after_secs.map(|secs| format!("Retry-After: {secs}\n")).unwrap_or_default();
    format!("{}\n{retry}\n{}\n", code.status(), text(&problem))
}

/// What a node is asked for, with the set that it is to be on.
fn dispatch(task: RolloutTask, set: &[u8]) -> String {
    let asked = DispatchAnswer {
        kind: DispatchKind::Dispatch,
        rollout_id: id(),
        channel: channel(),
        release: 42,
        target_closure: Digest::of(set),
        wave: "canary".to_owned(),
        task,
        soak_secs: 300,
        issued_at: AT,
    };
    format!("GET {}?wait=60\n\n200\n\n{}\n", route::DISPATCH, text(&asked))
}

/// An event as it is posted, which is read as it was meant, and that it was taken.
fn event(number: u64, event: RolloutEventBody) -> String {
    let signature = match &event {
        RolloutEventBody::ProbeResult { .. } => {
            let signature = Signature { key: "f0e1d2c3".to_owned(), sig: "c2lnbmF0dXJl".to_owned() };
            format!(r#","signature":{}"#, text(&signature))
        }
        _ => String::new(),
    };
    let posted = format!(
        r#"{{"rolloutId":"{}","seq":{number},"at":{},"event":{}{signature}}}"#,
        id(),
        text(&AT),
        text(&event),
    );
    let read = PostedEvent::read(posted.as_bytes()).unwrap();
    assert_eq!((read.fact.event_seq, read.at, read.fact.rollout), (number, AT, id()));
    assert_eq!(read.fact.event, event);
    format!("POST {}\n\n{posted}\n\n# It is durable.\n204\n\n", route::EVENTS)
}

/// Events of a node that went well.
fn confirmed() -> String {
    let boot = || "b-1".to_owned();
    let probes = vec![DeclaredProbe { name: "http".to_owned(), mode: ProbeMode::Enforce }];
    let passes =
        RolloutEventBody::ProbeResult { probe: "http".to_owned(), outcome: ProbeOutcome::Pass, boot: boot() };
    [
        event(1, RolloutEventBody::DispatchAck),
        event(2, RolloutEventBody::ActivationStarted),
        event(3, RolloutEventBody::ActivationComplete { release: 42, boot: boot() }),
        event(4, RolloutEventBody::ProbeTopologyDeclared { probes }),
        event(5, passes),
        event(6, RolloutEventBody::Converged { release: 42, boot: boot(), soaked_secs: 300 }),
    ]
    .concat()
}

/// Events of nodes that fared otherwise.
fn otherwise() -> String {
    let fails = RolloutEventBody::ProbeResult {
        probe: "http".to_owned(),
        outcome: ProbeOutcome::Fail,
        boot: "b-1".to_owned(),
    };
    let said = |message: &str| message.to_owned();
    [
        "# Instead of the first event: a node that does not do what it is asked, and why.\n",
        &event(1, RolloutEventBody::DispatchReject { code: "not-before".to_owned() }),
        "# Instead of the third: the switch failed, or the release takes effect at the next boot.\n",
        &event(3, RolloutEventBody::ActivationFailed { message: said("no space left on device") }),
        &event(3, RolloutEventBody::ActivationDeferred { component: "kernel".to_owned() }),
        "# Instead of the fifth: a probe fails. Where it goes on failing the node gives the release up, and goes back.\n",
        &event(5, fails),
        &event(6, RolloutEventBody::ProbeFailureFirst { probe: "http".to_owned() }),
        &event(7, RolloutEventBody::Failed { message: said("probe http fails since 60 s") }),
        &event(8, RolloutEventBody::RollbackComplete { release: 41 }),
    ]
    .concat()
}

/// The signed header of the rollout, in both forms, and how it is refused.
fn manifest() -> String {
    let gate = GateTerms { soak_secs: 300, success: 100 };
    let wave = WaveTerms { name: "canary".to_owned(), members: WaveMembers::Rest, not_before: None, gate };
    let header = Header {
        fleet: "acme-0a1b2c3d".parse().unwrap(),
        channel: channel(),
        seq: 42,
        label: Some(COMMIT.to_owned()),
        created: AT,
        selection: Digest::of(b"selection"),
        freshness_secs: 86_400,
        fallbacks: Vec::new(),
        requires: vec!["rollout".to_owned()],
        rollout: Some(Arc::new(RolloutTerms { waves: vec![wave], ..RolloutTerms::default() })),
    };
    let document = signed::sign(&header, &[&SigningKey::from_seed(&[7; 32])]).unwrap();
    let signature = BASE64.decode(document.signatures[0].sig.as_bytes()).unwrap();
    let get = format!("GET {}\n", route::ROLLOUT.replace("{id}", id().as_str()));
    [
        "# What was signed, byte for byte.\n",
        &get,
        "Accept: application/json\n\n200\nContent-Type: application/json\n\n",
        &document.payload,
        "\n\n# The bytes of its signatures, one after the other; here there is one, and it is shown in hex.\n",
        &get,
        "Accept: application/octet-stream\n\n200\nContent-Type: application/octet-stream\n\n",
        &HEXLOWER.encode(&signature),
        "\n\n# A rollout that is not known, or is kept no more.\n",
        &refusal(Code::NotFound, None),
        "\n# One of another channel than the node's.\n",
        &refusal(Code::NotEntitled, None),
        "\n# What is signed is not loaded yet; dispatch, events and heartbeats are answered so too.\n",
        &refusal(Code::NotReady, None),
    ]
    .concat()
}

fn recorded() -> String {
    let heartbeat = Heartbeat {
        current_closure: Some(Digest::of(b"set")),
        last_event_seq_by_rollout: BTreeMap::from([(id().to_string(), 5)]),
        incarnation: None,
    };
    let heard = HeartbeatAnswer {
        received_at: AT,
        next_checkin_secs: 60,
        replay_from: BTreeMap::from([(id().to_string(), 5)]),
    };
    let until = AT.plus(std::time::Duration::from_secs(600));
    [
        "# Each request is signed, as in renew.txt; headers are left out here but for those that count.\n",
        "# The node waits until a rollout asks it for something. Nothing was asked before the wait was over.\n",
        &format!("GET {}?wait=60\n\n204\n\n", route::DISPATCH),
        "# It is asked whether it will begin.\n",
        &dispatch(RolloutTask::Acknowledge { until }, b"set"),
        "\n# It says what happens, one event a request. It begins once the first was taken.\n",
        &confirmed(),
        &otherwise(),
        "# One that comes before others that are missing: they are sent again from the number on.\n",
        &refusal(Code::EventGap, Some(5)),
        "\n# One that does not go with how the node stands is not sent again.\n",
        &refusal(Code::EventRefused, None),
        "\n# The rollout halted, and goes back: the node is to be on the set that it had.\n",
        &dispatch(RolloutTask::GoBack, b"set of before"),
        "\n",
        &manifest(),
        "\n# A heartbeat moves nothing, and says which events are missing.\n",
        &format!("POST {}\n\n{}\n\n200\n\n{}\n", route::HEARTBEAT, text(&heartbeat), text(&heard)),
    ]
    .concat()
}

/// Every event that there is stands in the record.
#[test]
fn no_event_is_left_out() {
    let recorded = recorded();
    for kind in [
        "DispatchAck",
        "DispatchReject",
        "ActivationStarted",
        "ActivationComplete",
        "ActivationFailed",
        "ActivationDeferred",
        "ProbeTopologyDeclared",
        "ProbeResult",
        "ProbeFailureFirst",
        "Failed",
        "RollbackComplete",
        "Converged",
    ] {
        assert!(recorded.contains(&format!(r#""event":{{"kind":"{kind}""#)), "{kind}");
    }
}

#[test]
fn what_is_recorded_is_what_is_sent() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/exchanges/rollout.txt");
    let recorded = recorded();
    if std::env::var_os("MUSTER_BLESS").is_some() {
        std::fs::write(&path, &recorded).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(kept, recorded, "MUSTER_BLESS=1 writes docs/exchanges/rollout.txt anew");
}
