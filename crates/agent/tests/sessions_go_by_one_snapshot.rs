//! IDN-2, IDN-8: a renewal and a newer trust document at the same moment come to one snapshot. Sessions are opened with the
//! new certificate and by the CAs of the newer document, in whichever order both are taken up; and an agent of before, should
//! one take this one's place, goes by the CAs that counted at the last renewal.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use agent::identity::{self, Membership};
use agent::membership::{BelievedAnew, MembershipFile, TakenUp};
use agent::session::{NodeSession, Signer};
use agent::state::StateDir;
use model::replication::{Mode, TransportPolicy};
use net::client::Client;
use net::issue::{Ca, CertificateRequest, node_request, node_validity};
use test_support::agent_pair::{Pair, says};
use test_support::fleet;
use trust::token::{KeySource, TlsTermination};
use trust::{SigningKey, Slots};
use wire::enroll::RenewAnswer;

fn membership(pair: &Pair) -> Membership {
    StateDir::create(&pair.state()).unwrap().membership().unwrap().unwrap()
}

fn issued(ca: &Ca, key: &SigningKey, of: &Membership) -> String {
    let csr = CertificateRequest::read(&node_request(key, &of.hostname).unwrap()).unwrap();
    let id = key.public().node_id();
    ca.issue_node(&csr, &id, &of.hostname, [3; 16], node_validity(fleet::now())).unwrap()
}

fn anew(believed: Option<BelievedAnew>) -> TakenUp {
    match believed.expect("something else is believed") {
        BelievedAnew::More(taken_up) | BelievedAnew::Less(taken_up) => taken_up,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_kept_late_goes_by_what_is_believed_by_then() {
    let pair = Pair::new(&says(Mode::Off, None, TransportPolicy::Auto)).await;
    let key = identity::key(KeySource::Own, &pair.state(), &pair.root()).unwrap();
    let before = membership(&pair);
    let file = Arc::new(MembershipFile::of(&pair.state(), before.clone(), key.clone()));
    let cert_pem = issued(&pair.fleet.node_ca(), &key, &before);
    // A disk that holds the renewal up: who opens it for reading waits for who writes.
    let path = pair.state().join("membership.json");
    std::fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let (keeper, renewal) = (file.clone(), RenewAnswer::of(cert_pem));
    let keeping = tokio::task::spawn_blocking(move || keeper.keep(renewal));
    let opened = tokio::task::spawn_blocking(move || std::fs::OpenOptions::new().write(true).open(path));
    let held_up = opened.await.unwrap().unwrap();
    // Meanwhile the newer document names another CA alone.
    let (other, _) = Ca::generate("other", fleet::now()).unwrap();
    let believed = anew(file.believe(Some(&Slots::of(*other.key()))).unwrap());
    drop(held_up);
    let kept = tokio::time::timeout(Duration::from_secs(30), keeping).await.unwrap().unwrap().unwrap();
    assert!(kept.credentials.number > believed.credentials.number);
    let dialled = Client::dial(&pair.fleet.url(), kept.credentials.tls).await;
    assert!(
        dialled.is_err(),
        "the CA before counts no more, also for sessions with the certificate that was kept"
    );
    assert!(!file.is_certified(), "it is said of the certificate, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_put_together_earlier_takes_the_place_of_nothing_later() {
    let pair = Pair::new(&says(Mode::Off, None, TransportPolicy::Auto)).await;
    let key = identity::key(KeySource::Own, &pair.state(), &pair.root()).unwrap();
    let member = membership(&pair);
    let file = MembershipFile::of(&pair.state(), member.clone(), key.clone());
    let ca = pair.fleet.node_ca();
    let kept = file.keep(RenewAnswer::of(issued(&ca, &key, &member))).unwrap();
    let (other, _) = Ca::generate("other", fleet::now()).unwrap();
    let both = Slots { previous: Some(*ca.key()), ..Slots::of(*other.key()) };
    let believed = anew(file.believe(Some(&both)).unwrap());
    let id = key.public().node_id();
    let signer = Signer::new(member.trust.fleet.clone(), id, key, TlsTermination::ControlPlane);
    let session = NodeSession::new(file.without_certificate().unwrap(), signer);
    let last = believed.credentials.tls.clone();
    session.renew(believed.credentials);
    session.renew(kept.credentials);
    assert!(Arc::ptr_eq(&session.tls(), &last));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificates_of_cas_are_kept_that_the_trust_document_names() {
    let pair = Pair::new(&says(Mode::Off, None, TransportPolicy::Auto)).await;
    let key = identity::key(KeySource::Own, &pair.state(), &pair.root()).unwrap();
    let before = membership(&pair);
    let file = MembershipFile::of(&pair.state(), before.clone(), key.clone());
    let first = pair.fleet.node_ca();
    let (next, _) = Ca::generate("next", fleet::now()).unwrap();
    let (foreign, _) = Ca::generate("foreign", fleet::now()).unwrap();
    let keep = |ca: &Ca, cas: &[&Ca]| {
        let ca_pem = Some(cas.iter().map(|ca| ca.cert_pem()).collect::<String>());
        file.keep(RenewAnswer { cert_pem: issued(ca, &key, &before), ca_pem }).unwrap();
        membership(&pair).ca_pem
    };
    assert_eq!(keep(&first, &[&next]), before.ca_pem, "no document names a CA yet");
    let both = Slots { previous: Some(*first.key()), ..Slots::of(*next.key()) };
    file.believe(Some(&both)).unwrap();
    assert_eq!(keep(&first, &[&next, &foreign]), before.ca_pem, "one is named by nobody");
    assert_eq!(keep(&first, &[]), before.ca_pem);
    let named = [next.cert_pem(), first.cert_pem()].concat();
    assert_eq!(keep(&next, &[&next, &first]), named);
    // What a dropped CA certifies is believed by no agent from the next renewal on.
    file.believe(Some(&Slots::of(*next.key()))).unwrap();
    assert_eq!(keep(&next, &[&next]), next.cert_pem());
}
