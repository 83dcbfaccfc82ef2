//! IDN-2, IDN-7: a daemon renews its node's certificate while a stream is open, and both stay; one whose certificate
//! ended while the host slept recovers it by its key alone, or says how to join again where that is not allowed.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use agent::identity::{self, Membership};
use agent::state::StateDir;
use model::replication::{Mode, TransportPolicy};
use model::{CertificateState, Timestamp};
use net::issue::{CertificateRequest, NODE_LIFE, node_request, node_validity};
use server::{CertificateRecovery, CertificateSettings};
use test_support::agent_local::printed;
use test_support::agent_pair::{NODE, Pair, item, says};
use test_support::fleet;
use test_support::wait::until;
use trust::token::KeySource;

use crate::another_url_takes_over::Way;

fn membership(pair: &Pair) -> Membership {
    StateDir::create(&pair.state()).unwrap().membership().unwrap().unwrap()
}

fn ends(pair: &Pair) -> Timestamp {
    net::identity::validity(membership(pair).cert_pem.as_bytes()).unwrap().until
}

/// Gives the host a certificate that ended a day ago.
fn let_it_sleep(pair: &Pair) {
    let mut member = membership(pair);
    let key = identity::key(KeySource::Own, &pair.state(), &pair.root()).unwrap();
    let request = CertificateRequest::read(&node_request(&key, &member.hostname).unwrap()).unwrap();
    let issued = node_validity(fleet::now().minus(NODE_LIFE + Duration::from_secs(24 * 3600)));
    let ca = pair.fleet.node_ca();
    member.cert_pem = ca.issue_node(&request, &member.node_id, &member.hostname, [9; 16], issued).unwrap();
    StateDir::create(&pair.state()).unwrap().save_membership(&member).unwrap();
}

