//! ROL-4, IDN-8: what leads from a fleet's root to the objects of one node is verified with that root alone, by its
//! trust document or its root key. Each step that is forged, missing or of another fleet is the one that is named; the
//! form of what is exported is kept. A node's own proof from a release of many nodes stays under 4 KiB.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{CREATED, header, key, name, release_key, trust};
use model::chunk::{TreeChunk, of_set, of_trie};
use model::exchange::Signed;
use model::selection::PatternEntry;
use model::{Digest, Kind, ObjectKey, ObjectSet, Selection, SelectionEntry, Stub, Trie, canonical};
use trust::adopt::takes;
use trust::chain::{self, ChainHead, SlotChange, SlotName, next_version};
use trust::provenance::{
    EntryProof, FORMAT, ProofStep, ProvenObject, Provenance, ProvenanceError, TrustAnchor,
};
use trust::signed::{self, VerifyError};
use trust::{Header, SigningKey, Slots, TrustDocument};

const MODULE: &str =
    r#"{"name":"base","resources":[{"attributes":{"content":"hello"},"name":"/etc/motd","type":"file"}]}"#;

/// A set of 20 modules, so that one lies below a branch.
fn set() -> ObjectSet {
    let module = |name: &str, text: &str| (ObjectKey::of(Kind::MODULE, name), Stub::of(text.as_bytes()));
    let others = (0..20).map(|at| module(&format!("other-{at}"), "{}"));
    ObjectSet::of(
        others
            .chain([module("base", MODULE)])
            .chain([(ObjectKey::of(Kind::PARAMS, "node"), Stub::of(b"{}"))]),
    )
}

/// Every piece of a set.
fn pieces(set: &ObjectSet) -> Vec<TreeChunk> {
    fn below(section: &model::SectionKey, trie: &Trie, out: &mut Vec<TreeChunk>) {
        out.extend(of_trie(section, trie));
        if let model::trie::Top::Branch(children) = trie.top() {
            children.iter().for_each(|child| below(section, child, out));
        }
    }
    let mut out = vec![of_set(set)];
    set.sections().for_each(|(section, trie)| below(section, trie, &mut out));
    out
}

/// The pieces on the way to the module, found as an exporter does.
fn way(set: &ObjectSet, key: &ObjectKey) -> Vec<TreeChunk> {
    let all = pieces(set);
    let used = std::cell::RefCell::new(Vec::new());
    let source = |digest: &Digest| {
        let chunk = all.iter().find(|chunk| chunk.hash().unwrap() == *digest)?.clone();
        used.borrow_mut().push(chunk.clone());
        Some(chunk)
    };
    model::lookup::find_object(&set.root(), key, &source).unwrap().unwrap();
    used.into_inner()
}

fn unsigned(document: &TrustDocument) -> Signed {
    let payload = String::from_utf8(canonical::to_bytes(document).unwrap()).unwrap();
    Signed { payload, signatures: vec![] }
}

fn entry_proof(nodes: usize, hostname: &str) -> EntryProof {
    let entry = |root| SelectionEntry { channel: "main".parse().unwrap(), root };
    let leaves = (0..nodes).map(|at| {
        Selection::leaf(&name(&format!("node-{at}.example.com")), &entry(Digest::of(&at.to_be_bytes())))
    });
    let own = Selection::leaf(&name("web-1"), &entry(set().root()));
    let pattern = |at: usize| PatternEntry {
        pattern: format!("edge-{at}-*"),
        except: vec![],
        entry: entry(set().root()),
    };
    let selection = Selection::new(Trie::build(leaves.chain([own])), (0..32).map(pattern).collect());
    let header = Header { selection: selection.root().unwrap(), ..header(7) };
    let first = selection.first(hostname, &takes);
    EntryProof {
        header: signed::sign(&header, &[&release_key()]).unwrap(),
        entry: selection.entry(hostname, &takes).unwrap(),
        proof: selection.prove(hostname, first).unwrap(),
    }
}

/// Of web-1's /etc/motd; the root key rotated once since the fleet was founded.
fn provenance() -> Provenance {
    let first = ChainHead::of(trust());
    let rotated = SlotChange::Rotate(key(3).public());
    let second = next_version(&first, SlotName::Root, rotated, None, CREATED).unwrap();
    let object = ObjectKey::of(Kind::MODULE, "base");
    Provenance {
        format: FORMAT,
        made: CREATED,
        hostname: name("web-1"),
        path: "/etc/motd".to_owned(),
        trust: vec![unsigned(&trust()), chain::sign(&second, &key(2)).unwrap()],
        entry: entry_proof(40, "web-1"),
        chunks: way(&set(), &object),
        objects: vec![ProvenObject { key: object, content: MODULE.to_owned() }],
        traits: None,
        history: None,
    }
}

fn by_document(document: TrustDocument) -> TrustAnchor {
    TrustAnchor::Document(Box::new(document))
}

fn verify(
    provenance: &Provenance,
    anchor: &TrustAnchor,
) -> (Vec<ProofStep>, Result<Header, ProvenanceError>) {
    let mut held = Vec::new();
    let verified = provenance.verify(anchor, &takes, &mut |evidence| held.push(evidence.step));
    (held, verified)
}

#[track_caller]
fn fails_at(step: ProofStep, provenance: &Provenance, anchor: &TrustAnchor) -> ProvenanceError {
    let (held, verified) = verify(provenance, anchor);
    let error = verified.unwrap_err();
    assert_eq!(error.step(), step, "{error}");
    assert!(!held.contains(&step), "{held:?}");
    error
}

