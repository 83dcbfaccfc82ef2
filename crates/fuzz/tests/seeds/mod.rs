//! Seeds that are signed or binary: made by the code that writes such documents, with keys that nothing trusts.

use std::collections::BTreeMap;

use model::chunk::{self, TreeChunk};
use model::exchange::Signed;
use model::log::Cursor;
use model::{
    Digest, Hostname, NodeId, ObjectKey, ObjectSet, Selection, SelectionEntry, Timestamp, Trie, canonical,
};
use net::issue::{Ca, CertificateRequest};
use store::audit::{AuditDraft, AuditHead, AuditSubject};
use trust::chain::{self as trust_chain, ChainHead, SlotChange, SlotName};
use trust::equivocation::{SEEN_FORMAT, SeenRecord, Testimony};
use trust::feed_proof::{self, FeedOwner, FeedSigner, ProvenChange, ProvenHead};
use trust::group_token::{self, GroupAdmission, GroupClaims};
use trust::lists;
use trust::nix::{CacheKey, NarInfo};
use trust::provenance::{AnchoredTrust, EntryProof, Provenance, TrustAnchor};
use trust::sealing::{self, RelayedStatement, SealedSecret, SealingStatement, SecretKeys, SecretSealer, age};
use trust::seen::Seen;
use trust::token::{self, Claims, KeySource};
use trust::{
    ChannelThreshold, Header, Revocation, RevocationSet, SealingKey, SignedList, SigningKey, Slots,
    TokenAllowlist, TrustDocument, signed,
};
use wire::body;
use wire::enroll::{EnrollAnswer, EnrollRequest, TrustLinksAnswer};
use wire::signature::{self, SignedTarget};

/// Of a target, a file's name and its bytes.
pub type Seed = (&'static str, &'static str, Vec<u8>);

fn key() -> SigningKey {
    SigningKey::from_seed(&[7; 32])
}

fn now() -> Timestamp {
    Timestamp::from_secs(1_800_000_000)
}

fn hostname() -> Hostname {
    "web-1".parse().unwrap()
}

fn header() -> Header {
    Header {
        fleet: "demo-1".parse().unwrap(),
        channel: "main".parse().unwrap(),
        seq: 7,
        label: Some("v7".to_owned()),
        created: now(),
        selection: Digest::ZERO,
        freshness_secs: 1_209_600,
        fallbacks: vec![],
        requires: vec![],
        rollout: None,
    }
}

fn trust_document() -> TrustDocument {
    let slots = Slots::of(key().public());
    TrustDocument::first("demo-1".parse().unwrap(), slots.clone(), slots)
}

fn minted() -> String {
    let claims = Claims {
        fleet: "demo-1".parse().unwrap(),
        hostname: hostname(),
        expected_pubkey_fingerprint: None,
        key: KeySource::Own,
        issued_at: now(),
        expires_at: now().plus(std::time::Duration::from_secs(600)),
        nonce: "nonce-1".to_owned(),
        servers: vec!["https://control.example.com:8443".to_owned()],
        tls_termination: Default::default(),
        ca: Digest::ZERO,
        trust: Digest::ZERO,
        replaces: None,
    };
    token::mint(&claims, &key()).unwrap()
}

fn group() -> String {
    let claims = GroupClaims {
        fleet: "demo-1".parse().unwrap(),
        pattern: "web-*".to_owned(),
        uses: 3,
        admission: GroupAdmission::ByToken,
        labels: BTreeMap::from([("pool".to_owned(), "web".to_owned())]),
        key: KeySource::Own,
        issued_at: now(),
        expires_at: now().plus(std::time::Duration::from_secs(600)),
        nonce: "nonce-2".to_owned(),
        servers: vec!["https://control.example.com:8443".to_owned()],
        ca: Digest::ZERO,
        trust: Digest::ZERO,
    };
    group_token::mint(&claims, &key()).unwrap()
}

fn allowlist() -> TokenAllowlist {
    let tokens = BTreeMap::from([("nonce-1".to_owned(), now())]);
    TokenAllowlist { fleet: "demo-1".parse().unwrap(), seq: 3, at: now(), tokens }
}

fn revocations() -> RevocationSet {
    let revocation = Revocation { not_before: now(), why: Some("stolen".to_owned()) };
    let revoked = BTreeMap::from([(hostname(), revocation)]);
    RevocationSet { fleet: "demo-1".parse().unwrap(), seq: 4, at: now(), revoked }
}

fn signed_list<L: SignedList>(list: &L) -> Signed {
    signed::sign(list, &[&key()]).unwrap()
}

fn request() -> String {
    net::issue::node_request(&key(), &hostname()).unwrap()
}

