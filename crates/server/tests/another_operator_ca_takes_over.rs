//! OPS-5, IDN-8: another CA of operators takes the place of the one before. Certificates of both open the operator port
//! until the one before is retired; then what it opened is cut, and its certificates open nothing. Each operator renews by
//! the certificate that he has, and nobody makes his own credentials last longer. Tokens go on.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use net::client::Client;
use net::issue::{new_key, proxy_request};
use net::tls::{self, ClientKey};
use server::api::operators::{
    OperatorAuthorityView, OperatorRole, OperatorView, RenewOperator, RenewedOperator,
};
use server::posture;
use test_support::fleet::{Fleet, Operator, refuses};
use test_support::wait::{eventually, until};
use wire::{Code, Problem};

const AUTHORITIES: &str = "/v1/operator-authorities";
const PREVIOUS: &str = "/v1/operator-authorities/previous";

async fn view(operator: &mut Operator) -> OperatorAuthorityView {
    operator.get(AUTHORITIES).await.unwrap()
}

async fn rotate(operator: &mut Operator) -> OperatorAuthorityView {
    // A CA's certificate knows whole seconds: what was issued before is of another second.
    let began = test_support::fleet::now().secs();
    eventually("the second is over", || test_support::fleet::now().secs() > began).await;
    operator.post(AUTHORITIES, &serde_json::json!({})).await.unwrap()
}

async fn renew(operator: &mut Operator) -> Result<(String, RenewedOperator), Problem> {
    let key = new_key().unwrap();
    let asked = RenewOperator { csr_pem: proxy_request(&key, "whoever").unwrap() };
    let renewed = operator.post("/v1/operator/certificate", &asked).await?;
    Ok((key.to_string(), renewed))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_one_before_counts_until_it_is_retired() {
    let fleet = Fleet::start().await;
    let mut admin = fleet.operator().await;
    let before = view(&mut admin).await;
    assert_eq!((before.previous, before.of_before.len()), (None, 0));
    refuses(admin.delete::<OperatorAuthorityView>(PREVIOUS).await, Code::NotFound);
    let mut alice = fleet.operator_certified("alice", OperatorRole::Viewer, None).await;
    let mut bob = fleet.operator_certified("bob", OperatorRole::Viewer, None).await;
    let mut by_token = fleet.operator_with("ci", OperatorRole::Operator, None).await;

    let changed = rotate(&mut admin).await;
    assert_ne!(changed.current, before.current);
    assert_eq!(changed.previous, Some(before.current));
    assert_eq!(changed.of_before, ["alice", "bob"]);
    assert!(fleet.dir.path().join(posture::PREVIOUS_OPERATOR_CA).exists());
    assert!(!fleet.dir.path().join(posture::NEXT_OPERATOR_CA).exists());
    for operator in [&mut admin, &mut alice, &mut bob, &mut by_token] {
        operator.status().await;
    }
    refuses(rotate_as(&mut alice).await, Code::RoleRequired);
    // The first admin's credentials in the directory are of the new one.
    let mut admin = fleet.operator().await;
    let (key, renewed) = renew(&mut alice).await.unwrap();
    assert_eq!(view(&mut admin).await.of_before, ["bob"]);
    refuses(renew(&mut by_token).await, Code::BadBody);
    let operators: Vec<OperatorView> = admin.get("/v1/operators").await.unwrap();
    let of_alice = operators.iter().find(|operator| operator.name == "alice").unwrap();
    assert_eq!(of_alice.credentials.len(), 2, "the answer may be lost: the one before counts on");
    assert!(of_alice.credentials.iter().all(|it| it.expires <= renewed.expires), "it ends as the one before");

    let retired: OperatorAuthorityView = admin.delete(PREVIOUS).await.unwrap();
    assert_eq!((retired.current, retired.previous), (changed.current, None));
    assert!(!fleet.dir.path().join(posture::PREVIOUS_OPERATOR_CA).exists());
    eventually("what the CA before opened is cut", || alice.is_cut() && bob.is_cut()).await;
    let ca = fleet.node_ca().cert_pem().to_owned();
    let tls = tls::client(&ca, &renewed.cert_pem, ClientKey::Pem(&key)).unwrap();
    let mut alice = fleet.operator_of(Client::dial(&fleet.operator_url(), tls).await.unwrap());
    alice.status().await;
    by_token.status().await;
    let operators: Vec<OperatorView> = admin.get("/v1/operators").await.unwrap();
    let left = |name: &str| operators.iter().find(|it| it.name == name).unwrap().credentials.len();
    assert_eq!((left("alice"), left("bob"), left("ci")), (1, 0, 1));
    // Also after a start.
    let mut fleet = fleet;
    fleet.stop().await;
    fleet.start_again().await;
    assert_eq!(view(&mut fleet.operator().await).await.current, changed.current);
}

async fn rotate_as(operator: &mut Operator) -> Result<OperatorAuthorityView, Problem> {
    operator.post(AUTHORITIES, &serde_json::json!({})).await
}

/// What the stolen CA certifies opens nothing, in the first admin's name neither, and no handshake ends well.
#[tokio::test(flavor = "multi_thread")]
async fn a_stolen_ca_opens_nothing_once_it_is_retired() {
    let fleet = Fleet::start().await;
    let file = |kind| std::fs::read_to_string(fleet.dir.path().join(format!("operator-ca.{kind}"))).unwrap();
    let (cert, key) = (file("pem"), file("key"));
    let stolen = net::issue::Ca::load(&cert, &key).unwrap();
    let mut admin = fleet.operator().await;
    let forged = stolen.issue_operator("operator", [5; 16], test_support::fleet::now()).unwrap();
    let ca = fleet.node_ca().cert_pem().to_owned();
    let tls = tls::client(&ca, &forged.cert_pem, ClientKey::Pem(&forged.key_pem)).unwrap();
    let url = fleet.operator_url();
    let dial = || Client::dial(&url, tls.clone());
    let mut thief = fleet.operator_of(dial().await.unwrap());
    thief.status().await;
    rotate(&mut admin).await;
    thief.status().await;
    let mut admin = fleet.operator().await;
    admin.delete::<OperatorAuthorityView>(PREVIOUS).await.unwrap();
    eventually("the thief is cut", || thief.is_cut()).await;
    // With TLS 1.3 who is refused learns so with the first answer.
    until("no handshake ends well any more", async || {
        let client = dial().await.ok()?;
        let asked = fleet.operator_of(client).raw_or_cut(http::Method::GET, "/v1/status", Vec::new()).await;
        asked.is_err().then_some(())
    })
    .await;
}

/// Whoever retires the CA before leaves an admin.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_admin_is_not_shut_out() {
    let fleet = Fleet::start().await;
    let anna = fleet.operator_certified("anna", OperatorRole::Admin, None).await;
    // The first admin's credentials were moved away, as in a fleet whose keys lie elsewhere.
    let operator = fleet.dir.path().join("operator.json");
    let aside = fleet.dir.path().join("elsewhere.json");
    let mut admin = fleet.operator().await;
    std::fs::rename(&operator, &aside).unwrap();
    rotate(&mut admin).await;
    refuses(admin.delete::<OperatorAuthorityView>(PREVIOUS).await, Code::LastAdmin);
    let mut anna = anna;
    renew(&mut anna).await.unwrap();
    admin.delete::<OperatorAuthorityView>(PREVIOUS).await.unwrap();
}
