//! SYN-1, ROL-4: the worked example of docs/protocol.md is what the code computes. A reader who gets
//! other bytes for these inputs knows where to look.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write;
use std::path::Path;

use data_encoding::{BASE64, HEXLOWER};
use model::object::leaf_hash;
use model::selection::{PatternEntry, Selection, SelectionEntry, patterns_digest};
use model::{Digest, Kind, ObjectKey, ObjectSet, SectionKey, Stub};
use trust::SigningKey;
use trust::signed::message;

const BEGIN: &str = "<!-- worked example: begin, made by a test -->\n";
const END: &str = "<!-- worked example: end -->\n";
const SEED: [u8; 32] = [7; 32];
const PAYLOAD: &str = r#"{"at":"2026-11-21T08:00:00Z","seq":7}"#;
const CONTENT: &[u8] = br#"{"source":"hello"}"#;

fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    writeln!(text, "{name:<26} {value}").unwrap();
}

/// Keys and what is signed with them.
fn keys(text: &mut String) {
    let key = SigningKey::from_seed(&SEED);
    let public = key.public();
    line(text, "private key (seed)", hex(&SEED));
    line(text, "public key", hex(&public.raw()));
    line(text, "its text", public);
    line(text, "its id", public.id());
    line(text, "its fingerprint", public.fingerprint());
    line(text, "the node id", public.node_id());
    let message = message("beacon", PAYLOAD.as_bytes());
    line(text, "payload of a `beacon`", PAYLOAD);
    line(text, "what is signed", hex(&message));
    line(text, "its signature (`sig`)", BASE64.encode(&key.sign(&message)));
}

/// A set of one object, and of ten, whose section is a branch; gives the first one's root.
fn sets(text: &mut String) -> Digest {
    let section = SectionKey::of(Kind::MODULE);
    let stub = Stub::of(CONTENT);
    let key = ObjectKey::of(Kind::MODULE, "nginx");
    line(text, "content of Module//nginx", String::from_utf8_lossy(CONTENT));
    line(text, "its digest", stub.digest);
    line(text, "H(name)", Digest::of(b"nginx"));
    line(text, "leaf", leaf_hash(&section, "nginx", &stub));
    let one = ObjectSet::of([(key, stub.clone())]);
    line(text, "section root, a bucket", one.section(&section).hash());
    line(text, "set root", one.root());
    let ten = (0..10).map(|n| (ObjectKey::of(Kind::MODULE, &format!("m{n}")), stub.clone()));
    let ten = ObjectSet::of(ten);
    line(text, "section root of m0 to m9", ten.section(&section).hash());
    line(text, "set root of m0 to m9", ten.root());
    line(text, "set root of nothing", ObjectSet::of([]).root());
    one.root()
}

/// A selection with one exact entry and one pattern, and both sorts of proof.
fn selection(text: &mut String, root: Digest) {
    let entry = SelectionEntry { channel: "stable".parse().unwrap(), root };
    line(text, "entry of web-1 and db-*", serde_json::to_string(&entry).unwrap());
    let exact = model::trie::Trie::build([Selection::leaf(&"web-1".parse().unwrap(), &entry)]);
    let pattern = PatternEntry { pattern: "db-*".to_owned(), except: vec!["db-9".to_owned()], entry };
    let patterns = vec![pattern];
    line(text, "exact root", exact.hash());
    line(text, "texts that are hashed", r#"[["db-*",["db-9"]]]"#);
    line(text, "patterns", patterns_digest(&patterns).unwrap());
    line(text, "patterns, if none", patterns_digest(&[]).unwrap());
    let selection = Selection::new(exact, patterns);
    line(text, "selection root", selection.root().unwrap());
    let proof = |host, first| serde_json::to_string(&selection.prove(host, first).unwrap()).unwrap();
    line(text, "proof of web-1", proof("web-1", None));
    line(text, "proof of db-2", proof("db-2", Some(0)));
}

#[test]
fn the_worked_example_is_what_the_code_computes() {
    let mut made = String::from("```text\n");
    keys(&mut made);
    let root = sets(&mut made);
    selection(&mut made, root);
    made.push_str("```\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the example");
    let (found, after) = rest.split_once(END).expect("the example ends");
    if std::env::var_os("MUSTER_BLESS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{made}{END}{after}")).unwrap();
        return;
    }
    assert!(found == made, "the worked example is not current; MUSTER_BLESS=1 writes it:\n{made}");
}