fn certificate() -> Vec<u8> {
    let (ca, _) = Ca::generate("seed", now()).unwrap();
    let request = CertificateRequest::read(&request()).unwrap();
    let validity = net::issue::node_validity(now());
    let id = key().public().node_id();
    ca.issue_node(&request, &id, &hostname(), [7; 16], validity).unwrap().into_bytes()
}

fn selection() -> Selection {
    let entry = SelectionEntry { channel: "main".parse().unwrap(), root: Digest::ZERO };
    let leaves = (1..40).map(|n| Selection::leaf(&format!("web-{n}").parse().unwrap(), &entry));
    Selection::new(Trie::build(leaves), vec![])
}

/// Three documents that follow the first: another release key, another CA, and no CA before it.
fn trust_links() -> TrustLinksAnswer {
    let (first, mut head) = (trust_document(), ChainHead::of(trust_document()));
    let public = |seed| SigningKey::from_seed(&[seed; 32]).public();
    let authority = SlotName::CertificateAuthority;
    let changes = [
        (SlotName::Release, SlotChange::Replace(public(8))),
        (authority, SlotChange::Replace(public(9))),
        (authority, SlotChange::Rotate(public(10))),
    ];
    let links = changes.map(|(slot, change)| {
        let next = trust_chain::next_version(&head, slot, change, None, now()).unwrap();
        let link = trust_chain::sign(&next, &key()).unwrap();
        head = ChainHead { digest: signed::digest(&link), document: next };
        link
    });
    TrustLinksAnswer { document: first, links: links.to_vec() }
}

fn enroll_request() -> EnrollRequest {
    EnrollRequest { token: Some(minted()), hostname: hostname().to_string(), csr_pem: request() }
}

fn enroll_answer() -> EnrollAnswer {
    let (_, files) = Ca::generate("seed", now()).unwrap();
    let cert_pem = String::from_utf8(certificate()).unwrap();
    let node_id = key().public().node_id();
    EnrollAnswer { node_id, cert_pem, ca_pem: files.cert_pem, trust: trust_document() }
}

const TUNNEL: &[u8] =
    b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n\x16\x03\x01 the other end";
const WANTS_CREDENTIALS: &[u8] =
    b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Digest realm=\"x\", Basic\r\n\r\n";
const PORTAL: &[u8] = b"HTTP/1.0 302 Found\nLocation: http://hotel.example/\n\n<html>sign in</html>";

fn signed_request() -> String {
    let target = SignedTarget {
        method: "POST",
        path: "/v1/agent/checkin",
        query: "wait=3",
        body: b"{}",
        last_event_id: None,
    };
    let id = key().public().node_id();
    let signed = signature::sign(target, &"demo-1".parse().unwrap(), &id, &key(), now(), 7);
    let digest = signed.content_digest.unwrap();
    format!(
        "{}: {}\n{}: {}\n{}: {digest}\n",
        wire::headers::SIGNATURE_INPUT,
        signed.input,
        wire::headers::SIGNATURE,
        signed.signature,
        wire::headers::CONTENT_DIGEST
    )
}

fn sealing_key() -> SealingKey {
    SealingKey::from_secret(&[7; 32]).unwrap()
}

fn with_threshold() -> TrustDocument {
    let signers = [2, 3].map(|seed| SigningKey::from_seed(&[seed; 32]).public()).to_vec();
    let threshold = ChannelThreshold { signatures: 2, signers };
    TrustDocument { thresholds: [("main".parse().unwrap(), threshold)].into(), ..trust_document() }
}

/// For the passphrase that is stretched to what the target tries.
fn passphrase_file() -> Vec<u8> {
    let stretched = |_: &age::ScryptWork| Ok(zeroize::Zeroizing::new([7; 32]));
    age::encrypt_for_passphrase::<age::AgeError>(b"a seed's secret\n", 4, &[8; 32], stretched).unwrap()
}

fn age_file() -> Vec<u8> {
    age::encrypt(b"a seed's secret\n", &[sealing_key().public()], &[8; 32]).unwrap()
}

fn sealed() -> (SealedSecret, SecretKeys) {
    let in_hand = SecretSealer::of(&key()).seal("team/name", b"a seed's secret").unwrap();
    let recipient = sealing_key().public();
    let wraps = BTreeMap::from([("team/name".to_owned(), in_hand.wrap(&hostname(), &recipient).unwrap())]);
    (in_hand.sealed().clone(), SecretKeys { node: hostname(), recipient, wraps })
}

fn entry() -> Vec<u8> {
    let draft = AuditDraft {
        at: now(),
        by: "alice".to_owned(),
        request: "ab-1".to_owned(),
        operation: "POST /v1/tasks".to_owned(),
        subject: AuditSubject::nodes(["web-1"]).and("task t1"),
        refused: None,
        left_out: 0,
    };
    AuditHead::default().follow(&draft).unwrap().entry.into_bytes()
}

