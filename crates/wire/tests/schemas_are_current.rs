//! WIR-1: docs/schema has the JSON Schema of every body of the node port, made from the types, and what is sent is valid by it; MUSTER_BLESS=1 writes it anew.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use model::exchange::{Acked, Answer, CheckIn, Offer, Report, Signed};
use model::work::Order;
use proptest::prelude::*;
use schemars::{Schema, schema_for};
use serde_json::Value;
use support::frames;
use sync::Frame;
use sync::frame::{
    Ack, Checkpoint, GoAway, Hello, InventoryItem, Ping, Pong, Refused, ResyncRequest, ResyncResponse,
};
use wire::Problem;
use wire::cloudevents::names::PREFIX;
use wire::cloudevents::{Origin, json};
use wire::enroll::{
    BootstrapReport, EnrollAnswer, EnrollRequest, RenewAnswer, RenewRequest, TrustLinksAnswer,
};

/// The other port's, which the server's own test keeps.
const OPERATOR_PORT: &str = "operator-port";

/// Requests, answers and documents, by the name of their file.
fn bodies() -> Vec<(&'static str, Schema)> {
    vec![
        ("check-in", schema_for!(CheckIn)),
        ("check-in-answer", schema_for!(Answer)),
        ("report", schema_for!(Report)),
        ("report-answer", schema_for!(Acked)),
        ("state", schema_for!(Offer)),
        ("enroll", schema_for!(EnrollRequest)),
        ("enroll-answer", schema_for!(EnrollAnswer)),
        ("bootstrap-report", schema_for!(BootstrapReport)),
        ("renew", schema_for!(RenewRequest)),
        ("renew-answer", schema_for!(RenewAnswer)),
        ("trust-links", schema_for!(TrustLinksAnswer)),
        ("problem", schema_for!(Problem)),
        ("signed", schema_for!(Signed)),
        ("release-header", schema_for!(trust::Header)),
        ("beacon", schema_for!(trust::Beacon)),
        ("token-allowlist", schema_for!(trust::TokenAllowlist)),
        ("revocation-set", schema_for!(trust::RevocationSet)),
        ("seen", schema_for!(trust::seen::Seen)),
        ("action", schema_for!(Order)),
    ]
}

/// The data of events of a link, by their names.
fn data() -> Vec<(&'static str, Schema)> {
    vec![
        ("hello", schema_for!(Hello)),
        ("processed", schema_for!(Ack)),
        ("error", schema_for!(Refused)),
        ("checkpoint", schema_for!(Checkpoint)),
        ("resync-request", schema_for!(ResyncRequest)),
        ("resync-response", schema_for!(ResyncResponse)),
        ("response-synced-resource", schema_for!(InventoryItem)),
        ("request-update", schema_for!(InventoryItem)),
        ("ping", schema_for!(Ping)),
        ("pong", schema_for!(Pong)),
        ("go-away", schema_for!(GoAway)),
        ("check-in", schema_for!(CheckIn)),
        ("check-in-answer", schema_for!(Answer)),
    ]
}

#[test]
fn schemas_are_current() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    let all: BTreeMap<_, _> = bodies().into_iter().chain(data()).collect();
    for (name, schema) in &all {
        let path = dir.join(format!("{name}.json"));
        let text = format!("{}\n", serde_json::to_string_pretty(schema).unwrap());
        if std::env::var_os("MUSTER_BLESS").is_some() {
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == text, "{name}.json is not current; MUSTER_BLESS=1 writes it");
    }
    for file in std::fs::read_dir(&dir).unwrap() {
        let file = file.unwrap().path();
        let name = file.file_stem().unwrap().to_str().unwrap();
        if name == OPERATOR_PORT {
            continue;
        }
        assert!(all.contains_key(name), "{name}.json is of no body any more");
    }
}

/// The event as JSON, and what its data must be valid by.
fn written(frame: &Frame) -> (Value, Option<Schema>) {
    let mut out = Vec::new();
    json::encode(&mut Origin::principal("l"), frame, &mut out).unwrap();
    let event: Value = serde_json::from_slice(&out).unwrap();
    let name = event["type"].as_str().unwrap().strip_prefix(PREFIX).unwrap();
    let schema = data().into_iter().find(|(known, _)| *known == name).map(|(_, schema)| schema);
    (event, schema)
}

fn is_valid(schema: &Schema, value: &Value) -> bool {
    jsonschema::draft202012::is_valid(schema.as_value(), value)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_sent_is_valid(frame in frames()) {
        let (event, schema) = written(&frame);
        if let Some(schema) = schema {
            prop_assert!(is_valid(&schema, &event["data"]), "{}", event);
            prop_assert!(!is_valid(&schema, &Value::from(true)), "{}", event["type"]);
        }
    }
}

/// Every line of the recorded exchanges that is JSON.
#[test]
fn recorded_exchanges_are_valid() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/exchanges");
    let mut seen = std::collections::BTreeSet::new();
    for file in ["stream.json.txt", "resync.json.txt", "interop.json.txt"] {
        let text = std::fs::read_to_string(dir.join(file)).unwrap();
        for line in text.lines().filter(|line| line.starts_with('{')) {
            let event: Value = serde_json::from_str(line).unwrap();
            let name = event["type"].as_str().unwrap().strip_prefix(PREFIX).unwrap();
            let Some((known, schema)) = data().into_iter().find(|(known, _)| *known == name) else {
                continue;
            };
            assert!(is_valid(&schema, &event["data"]), "{line}");
            seen.insert(known);
        }
    }
    assert_eq!(seen.len(), data().len(), "{seen:?}: each is recorded");
}
