//! IDN-8: a channel with a threshold takes a release only with so many signatures of different signers of its list,
//! whatever the release key and the control plane say; and a trust document with thresholds is none that a program
//! from before them reads as one without.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;

use common::{CREATED, at, header, key, name, offer, release_key, trust};
use model::canonical;
use model::exchange::Signed;
use serde::Deserialize;
use trust::adopt::{Judge, judge, takes};
use trust::chain::{self, ChainHead, NextVersionError, SlotChange, SlotName, next_threshold, next_version};
use trust::feature::FEATURES;
use trust::retired::verify_retired;
use trust::signed::{MAX_SIGNATURES, VerifyError, sign};
use trust::threshold::{MAX_SIGNERS, ThresholdFault};
use trust::{ChannelThreshold, Floor, KeyAlgorithm, PublicKey, SigningKey, Slots, TrustDocument};

/// Two ed25519 keys and one of P-256.
fn signers() -> [SigningKey; 3] {
    [key(21), key(22), SigningKey::from_secret(KeyAlgorithm::EcdsaP256, &[23; 32]).unwrap()]
}

fn asks(signatures: u32) -> ChannelThreshold {
    ChannelThreshold { signatures, signers: signers().iter().map(SigningKey::public).collect() }
}

/// Channel main asks for two of three.
fn by_threshold() -> TrustDocument {
    TrustDocument { thresholds: [("main".parse().unwrap(), asks(2))].into(), ..trust() }
}

fn too_few(have: usize) -> Option<VerifyError> {
    Some(VerifyError::TooFew { channel: "main".parse().unwrap(), have, need: 2 })
}

#[test]
fn a_header_needs_so_many_of_the_list() {
    let ([a, b, c], trust) = (signers(), by_threshold());
    let by = |keys: &[&SigningKey]| sign(&header(5), keys).unwrap();
    let mut copied = by(&[&a]);
    copied.signatures.push(copied.signatures[0].clone());
    let mut renamed = by(&[&a]);
    let (sig, as_b) = (renamed.signatures[0].sig.clone(), b.public().id());
    renamed.signatures.push(model::exchange::Signature { key: as_b, sig });
    let mut of_another = by(&[&a]);
    of_another.signatures.extend(sign(&header(6), &[&b]).unwrap().signatures);
    for (what, document, want) in [
        ("two of them", by(&[&a, &b]), None),
        ("two of both algorithms", by(&[&c, &b]), None),
        ("all three", by(&[&a, &b, &c]), None),
        ("two of them and a stranger", by(&[&key(99), &a, &c]), None),
        ("one", by(&[&a]), too_few(1)),
        ("one key twice", by(&[&a, &a]), too_few(1)),
        ("one signature copied", copied, too_few(1)),
        ("one signature under another's id", renamed, too_few(1)),
        ("one over another header", of_another, too_few(1)),
        ("the release key alone", by(&[&release_key()]), too_few(0)),
        ("the release key and one", by(&[&release_key(), &a]), too_few(1)),
        ("strangers", by(&[&key(98), &key(99)]), Some(VerifyError::Untrusted)),
        ("nobody", by(&[]), Some(VerifyError::Unsigned)),
    ] {
        assert_eq!(trust.header(&document).err(), want, "{what}");
    }
}

/// A key may stand in several lists, and be the release key too: one signature of it is one.
#[test]
fn a_key_of_several_lists_counts_once() {
    let [a, b, c] = signers();
    let main = ChannelThreshold { signatures: 2, signers: vec![release_key().public(), a.public()] };
    let thresholds = [("main".parse().unwrap(), main.clone()), ("lab".parse().unwrap(), asks(2))].into();
    let trust = TrustDocument { thresholds, ..trust() };
    let by = |keys: &[&SigningKey]| trust.header(&sign(&header(5), keys).unwrap()).err();
    assert_eq!(by(&[&release_key()]), too_few(1), "the release key, which is a signer as well");
    assert_eq!(by(&[&a]), too_few(1), "a signer of both channels");
    assert_eq!(by(&[&a, &b, &c]), too_few(1), "with those of the other channel");
    assert_eq!(by(&[&a, &release_key()]), None);
    // Who may sign, and who did.
    let signers = |channel: &str| {
        let of = trust.header_signers(&channel.parse().unwrap());
        (of.needed(), of.keys().into_iter().copied().collect::<Vec<_>>())
    };
    assert_eq!(signers("main"), (2, main.signers));
    assert_eq!(signers("lab"), (2, asks(2).signers));
    assert_eq!(signers("elsewhere"), (1, vec![release_key().public()]));
    let made = sign(&header(5), &[&a, &b]).unwrap();
    assert_eq!(trust.header_signatures(&made, &"main".parse().unwrap()), [&a.public()]);
}

