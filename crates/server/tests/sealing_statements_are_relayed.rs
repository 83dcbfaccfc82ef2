//! SEC-1, IDN-10: the control plane relays what a node signed for its sealing key, as the node sent it, within a bound;
//! of a key that two hosts hold nothing, and of the one that is left only what it says from then on.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::exchange::{Answer, CheckIn, Signed};
use model::{AgentCapabilities, AgentInstance, Timestamp};
use server::api::sealing::{MAX_SEALING_KEYS, SealingKeys, SealingKeysOf};
use test_support::fleet::{Fleet, Member, quiet};
use trust::sealing::{RelayedStatement, SealingStatement};
use trust::{RecipientKey, SealingKey};
use wire::{Code, Problem};

fn sealing(of: u8) -> RecipientKey {
    SealingKey::from_secret(&[of; 32]).unwrap().public()
}

fn signed(fleet: &Fleet, node: &Member, of: u8) -> Signed {
    let (fleet, hostname) = (fleet.enroll_info().fleet.clone(), node.hostname.clone());
    let at = Timestamp::from_secs(1_800_000_000);
    SealingStatement { fleet, hostname, recipient: sealing(of), at }.sign(&node.key).unwrap()
}

/// A check-in of one start of the agent, which says for which key secrets are sealed.
async fn says(node: &Member, id: &str, statement: Option<Signed>) -> Answer {
    let capabilities = statement.map(|statement| {
        Box::new(AgentCapabilities {
            version: "1.0.0".to_owned(),
            checksum: None,
            builtins: Vec::new(),
            hooks: Default::default(),
            sealing_key: Some(statement),
        })
    });
    let instance = AgentInstance { id: id.to_owned(), after: None };
    node.check_in(&CheckIn { instance: Some(instance), capabilities, ..quiet() }).await.unwrap()
}

async fn relayed(fleet: &Fleet) -> Vec<RelayedStatement> {
    let nodes = ["web-1", "web-2"].map(|name| name.parse().unwrap()).to_vec();
    let asked: SealingKeys =
        fleet.operator().await.post("/v1/sealing-keys", &SealingKeysOf { nodes }).await.unwrap();
    asked.statements
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_relayed_as_it_came_and_one_that_is_too_long_is_not() {
    let mut fleet = Fleet::start().await;
    let (mut node, _silent) = (fleet.node("web-1").await, fleet.node("web-2").await);
    let statement = signed(&fleet, &node, 5);
    says(&node, "a", Some(statement.clone())).await;
    let expected =
        RelayedStatement { hostname: "web-1".parse().unwrap(), identity: node.key.public(), statement };
    assert_eq!(relayed(&fleet).await, std::slice::from_ref(&expected));
    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
    assert_eq!(relayed(&fleet).await, [expected], "also after a restart");
    let whole = signed(&fleet, &node, 6);
    let long = Signed { payload: " ".repeat(2000), ..whole.clone() };
    let many = Signed { signatures: vec![whole.signatures[0].clone(); 2], ..whole.clone() };
    for unbounded in [long, many] {
        says(&node, "a", Some(whole.clone())).await;
        says(&node, "a", Some(unbounded)).await;
        assert_eq!(relayed(&fleet).await, Vec::new());
    }
    let nodes = vec!["web-1".parse().unwrap(); MAX_SEALING_KEYS + 1];
    let asked: Result<SealingKeys, Problem> =
        fleet.operator().await.post("/v1/sealing-keys", &SealingKeysOf { nodes }).await;
    assert_eq!(asked.unwrap_err().code, Code::BadBody.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_holders_of_a_key_neither_is_relayed_and_afterwards_who_is_left_says_it_anew() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let (own, copy) = (signed(&fleet, &node, 5), signed(&fleet, &node, 66));
    assert!(!says(&node, "own", Some(own.clone())).await.want_capabilities);
    says(&node, "copy", Some(copy.clone())).await;
    assert!(says(&node, "own", None).await.identity_copied);
    says(&node, "copy", Some(copy)).await;
    assert_eq!(relayed(&fleet).await, Vec::new());

    let mut operator = fleet.operator().await;
    let _: server::api::NodeView =
        operator.post("/v1/nodes/web-1/resolve-copy", &serde_json::json!({})).await.unwrap();
    assert_eq!(relayed(&fleet).await, Vec::new(), "it was the copy's word last");
    assert!(says(&node, "own", None).await.want_capabilities);
    says(&node, "own", Some(own.clone())).await;
    assert_eq!(relayed(&fleet).await[0].statement, own);
}