fn recovery(recovery: CertificateRecovery) -> CertificateSettings {
    CertificateSettings { recovery: Some(recovery), ..CertificateSettings::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_stays_open_over_renewals_of_both_sides() {
    let short = Duration::from_secs(10);
    let certificates =
        CertificateSettings { node_validity: short, own_validity: short, ..CertificateSettings::default() };
    let mut pair = Pair::certified(&says(Mode::Managed, None, TransportPolicy::Auto), certificates).await;
    let daemon = pair.daemon();
    pair.apply(vec![item("one", "a")]).await;
    let is_there = async |pair: &mut Pair, name: &str| {
        until(&format!("{name} is delivered"), async || {
            let object = pair.object(name).await?;
            object.delivered?.then_some(())
        })
        .await;
    };
    is_there(&mut pair, "one").await;
    let opened = daemon.log().matches("a link begins").count();
    let first = ends(&pair);
    // Until the certificate that the stream was opened with has ended, with two others after it.
    until("it was renewed, and the first has ended", async || {
        (fleet::now() > first && ends(&pair) > first.plus(short)).then_some(())
    })
    .await;
    pair.apply(vec![item("two", "b")]).await;
    is_there(&mut pair, "two").await;
    let log = daemon.log();
    assert!(log.matches("the certificate was renewed").count() >= 2, "{log}");
    assert_eq!(log.matches("a link begins").count(), opened, "the stream was not opened again: {log}");
    let node = pair.operator.node(NODE).await;
    assert_eq!(node.certificate_state, Some(CertificateState::Valid));
    assert_eq!(node.renewal_failure, None);
    let (code, text) = printed(&pair.agent(&["status"]));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("certificate    ends 2") && text.contains(", to be renewed 2"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_ended_while_the_host_slept_is_recovered_by_the_key() {
    let lab = CertificateSettings::default();
    let mut pair = Pair::certified(&says(Mode::Off, None, TransportPolicy::Auto), lab).await;
    let_it_sleep(&pair);
    let daemon = pair.daemon();
    until("the control plane hears what it holds", async || pair.operator.node(NODE).await.held).await;
    assert!(ends(&pair) > fleet::now(), "the new one is on the disk");
    let log = daemon.log();
    assert!(log.contains("another one is requested by the node's key"), "{log}");
    assert_eq!(log.matches("the certificate was renewed").count(), 1, "{log}");
    let (code, text) = printed(&pair.agent(&["status"]));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("certificate    ends 2"), "{text}");
}

/// The control plane was down for a month: the certificates of its nodes have ended when it comes back, and they come back
/// by themselves. Meanwhile they converge on what they hold.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_ended_while_the_control_plane_was_down_is_recovered_when_it_is_back() {
    let lab = CertificateSettings::default();
    let mut pair = Pair::certified(&says(Mode::Off, None, TransportPolicy::Auto), lab).await;
    // It comes back at the same place.
    let way = Way::to(&pair.fleet.url()).await;
    let mut member = membership(&pair);
    member.servers = vec![way.url.clone()];
    StateDir::create(&pair.state()).unwrap().save_membership(&member).unwrap();
    {
        let daemon = pair.daemon();
        until("it holds the release", async || pair.operator.node(NODE).await.held).await;
        assert!(daemon.end().await.success());
    }
    pair.fleet.stop().await;
    way.lead(None);
    let_it_sleep(&pair);
    let daemon = pair.daemon();
    let text = until("it says that the certificate has ended, and that nobody answers", async || {
        let (_, text) = printed(&pair.agent(&["status"]));
        text.contains("EXPIRED").then_some(text)
    })
    .await;
    assert!(text.contains("release        "), "it holds what it held: {text}");
    pair.fleet.start_again().await;
    pair.operator = pair.fleet.operator().await;
    let since = fleet::now();
    way.lead(Some(&pair.fleet.url()));
    until("it is back", async || {
        let node = pair.operator.node(NODE).await;
        (node.last_seen? > since && node.certificate_state == Some(CertificateState::Valid)).then_some(())
    })
    .await;
    assert!(ends(&pair) > fleet::now(), "the new one is on the disk");
    assert_eq!(daemon.log().matches("the certificate was renewed").count(), 1, "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_key_is_not_enough_it_says_how_to_join_again() {
    let off = recovery(CertificateRecovery::Off);
    let pair = Pair::certified(&says(Mode::Off, None, TransportPolicy::Auto), off).await;
    let_it_sleep(&pair);
    let daemon = pair.daemon();
    let text = until("status says why", async || {
        let (_, text) = printed(&pair.agent(&["status"]));
        text.contains("recovery-off").then_some(text)
    })
    .await;
    assert!(text.contains("CERTIFICATE    EXPIRED 2"), "{text}");
    assert!(text.contains(&format!("muster token mint {NODE}; then here: ")), "{text}");
    assert!(daemon.log().contains("the certificate could not be renewed"), "{}", daemon.log());
}

/// What the control plane answers is taken up only if it is this key's, under a CA that is known; the certificate
/// before stays on the disk until the new one is there whole.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_not_asked_for_changes_nothing() {
    use agent::membership::{MembershipFile, TakeUpError};
    use wire::enroll::RenewAnswer;

    let pair = Pair::new(&says(Mode::Off, None, TransportPolicy::Auto)).await;
    let key = identity::key(KeySource::Own, &pair.state(), &pair.root()).unwrap();
    let before = membership(&pair);
    let file = MembershipFile::of(&pair.state(), before.clone(), key.clone());
    let ca = pair.fleet.node_ca();
    let (other_ca, _) = net::issue::Ca::generate("other", fleet::now()).unwrap();
    let issue = |ca: &net::issue::Ca, key: &trust::SigningKey| {
        let csr = CertificateRequest::read(&node_request(key, &before.hostname).unwrap()).unwrap();
        let id = key.public().node_id();
        ca.issue_node(&csr, &id, &before.hostname, [3; 16], node_validity(fleet::now())).unwrap()
    };
    let good = issue(&ca, &key);
    for (cert_pem, what) in [
        (issue(&ca, &fleet::new_key()), "another key"),
        ("no certificate".to_owned(), "no certificate"),
        (issue(&other_ca, &key), "a certificate of another CA"),
    ] {
        let kept = file.keep(RenewAnswer::of(cert_pem));
        assert!(matches!(kept, Err(TakeUpError::NotAsAsked(_))), "{what}");
        assert_eq!(membership(&pair).cert_pem, before.cert_pem, "{what}");
    }
    file.keep(RenewAnswer::of(good.clone())).unwrap();
    let after = membership(&pair);
    assert_eq!((after.cert_pem, after.ca_pem), (good, before.ca_pem));
    assert_eq!(after.servers, before.servers);
}

/// LIF-10: what the daemon's own thread asks of the membership is answered while the disk holds up who reads or writes it.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_a_disk_that_holds_the_membership_up() {
    use std::sync::Arc;

    use agent::membership::MembershipFile;
    use wire::enroll::RenewAnswer;

    let pair = Pair::new(&says(Mode::Off, None, TransportPolicy::Auto)).await;
    let key = identity::key(KeySource::Own, &pair.state(), &pair.root()).unwrap();
    let file = Arc::new(MembershipFile::of(&pair.state(), membership(&pair), key.clone()));
    let csr = CertificateRequest::read(&node_request(&key, &membership(&pair).hostname).unwrap()).unwrap();
    let (id, validity) = (key.public().node_id(), node_validity(fleet::now()));
    let cert_pem =
        pair.fleet.node_ca().issue_node(&csr, &id, &membership(&pair).hostname, [3; 16], validity).unwrap();
    let path = pair.state().join("membership.json");
    std::fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let keeper = file.clone();
    let keeping = tokio::task::spawn_blocking(move || keeper.keep(RenewAnswer::of(cert_pem)).is_ok());
    // It opens when somebody reads, who then waits for as long as it is open.
    let opened = tokio::task::spawn_blocking(move || std::fs::OpenOptions::new().write(true).open(path));
    let held_up = opened.await.unwrap().unwrap();
    let (asked, reader) = (file.clone(), fleet::now());
    let answers = tokio::task::spawn_blocking(move || {
        (asked.certificate_has_ended(reader), asked.request().is_ok(), asked.without_certificate().is_ok())
    });
    let answered = tokio::time::timeout(Duration::from_secs(30), answers).await;
    drop(held_up);
    assert_eq!(answered.expect("it waits for the disk").unwrap(), (false, true, true));
    keeping.await.unwrap();
}