/// The node's own judgement, with a code of its own.
#[test]
fn a_node_refuses_what_has_too_few() {
    let ([a, b, _], trust, hostname) = (signers(), by_threshold(), name("web-1"));
    let judged = |keys: &[&SigningKey]| {
        let offer =
            model::exchange::Offer { header: sign(&header(5), keys).unwrap(), ..offer(&header(5), "web-1") };
        let (floor, time) = (Floor::default(), at(CREATED));
        let by = Judge {
            trust: &trust,
            hostname: &hostname,
            floor: &floor,
            time,
            matches: &takes,
            features: FEATURES,
        };
        judge(&offer, by).map(|_| ()).map_err(|refusal| refusal.code())
    };
    assert_eq!(judged(&[&a, &b]), Ok(()));
    assert_eq!(judged(&[&a]), Err("release-too-few-signatures"));
    assert_eq!(judged(&[&release_key()]), Err("release-too-few-signatures"));
    assert_eq!(judged(&[&key(99)]), Err("release-signature"));
}

#[test]
fn other_channels_go_by_the_release_key() {
    let ([a, b, _], trust) = (signers(), by_threshold());
    let lab = trust::Header { channel: "lab".parse().unwrap(), ..header(5) };
    assert!(trust.header(&sign(&lab, &[&release_key()]).unwrap()).is_ok());
    // Signers of one channel sign for no other.
    assert_eq!(trust.header(&sign(&lab, &[&a, &b]).unwrap()), Err(VerifyError::Untrusted));
}

#[test]
fn what_was_signed_before_the_limit_does_not_count() {
    let ([a, b, _], limit) = (signers(), CREATED.plus(std::time::Duration::from_secs(1)));
    let mut trust = by_threshold();
    trust.release.reject_before = Some(limit);
    assert_eq!(trust.header(&sign(&header(5), &[&a, &b]).unwrap()), Err(VerifyError::RejectedBefore(limit)));
    for limit in [CREATED, CREATED.minus(std::time::Duration::from_secs(1))] {
        trust.release.reject_before = Some(limit);
        assert_eq!(trust.header(&sign(&header(5), &[&a, &b]).unwrap()), Ok(header(5)), "from then on");
    }
}

fn next(threshold: Option<ChannelThreshold>) -> Result<TrustDocument, NextVersionError> {
    next_threshold(&ChainHead::of(trust()), &"main".parse().unwrap(), threshold, CREATED)
}

fn link(document: &TrustDocument) -> Signed {
    chain::sign(document, &key(2)).unwrap()
}

#[test]
fn a_threshold_is_a_link_of_the_chain() {
    let first = ChainHead::of(trust());
    let with = first.follow(&link(&next(Some(asks(2))).unwrap())).unwrap();
    assert_eq!(with.document.thresholds.values().collect::<Vec<_>>(), [&asks(2)]);
    // What is read from the file of a node, or from an answer, is the same.
    let text = serde_json::to_string(&with.document).unwrap();
    assert_eq!(serde_json::from_str::<TrustDocument>(&text).unwrap(), with.document);
    assert_eq!(with.document.digest().unwrap(), with.digest);
    // A release key does not lower it, and no stranger does.
    let main = "main".parse().unwrap();
    let lower = next_threshold(&with, &main, None, CREATED).unwrap();
    for thief in [release_key(), key(99)] {
        let forged = chain::sign(&lower, &thief).unwrap();
        assert_eq!(with.follow(&forged).unwrap_err().code(), "trust-forged");
    }
    let without = with.follow(&link(&lower)).unwrap();
    assert!(without.document.thresholds.is_empty());
    // A rotation of another key leaves it as it is.
    let rotated =
        next_version(&with, SlotName::Release, SlotChange::Replace(key(50).public()), None, CREATED);
    assert_eq!(rotated.unwrap().thresholds, with.document.thresholds);
}

/// A trust document as a program from before thresholds reads it: what it does not know it ignores.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code)]
struct TrustDocumentOfBefore {
    fleet: String,
    version: u64,
    release: Slots,
    root: Slots,
}

#[test]
fn a_program_from_before_does_not_read_it_as_one() {
    let read = |document: &TrustDocument| {
        canonical::parse_canonical::<TrustDocumentOfBefore>(&canonical::to_bytes(document).unwrap())
    };
    assert!(read(&trust()).is_ok(), "without thresholds nothing is different");
    let refused = read(&by_threshold()).unwrap_err().to_string();
    assert!(refused.contains("release"), "{refused}");
}

