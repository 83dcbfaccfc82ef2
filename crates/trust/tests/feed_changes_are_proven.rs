//! IDN-9: a proof of a change counts for that fleet, node, incarnation, number, object and content alone; one
//! signature covers a commit group of any size; keys rotate with overlap.
#![allow(clippy::unwrap_used)]

use model::{Digest, Incarnation, NodeId, ObjectKey, Timestamp};
use proptest::prelude::*;
use trust::feed_proof::{
    FeedOwner, FeedSigner, FeedVerifier, MAX_GROUP, MAX_PROOF, ProvenChange, ProvenHead, UnprovenError,
    counts,
};
use trust::{SigningKey, Slots};

/// The length of the proof of a change that is alone in its group.
const GROUP_PROOF: usize = MAX_PROOF - 17 * 32;
const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32])
}

fn owner(fleet: &str, node: &str) -> FeedOwner {
    FeedOwner { fleet: fleet.parse().unwrap(), node: NodeId::of_key(node.as_bytes()) }
}

fn signer(seed: u8) -> FeedSigner {
    FeedSigner::new("acme-1".parse().unwrap(), key(seed))
}

fn verifier(keys: Slots) -> FeedVerifier {
    FeedVerifier::new(owner("acme-1", "web-1"), keys)
}

fn believes(seed: u8) -> FeedVerifier {
    verifier(Slots::of(key(seed).public()))
}

fn incarnation(name: &str) -> Incarnation {
    name.parse().unwrap()
}

#[test]
fn a_proof_counts_for_one_change_of_one_node() {
    let (s1, digest, object) = (incarnation("s1"), Digest::of(b"content"), ObjectKey::of("Site", "shop"));
    let change = ProvenChange { incarnation: &s1, rev: 7, key: &object, uid: "u1", digest: Some(&digest) };
    let of = owner("acme-1", "web-1");
    let proof = signer(1).sign_changes(&[change.leaf(&of)], AT).remove(0);
    let verify = |verifier: &FeedVerifier, change: &ProvenChange<'_>, proof: &[u8]| {
        verifier.verify_change(change, Some(proof), &mut None)
    };
    assert_eq!(verify(&believes(1), &change, &proof), Ok(()));

    let (s2, other, elsewhere) = (incarnation("s2"), Digest::of(b"other"), ObjectKey::of("Site", "shop2"));
    let others = [
        ProvenChange { incarnation: &s2, ..change },
        ProvenChange { rev: 8, ..change },
        ProvenChange { key: &elsewhere, ..change },
        ProvenChange { uid: "u2", ..change },
        ProvenChange { digest: Some(&other), ..change },
        ProvenChange { digest: None, ..change },
    ];
    for other in &others {
        assert_eq!(verify(&believes(1), other, &proof), Err(UnprovenError::Forged), "{other:?}");
    }
    for of in [owner("acme-2", "web-1"), owner("acme-1", "web-2")] {
        let elsewhere = FeedVerifier::new(of, Slots::of(key(1).public()));
        assert_eq!(verify(&elsewhere, &change, &proof), Err(UnprovenError::Forged));
    }
    assert_eq!(verify(&believes(2), &change, &proof), Err(UnprovenError::UnknownKey));
    assert_eq!(believes(1).verify_change(&change, None, &mut None), Err(UnprovenError::Missing));
}

#[test]
fn malformed_proofs_are_refused_by_name() {
    let (s1, object) = (incarnation("s1"), ObjectKey::of("Site", "shop"));
    let change = ProvenChange { incarnation: &s1, rev: 7, key: &object, uid: "u1", digest: None };
    let leaf = change.leaf(&owner("acme-1", "web-1"));
    let (before, behind) = (Digest::of(b"another change"), Digest::of(b"one more"));
    let proof = signer(1).sign_changes(&[before, leaf, behind], AT).remove(1);
    let verify = |proof: &[u8]| believes(1).verify_change(&change, Some(proof), &mut None);
    assert_eq!(verify(&proof), Ok(()));
    for cut in 0..proof.len() {
        assert!(verify(&proof[..cut]).is_err(), "cut at {cut}");
    }
    assert_eq!(verify(&[&proof[..], &[0; 32]].concat()), Err(UnprovenError::Malformed));
    for at in 0..proof.len() {
        let mut flipped = proof.clone();
        flipped[at] ^= 1;
        assert!(verify(&flipped).is_err(), "byte {at}");
    }
    // A proof of a head is none of a change, and the other way round.
    let (root, of) = (Digest::of(b"root"), owner("acme-1", "web-1"));
    let head = ProvenHead { incarnation: &s1, revision: 7, root: &root, challenge: "c" };
    let head_proof = signer(1).sign_head(&of, &head);
    assert_eq!(verify(&head_proof), Err(UnprovenError::Malformed));
    assert_eq!(believes(1).verify_head(&head, Some(&proof)), Err(UnprovenError::Malformed));
}