fn change() -> (FeedOwner, Digest) {
    let owner = FeedOwner { fleet: "demo-1".parse().unwrap(), node: NodeId::of_key(b"web-1") };
    let (incarnation, object, digest) =
        ("s1".parse().unwrap(), ObjectKey::of("Site", "shop"), Digest::of(b"content"));
    let change =
        ProvenChange { incarnation: &incarnation, rev: 7, key: &object, uid: "u1", digest: Some(&digest) };
    let leaf = change.leaf(&owner);
    (owner, leaf)
}

fn feed_signer() -> FeedSigner {
    FeedSigner::new("demo-1".parse().unwrap(), key())
}

/// The proof of a change in a group of so many.
fn change_proof(count: usize, index: usize) -> Vec<u8> {
    let mut leaves: Vec<Digest> = (0..count).map(|n| Digest::of(&[n as u8])).collect();
    leaves[index] = change().1;
    feed_signer().sign_changes(&leaves, now()).remove(index)
}

fn head_proof() -> Vec<u8> {
    let (incarnation, root) = ("s1".parse().unwrap(), Digest::of(b"content"));
    let head = ProvenHead { incarnation: &incarnation, revision: 7, root: &root, challenge: "c" };
    feed_signer().sign_head(&change().0, &head)
}

fn cache_key() -> CacheKey {
    let public = key().public().to_string();
    format!("cache-1:{}", public.split_once(':').unwrap().1).parse().unwrap()
}

fn narinfo() -> NarInfo {
    let text = "StorePath: /nix/store/0c6kzph7l0dcbfmjap64f0czdafn3b7x-a\nURL: nar/a.nar.xz\nCompression: xz\nFileSize: \
                80\nNarHash: sha256:0mdqa9w1p6cmli6976v4wi0sw9r4p5prkj7lzfd1877wk11c9c73\nNarSize: 112\nReferences: \
                1c6kzph7l0dcbfmjap64f0czdafn3b7x-b\nDeriver: 2c6kzph7l0dcbfmjap64f0czdafn3b7x-a.drv\n";
    let info: NarInfo = text.parse().unwrap();
    let signature = key().sign(info.fingerprint().as_bytes());
    info.signed("cache-1", &signature)
}

fn statement() -> SealingStatement {
    let (fleet, recipient) = ("demo-1".parse().unwrap(), sealing_key().public());
    SealingStatement { fleet, hostname: hostname(), recipient, at: now() }
}

fn relayed() -> RelayedStatement {
    let (identity, statement) = (key().public(), statement().sign(&key()).unwrap());
    RelayedStatement { hostname: hostname(), identity, statement }
}

/// Of a node whose set is empty.
fn provenance() -> Provenance {
    let entry = SelectionEntry { channel: "main".parse().unwrap(), root: Digest::ZERO };
    let header = Header { selection: selection().root().unwrap(), ..header() };
    Provenance {
        format: trust::provenance::FORMAT,
        made: now(),
        hostname: hostname(),
        path: "/etc/motd".to_owned(),
        trust: vec![signed::sign(&trust_document(), &[&key()]).unwrap()],
        entry: EntryProof {
            header: signed::sign(&header, &[&key()]).unwrap(),
            entry,
            proof: selection().prove("web-1", None).unwrap(),
        },
        chunks: vec![chunk::of_set(&ObjectSet::new())],
        objects: vec![],
        traits: None,
        history: None,
    }
}

fn seen_record() -> SeenRecord {
    let header = signed::sign(&header(), &[&key()]).unwrap();
    let log_head = Cursor { incarnation: "n1".parse().unwrap(), seq: 3 };
    let (node, digest) = (key().public().node_id(), signed::digest(&header));
    let seen = Seen { node, header: digest, seq: 7, log_head, at: now(), acked: Some(2) };
    SeenRecord { format: SEEN_FORMAT, key: key().public(), seen: seen.sign(&key()).unwrap(), header }
}

/// A call of 192.0.2.7 through a balancer, and of the balancer itself (PROXY, version 2).
fn proxy_header(command: u8) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    header.extend([0x20 | command, 0x11, 0, 12, 192, 0, 2, 7, 192, 0, 2, 1, 0x9c, 0x40, 0x20, 0xfb]);
    header
}