#[test]
fn every_step_holds_by_a_trust_document_of_any_version_and_by_a_root_key_that_signed_one() {
    let proof = provenance();
    let second: TrustDocument = canonical::parse_canonical(proof.trust[1].payload.as_bytes()).unwrap();
    for anchor in [by_document(trust()), by_document(second), TrustAnchor::RootKey(key(2).public())] {
        let (held, verified) = verify(&proof, &anchor);
        assert_eq!(verified.unwrap().seq, 7);
        assert_eq!(held, [ProofStep::Trust, ProofStep::Release, ProofStep::Selection, ProofStep::Set]);
    }
    // The first document counts by the root key alone where that signed it.
    let mut founded = Provenance { trust: vec![unsigned(&trust())], ..provenance() };
    let root = TrustAnchor::RootKey(key(2).public());
    assert_eq!(fails_at(ProofStep::Trust, &founded, &root), ProvenanceError::OtherRoot(key(2).public().id()));
    founded.trust = vec![chain::sign(&trust(), &key(2)).unwrap()];
    verify(&founded, &root).1.unwrap();
    // Somebody else's fleet, whose keys are theirs.
    let theirs = TrustDocument::first(
        "acme-1".parse().unwrap(),
        Slots::of(key(8).public()),
        Slots::of(key(9).public()),
    );
    fails_at(ProofStep::Trust, &proof, &by_document(theirs));
    fails_at(ProofStep::Trust, &proof, &TrustAnchor::RootKey(key(9).public()));
}

#[test]
fn the_first_step_that_is_forged_is_named() {
    let anchor = by_document(trust());
    let of = |forge: &dyn Fn(&mut Provenance)| {
        let mut forged = provenance();
        forge(&mut forged);
        forged
    };
    let link = |by: &SigningKey| {
        let first = ChainHead::of(trust());
        let theirs =
            next_version(&first, SlotName::Release, SlotChange::Rotate(key(8).public()), None, CREATED);
        chain::sign(&theirs.unwrap(), by).unwrap()
    };
    fails_at(ProofStep::Form, &of(&|p| p.format = 2), &anchor);
    fails_at(ProofStep::Trust, &of(&|p| p.trust[1] = link(&key(9))), &anchor);
    let sign = |header: &Header, by: &SigningKey| signed::sign(header, &[by]).unwrap();
    let read =
        |p: &Provenance| -> Header { canonical::parse_canonical(p.entry.header.payload.as_bytes()).unwrap() };
    fails_at(ProofStep::Release, &of(&|p| p.entry.header = sign(&read(p), &key(9))), &anchor);
    let other = Header { fleet: "other-1".parse().unwrap(), ..read(&provenance()) };
    fails_at(ProofStep::Release, &of(&|p| p.entry.header = sign(&other, &release_key())), &anchor);
    let lab = Header { channel: "lab".parse().unwrap(), ..read(&provenance()) };
    fails_at(ProofStep::Release, &of(&|p| p.entry.header = sign(&lab, &release_key())), &anchor);
    fails_at(ProofStep::Selection, &of(&|p| p.hostname = name("web-2")), &anchor);
    fails_at(ProofStep::Selection, &of(&|p| p.entry.entry.root = Digest::ZERO), &anchor);
    fails_at(ProofStep::Set, &of(&|p| drop(p.chunks.pop())), &anchor);
    fails_at(ProofStep::Set, &of(&|p| p.objects[0].content.push(' ')), &anchor);
    fails_at(ProofStep::Set, &of(&|p| p.objects[0].key = ObjectKey::of(Kind::MODULE, "none")), &anchor);
    fails_at(ProofStep::Set, &of(&|p| p.objects[0].key = ObjectKey::of(Kind::DELEGATION, "all")), &anchor);
}

#[test]
fn a_release_of_a_key_that_was_dropped_is_told_apart() {
    let mut proof = provenance();
    let second: TrustDocument = canonical::parse_canonical(proof.trust[1].payload.as_bytes()).unwrap();
    let second = ChainHead { document: second, digest: signed::digest(&proof.trust[1]) };
    let replaced = SlotChange::Replace(key(8).public());
    let third = next_version(&second, SlotName::Release, replaced, None, CREATED).unwrap();
    proof.trust.push(chain::sign(&third, &key(3)).unwrap());
    let error = fails_at(ProofStep::Release, &proof, &by_document(trust()));
    assert_eq!(error, ProvenanceError::Header { error: VerifyError::Untrusted, counted: Some(2) });
}

/// The form of what is exported: a program of today reads what one of this format wrote.
#[test]
fn the_form_is_kept() {
    let kept = include_str!("golden/provenance.json");
    assert_eq!(serde_json::to_string_pretty(&provenance()).unwrap() + "\n", kept);
    let read: Provenance = serde_json::from_str(kept).unwrap();
    assert_eq!(read, provenance());
    verify(&read, &by_document(trust())).1.unwrap();
}

#[test]
fn a_node_s_own_proof_stays_small() {
    for hostname in ["web-1", "node-77.example.com", "edge-31-a"] {
        let proof = entry_proof(20_000, hostname);
        assert!(serde_json::to_vec(&proof).unwrap().len() <= 4096, "{hostname}");
        let trust = trust::provenance::AnchoredTrust::of(trust());
        proof.verify(&name(hostname), &trust, &takes).unwrap();
        proof.verify(&name("web-9"), &trust, &takes).unwrap_err();
    }
}
