//! CFG-8: a key that the fleet repo declares of a host is the only one that enrolls under its name, and needs nobody's
//! approval: the release key signed the declaration.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::{KeyConfirmation, Kind, ObjectKey};
use serde_json::{Value, json};
use test_support::fleet::release::{Objects, Plan, make};
use test_support::fleet::{Fleet, new_key, refuses};
use trust::SigningKey;
use trust::group_token::{self, GroupAdmission, GroupClaims};
use trust::token::{self, Claims};
use wire::Code;

fn declares(key: Option<&SigningKey>) -> Objects {
    let node = match key {
        Some(key) => json!({ "channel": "stable", "key": key.public().fingerprint() }),
        None => json!({ "channel": "stable" }),
    };
    let params = json!({ "node": node });
    vec![(ObjectKey::of(Kind::PARAMS, "node"), serde_json::to_vec(&params).unwrap())]
}

async fn publish(fleet: &Fleet, seq: u64, nodes: &[(&str, Option<&SigningKey>)]) {
    let plan = Plan::new(&fleet.enroll_info().fleet, seq);
    let plan = nodes.iter().fold(plan, |plan, (name, key)| plan.node(name, &declares(*key)));
    let plan = Plan { expected_head: (seq > 1).then(|| seq - 1), ..plan };
    fleet.operator().await.publish(&make(&plan, &fleet.release_key())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declared_key_needs_no_approval_and_no_other_enrolls() {
    let mut fleet = Fleet::start().await;
    let (declared, other) = (new_key(), new_key());
    publish(&fleet, 1, &[("db-1", Some(&declared)), ("web-1", None)]).await;
    let open = GroupClaims { admission: GroupAdmission::ByToken, ..fleet.group_claims("**", 9) };
    let named =
        Claims { expected_pubkey_fingerprint: Some(other.public().fingerprint()), ..fleet.claims("db-1") };
    let root = fleet.root_key();
    for token in
        [fleet.token("db-1"), token::mint(&named, &root).unwrap(), group_token::mint(&open, &root).unwrap()]
    {
        let problem = refuses(fleet.enroll(&token, "db-1", &other).await, Code::KeyNotDeclared);
        assert!(problem.detail.unwrap().contains("db-1"));
    }
    refuses(fleet.ask("db-1", &other).await, Code::KeyNotDeclared);
    // A denial by an operator is the control plane's word, and the declaration the release key's.
    refuses(fleet.ask("web-1", &declared).await, Code::JoinPending);
    let _: Value = fleet.operator().await.post("/v1/joins/web-1/deny", &json!({})).await.unwrap();
    let answer = fleet.ask("db-1", &declared).await.unwrap();
    let mut node = fleet.member("db-1", declared, &answer);
    node.survives().await;
    let view = fleet.operator().await.node("db-1").await;
    assert_eq!(view.key_confirmation, Some(KeyConfirmation::Declared));
    assert!(KeyConfirmation::Declared.counts_for_secrets());
    // A host that lost its certificate and kept its key comes back.
    fleet.ask("db-1", &node.key).await.unwrap();
    // After a restart the declaration counts as it did.
    fleet.stop().await;
    fleet.start_again().await;
    refuses(fleet.ask("db-1", &new_key()).await, Code::KeyNotDeclared);
    node.url = fleet.url();
    node.survives().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declaration_that_changes_counts_from_its_release_on() {
    let fleet = Fleet::start().await;
    let (first, second) = (new_key(), new_key());
    publish(&fleet, 1, &[("db-1", Some(&first))]).await;
    refuses(fleet.ask("db-1", &second).await, Code::KeyNotDeclared);
    publish(&fleet, 2, &[("db-1", Some(&second))]).await;
    refuses(fleet.ask("db-1", &first).await, Code::KeyNotDeclared);
    // The key of one node under the name of another is as any key there.
    publish(&fleet, 3, &[("db-1", Some(&second)), ("db-2", Some(&first))]).await;
    refuses(fleet.ask("db-2", &second).await, Code::KeyNotDeclared);
    fleet.ask("db-1", &second).await.unwrap();
    // One that is declared of no host any more waits as any other.
    publish(&fleet, 4, &[("db-1", None)]).await;
    refuses(fleet.ask("db-2", &first).await, Code::JoinPending);
}