pub fn made() -> Vec<Seed> {
    let signed_header = signed::sign(&header(), &[&key()]).unwrap();
    let set = chunk::of_set(&ObjectSet::new());
    vec![
        ("age_file", "armored.age", age::armor(&age_file()).into_bytes()),
        ("age_file", "binary.age", age_file()),
        ("age_file", "passphrase.age", passphrase_file()),
        ("age_file", "identity", sealing_key().to_file().as_bytes().to_vec()),
        ("audit", "entry", entry()),
        ("certificate", "node.pem", certificate()),
        ("chunk", "set", body::encode(&set).unwrap()),
        ("chunk", "selection", body::encode(&chunk::of_selection(&selection())).unwrap()),
        ("csr", "ed25519.pem", request().into_bytes()),
        ("feed_proof", "alone", change_proof(1, 0)),
        ("feed_proof", "first-of-three", change_proof(3, 0)),
        ("feed_proof", "head", head_proof()),
        ("feed_proof", "last-of-three", change_proof(3, 2)),
        ("feed_proof", "of-forty", change_proof(40, 17)),
        ("header", "header", canonical::to_bytes(&header()).unwrap()),
        ("header", "signed-header", body::encode(&signed_header).unwrap()),
        ("header", "trust", canonical::to_bytes(&trust_document()).unwrap()),
        ("header", "trust-threshold", canonical::to_bytes(&with_threshold()).unwrap()),
        ("joins", "answer", body::encode(&enroll_answer()).unwrap()),
        ("joins", "request", body::encode(&enroll_request()).unwrap()),
        ("key_file", "ed25519", key().to_file().as_bytes().to_vec()),
        ("narinfo", "signed.narinfo", narinfo().to_string().into_bytes()),
        ("proof", "exact", body::encode(&selection().prove("web-1", None).unwrap()).unwrap()),
        ("provenance", "of-a-path", body::encode(&provenance()).unwrap()),
        ("provenance", "seen", body::encode(&seen_record()).unwrap()),
        ("proxy_answer", "credentials", WANTS_CREDENTIALS.to_vec()),
        ("proxy_answer", "portal", PORTAL.to_vec()),
        ("proxy_answer", "tunnel", TUNNEL.to_vec()),
        ("proxy_header", "balancer", proxy_header(0)),
        ("proxy_header", "ipv4", proxy_header(1)),
        ("sealed", "secret-and-keys", body::encode(&sealed()).unwrap()),
        ("sealed", "keys", canonical::to_bytes(&sealed().1).unwrap()),
        ("sealing_statement", "relayed", body::encode(&relayed()).unwrap()),
        ("sealing_statement", "statement", canonical::to_bytes(&statement()).unwrap()),
        ("signature", "good", signed_request().into_bytes()),
        ("signed_list", "allowlist", body::encode(&signed_list(&allowlist())).unwrap()),
        ("signed_list", "allowlist-alone", canonical::to_bytes(&allowlist()).unwrap()),
        ("signed_list", "revocations", body::encode(&signed_list(&revocations())).unwrap()),
        ("signed_list", "revocations-alone", canonical::to_bytes(&revocations()).unwrap()),
        ("token", "group", group().into_bytes()),
        ("token", "good", minted().into_bytes()),
        ("trust_links", "three", body::encode(&trust_links()).unwrap()),
    ]
}

pub fn are_taken() {
    narinfo().verified(&narinfo().path, &[cache_key()]).unwrap();
    age::decrypt(&age_file(), &[sealing_key()], 100).unwrap();
    let (secret, keys) = sealed();
    sealing::open(&sealing_key(), &hostname(), &secret, Some(&keys)).unwrap();
    let slots = Slots::of(key().public());
    token::verify(&minted(), &slots, "web-1", &key().public(), now()).unwrap();
    group_token::verify(&group(), &slots, "web-1", now()).unwrap();
    lists::open::<TokenAllowlist>(&signed_list(&allowlist()), &trust_document()).unwrap();
    lists::open::<RevocationSet>(&signed_list(&revocations()), &trust_document()).unwrap();
    signed::verify::<Header>(&signed::sign(&header(), &[&key()]).unwrap(), &slots).unwrap();
    CertificateRequest::read(&request()).unwrap();
    let answer = trust_links();
    assert_eq!(trust_chain::walk(&ChainHead::of(trust_document()), &answer.links).followed, 3);
    for (count, index) in [(1, 0), (3, 0), (3, 2), (40, 17)] {
        assert!(feed_proof::counts(&change_proof(count, index), &slots));
    }
    relayed().recipient(&"demo-1".parse().unwrap(), &hostname(), &key().public().fingerprint()).unwrap();
    let anchor = TrustAnchor::Document(Box::new(trust_document()));
    let mut steps = 0;
    // Its set is empty, and proves nothing of a path; all before holds.
    let _ = provenance().verify(&anchor, &|_, _, _| true, &mut |_| steps += 1);
    assert!(steps >= 2, "{steps}");
    let trust = AnchoredTrust::reach(&anchor, &[]).unwrap();
    Testimony::Seen(Box::new(seen_record())).verify(&trust).unwrap();
    for (target, name, bytes) in made() {
        if target == "chunk" {
            body::decode::<TreeChunk>(&bytes)
                .unwrap()
                .hash()
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}
