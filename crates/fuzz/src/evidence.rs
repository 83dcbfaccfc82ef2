//! What proves something to who has a key alone: proofs of feeds, statements of sealing keys, exported proofs.

use std::sync::LazyLock;

use model::{Digest, FleetId, Hostname, Incarnation, NodeId, ObjectKey};
use trust::equivocation::{SeenRecord, Testimony};
use trust::feed_proof::{self, FeedOwner, FeedVerifier, MAX_PROOF, ProvenChange, ProvenHead};
use trust::nix::{CacheKey, NarInfo, StorePath, store_paths_in};
use trust::provenance::{AnchoredTrust, Provenance, TrustAnchor};
use trust::sealing::{RelayedStatement, SealingStatement};
use trust::{SigningKey, TrustDocument};
use wire::body;

use crate::documents::{SEED, canonical, slots};

/// What seeds are about.
struct About {
    fleet: FleetId,
    hostname: Hostname,
    verifier: FeedVerifier,
    incarnation: Incarnation,
    object: ObjectKey,
    digest: Digest,
}

static ABOUT: LazyLock<Option<About>> = LazyLock::new(|| {
    let fleet: FleetId = "demo-1".parse().ok()?;
    let owner = FeedOwner { fleet: fleet.clone(), node: NodeId::of_key(b"web-1") };
    let verifier = FeedVerifier::new(owner, slots());
    let (incarnation, object) = ("s1".parse().ok()?, ObjectKey::of("Site", "shop"));
    let (hostname, digest) = ("web-1".parse().ok()?, Digest::of(b"content"));
    Some(About { fleet, hostname, verifier, incarnation, object, digest })
});

/// A proof of a change, or of where a feed stands (IDN-9).
pub(crate) fn feed_proof(data: &[u8]) {
    let Some(About { verifier, incarnation, object, digest, .. }) = &*ABOUT else { return };
    let change = ProvenChange { incarnation, rev: 7, key: object, uid: "u1", digest: Some(digest) };
    let mut last = None;
    if verifier.verify_change(&change, Some(data), &mut last).is_ok() {
        assert!(data.len() <= MAX_PROOF, "within the bound");
        assert!(feed_proof::counts(data, &slots()), "what is verified counts as it is stored");
        let other = ProvenChange { rev: 8, ..change };
        assert!(verifier.verify_change(&other, Some(data), &mut last).is_err(), "of one change alone");
    }
    let head = ProvenHead { incarnation, revision: 7, root: digest, challenge: "c" };
    let is_head = verifier.verify_head(&head, Some(data)).is_ok();
    assert!(!is_head || !feed_proof::counts(data, &slots()), "a head proves no change");
}

/// What a node signed for its sealing key, as a control plane relays it (SEC-1).
pub(crate) fn sealing_statement(data: &[u8]) {
    canonical::<SealingStatement>(data);
    let (Ok(relayed), Some(about)) = (body::decode::<RelayedStatement>(data), &*ABOUT) else { return };
    let declared = SigningKey::from_seed(&SEED).public();
    if let Ok(key) = relayed.recipient(&about.fleet, &about.hostname, &declared.fingerprint()) {
        assert!(
            relayed.identity == declared && key.is_usable(),
            "of the declared key, and one that is sealed for"
        );
    }
}

/// What a cache of Nix says of a path, and paths of the store in any text (ROL-9).
pub(crate) fn narinfo(data: &[u8]) {
    for path in store_paths_in(data) {
        assert!(!path.name().contains('/') && path.to_string().parse() == Ok(path), "below the store alone");
    }
    let Ok(info) = crate::text(data).parse::<NarInfo>() else { return };
    assert!(
        !info.url.starts_with('/')
            && !info.url.contains("://")
            && !info.url.split('/').any(|part| part == "..")
    );
    let written: Result<NarInfo, _> = info.to_string().parse();
    assert_eq!(written.as_ref(), Ok(&info), "what was read is written so");
    let public = SigningKey::from_seed(&SEED).public().to_string();
    let key = public.split_once(':').and_then(|(_, key)| format!("cache-1:{key}").parse::<CacheKey>().ok());
    let Some(key) = key else { return };
    let path = info.path.clone();
    if let Ok(believed) = info.verified(&path, std::slice::from_ref(&key)) {
        let more = StorePath::of_name("zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz-more");
        let mut changed = believed.clone();
        changed.references.extend(more);
        changed.nar_size ^= 1;
        assert!(changed.verified(&path, &[key]).is_err(), "of what was signed alone");
    }
}

/// A file that `muster verify` is given.
pub(crate) fn provenance(data: &[u8]) {
    let Some(About { fleet, .. }) = &*ABOUT else { return };
    let anchors = [
        TrustAnchor::Document(Box::new(TrustDocument::first(fleet.clone(), slots(), slots()))),
        TrustAnchor::RootKey(slots().current),
    ];
    let (read, seen) = (body::decode::<Provenance>(data), body::decode::<SeenRecord>(data));
    for anchor in &anchors {
        if let Ok(provenance) = &read {
            let _ = provenance.verify(anchor, &|_, _, _| true, &mut |_| ());
        }
        if let (Ok(record), Ok(trust)) = (&seen, AnchoredTrust::reach(anchor, &[])) {
            let _ = Testimony::Seen(Box::new(record.clone())).verify(&trust);
        }
    }
}
