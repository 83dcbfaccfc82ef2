//! IDN-8: a node takes newer trust documents up link by link, each durable before anything is judged by it, and says
//! which one it holds. One that cannot follow says so, keeps what it holds, and goes on converging.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{
    Bench, Release, START, adoption_of, answer, facts, offering, release_key, run_of, trust, warnings,
};
use model::exchange::{Answer, Signed};
use model::log::FactBody;
use node::{Node, NodeEffect, NodeInput, Restored, TrustRecord};
use trust::chain::{self, ChainHead, SlotChange, SlotName};
use trust::{SigningKey, signed};

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32])
}

/// Rotations of both keys in turn: the links, and the last release key.
fn rotations(count: u8) -> (Vec<Signed>, Vec<ChainHead>, SigningKey) {
    let (mut head, mut root, mut release) = (ChainHead::of(trust()), key(2), 1);
    let (mut links, mut heads) = (Vec::new(), vec![head.clone()]);
    for step in 0..count {
        let new = 100 + step;
        let slot = if step % 2 == 0 { SlotName::Release } else { SlotName::Root };
        let next =
            chain::next_version(&head, slot, SlotChange::Replace(key(new).public()), None, START).unwrap();
        let link = chain::sign(&next, &root).unwrap();
        head = head.follow(&link).unwrap();
        match slot {
            SlotName::Release => release = new,
            SlotName::Root => root = key(new),
            SlotName::Beacon | SlotName::ControlPlane | SlotName::CertificateAuthority => {
                unreachable!("it is not rotated here")
            }
        }
        links.push(link);
        heads.push(head.clone());
    }
    (links, heads, key(release))
}

fn with_links(links: &[Signed]) -> Answer {
    Answer { trust_links: links.to_vec(), ..answer() }
}

fn saved(effects: &[NodeEffect]) -> Option<TrustRecord> {
    effects.iter().find_map(|effect| match effect {
        NodeEffect::SaveTrust(record) => Some((**record).clone()),
        _ => None,
    })
}

/// A release whose header another key signed than the one that the node joined with.
fn resigned(release: &Release, by: &SigningKey, base: Option<&model::ObjectSet>) -> model::exchange::Offer {
    let offer = release.offer(base);
    model::exchange::Offer { header: signed::sign(&release.header, &[by]).unwrap(), ..offer }
}

#[test]
fn the_newest_document_judges_once_it_is_durable() {
    let (links, heads, release_key) = rotations(5);
    let held = Release::new(1, START, &["a"]);
    let mut bench = Bench::holding(&held);
    let next = Release::new(2, START, &["a", "b"]);
    let offer = resigned(&next, &release_key, Some(&held.set));
    assert_eq!(bench.check_in().trust, None, "the first version is not named");
    // The first two links, beside an offer of the newest release: it waits.
    let both = Answer { trust_links: links[..2].to_vec(), ..offering(offer.clone()) };
    let effects = bench.give(NodeInput::Answered(Box::new(both)));
    let record = saved(&effects).unwrap();
    assert_eq!(record.link, links[1]);
    assert!(facts(&effects).is_empty() && warnings(&effects).is_empty(), "{effects:?}");
    assert_eq!(bench.node.trust().version, 1, "not before it is durable");
    let now = bench.now;
    bench.give(NodeInput::TrustSaved);
    assert_eq!(bench.node.trust(), &heads[2].document);
    let check_in = bench.check_in();
    assert!(bench.now.since(now) <= Duration::from_secs(1), "the rest at once");
    assert_eq!(check_in.trust, Some(heads[2].held()));
    let effects = bench.give(NodeInput::Answered(Box::new(with_links(&links[2..]))));
    assert_eq!(saved(&effects).unwrap().link, links[4]);
    bench.give(NodeInput::TrustSaved);
    // What is held stays in force, though its key counts no more; the newest is adopted.
    assert_eq!(bench.node.adoption().unwrap().seq, 1);
    let effects = bench.exchange(offering(offer));
    assert!(facts(&effects).is_empty(), "{effects:?}");
    assert!(adoption_of(&bench.give(NodeInput::Fetched)).is_some());
}

#[test]
fn one_that_follows_nothing_yet_says_why() {
    let (links, _, _) = rotations(2);
    let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
    let effects = bench.exchange(with_links(&links[1..]));
    assert!(warnings(&effects)[0].starts_with("a newer trust document is refused: "), "{effects:?}");
    let held = bench.check_in().trust.unwrap();
    assert_eq!((held.version, held.refused.as_deref()), (1, Some("trust-gap")));
    assert_eq!(bench.node.held_trust(), Some(held));
    assert_eq!(bench.node.trust_record(), None);
    // What comes while the links are written is not written beside it.
    let effects = bench.give(NodeInput::Answered(Box::new(with_links(&links))));
    let record = saved(&effects).unwrap();
    assert_eq!(saved(&bench.exchange(with_links(&links))), None);
    bench.give(NodeInput::TrustSaved);
    assert_eq!(bench.node.trust_record(), Some(&record));
}

