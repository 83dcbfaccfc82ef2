//! IDN-2: a node's certificate carries the channel and the labels that the release declares of it, as data; a renewal has
//! what is declared by then. Nothing is allowed by them: a certificate that says more opens nothing more.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use model::object::ObjectKey;
use model::{Hostname, Kind};
use net::CertifiedData;
use net::issue::{CertificateRequest, node_request, node_validity};
use net::tls::ClientKey;
use net::{MAX_CERTIFIED_BYTES, MAX_CERTIFIED_LABELS};
use serde_json::{Value, json};
use test_support::fleet::release::{Objects, Plan, make, module};
use test_support::fleet::{Fleet, Member, Operator, now, quiet};
use test_support::wait::until;
use wire::enroll::{RenewAnswer, RenewRequest};
use wire::route;

fn labelled(labels: &Value) -> Objects {
    let content = json!({"node": {"channel": "stable", "labels": labels}}).to_string();
    vec![(ObjectKey::of(Kind::PARAMS, "node"), content.into_bytes())]
}

async fn publish(fleet: &Fleet, operator: &mut Operator, seq: u64, nodes: &[(&str, &Objects)]) {
    let empty = Plan::new(&fleet.enroll_info().fleet, seq);
    let plan = nodes.iter().fold(empty, |plan, (hostname, objects)| plan.node(hostname, objects));
    operator.publish(&make(&plan, &fleet.release_key())).await.unwrap();
}

fn said(labels: &[(&str, &str)]) -> CertifiedData {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    CertifiedData { channel: "stable".parse().ok(), labels: labels.collect() }
}

fn data(cert_pem: &str) -> CertifiedData {
    CertifiedData::read(cert_pem.as_bytes())
}

async fn renew(node: &Member) -> String {
    let csr_pem = node_request(&node.key, &node.hostname).unwrap();
    let answer: RenewAnswer = node.post(route::RENEW, &RenewRequest::of(csr_pem)).await.unwrap();
    answer.cert_pem
}

#[tokio::test(flavor = "multi_thread")]
async fn and_a_renewal_has_what_is_declared_by_then() {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    let before = fleet.node("web-1").await;
    assert_eq!(data(&before.cert_pem), CertifiedData::default(), "nothing was declared of it");
    let first = labelled(&json!({"site": "eu", "tier": 2}));
    publish(&fleet, &mut operator, 1, &[("web-1", &first), ("web-2", &first)]).await;
    let two = fleet.node("web-2").await;
    assert_eq!(data(&two.cert_pem), said(&[("site", "eu"), ("tier", "2")]));
    assert_eq!(data(&renew(&before).await), said(&[("site", "eu"), ("tier", "2")]));
    let strange = labelled(&json!({"site": "us/ä b=c%41", "muster:operator:root": "x"}));
    publish(&fleet, &mut operator, 2, &[("web-1", &strange), ("web-2", &first)]).await;
    let renewed = renew(&before).await;
    assert_eq!(data(&renewed), said(&[("muster:operator:root", "x"), ("site", "us/ä b=c%41")]));
    // It opens what it opened.
    let mut node = before;
    let tls = net::tls::client(fleet.node_ca().cert_pem(), &renewed, ClientKey::Node(&node.key));
    node.tls = tls.unwrap();
    node.survives().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn within_bounds() {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    let many: BTreeMap<String, String> = (0..40).map(|n| (format!("l{n:02}"), "v".to_owned())).collect();
    let long = json!({"a": "x".repeat(MAX_CERTIFIED_BYTES), "b": "small"});
    let (many, long) = (labelled(&json!(many)), labelled(&long));
    publish(&fleet, &mut operator, 1, &[("web-1", &many), ("web-2", &long)]).await;
    let labels = data(&fleet.node("web-1").await.cert_pem).labels;
    assert_eq!(labels.len(), MAX_CERTIFIED_LABELS);
    assert_eq!(labels.keys().next_back().map(String::as_str), Some("l15"), "the first by name");
    assert_eq!(
        data(&fleet.node("web-2").await.cert_pem),
        said(&[("b", "small")]),
        "what does not fit is left out"
    );
}

/// A certificate of the fleet's own CA that says of a web server that it is a database.
#[tokio::test(flavor = "multi_thread")]
async fn and_nothing_is_allowed_by_them() {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    let secret = b"what only databases get";
    let web = [labelled(&json!({"role": "web"})), vec![module("web", "w", &[])]].concat();
    let db = [labelled(&json!({"role": "db"})), vec![module("db", "d", &[secret])]].concat();
    let mut plan = Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &web).node("db-1", &db);
    plan.blobs.push(secret.to_vec());
    operator.publish(&make(&plan, &fleet.release_key())).await.unwrap();

    let node = fleet.node("web-1").await;
    let plain = node.check_in(&quiet()).await.unwrap();
    let forged = {
        let csr = CertificateRequest::read(&node_request(&node.key, &node.hostname).unwrap()).unwrap();
        let says = CertifiedData {
            channel: "databases".parse().ok(),
            labels: BTreeMap::from([("role".to_owned(), "db".to_owned())]),
        };
        let validity = node_validity(now());
        fleet.node_ca().issue_node_saying(&csr, &node.id, &node.hostname, &says, [4; 16], validity).unwrap()
    };
    let der = |pem: &str| net::tls::certificates(pem).unwrap().remove(0);
    let who = |pem: &str| net::identity::read(&der(pem)).unwrap().role;
    assert_eq!(who(&forged), who(&node.cert_pem), "who it is, is the same");
    assert_ne!(data(&forged), data(&node.cert_pem));
    let mut node = node;
    node.tls = net::tls::client(fleet.node_ca().cert_pem(), &forged, ClientKey::Node(&node.key)).unwrap();
    let answer = node.check_in(&quiet()).await.unwrap();
    let entry = |answer: &model::exchange::Answer| answer.offer.as_ref().unwrap().entry.clone();
    assert_eq!(entry(&answer), entry(&plain), "it gets what the release gives to its hostname");
    let asked = node.blob(&model::Digest::of(secret), None).await;
    assert_eq!(asked.status(), http::StatusCode::FORBIDDEN);
    // Nor does a selector find it by what its certificate says.
    let by = until("the labels that are declared are known", async || {
        let web: Value = operator.post("/v1/selections", &json!({"selector": "role=web"})).await.unwrap();
        (web["count"] == 1).then_some(web)
    })
    .await;
    assert_eq!(by["first"], json!(["web-1"]));
    let found: Value = operator.post("/v1/selections", &json!({"selector": "role=db"})).await.unwrap();
    assert_eq!(found["count"], 0, "{found}");
    let hostname: Hostname = "web-1".parse().unwrap();
    assert_eq!(operator.node("web-1").await.hostname, hostname);
}
