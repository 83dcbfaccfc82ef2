//! Certificates, keys, tokens, signed documents, what releases consist of.

use agent::identity;
use model::chunk::TreeChunk;
use model::selection::Proof;
use model::{Digest, Hostname, SelectionEntry, Timestamp, canonical};
use net::identity as certified;
use net::issue::CertificateRequest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use store::audit::{AuditRow, AuditVerifier};
use trust::chain::{self, ChainHead};
use trust::lists::{self, HeldList, ListSuccession};
use trust::sealing::{self, SealedSecret, SecretKeys, age};
use trust::signed::{self, Document};
use trust::{
    Beacon, Header, RevocationSet, SealingKey, SignedList, SigningKey, Slots, TokenAllowlist, TrustDocument,
    token,
};
use wire::body;
use wire::enroll::TrustLinksAnswer;

use crate::text;

/// The key that seeds are signed with; nothing else trusts it.
pub(crate) const SEED: [u8; 32] = [7; 32];

pub(crate) fn slots() -> Slots {
    Slots::of(SigningKey::from_seed(&SEED).public())
}

/// A document that is read is written as the same bytes.
pub(crate) fn canonical<T: DeserializeOwned + Serialize>(data: &[u8]) {
    if let Ok(read) = canonical::parse_canonical::<T>(data)
        && let Ok(written) = canonical::to_bytes(&read)
        && let Ok(again) = canonical::parse_canonical::<T>(&written)
    {
        assert_eq!(canonical::to_bytes(&again).ok().as_ref(), Some(&written), "what was read is written so");
    }
}

fn verified<D: Document>(data: &[u8]) {
    if let Ok(document) = body::decode(data) {
        let _ = signed::digest(&document);
        let _ = signed::verify::<D>(&document, &slots());
    }
}

pub(crate) fn csr(data: &[u8]) {
    if let Ok(request) = CertificateRequest::read(text(data)) {
        let _ = (request.common_name().map(str::len), request.key().fingerprint());
    }
}

pub(crate) fn certificate(data: &[u8]) {
    let _ = (certified::validity(data), certified::read(data));
    if let Ok(certificates) = net::tls::certificates(text(data)) {
        certificates.iter().for_each(|der| drop(certified::read(der)));
    }
}

pub(crate) fn token(data: &[u8]) {
    let (text, now) = (text(data), Timestamp::from_secs(1_800_000_000));
    let key = SigningKey::from_seed(&SEED).public();
    let verified = token::verify(text, &slots(), "web-1", &key, now);
    // What is believed can be read.
    assert!(verified.is_err() || token::peek(text).is_ok());
    let verified = trust::group_token::verify(text, &slots(), "web-1", now);
    assert!(verified.is_err() || trust::group_token::peek(text).is_ok());
}

pub(crate) fn header(data: &[u8]) {
    canonical::<Header>(data);
    canonical::<Beacon>(data);
    canonical::<TrustDocument>(data);
    verified::<Header>(data);
    verified::<Beacon>(data);
    verified::<TrustDocument>(data);
    if let Ok(link) = body::decode(data) {
        let _ = ChainHead::read(&link);
    }
}

/// The trust documents that follow another one, as whoever answers hands them on (IDN-8).
pub(crate) fn trust_links(data: &[u8]) {
    let Ok(answer) = body::decode::<TrustLinksAnswer>(data) else { return };
    let Ok(fleet) = "demo-1".parse() else { return };
    let believed = ChainHead::of(TrustDocument::first(fleet, slots(), slots()));
    for held in [believed, ChainHead::of(answer.document)] {
        let walk = chain::walk(&held, &answer.links);
        assert!(walk.followed <= answer.links.len() && walk.followed <= chain::MAX_LINKS);
        let led_on = walk.head.document.version - held.document.version;
        assert_eq!(led_on, walk.followed as u64, "one version a link");
        assert_eq!(walk.head.document.fleet, held.document.fleet);
        assert_eq!(walk.followed == 0, walk.head == held);
        // What was followed is what is held: it leads nowhere again.
        let again = chain::walk(&walk.head, &answer.links[..walk.followed]);
        assert!(again.followed == 0 && (walk.followed == 0 || again.stopped.is_some()));
    }
}

/// One of the lists that a release key signs (ENR-3, IDN-6).
pub(crate) fn signed_list(data: &[u8]) {
    canonical::<TokenAllowlist>(data);
    canonical::<RevocationSet>(data);
    opened_list::<TokenAllowlist>(data);
    opened_list::<RevocationSet>(data);
}

