//! ROL-4, CFG-1: a node proves its own entry, and only that, in under 4 KiB.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use model::chunk::{TreeChunk, of_trie};
use model::lookup::nodes_to;
use model::selection::{PatternEntry, Proof, ProofError, prove_by_nodes};
use model::trie::{Top, Trie};
use model::{Digest, Hostname, Selection, SelectionEntry};

/// Stands in for `lang`'s patterns: a prefix with a star, or a whole name.
fn takes(pattern: &str, except: &[String], hostname: &str) -> bool {
    let one = |pattern: &str| match pattern.strip_suffix('*') {
        Some(prefix) => hostname.starts_with(prefix),
        None => pattern == hostname,
    };
    one(pattern) && !except.iter().any(|except| one(except))
}

fn entry(channel: &str, root: u32) -> SelectionEntry {
    SelectionEntry { channel: channel.parse().unwrap(), root: Digest::of(&root.to_be_bytes()) }
}

fn name(text: &str) -> Hostname {
    text.parse().unwrap()
}

fn pattern(pattern: &str, except: &[&str], root: u32) -> PatternEntry {
    let except = except.iter().map(|text| (*text).to_owned()).collect();
    PatternEntry { pattern: pattern.to_owned(), except, entry: entry("main", root) }
}

fn selection(exact: u32, patterns: Vec<PatternEntry>) -> Selection {
    let leaves = (0..exact).map(|i| Selection::leaf(&name(&format!("node-{i}.example")), &entry("main", i)));
    Selection::new(Trie::build(leaves), patterns)
}

fn proof(selection: &Selection, hostname: &str) -> Proof {
    selection.prove(hostname, selection.first(hostname, &takes)).unwrap()
}

fn check(
    selection: &Selection,
    proof: &Proof,
    hostname: &str,
    claimed: &SelectionEntry,
) -> Result<(), ProofError> {
    proof.verify(&selection.root().unwrap(), &name(hostname), claimed, &takes)
}

#[test]
fn every_name_proves_its_entry_and_no_other() {
    let patterns =
        vec![pattern("edge-*", &["edge-9"], 1001), pattern("edge-*", &[], 1002), pattern("db-*", &[], 1003)];
    for exact in [0, 1, 5, 9, 40, 300] {
        let mut selection = selection(exact, patterns.clone());
        let own = Selection::leaf(&name("edge-5"), &entry("canary", 7));
        selection = selection.with_exact(selection.exact().with(own));
        let mut rows = vec![
            ("edge-5".to_owned(), entry("canary", 7)),
            ("edge-1".to_owned(), entry("main", 1001)),
            ("edge-9".to_owned(), entry("main", 1002)),
            ("db-1".to_owned(), entry("main", 1003)),
        ];
        rows.extend((0..exact.min(20)).map(|i| (format!("node-{i}.example"), entry("main", i))));
        for (hostname, want) in &rows {
            assert_eq!(selection.entry(hostname, &takes).as_ref(), Some(want), "{hostname}");
            let proof = proof(&selection, hostname);
            assert_eq!(check(&selection, &proof, hostname, want), Ok(()), "{hostname} of {exact}");
            for other in [entry("main", 4242), entry("other", 1001), entry("main", 1003)] {
                assert_eq!(check(&selection, &proof, hostname, &other).is_ok(), other == *want, "{hostname}");
            }
        }
    }
}

/// Who has only the stored pieces on the way makes the same proof.
#[test]
fn the_pieces_on_the_way_give_the_same_proof() {
    fn pieces(trie: &Trie, out: &mut Vec<TreeChunk>) {
        out.extend(of_trie(&Selection::section(), trie));
        if let Top::Branch(children) = trie.top() {
            children.iter().for_each(|child| pieces(child, out));
        }
    }
    for exact in [0, 1, 9, 300] {
        let selection = selection(exact, vec![pattern("edge-*", &[], 1001), pattern("db-*", &[], 1002)]);
        let mut stored = Vec::new();
        pieces(selection.exact(), &mut stored);
        let stored = |digest: &Digest| stored.iter().find(|one| one.hash().unwrap() == *digest).cloned();
        for hostname in ["node-0.example", "node-299.example", "edge-1", "db-9", "none"] {
            let root = selection.exact().hash();
            let nodes = nodes_to(&root, &Selection::section(), hostname, &stored).unwrap();
            let first = selection.first(hostname, &takes);
            let made = prove_by_nodes(&nodes, selection.patterns(), hostname, first).unwrap();
            assert_eq!(made, proof(&selection, hostname), "{hostname} of {exact}");
        }
        let missing = nodes_to(&selection.exact().hash(), &Selection::section(), "edge-1", &|_| None);
        assert_eq!(missing.is_err(), exact > 0);
    }
}

#[test]
fn a_proof_is_for_one_name() {
    let selection = selection(300, vec![pattern("node-*", &[], 2), pattern("edge-*", &[], 3)]);
    let exact = proof(&selection, "node-7.example");
    let by_pattern = proof(&selection, "edge-1");
    for (proof, theirs) in [(&exact, entry("main", 7)), (&by_pattern, entry("main", 3))] {
        for hostname in ["node-8.example", "edge-x9", "node-new"] {
            let fits = check(&selection, proof, hostname, &theirs).is_ok();
            let same =
                selection.entry(hostname, &takes).as_ref() == Some(&theirs) && hostname.starts_with("edge");
            assert!(!fits || same, "{hostname} adopted what is another node's");
        }
    }
}