#[test]
fn a_head_counts_for_one_challenge_and_one_root() {
    let (s1, s2, root, other) = (incarnation("s1"), incarnation("s2"), Digest::of(b"1"), Digest::of(b"2"));
    let head = ProvenHead { incarnation: &s1, revision: 7, root: &root, challenge: "i1.99" };
    let proof = signer(1).sign_head(&owner("acme-1", "web-1"), &head);
    assert_eq!(believes(1).verify_head(&head, Some(&proof)), Ok(()));
    let others = [
        ProvenHead { challenge: "i1.98", ..head },
        ProvenHead { root: &other, ..head },
        ProvenHead { revision: 8, ..head },
        ProvenHead { incarnation: &s2, ..head },
    ];
    for other in &others {
        assert_eq!(believes(1).verify_head(other, Some(&proof)), Err(UnprovenError::Forged), "{other:?}");
    }
    assert_eq!(believes(1).verify_head(&head, None), Err(UnprovenError::Missing));
    assert_eq!(believes(2).verify_head(&head, Some(&proof)), Err(UnprovenError::UnknownKey));
}

#[test]
fn keys_rotate_with_overlap_and_can_be_rejected() {
    let (s1, object) = (incarnation("s1"), ObjectKey::of("Site", "shop"));
    let change = ProvenChange { incarnation: &s1, rev: 7, key: &object, uid: "u1", digest: None };
    let proof = signer(1).sign_changes(&[change.leaf(&owner("acme-1", "web-1"))], AT).remove(0);
    let rotated = Slots { previous: Some(key(1).public()), ..Slots::of(key(2).public()) };
    let verify = |keys: Slots| verifier(keys).verify_change(&change, Some(&proof), &mut None);
    assert_eq!(verify(rotated.clone()), Ok(()));
    assert_eq!(verify(Slots { previous: None, ..rotated.clone() }), Err(UnprovenError::UnknownKey));
    let later = AT.plus(std::time::Duration::from_millis(1));
    assert_eq!(verify(Slots { reject_before: Some(AT), ..rotated.clone() }), Ok(()));
    let rejecting = Slots { reject_before: Some(later), ..rotated.clone() };
    assert_eq!(verify(rejecting), Err(UnprovenError::RejectedBefore(later)));
    // What is stored is judged alike without a signature that is verified.
    assert!(counts(&proof, &rotated));
    assert!(!counts(&proof, &Slots { previous: None, ..rotated.clone() }));
    assert!(counts(&proof, &Slots { reject_before: Some(AT), ..rotated.clone() }));
    assert!(!counts(&proof, &Slots { reject_before: Some(later), ..rotated.clone() }));
    assert!(!counts(&[], &rotated));
    assert!(!counts(&proof[..GROUP_PROOF - 1], &rotated));
}

#[test]
fn the_largest_group_has_the_longest_proof() {
    let leaves: Vec<Digest> = (0u32..MAX_GROUP as u32).map(|n| Digest::of(&n.to_be_bytes())).collect();
    let mut more = leaves.clone();
    more.push(Digest::ZERO);
    let proofs = signer(1).sign_changes(&more, AT);
    assert_eq!(proofs.len(), MAX_GROUP, "what is beyond a group is not covered");
    assert!(proofs.iter().all(|proof| proof.len() == MAX_PROOF));
    assert_eq!(signer(1).sign_changes(&[], AT), Vec::<Vec<u8>>::new());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Each change of a group of any size is proven by its own proof, and by no other's.
    #[test]
    fn every_change_of_a_group_has_its_own_proof(count in 1usize..70, at in any::<prop::sample::Index>(), other in any::<prop::sample::Index>()) {
        let (s1, of) = (incarnation("s1"), owner("acme-1", "web-1"));
        let keys: Vec<ObjectKey> = (0..count).map(|n| ObjectKey::of("Site", &format!("n{n}"))).collect();
        let change = |n: usize| ProvenChange { incarnation: &s1, rev: n as u64 + 1, key: &keys[n], uid: "u", digest: None };
        let leaves: Vec<Digest> = (0..count).map(|n| change(n).leaf(&of)).collect();
        let proofs = signer(1).sign_changes(&leaves, AT);
        let (at, other) = (at.index(count), other.index(count));
        // The group's signature is verified once.
        let mut last = None;
        prop_assert_eq!(believes(1).verify_change(&change(at), Some(&proofs[at]), &mut last), Ok(()));
        prop_assert!(last.is_some());
        let by_other = believes(1).verify_change(&change(at), Some(&proofs[other]), &mut last);
        prop_assert_eq!(by_other.is_ok(), at == other);
    }
}
