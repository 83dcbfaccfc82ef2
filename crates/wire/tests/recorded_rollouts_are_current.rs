//! ROL-3, ROL-5, ROL-6: docs/exchanges/rollout.txt shows a node's part in a rollout as it travels in the form of the source
//! document; MUSTER_BLESS=1 writes it anew.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::Path;

use model::exchange::Signature;
use model::rollout::{RolloutEventBody, RolloutId, RolloutTask};
use model::{Digest, Timestamp};
use wire::rollout::{DispatchAnswer, DispatchKind, Heartbeat, HeartbeatAnswer, PostedEvent};
use wire::{Code, Problem, body, route};

const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

fn text<T: serde::Serialize>(value: &T) -> String {
    String::from_utf8(body::encode(value).unwrap()).unwrap()
}

fn id() -> RolloutId {
    "stable@4f1c2a90d3b7e6581c0a9f24d7b83e61c5a0f9d2".parse().unwrap()
}

/// An event, in each spelling that is read; what is recorded is one that is.
fn event(number: u64, event: &str, rest: &str) -> String {
    let posted = format!(
        r#"{{"rolloutId":"{}","seq":{number},"at":"2027-01-15T08:00:00Z","event":{event}{rest}}}"#,
        id()
    );
    let read = PostedEvent::read(posted.as_bytes()).unwrap();
    assert_eq!((read.fact.event_seq, read.at, read.fact.rollout), (number, AT, id()));
    assert_ne!(read.fact.event, RolloutEventBody::Unknown);
    posted
}

fn refusal(code: Code, next_number: Option<u64>) -> String {
    text(&Problem { request_id: Some("5e0f2a11-7".to_owned()), next_number, ..Problem::from(code) })
}

fn recorded() -> String {
    let asked = DispatchAnswer {
        kind: DispatchKind::Dispatch,
        rollout_id: id(),
        channel: "stable".parse().unwrap(),
        release: 42,
        target_closure: Digest::of(b"set"),
        wave: "canary".to_owned(),
        task: RolloutTask::Acknowledge { until: AT.plus(std::time::Duration::from_secs(600)) },
        soak_secs: 300,
        issued_at: AT,
    };
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
    let signature = Signature { key: "f0e1d2c3".to_owned(), sig: "c2lnbmF0dXJl".to_owned() };
    let evidence = format!(r#","signature":{}"#, text(&signature));
    let post = format!("POST {}\n\n", route::EVENTS);
    let events = [
        event(1, r#"{"kind":"DispatchAck"}"#, ""),
        event(2, r#"{"kind":"ActivationStarted"}"#, ""),
        event(3, r#"{"kind":"ActivationComplete","release":42,"boot":"b-1"}"#, ""),
        event(4, r#"{"kind":"ProbeTopologyDeclared","probes":[{"name":"http","mode":"enforce"}]}"#, ""),
        event(5, r#"{"kind":"ProbeResult","probe":"http","outcome":"pass","boot":"b-1"}"#, &evidence),
        event(6, r#"{"kind":"Converged","release":42,"boot":"b-1","soakedSecs":300}"#, ""),
    ];
    let taken: String =
        events.iter().map(|event| format!("{post}{event}\n\n# It is durable.\n204\n\n")).collect();
    [
        "# Each request is signed, as in renew.txt; headers are left out here.\n",
        "# The node waits until a rollout asks it for something.\n",
        &format!("GET {}?wait=60\n\n200\n\n{}\n\n", route::DISPATCH, text(&asked)),
        "# It says what happens, one event a request. It begins once the first was taken.\n",
        &taken,
        "# One that comes before others that are missing: they are sent again from the number on.\n",
        &format!("409\n\n{}\n\n", refusal(Code::EventGap, Some(5))),
        "# One that does not go with how the node stands is not sent again.\n",
        &format!("422\n\n{}\n\n", refusal(Code::EventRefused, None)),
        "# A heartbeat moves nothing, and says which events are missing.\n",
        &format!("POST {}\n\n{}\n\n200\n\n{}\n", route::HEARTBEAT, text(&heartbeat), text(&heard)),
    ]
    .concat()
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