#[test]
fn an_exact_entry_cannot_be_passed_over_for_a_pattern() {
    let selection = selection(300, vec![pattern("node-*", &[], 9000)]);
    let hostname = "node-7.example";
    // The path of a name whose bucket does not hold node-7 does not lead to it.
    let strange = proof(&selection, "node-none");
    assert!(check(&selection, &strange, hostname, &entry("main", 9000)).is_err());
    let json = serde_json::to_value(proof(&selection, hostname)).unwrap();
    let mut forged = json.clone();
    forged.as_object_mut().unwrap().remove("patternsDigest");
    forged["patterns"] = serde_json::to_value(&strange).unwrap()["patterns"].clone();
    let forged: Proof = serde_json::from_value(forged).unwrap();
    let refused = check(&selection, &forged, hostname, &entry("main", 9000));
    assert_eq!(refused, Err(ProofError::Malformed("patterns travel only when there is no exact entry")));
}

#[test]
fn an_earlier_pattern_cannot_be_passed_over() {
    let patterns = vec![pattern("edge-*", &[], 1), pattern("edge-1*", &[], 2)];
    let selection = selection(3, patterns);
    let forged = selection.prove("edge-11", Some(1)).unwrap();
    assert!(check(&selection, &forged, "edge-11", &entry("main", 2)).is_err());
    assert!(check(&selection, &proof(&selection, "edge-11"), "edge-11", &entry("main", 1)).is_ok());
}

#[test]
fn a_name_without_entry_proves_none() {
    let selection = selection(30, vec![pattern("edge-*", &[], 1)]);
    let proof = proof(&selection, "stranger");
    assert!(check(&selection, &proof, "stranger", &entry("main", 1)).is_err());
}

#[test]
fn a_pattern_that_was_not_signed_is_not_even_read() {
    let patterns = vec![pattern("edge-*", &[], 1), pattern("db-*", &[], 2)];
    let selection = selection(3, patterns);
    let mut json = serde_json::to_value(proof(&selection, "edge-1")).unwrap();
    json["patterns"]["texts"][0][0] = "dear-to-read*".into();
    let forged: Proof = serde_json::from_value(json).unwrap();
    let read = std::cell::Cell::new(0);
    let counting = |pattern: &str, except: &[String], hostname: &str| {
        read.set(read.get() + 1);
        takes(pattern, except, hostname)
    };
    let root = selection.root().unwrap();
    let refused = forged.verify(&root, &name("edge-1"), &entry("main", 1), &counting);
    assert_eq!((refused, read.get()), (Err(ProofError::WrongRoot), 0));
}

#[test]
fn any_flipped_bit_makes_it_fail() {
    let patterns =
        vec![pattern("edge-*", &["edge-9", "edge-8*"], 1), pattern("db-*", &[], 2), pattern("*", &[], 3)];
    let selection = selection(40, patterns);
    let root = selection.root().unwrap();
    for hostname in ["node-7.example", "edge-1", "db-1"] {
        let proof = serde_json::to_vec(&proof(&selection, hostname)).unwrap();
        let entry = serde_json::to_vec(&selection.entry(hostname, &takes).unwrap()).unwrap();
        assert!(holds(&proof, &entry, &root, hostname));
        for bit in 0..proof.len() * 8 {
            assert!(
                !holds(&flipped(&proof, bit), &entry, &root, hostname),
                "{hostname}: bit {bit} of the proof"
            );
        }
        for bit in 0..entry.len() * 8 {
            assert!(
                !holds(&proof, &flipped(&entry, bit), &root, hostname),
                "{hostname}: bit {bit} of the entry"
            );
        }
        for bit in 0..256 {
            let root = Digest(flipped(&root.0, bit).try_into().unwrap());
            assert!(!holds(&proof, &entry, &root, hostname), "{hostname}: bit {bit} of the root");
        }
    }
}

fn flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[bit / 8] ^= 1 << (bit % 8);
    bytes
}

fn holds(proof: &[u8], entry: &[u8], root: &Digest, hostname: &str) -> bool {
    let Ok(proof) = serde_json::from_slice::<Proof>(proof) else { return false };
    let Ok(entry) = serde_json::from_slice::<SelectionEntry>(entry) else { return false };
    proof.verify(root, &name(hostname), &entry, &takes).is_ok()
}

#[test]
fn a_proof_is_under_4_kib_whatever_the_size_of_the_fleet() {
    let patterns: Vec<_> = (0..32)
        .map(|i| {
            pattern(
                &format!("edge-{i:02}.customer-site-*"),
                &[&format!("edge-{i:02}.customer-site-test-*")],
                i,
            )
        })
        .collect();
    let selection = selection(100_000, patterns);
    let mut most = [0, 0];
    for i in 0..2000 {
        let names = [format!("node-{}.example", i * 50), format!("edge-{:02}.customer-site-{i}", i % 32)];
        for (most, hostname) in most.iter_mut().zip(&names) {
            let proof = proof(&selection, hostname);
            *most = serde_json::to_vec(&proof).unwrap().len().max(*most);
            if i % 100 == 0 {
                check(&selection, &proof, hostname, &selection.entry(hostname, &takes).unwrap()).unwrap();
            }
        }
    }
    println!(
        "100,000 nodes, 32 patterns with exceptions: exact {} bytes, by pattern {} bytes",
        most[0], most[1]
    );
    assert!(most.iter().all(|bytes| *bytes < 4096), "{most:?}");
}
