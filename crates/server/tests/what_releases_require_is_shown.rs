//! ROL-4: a node that lacks what a release requires is shown with the reason and the way out, and
//! a release that the control plane itself cannot serve is refused at the door.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::exchange::CheckIn;
use model::log::{Fact, FactBody};
use model::status::Overall;
use test_support::fleet::release::{Plan, make, params};
use test_support::fleet::{Fleet, now, quiet, refuses};
use trust::{Header, Refusal, signed};
use wire::Code;

#[tokio::test]
async fn the_reason_reaches_status_with_a_next_step() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let (key, id) = (fleet.release_key(), fleet.enroll_info().fleet);
    let mut operator = fleet.operator().await;
    let first = make(&Plan::new(&id, 1).node("web-1", &[params("a")]), &key);
    operator.publish(&first).await.unwrap();
    operator.publish(&make(&Plan::new(&id, 2).node("web-1", &[params("b")]), &key)).await.unwrap();
    let refusal = Refusal::Requires { seq: 2, missing: "waves".to_owned() };
    let body = FactBody::Refused { code: refusal.code().to_owned(), message: refusal.to_string() };
    let facts = vec![Fact { seq: 1, at: now(), body }];
    node.check_in(&CheckIn { held: Some(first.held("web-1")), facts, ..quiet() }).await.unwrap();
    let status = operator.status().await;
    let cause = &status.causes[0];
    assert_eq!((cause.state, &*cause.cause), (Overall::Changing, &*refusal.to_string()));
    assert!(cause.cause.contains("requires waves"), "{cause:?}");
    assert_eq!(cause.next, "install a newer muster-agent on web-1");
    assert_eq!(operator.node("web-1").await.cause.as_deref(), Some(&*refusal.to_string()));
}

#[tokio::test]
async fn what_the_control_plane_lacks_is_refused_when_it_is_published() {
    let fleet = Fleet::start().await;
    let key = fleet.release_key();
    let mut operator = fleet.operator().await;
    let plan = Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &[params("a")]);
    let mut made = make(&plan, &key);
    operator.upload(&made).await.unwrap();
    let good = made.commit.clone();
    for document in made.commit.headers.values_mut() {
        let header: Header = serde_json::from_str(&document.payload).unwrap();
        *document = signed::sign(&Header { requires: vec!["waves".to_owned()], ..header }, &[&key]).unwrap();
    }
    let problem = refuses(operator.commit(&made.commit).await, Code::FeatureMissing);
    let detail = problem.detail.unwrap_or_default();
    assert!(detail.contains("release 1 requires waves"), "{detail}");
    assert_eq!(operator.commit(&good).await.unwrap(), 1);
}
