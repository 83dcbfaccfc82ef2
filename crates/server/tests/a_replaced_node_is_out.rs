//! IDN-10: a reinstalled host returns under its name only by a token that names its predecessor: the enrollment retires
//! that one and admits the new key in one transaction.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use server::api::NodeView;
use test_support::fleet::release::{Plan, make, params};
use test_support::fleet::{Fleet, new_key, quiet, refuses};
use trust::token;
use wire::Code;

#[tokio::test]
async fn a_token_that_names_the_predecessor_takes_its_place() {
    let mut fleet = Fleet::start().await;
    let old = fleet.node("web-1").await;
    let plan = Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &[params("a")]);
    fleet.operator().await.publish(&make(&plan, &fleet.release_key())).await.unwrap();
    old.survives().await;
    let key = new_key();
    let replacing = |replaces| {
        let mut claims = fleet.claims("web-1");
        claims.replaces = replaces;
        token::mint(&claims, &fleet.root_key()).unwrap()
    };
    let stranger = fleet.node("db-1").await;
    for replaces in [None, Some(stranger.id.clone()), Some(key.public().node_id())] {
        let problem = refuses(fleet.enroll(&replacing(replaces), "web-1", &key).await, Code::HostnameTaken);
        assert!(problem.help.unwrap().contains("muster node replace"));
    }
    old.survives().await;
    let mut connection = old.dial().await;

    let token = replacing(Some(old.id.clone()));
    let answer = fleet.enroll(&token, "web-1", &key).await.unwrap();
    // A lost reply is no loss, and another key none (ENR-7).
    fleet.enroll(&token, "web-1", &key).await.unwrap();
    refuses(fleet.enroll(&token, "web-1", &new_key()).await, Code::TokenUsed);
    let mut new = fleet.member("web-1", key, &answer);
    assert!(new.check_in(&quiet()).await.unwrap().offer.is_some(), "it gets what the name gets");
    refuses(fleet.enroll(&token, "web-1", &new.key).await, Code::TokenUsed);

    // The predecessor is out, over a connection that is open too.
    refuses(old.check_in(&quiet()).await, Code::UnknownNode);
    let asked = old.signed(http::Method::POST, wire::route::CHECKIN, test_support::fleet::body_of(&quiet()));
    test_support::fleet::refused(&test_support::fleet::call(&mut connection, asked).await, Code::UnknownNode);
    let shown: NodeView = fleet.operator().await.node("web-1").await;
    assert_eq!(shown.id, new.id);
    assert_eq!(fleet.operator().await.status().await.nodes, 2);

    fleet.stop().await;
    fleet.start_again().await;
    new.url = fleet.url();
    new.survives().await;
    let old = test_support::fleet::Member { url: fleet.url(), ..old };
    refuses(old.check_in(&quiet()).await, Code::UnknownNode);
    let stranger = test_support::fleet::Member { url: fleet.url(), ..stranger };
    stranger.survives().await;
}

/// A predecessor that is gone by then takes nothing from anybody.
#[tokio::test]
async fn a_predecessor_that_was_removed_is_no_obstacle() {
    let fleet = Fleet::start().await;
    let old = fleet.node("web-1").await;
    let mut claims = fleet.claims("web-1");
    claims.replaces = Some(old.id.clone());
    let token = token::mint(&claims, &fleet.root_key()).unwrap();
    let _: NodeView = fleet.operator().await.delete("/v1/nodes/web-1").await.unwrap();
    let key = new_key();
    let answer = fleet.enroll(&token, "web-1", &key).await.unwrap();
    fleet.member("web-1", key, &answer).survives().await;
}
