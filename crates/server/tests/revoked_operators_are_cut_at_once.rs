//! OPS-5: a revoked operator's credentials open nothing from then on, over a connection that is open neither: also a
//! question that is held is cut. It stays so over a restart. The last admin stays.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use http::Method;
use model::Timestamp;
use net::client::ClientError;
use serde_json::{Value, json};
use server::api::operators::{CredentialRequest, IssuedCredential, OperatorView};
use server::api::work::TaskView;
use store::OperatorRole;
use test_support::fleet::synced::one_managed;
use test_support::fleet::{Fleet, Operator, PATIENCE, decoded, refuses};
use test_support::wait::{eventually, until};
use wire::Code;

async fn revoke(admin: &mut Operator, name: &str) -> Result<OperatorView, wire::Problem> {
    admin.delete(&format!("/v1/operators/{name}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_or_certificate_opens_nothing() {
    let mut fleet = Fleet::start().await;
    let mut admin = fleet.operator().await;
    let added = admin.add("alice", OperatorRole::Operator, None).await.unwrap();
    let IssuedCredential::Token { token } = added.issued else { panic!("{added:?}") };
    let mut by_token = fleet.operator_by_token(&token).await;
    let mut by_certificate = fleet.operator_certified("alice", OperatorRole::Operator, None).await;
    for operator in [&mut by_token, &mut by_certificate] {
        operator.status().await;
    }
    let revoked = revoke(&mut admin, "alice").await.unwrap();
    assert_eq!((revoked.revoked_by.as_deref(), revoked.credentials.len()), (Some("operator"), 0));
    // Over the connections that are open.
    for operator in [&by_token, &by_certificate] {
        match operator.clone().raw_or_cut(Method::GET, "/v1/status", Vec::new()).await {
            Ok(answer) => drop(refuses(decoded::<Value>(&answer), Code::OperatorRefused)),
            // The one that was refused before on it ended it.
            Err(cut) => assert!(
                matches!(cut, ClientError::Exchange { .. } | ClientError::CertificateUnknown { .. }),
                "{cut:?}"
            ),
        }
        eventually("the connection of who is refused ends", || operator.is_cut()).await;
    }
    refuses(revoke(&mut admin, "alice").await, Code::NotFound);
    fleet.stop().await;
    fleet.start_again().await;
    let mut again = fleet.operator_by_token(&token).await;
    refuses(again.get::<Value>("/v1/status").await, Code::OperatorRefused);

    // Who is added anew under the name is another one.
    let mut admin = fleet.operator().await;
    admin.add("alice", OperatorRole::Viewer, None).await.unwrap();
    let mut again = fleet.operator_by_token(&token).await;
    refuses(again.get::<Value>("/v1/status").await, Code::OperatorRefused);
    let operators: Vec<OperatorView> = admin.get("/v1/operators").await.unwrap();
    let alice = operators.iter().find(|operator| operator.name == "alice").unwrap();
    assert_eq!((alice.role, alice.revoked, alice.credentials.len()), (OperatorRole::Viewer, None, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_is_held_is_cut() {
    let (fleet, mut admin, _node) = one_managed().await;
    let task = admin.begin("web-1", &["/bin/true"]).await;
    let task: TaskView = admin.task(&task.id).await;
    let mut round = 0;
    // Who was not yet asked when she was revoked is refused too, by her credentials: then once more.
    until("a question is cut while it is held", async || {
        round += 1;
        let name = format!("alice-{round}");
        let mut alice = fleet.operator_with(&name, OperatorRole::Viewer, None).await;
        let (mut asking, path) = (alice.clone(), format!("/v1/tasks/{}?wait=30&after=", task.id));
        let mut after = task.version;
        let held = tokio::spawn(async move {
            loop {
                match asking.get::<TaskView>(&format!("{path}{after}")).await {
                    Ok(view) => after = view.version,
                    Err(problem) => return problem,
                }
            }
        });
        // Over the same connection, and so behind the question.
        alice.status().await;
        revoke(&mut admin, &name).await.unwrap();
        // It would be answered only after 30 s.
        let problem = tokio::time::timeout(PATIENCE / 2, held).await.expect("it was held on").unwrap();
        assert_eq!(problem.code, Code::OperatorRefused.as_str());
        problem.detail.unwrap_or_default().contains("revoked meanwhile").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_admin_stays_and_the_first_one_may_go() {
    let fleet = Fleet::start().await;
    let mut first = fleet.operator().await;
    refuses(revoke(&mut first, "operator").await, Code::LastAdmin);
    // Neither another role, nor a scope, nor what has ended makes up for the last admin.
    first.add("olga", OperatorRole::Operator, None).await.unwrap();
    first.add("erik", OperatorRole::Admin, Some("@eu")).await.unwrap();
    let short = CredentialRequest::Token { valid_secs: 1 };
    let ended = first.add_with("short", OperatorRole::Admin, None, short).await.unwrap();
    eventually("the short one has ended", || test_support::fleet::now() > ended.expires).await;
    refuses(revoke(&mut first, "operator").await, Code::LastAdmin);
    let IssuedCredential::Token { token } = ended.issued else { panic!() };
    let mut expired = fleet.operator_by_token(&token).await;
    refuses(expired.get::<Value>("/v1/operator").await, Code::OperatorRefused);

    let mut second = fleet.operator_certified("anna", OperatorRole::Admin, None).await;
    revoke(&mut second, "operator").await.unwrap();
    refuses(first.get::<Value>("/v1/status").await, Code::OperatorRefused);
    refuses(revoke(&mut second, "anna").await, Code::LastAdmin);
    // Another operator of the first one's name is not who has the first one's certificate.
    second.add("operator", OperatorRole::Viewer, None).await.unwrap();
    let mut first = fleet.operator().await;
    refuses(first.get::<Value>("/v1/status").await, Code::OperatorRefused);
    assert_ne!(second.status().await.fleet.as_str(), "");
}

#[tokio::test]
async fn what_is_no_token_opens_nothing() {
    let fleet = Fleet::start().await;
    for token in ["", "x", "muster-operator1.AAAA", &format!("muster-operator1.{}", "A".repeat(43))] {
        let mut nobody = fleet.operator_by_token(token).await;
        refuses(nobody.get::<Value>("/v1/status").await, Code::OperatorRefused);
    }
    let mut admin = fleet.operator().await;
    let forever = CredentialRequest::Token { valid_secs: u64::MAX };
    refuses(admin.add_with("a", OperatorRole::Viewer, None, forever).await, Code::BadBody);
    let csr = CredentialRequest::Certificate { csr_pem: "no request".to_owned() };
    refuses(admin.add_with("a", OperatorRole::Viewer, None, csr).await, Code::BadCsr);
    let operators: Vec<OperatorView> = admin.get("/v1/operators").await.unwrap();
    assert_eq!(operators.len(), 1, "{operators:?}");
    assert_eq!(operators[0].created, None::<Timestamp>);
    let _: Value = admin.post("/v1/selections", &json!({"selector": "web-*"})).await.unwrap();
}