fn opened_list<L: SignedList>(data: &[u8]) {
    let Ok(document) = body::decode(data) else { return };
    let Ok(fleet) = "demo-1".parse() else { return };
    let Ok(list) = lists::open::<L>(&document, &TrustDocument::first(fleet, slots(), slots())) else {
        return;
    };
    assert_eq!(list.fault(), None, "what is opened is within its bounds");
    let (digest, now) = (signed::digest(&document), list.signed_at());
    assert_eq!(lists::follows(&list, &digest, None, now), Ok(ListSuccession::Follows));
    let held = |digest| Some(HeldList { seq: list.seq(), digest });
    assert_eq!(lists::follows(&list, &digest, held(digest), now), Ok(ListSuccession::Same));
    assert!(lists::follows(&list, &digest, held(Digest::ZERO), now).is_err(), "its number is taken");
}

pub(crate) fn proof(data: &[u8]) {
    let Ok(proof) = body::decode::<Proof>(data) else { return };
    let Ok(hostname) = "web-1".parse::<Hostname>() else { return };
    let Ok(channel) = "main".parse() else { return };
    let claimed = SelectionEntry { channel, root: Digest::ZERO };
    let verified = proof.verify(&Digest::ZERO, &hostname, &claimed, &|_, _, _| true);
    assert!(verified.is_err(), "nothing has this root");
}

pub(crate) fn chunk(data: &[u8]) {
    let Ok(chunk) = body::decode::<TreeChunk>(data) else { return };
    let (hash, _) = (chunk.hash(), chunk.needs());
    if let Ok(written) = body::encode(&chunk)
        && let Ok(again) = body::decode::<TreeChunk>(&written)
    {
        assert_eq!(again.hash().ok(), hash.ok(), "a chunk that was written is the same");
    }
    let _ = chunk.into_node();
}

pub(crate) fn key_file(data: &[u8]) {
    if let Ok(key) = SigningKey::from_file(text(data)) {
        let again = SigningKey::from_file(&key.to_file());
        assert!(
            again.is_ok_and(|again| again.public() == key.public()),
            "a key that was written is the same"
        );
    }
}

pub(crate) fn ssh_key(data: &[u8]) {
    let _ = identity::read_ssh_key(data);
    // Whatever is declared as a key is compared by a fingerprint of the one form.
    if let Ok(fingerprint) = trust::declared_key::fingerprint(text(data)) {
        assert_eq!(trust::declared_key::fingerprint(&fingerprint).as_deref(), Ok(fingerprint.as_str()));
    }
}

pub(crate) fn audit(data: &[u8]) {
    let row = AuditRow { number: 1, digest: Digest::of(data), entry: text(data).to_owned() };
    let _ = AuditVerifier::default().take(&row);
}

/// The key that seeds are sealed for; nothing else has it.
fn sealing_key() -> Option<SealingKey> {
    SealingKey::from_secret(&SEED)
}

pub(crate) fn age_file(data: &[u8]) {
    let Some(key) = sealing_key() else { return };
    let opened = age::decrypt(data, &[key], sealing::MAX_SECRET);
    assert!(
        opened.is_err() || opened.is_ok_and(|opened| opened.len() <= sealing::MAX_SECRET),
        "within the bound"
    );
    let _ = SealingKey::all_from_file(text(data));
    if let Ok(Some(work)) = age::passphrase_work(data) {
        assert!((1..=age::MAX_SCRYPT_LOG_N).contains(&work.log_n), "nobody is made to work more");
        let opened = age::decrypt_stretched(data, &SEED, sealing::MAX_SECRET);
        assert!(opened.is_err() || opened.is_ok_and(|opened| opened.len() <= sealing::MAX_SECRET));
    }
}

pub(crate) fn sealed(data: &[u8]) {
    canonical::<SealedSecret>(data);
    canonical::<SecretKeys>(data);
    let Ok((sealed, keys)) = body::decode::<(SealedSecret, SecretKeys)>(data) else { return };
    let Some(key) = sealing_key() else { return };
    if let Ok(opened) = sealing::open(&key, &keys.node.clone(), &sealed, Some(&keys)) {
        assert!(opened.len() <= 2 * sealing::MAX_SECRET, "within the bound");
    }
}
