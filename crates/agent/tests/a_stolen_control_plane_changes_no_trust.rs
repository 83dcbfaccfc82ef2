//! IDN-2, IDN-8, IDN-11, ROL-4: a control plane with every key of its own stolen changes nothing of whom a host believes:
//! no forged trust document, no certificate for another key or name, no release of another node, and no wrong time.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use model::exchange::Offer;
use model::{Hostname, Timestamp};
use net::issue::{Ca, CertificateRequest, node_request, node_validity};
use test_support::scripted::stage::{CONTROL_PLANE, DAY, OfferPlan, RELEASE, make, trust};
use test_support::scripted::stolen::Instead;
use test_support::scripted::victim::{Victim, delegating};
use test_support::scripted::{certificate, key, now, problem};
use test_support::wait::until;
use trust::SigningKey;
use trust::chain::{ChainHead, SlotChange, SlotName, next_version, sign};
use wire::{Code, Problem, route};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A newer trust document with another release key, signed by this key.
fn link(signer: &SigningKey, evil: &SigningKey) -> model::exchange::Signed {
    let change = SlotChange::Replace(evil.public());
    let next = next_version(&ChainHead::of(trust()), SlotName::Release, change, None, now()).unwrap();
    sign(&next, signer).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_release_key_of_its_own() {
    let mut victim = Victim::start().await;
    let evil = 77;
    let signers = [
        ("a key of its own", key(evil)),
        ("the key that proves its feeds", key(CONTROL_PLANE)),
        ("the release key", key(RELEASE)),
        ("the node's key", key(1)),
    ];
    let after = victim.control.stage.last();
    for (what, signer) in signers {
        let forged = link(&signer, &key(evil));
        victim.control.stage.play().twist =
            Some(Arc::new(move |answer| answer.trust_links = vec![forged.clone()]));
        victim.contacts(3).await;
        let said = victim.control.stage.play().said.as_ref().and_then(|said| said.trust.clone());
        let said = said.unwrap_or_else(|| panic!("{what}: it says nothing of the link"));
        assert_eq!((said.version, said.refused.as_deref()), (1, Some("trust-forged")), "{what}");
    }
    until("it is told as a fact", async || {
        victim.refusals(after).contains(&"trust-forged".to_owned()).then_some(())
    })
    .await;
    let forged = make(&OfferPlan { signer: evil, ..delegating(6, "evil\n") });
    victim.refuses(forged.offer, "release-signature").await;
    victim.is_alive();
    assert_eq!(victim.file("/etc/motd"), "five\n");
    assert_eq!(victim.state().membership().unwrap().unwrap().trust, trust());
    assert!(!victim.state().path().join("trust.json").exists(), "no newer one was kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_release_of_another_node() {
    let victim = Victim::start().await;
    let made = make(&delegating(6, "evil\n"));
    let (entry, proof) = made.of_another.clone();
    // What is another node's, as the release key signed it, with that node's proof.
    let of_another = Offer { entry, proof, ..made.offer.clone() };
    victim.refuses(of_another, "release-proof").await;
    // And with this node's proof beside it.
    let mixed = Offer { entry: made.of_another.0, ..make(&delegating(7, "evil\n")).offer };
    victim.refuses(mixed, "release-proof").await;
    assert_eq!(victim.file("/etc/motd"), "five\n");
}

/// How many certificates a control plane tries in vain.
const WRONG_CERTIFICATES: usize = 5;

/// Certificates that are not what was asked for, and why.
fn wrong_certificates(ca: &Ca) -> [(&'static str, String); WRONG_CERTIFICATES] {
    let own: Hostname = "web-1".parse().unwrap();
    let (other_ca, _) = Ca::generate("other", now()).unwrap();
    let of_another_id = {
        // The URI names another node than the key's.
        let csr = CertificateRequest::read(&node_request(&key(1), &own).unwrap()).unwrap();
        ca.issue_node(&csr, &key(9).public().node_id(), &own, [3; 16], node_validity(now())).unwrap()
    };
    [
        ("another key", certificate(ca, &key(9), &own)),
        ("another name", certificate(ca, &key(1), &"web-2".parse().unwrap())),
        ("another node's id", of_another_id),
        ("another CA", certificate(&other_ca, &key(1), &own)),
        ("no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_certificate_for_another_key_or_name() {
    for n in 0..WRONG_CERTIFICATES {
        // Another host each time: the waits of one double from failure to failure.
        let mut victim = Victim::start().await;
        let before = victim.state().membership().unwrap().unwrap();
        let (what, cert_pem) = wrong_certificates(victim.control.ca())[n].clone();
        victim.control.certify(cert_pem);
        victim.control.stage.play().twist = Some(Arc::new(|answer| answer.renew_certificate = true));
        until(&format!("{what}: it says that it is not renewed"), async || {
            victim.control.stage.play().said.as_ref()?.renewal_failure.clone()
        })
        .await;
        let after = victim.state().membership().unwrap().unwrap();
        assert_eq!(after.cert_pem, before.cert_pem, "{what}: the one before stays");
        victim.is_alive();
        // The right one is taken, and that is the end of it.
        victim.control.certify(certificate(victim.control.ca(), &key(1), &"web-1".parse().unwrap()));
        until(&format!("{what}: it is renewed after that"), async || {
            let after = victim.state().membership().unwrap().unwrap();
            (after.cert_pem != before.cert_pem).then_some(())
        })
        .await;
    }
}

/// Says once that the node's clock is off.
fn says_the_time_is(victim: &Victim, time: Timestamp) {
    let skewed = Problem { server_time: Some(time), ..Problem::new(Code::Skewed, "your clock is off") };
    victim.control.instead(route::CHECKIN, Instead::Reply(problem(&skewed)));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_time_that_makes_an_old_release_fresh_or_a_future_one_due() {
    let victim = Victim::start().await;
    let (long_ago, far_ahead) = (now().minus(DAY * 3), now().plus(YEAR * 10));
    for (what, time) in [("the day before yesterday", long_ago), ("in ten years", far_ahead)] {
        let asked = victim.control.asked(route::CHECKIN) + 2;
        says_the_time_is(&victim, time);
        until(&format!("{what}: it was told"), async || {
            (victim.control.asked(route::CHECKIN) >= asked).then_some(())
        })
        .await;
        victim.control.as_usual();
        let stale =
            make(&OfferPlan { created: now().minus(DAY * 2), label: Some(what), ..delegating(6, "old\n") });
        victim.refuses(stale.offer, "release-stale").await;
    }
    assert_eq!(victim.file("/etc/motd"), "five\n");
    // Told the right time again, it takes what is signed now.
    says_the_time_is(&victim, now());
    let asked = victim.control.asked(route::CHECKIN) + 2;
    until("it was told", async || (victim.control.asked(route::CHECKIN) >= asked).then_some(())).await;
    victim.control.as_usual();
    victim.adopts(&delegating(7, "seven\n")).await;
}