#[test]
fn what_is_written_is_kept() {
    const WANT: &str = r#"{"fleet":"acme-1","releaseByThreshold":{"keys":{"current":"RELEASE"},"thresholds":{"main":{"signatures":2,"signers":["A","B","C"]}}},"root":{"current":"ROOT"},"version":1}"#;
    let written = String::from_utf8(canonical::to_bytes(&by_threshold()).unwrap()).unwrap();
    let [a, b, c] = signers().map(|key| key.public().to_string());
    let names = [("RELEASE", release_key().public().to_string()), ("ROOT", key(2).public().to_string())];
    let names = names.into_iter().chain([("A", a), ("B", b), ("C", c)]);
    let want = names.fold(WANT.to_owned(), |text, (name, key)| {
        text.replace(&format!("\"{name}\""), &format!("\"{key}\""))
    });
    assert_eq!(written, want);
    // Neither form, both, and the form for thresholds without one.
    let json: serde_json::Value = serde_json::from_str(&written).unwrap();
    let changed = |change: fn(&mut serde_json::Value)| {
        let mut changed = json.clone();
        change(&mut changed);
        serde_json::from_value::<TrustDocument>(changed).is_err()
    };
    assert!(changed(|json| drop(json.as_object_mut().unwrap().remove("releaseByThreshold"))));
    assert!(changed(|json| json["release"] = json["releaseByThreshold"]["keys"].clone()));
    assert!(changed(|json| json["releaseByThreshold"]["thresholds"] = serde_json::json!({})));
    assert!(changed(|json| json["releaseByThreshold"]["thresholds"]["main"]["signatures"] = 4.into()));
}

fn faults(thresholds: BTreeMap<model::Channel, ChannelThreshold>) -> Option<ThresholdFault> {
    TrustDocument { thresholds, ..trust() }.threshold_fault()
}

#[test]
fn mistakes_are_named() {
    let fault = |signatures: u32, signers: Vec<PublicKey>| {
        faults([("main".parse().unwrap(), ChannelThreshold { signatures, signers })].into())
    };
    let many = |count: u8| (0..count).map(|seed| key(100 + seed).public()).collect::<Vec<_>>();
    assert_eq!(fault(1, many(1)), None);
    assert_eq!(fault(MAX_SIGNATURES as u32, many(MAX_SIGNERS as u8)), None);
    for (signatures, signers) in [(0, 2), (3, 2), (MAX_SIGNATURES as u32 + 1, 16), (u32::MAX, 16), (1, 0)] {
        let wrong = fault(signatures, many(signers));
        assert!(
            matches!(wrong, Some(ThresholdFault::Signatures { .. })),
            "{signatures} {signers}: {wrong:?}"
        );
    }
    assert!(matches!(fault(2, many(17)), Some(ThresholdFault::Signers(_))));
    assert!(matches!(fault(2, vec![key(21).public(); 2]), Some(ThresholdFault::Twice { .. })));
    let of_root = fault(1, vec![key(2).public()]);
    assert!(matches!(of_root, Some(ThresholdFault::OtherUse { of: "root", .. })), "{of_root:?}");
    assert_eq!(fault(1, vec![release_key().public()]), None, "the release key may be a signer");
    for (count, want) in [(32, None), (33, Some(ThresholdFault::Channels))] {
        let channels = (0..count).map(|n| (format!("c{n}").parse().unwrap(), asks(1))).collect();
        assert_eq!(faults(channels), want);
    }

    assert_eq!(next(None), Err(NextVersionError::SameThreshold("main".parse().unwrap())));
    assert!(matches!(next(Some(asks(4))), Err(NextVersionError::Threshold(_))));
    // The root key does not become one of the signers.
    let with = ChainHead::of(by_threshold());
    let root = next_version(&with, SlotName::Root, SlotChange::Rotate(key(21).public()), None, CREATED);
    assert!(matches!(root, Err(NextVersionError::Threshold(ThresholdFault::OtherUse { .. }))), "{root:?}");
}

/// ROL-4: a release from before the threshold can be gone back to, as its content is signed anew by all.
#[test]
fn what_was_enough_before_is_known_as_such() {
    let second = std::time::Duration::from_secs(1);
    let raised = TrustDocument { version: 2, created: Some(CREATED.plus(second)), ..by_threshold() };
    let old = sign(&header(5), &[&release_key()]).unwrap();
    let found = verify_retired(&old, &[&trust(), &raised]).unwrap();
    assert_eq!((found.version, found.key), (1, release_key().public().id()));
    // Dated later than the threshold, by who has the release key alone.
    let late = trust::Header { created: CREATED.plus(second * 3600), ..header(6) };
    assert!(verify_retired(&sign(&late, &[&release_key()]).unwrap(), &[&trust(), &raised]).is_err());
}
