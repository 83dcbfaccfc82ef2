//! Nodes, facts and trees to check a store with.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::chunk::{self, TreeChunk};
use model::exchange::{Signature, Signed};
use model::log::{Fact, FactBody};
use model::object::SectionKey;
use model::trie::{Top, Trie};
use model::{
    Digest, Hostname, Incarnation, NodeId, ObjectKey, ObjectSet, RunCounts, RunReport, Selection,
    SelectionEntry, Timestamp,
};

use store::Store;
use store::{ListVersions, NewNode, Release, TokenUse};

/// An instant, so many seconds after the beginning of the checks.
pub fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(1_800_000_000 + secs)
}

/// A day in seconds.
pub const DAY: i64 = 24 * 3600;

/// The node number `n`, as it enrolls.
pub fn new_node(n: u32) -> NewNode {
    NewNode {
        node_id: NodeId::of_key(&n.to_be_bytes()),
        hostname: format!("host-{n}").parse().unwrap(),
        public_key: format!("ed25519:{n}"),
        cert_not_before: at(0),
        cert_not_after: Some(at(30 * DAY)),
        cert_serial: format!("{n:04x}"),
        cert_authority: "00c0ffee00c0ffee".to_owned(),
        key_confirmation: model::KeyConfirmation::Token,
        declared: serde_json::json!({ "labels": { "n": n } }),
    }
}

/// A token.
pub fn token(nonce: &str) -> TokenUse {
    TokenUse { nonce: nonce.into(), expires_at: at(3600), replaces: None, lists: ListVersions::default() }
}

/// Enrolls the node number `n`; returns its id.
pub async fn enrolled(store: &Store, n: u32) -> NodeId {
    let node = new_node(n);
    let id = node.node_id.clone();
    store.enroll(node, token(&format!("nonce-{n}")), at(0)).await.unwrap();
    id
}

/// An incarnation of a node's log.
pub fn incarnation(name: &str) -> Incarnation {
    name.parse().unwrap()
}

/// The fact of a number that is no run.
pub fn started(seq: u64) -> Fact {
    let body = FactBody::Started {
        version: format!("0.{seq}"),
        boot_id: "b".into(),
        invocation: None,
        cut_off_run: None,
    };
    Fact { seq, at: at(100), body }
}

/// The fact of a number that is a run with so many changes.
pub fn run(seq: u64, changed: u32, intended: bool) -> Fact {
    let report = RunReport {
        started: at(0),
        duration_ms: 12,
        seq: 1,
        root: Digest::of(b"root"),
        intended,
        paused: None,
        partial: None,
        unknown_tags: vec![],
        unswitched: Vec::new(),
        counts: RunCounts { modules: 1, ok: 3, changed, ..RunCounts::default() },
        items: Vec::new(),
    };
    Fact { seq, at: at(100), body: FactBody::Run(report) }
}

/// A signed document; nobody checks the signature here.
pub fn signed(text: &str) -> Signed {
    let signature = Signature { key: "k".into(), sig: "s".into() };
    Signed { payload: text.into(), signatures: vec![signature] }
}

/// The pieces of a release: contents, chunks from the bottom up, and the selection.
pub struct Tree {
    /// Contents.
    pub contents: Vec<Bytes>,
    /// Chunks, those below before those above.
    pub chunks: Vec<TreeChunk>,
    /// The selection.
    pub selection: Selection,
    /// Its root.
    pub root: Digest,
    /// The sets by host.
    pub sets: BTreeMap<Hostname, ObjectSet>,
}

/// A tree of so many hosts, whose contents differ by `label` in one module.
pub fn tree(hosts: u32, label: &str) -> Tree {
    let mut contents: Vec<Bytes> = (0..20).map(|n| Bytes::from(format!("module {n}"))).collect();
    contents.push(Bytes::from(format!("module of {label}")));
    let modules = contents.len();
    let mut sets = BTreeMap::new();
    let mut exact = Vec::new();
    for n in 0..hosts {
        let params = Bytes::from(format!("params of {n}"));
        let mut objects: Vec<(ObjectKey, model::Stub)> = contents[..modules]
            .iter()
            .enumerate()
            .map(|(n, content)| (ObjectKey::of("Module", &format!("m{n}")), model::Stub::of(content)))
            .collect();
        objects.push((ObjectKey::of("Params", "params"), model::Stub::of(&params)));
        contents.push(params);
        let set = ObjectSet::of(objects);
        let hostname: Hostname = format!("host-{n}").parse().unwrap();
        let entry = SelectionEntry { channel: "stable".parse().unwrap(), root: set.root() };
        exact.push(Selection::leaf(&hostname, &entry));
        sets.insert(hostname, set);
    }
    let selection = Selection::new(Trie::build(exact), Vec::new());
    let root = selection.root().unwrap();
    let chunks = chunks_of(&selection, sets.values());
    Tree { contents, chunks, selection, root, sets }
}

/// A tree of one host, with a module for each of these blobs that names it.
pub fn tree_with_blobs(blobs: &[Bytes]) -> Tree {
    let naming = |blob: &Bytes| Bytes::from(format!(r#"{{"blobs":["{}"]}}"#, Digest::of(blob)));
    let contents: Vec<Bytes> = blobs.iter().map(naming).collect();
    let object =
        |(n, content): (usize, &Bytes)| (ObjectKey::of("Module", &format!("m{n}")), model::Stub::of(content));
    let set = ObjectSet::of(contents.iter().enumerate().map(object));
    let hostname: Hostname = "host-0".parse().unwrap();
    let entry = SelectionEntry { channel: "stable".parse().unwrap(), root: set.root() };
    let selection = Selection::new(Trie::build([Selection::leaf(&hostname, &entry)]), Vec::new());
    let root = selection.root().unwrap();
    let sets = BTreeMap::from([(hostname, set)]);
    let chunks = chunks_of(&selection, sets.values());
    Tree { contents, chunks, selection, root, sets }
}

fn chunks_of<'a>(selection: &Selection, sets: impl Iterator<Item = &'a ObjectSet>) -> Vec<TreeChunk> {
    let mut chunks = BTreeMap::new();
    let mut order = Vec::new();
    let mut push = |chunk: TreeChunk| {
        let digest = chunk.hash().unwrap();
        if chunks.insert(digest, ()).is_none() {
            order.push(chunk);
        }
    };
    for set in sets {
        for (section, trie) in set.sections() {
            if trie.len() > 1 {
                trie_chunks(section, trie, &mut push);
            }
        }
        push(chunk::of_set(set));
    }
    trie_chunks(&Selection::section(), selection.exact(), &mut push);
    push(chunk::of_selection(selection));
    order
}

fn trie_chunks(section: &SectionKey, trie: &Trie, push: &mut dyn FnMut(TreeChunk)) {
    if let Top::Branch(children) = trie.top() {
        children.iter().for_each(|child| trie_chunks(section, child, push));
    }
    if let Some(chunk) = chunk::of_trie(section, trie) {
        push(chunk);
    }
}

/// Puts the contents and chunks of a tree.
pub async fn put(store: &Store, tree: &Tree, now: Timestamp) {
    store.put_contents(tree.contents.clone(), now).await.unwrap();
    store.put_chunks(tree.chunks.clone(), now).await.unwrap();
}

/// The release of a selection for the channel `stable`.
pub fn release(seq: u64, selection: Digest) -> Release {
    Release {
        seq,
        ref_label: format!("r{seq}"),
        created: at(0),
        selection,
        headers: [("stable".parse().unwrap(), signed(&format!("header {seq}")))].into(),
        summary: serde_json::json!({ "nodes": 1 }),
    }
}
