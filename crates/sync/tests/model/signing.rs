//! A control plane's key, and what it proves (IDN-9).
#![allow(dead_code)]

use std::sync::Arc;

use bytes::Bytes;
use model::{Incarnation, NodeId, ObjectKey, Timestamp};
use sync::feed::ObjectState;
use sync::link::{FeedProofs, FeedProver};
use trust::feed_proof::FeedVerifier;
use trust::{FeedOwner, FeedSigner, SigningKey, Slots};

pub fn owner() -> FeedOwner {
    FeedOwner { fleet: "acme-1".parse().unwrap(), node: NodeId::of_key(b"web-1") }
}

pub fn signer(seed: u8) -> Arc<FeedSigner> {
    Arc::new(FeedSigner::new(owner().fleet, SigningKey::from_seed(&[seed; 32])))
}

/// The control plane's end with the key of this seed.
pub fn made(seed: u8) -> FeedProofs {
    FeedProofs::Made(FeedProver { signer: signer(seed), owner: owner() })
}

/// The node's end, which believes the key of this seed.
pub fn required(seed: u8) -> FeedProofs {
    let keys = Slots::of(SigningKey::from_seed(&[seed; 32]).public());
    FeedProofs::Required(Arc::new(FeedVerifier::new(owner(), keys)))
}

/// What the control plane's end keeps with a change.
pub fn proof(
    proofs: &FeedProofs,
    incarnation: &Incarnation,
    rev: u64,
    key: &ObjectKey,
    state: &ObjectState,
) -> Option<Bytes> {
    let FeedProofs::Made(prover) = proofs else { return None };
    let leaf = prover.leaf(incarnation, rev, key, state);
    prover.signer.sign_changes(&[leaf], Timestamp(1)).pop().map(Bytes::from)
}
