//! SCL-3: what is too large to travel is told by a note in its place, and holds nothing up: a fact that no
//! request can carry, and traits that are more than a control plane keeps.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use agent::daemon::trait_report;
use agent::state::StateDir;
use lang::Value;
use model::log::{FactBody, MAX_FACT_BYTES};
use model::work::{ActionEvent, ActionFact, OutputStream};
use spool::Disk;
use test_support::scripted::now;

fn said(bytes: usize) -> FactBody {
    FactBody::Repaired { message: "x".repeat(bytes) }
}

#[test]
fn a_fact_that_is_too_large_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    StateDir::create(&dir.path().join("state")).unwrap();
    let durable = StateDir::at(&dir.path().join("state"), Disk::new()).open().unwrap();
    let event =
        ActionEvent::Output { stream: OutputStream::Stdout, text: "x".repeat(MAX_FACT_BYTES), dropped: 0 };
    let of_action = FactBody::Action(ActionFact { id: "t1.n1".to_owned(), event });
    let refused = FactBody::Refused { code: "c".to_owned(), message: "x".repeat(MAX_FACT_BYTES) };
    let done = durable.append_all(vec![said(1), refused, of_action, said(2)], now()).unwrap();
    let done: Vec<bool> = done.iter().map(Result::is_ok).collect();
    assert_eq!(done, [true, true, false, true], "of an action nothing else is told");
    let bodies: Vec<_> =
        durable.facts(9, usize::MAX).unwrap().into_iter().map(|fact| (fact.seq, fact.body)).collect();
    let message = "a fact (refused) of more than 524288 bytes was left out".to_owned();
    assert_eq!(bodies, [(1, said(1)), (2, FactBody::Repaired { message }), (3, said(2))]);
}

#[test]
fn traits_that_are_too_large_travel_without_their_largest_group() {
    let group = |text: String| Value::Map([("text".to_owned(), Value::from(text))].into());
    let traits = Value::Map(
        [
            ("external".to_owned(), group("x".repeat(model::exchange::MAX_TRAIT_BYTES))),
            ("os".to_owned(), group("debian".to_owned())),
        ]
        .into(),
    );
    let report = trait_report(&traits);
    assert!(report.is_within_bounds());
    assert_eq!(report.values, serde_json::json!({ "os": { "text": "debian" } }));
}
