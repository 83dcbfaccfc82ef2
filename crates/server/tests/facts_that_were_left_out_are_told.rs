//! WIR-6, CNV-5: a fact that an agent left out, as it was refused as too large, stays under its number what it said instead;
//! the operator sees that it was left out, of which sort it was, and why.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::Timestamp;
use model::exchange::CheckIn;
use model::log::{Fact, FactBody};
use store::FactRecord;
use test_support::fleet::{Fleet, quiet};

fn saying(body: FactBody) -> CheckIn {
    CheckIn { facts: vec![Fact { seq: 1, at: Timestamp::from_secs(1), body }], ..quiet() }
}

#[tokio::test]
async fn the_replacement_stays_and_says_what_was_left_out() {
    let mut fleet = Fleet::start().await;
    let mut node = fleet.node("web-1").await;
    // As node::CheckInOmissions has it.
    let told = "a fact (refused) was left out: it is larger than the control plane takes";
    let whole = FactBody::Refused { code: "x".to_owned(), message: "the whole of it".to_owned() };
    let acked = node.check_in(&saying(FactBody::Repaired { message: told.to_owned() })).await.unwrap().acked;
    assert_eq!(acked.unwrap().seq, 1, "those after it are not held up");
    let is_told = async |fleet: &Fleet| {
        let facts: Vec<FactRecord> = fleet.operator().await.get("/v1/nodes/web-1/facts").await.unwrap();
        let bodies: Vec<FactBody> = facts.into_iter().map(|record| record.fact.body).collect();
        assert!(matches!(&bodies[..], [FactBody::Repaired { message }] if message == told), "{bodies:?}");
    };
    is_told(&fleet).await;
    // An agent that did not hear the answer sends the fact whole after its next start.
    node.check_in(&saying(whole.clone())).await.unwrap();
    is_told(&fleet).await;
    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
    node.check_in(&saying(whole)).await.unwrap();
    is_told(&fleet).await;
}