/// What was refused is judged by the new document, and told by it: the reason may be another one, or stay.
#[test]
fn a_new_document_tells_its_refusals_anew() {
    let (links, _, _) = rotations(1);
    let held = Release::new(1, START, &["a"]);
    let mut bench = Bench::holding(&held);
    let next = Release::new(2, START, &["b"]);
    let forged = resigned(&next, &key(99), Some(&held.set));
    let told = |bench: &mut Bench| !facts(&bench.exchange(offering(forged.clone()))).is_empty();
    assert_eq!([told(&mut bench), told(&mut bench)], [true, false]);
    bench.exchange(with_links(&links));
    bench.give(NodeInput::TrustSaved);
    assert_eq!([told(&mut bench), told(&mut bench)], [true, false]);
    let wait = bench.wait().unwrap();
    assert!(wait > Duration::from_secs(10), "{wait:?}");
    bench.give(NodeInput::TrustPinned(Box::new(trust())));
    assert!(bench.wait().unwrap() <= Duration::from_secs(1), "whom it believes now it asks at once");
    assert_eq!([told(&mut bench), told(&mut bench)], [true, false]);
}

/// C5, IDN-8: beacons are judged by the document that is held: the new key's count, and those of the dropped key no more.
#[test]
fn beacons_are_of_the_keys_that_are_held() {
    let (links, _, new_key) = rotations(1);
    let held = Release::new(1, START, &["a"]);
    let mut bench = Bench::holding(&held);
    let beacon = |bench: &Bench, by: &SigningKey| {
        let header = signed::digest(&signed::sign(&held.header, &[&release_key()]).unwrap());
        let (fleet, channel) = (held.header.fleet.clone(), held.header.channel.clone());
        let beacon = trust::Beacon { fleet, channel, seq: held.header.seq, header, at: bench.now };
        signed::sign(&beacon, &[by]).unwrap()
    };
    // Beside links it waits for the document that they lead to.
    bench.check_in();
    let beside = Answer { beacon: Some(beacon(&bench, &new_key)), ..with_links(&links) };
    let effects = bench.give(NodeInput::Answered(Box::new(beside)));
    assert!(facts(&effects).is_empty(), "{effects:?}");
    bench.give(NodeInput::TrustSaved);
    bench.check_in();
    let by_new = Answer { beacon: Some(beacon(&bench, &new_key)), ..answer() };
    let effects = bench.give(NodeInput::Answered(Box::new(by_new)));
    assert!(facts(&effects).is_empty(), "{effects:?}");
    assert!(effects.iter().any(|effect| matches!(effect, NodeEffect::SaveFreshness(_))), "{effects:?}");
    bench.pass(Duration::from_secs(60));
    bench.check_in();
    let by_old = Answer { beacon: Some(beacon(&bench, &release_key())), ..answer() };
    let effects = bench.give(NodeInput::Answered(Box::new(by_old)));
    let [FactBody::Refused { code, .. }] = facts(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!(code, "beacon-signature");
}

#[test]
fn what_cannot_be_kept_is_not_used_and_asked_for_again() {
    let (links, heads, _) = rotations(1);
    let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
    assert!(saved(&bench.exchange(with_links(&links))).is_some());
    let effects = bench.give(NodeInput::TrustNotSaved("the disk is full".to_owned()));
    assert!(warnings(&effects)[0].contains("the disk is full"));
    assert_eq!(bench.node.trust().version, 1);
    assert_eq!(bench.check_in().trust, None);
    assert!(saved(&bench.give(NodeInput::Answered(Box::new(with_links(&links))))).is_some());
    bench.give(NodeInput::TrustSaved);
    assert_eq!(bench.check_in().trust, Some(heads[1].held()));
}

#[test]
fn a_start_goes_on_from_the_record_unless_the_host_joined_anew() {
    let (links, heads, _) = rotations(3);
    let record = |pinned| Some(TrustRecord { pinned, link: links[2].clone() });
    let pinned = heads[0].digest;
    let mut bench = Bench::restored(Restored { trust: record(pinned), ..Restored::default() });
    assert_eq!(bench.check_in().trust, Some(heads[3].held()));
    // Its token names another document since.
    let other = Restored { trust: record(heads[1].digest), ..Restored::default() };
    assert_eq!(Bench::restored(other).check_in().trust, None);
    assert_eq!(Node::trusted(&trust(), record(pinned)), heads[3].document);
    assert_eq!(Node::trusted(&trust(), None), heads[0].document);
}

#[test]
fn one_whose_root_was_rejected_says_so_until_it_joins_anew() {
    let (links, heads, _) = rotations(1);
    let held = Release::new(1, START, &["a"]);
    let mut bench = Bench::holding(&held);
    // The next version is signed by a root that this node does not know.
    let anew =
        chain::next_version(&heads[1], SlotName::Root, SlotChange::Replace(key(77).public()), None, START);
    let anew = anew.unwrap();
    let forged = vec![links[0].clone(), chain::sign(&anew, &key(77)).unwrap()];
    let effects = bench.exchange(with_links(&forged));
    // What leads on is followed, and what does not is a fact.
    assert_eq!(saved(&effects).unwrap().link, links[0]);
    let [FactBody::Refused { code, message }] = facts(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!(code, "trust-forged");
    assert_eq!(message, "what follows trust document 2 is not signed by a root key of it");
    bench.give(NodeInput::TrustSaved);
    let told = bench.check_in().trust.unwrap();
    assert_eq!((told.version, told.refused.as_deref()), (2, Some("trust-forged")));
    // The same again is no news, and contacts keep their interval.
    let effects = bench.give(NodeInput::Answered(Box::new(with_links(&forged[1..]))));
    assert!(facts(&effects).is_empty() && saved(&effects).is_none());
    assert!(bench.node.refused_trust().is_some());
    // Releases that its own document vouches for are still judged, and the held one is converged on.
    bench.give(NodeInput::Ran(Box::new(common::report(0, 1))));
    let mut runs = (0..100).filter_map(|_| run_of(&bench.pass(Duration::from_secs(60))).cloned());
    assert_eq!(runs.next().expect("a run on the held set").seq, 1);
    // A token names the document with the new root.
    bench.give(NodeInput::TrustPinned(Box::new(anew.clone())));
    assert_eq!(bench.node.trust(), &anew);
    assert_eq!(bench.node.refused_trust(), None);
    let told = bench.check_in().trust.unwrap();
    assert_eq!((told.version, told.refused), (3, None));
}

#[test]
fn an_answer_to_an_earlier_question_is_not_followed() {
    let (links, _, _) = rotations(2);
    let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
    bench.check_in();
    // The host joins anew while the check-in is under way: its answer leads on from elsewhere.
    bench.give(NodeInput::TrustPinned(Box::new(ChainHead::read(&links[0]).unwrap().document)));
    let effects = bench.give(NodeInput::Answered(Box::new(with_links(&links))));
    assert!(saved(&effects).is_none() && facts(&effects).is_empty(), "{effects:?}");
    // A control plane that has nothing newer any more ends what was refused.
    bench.exchange(with_links(&links[..1]));
    assert!(bench.node.refused_trust().is_some());
    bench.exchange(answer());
    assert_eq!(bench.node.refused_trust(), None);
}

/// IDN-8: a node that slept while the fleet's CA was replaced believes no certificate that it is shown. It asks whoever
/// answers for the links after what it holds, and follows those alone that a root key signed.
#[test]
fn who_shows_another_certificate_is_asked_for_the_links() {
    let (links, heads, _) = rotations(3);
    let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
    let asked = |effects: &[NodeEffect]| {
        effects.iter().any(|effect| *effect == NodeEffect::FetchTrustLinks(heads[0].digest))
    };
    bench.check_in();
    assert!(asked(&bench.give(NodeInput::ForeignServer)));
    bench.give(NodeInput::Unreachable("another CA".into()));
    // Links of another chain lead nowhere, and that is no refusal of the fleet's.
    let forged = chain::sign(&heads[1].document, &key(99)).unwrap();
    for strangers in [links[1..].to_vec(), vec![forged], vec![links[0].clone(); 17]] {
        let effects = bench.give(NodeInput::TrustLinks(strangers));
        assert_eq!((saved(&effects), bench.node.trust()), (None, &heads[0].document));
        assert!(facts(&effects).is_empty() && warnings(&effects).is_empty(), "{effects:?}");
        assert_eq!(bench.node.refused_trust(), None);
    }
    let effects = bench.give(NodeInput::TrustLinks(links.clone()));
    assert_eq!(saved(&effects).unwrap().link, links[2]);
    assert!(!asked(&bench.give(NodeInput::ForeignServer)), "not while a newer one is made durable");
    bench.give(NodeInput::TrustSaved);
    assert_eq!(bench.node.trust(), &heads[3].document);
}

/// IDN-8: what whoever answers hands on makes a node tell a refusal only where a root key signed what it cannot read:
/// then its agent is too old, whoever it was.
#[test]
fn a_strangers_links_are_told_of_only_where_a_root_key_signed_them() {
    let (_, heads, _) = rotations(1);
    let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
    bench.check_in();
    bench.give(NodeInput::ForeignServer);
    let unreadable = |by: SigningKey| {
        let form = serde_json::json!({"fleet": heads[0].document.fleet, "version": "a later form"});
        let payload = form.to_string();
        let message = signed::message("trust-document", payload.as_bytes());
        let sig = signed::signature(&by.public(), &message, &by.sign(&message)).unwrap();
        Signed { payload, signatures: vec![sig] }
    };
    assert!(facts(&bench.give(NodeInput::TrustLinks(vec![unreadable(key(99))]))).is_empty());
    assert_eq!(bench.node.refused_trust(), None);
    let told = bench.give(NodeInput::TrustLinks(vec![unreadable(key(2))]));
    assert_eq!(facts(&told).len(), 1, "{told:?}");
    assert_eq!(bench.node.refused_trust().map(chain::ChainError::code), Some("trust-malformed"));
    // Nor does a stranger take back what was refused.
    bench.give(NodeInput::TrustLinks(Vec::new()));
    assert!(bench.node.refused_trust().is_some());
}
