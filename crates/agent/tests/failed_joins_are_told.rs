//! ENR-4: a host that could not join tells the control plane that its token names, and no other: what it refused, and
//! what it said that the token did not promise. What passes by itself is not told.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::join::{JoinBy, JoinError, JoinProxy, JoinRequest, join};
use http::StatusCode;
use net::issue::CertificateRequest;
use serde_json::Value;
use test_support::fleet::Fleet;
use test_support::scripted::{Reply, ScriptedControl, json, key, now, problem, reply};
use trust::token::{self, Claims};
use trust::{Slots, TrustDocument};
use wire::enroll::{BootstrapFailure, BootstrapReport, EnrollAnswer};
use wire::{Code, Problem, route};

async fn tried(token: String, hostname: Option<&str>) -> JoinError {
    let state = tempfile::tempdir().unwrap();
    let request = JoinRequest {
        by: JoinBy::Token { token, file: None },
        hostname: hostname.map(str::to_owned),
        root: Some("/nowhere".into()),
        allow_exec: false,
        patience: Duration::ZERO,
        proxy: JoinProxy::Chosen(None),
    };
    join(request, &state.path().join("state")).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_see_what_the_control_plane_refused() {
    let fleet = Fleet::start().await;
    let _taken = fleet.node("web-1").await;
    tried(fleet.token("web-1"), None).await;
    let mut claims = fleet.claims("web-2");
    claims.issued_at = now().minus(std::time::Duration::from_secs(3600));
    claims.expires_at = now().minus(std::time::Duration::from_secs(600));
    tried(token::mint(&claims, &fleet.root_key()).unwrap(), None).await;
    tried(fleet.token("web-3"), Some("web-4")).await;
    let kept: Vec<Value> = fleet.operator().await.get("/v1/failed-joins").await.unwrap();
    let told: Vec<_> = kept.iter().map(|one| [&one["hostname"], &one["failure"], &one["code"]]).collect();
    let expected = [
        ["web-3", "EnrollmentFailed", "token-other-host"],
        ["web-2", "EnrollmentFailed", "token-expired"],
        ["web-1", "EnrollmentFailed", "hostname-taken"],
    ];
    assert_eq!(told, expected);
    assert_eq!(kept[0]["agent"], env!("CARGO_PKG_VERSION"));
    let message = kept[2]["message"].as_str().unwrap();
    assert!(message.contains("the hostname is taken by node"), "{message}");
}

/// A control plane that answers an enrollment like this, and what it is told then.
async fn answered(
    answer: impl Fn(EnrollAnswer) -> Reply + Clone + Send + Sync + 'static,
) -> (JoinError, Vec<BootstrapReport>) {
    let slots = |seed| Slots::of(key(seed).public());
    let trust = TrustDocument::first("test-1".parse().unwrap(), slots(2), slots(3));
    let promised = trust.digest().unwrap();
    let told: Arc<Mutex<Vec<BootstrapReport>>> = Arc::default();
    let tells = told.clone();
    let control = ScriptedControl::start(&["127.0.0.1"], move |head, body| {
        if head.uri.path() == route::BOOTSTRAP_REPORT {
            tells.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
            return reply(StatusCode::NO_CONTENT, "application/json", Vec::new());
        }
        let node_id = key(1).public().node_id();
        answer(EnrollAnswer { node_id, cert_pem: String::new(), ca_pem: String::new(), trust: trust.clone() })
    })
    .await;
    let claims = Claims {
        fleet: "test-1".parse().unwrap(),
        hostname: "web-1".parse().unwrap(),
        expected_pubkey_fingerprint: None,
        key: Default::default(),
        issued_at: now(),
        expires_at: now().plus(std::time::Duration::from_secs(600)),
        nonce: "n".to_owned(),
        servers: vec![control.url().to_string()],
        tls_termination: Default::default(),
        ca: control.ca().digest(),
        trust: promised,
        replaces: None,
    };
    let token = token::mint(&claims, &key(3)).unwrap();
    let error = tried(token.clone(), None).await;
    let told = told.lock().unwrap().clone();
    for report in &told {
        assert_eq!((report.token.as_str(), report.hostname.as_str()), (token.as_str(), "web-1"));
        assert!(CertificateRequest::read(&report.csr_pem).is_ok(), "signed by the host's key");
    }
    (error, told)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_promised_is_told_as_a_matter_of_trust() {
    let (error, told) = answered(|answer| json(&answer)).await;
    assert!(matches!(error, JoinError::NotAsPromised(_)), "{error:?}");
    assert_eq!((told.len(), told[0].failure), (1, BootstrapFailure::TrustError));
    assert!(told[0].message.contains("not what the token promised"), "{}", told[0].message);

    let (_, told) = answered(|_| reply(StatusCode::OK, "application/json", b"{".to_vec())).await;
    assert_eq!((told.len(), told[0].failure), (1, BootstrapFailure::EnrollmentFailed));
    let (_, told) = answered(|_| problem(&Problem::from(Code::TokenNotListed))).await;
    assert_eq!(told[0].code.as_deref(), Some("token-not-listed"));
    // It answers again in a few seconds.
    let (_, told) = answered(|_| problem(&Problem::from(Code::Busy))).await;
    assert!(told.is_empty());
}
