//! CFG-1, SCL-3: a release built change by change is the release built at once, and a change
//! of one node touches only that node's path.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};

use model::Digest;
use proptest::prelude::*;
use resolve::release::{Builder, Built};
use resolve::{RepoFile, Resolver, Tree};

const FLEET: &str = "format: 1\nname: test\nchannels:\n  stable: {contact: CONTACT, freshness: 24h}\n  edge: {contact: 1h, freshness: 7d}\ndefaults: {channel: stable}\n";

/// What an edit of a fleet repo can be.
#[derive(Clone, Debug)]
enum Edit {
    /// A node gets another value.
    Node(u8, u8),
    /// A node goes.
    Removed(u8),
    /// A node goes to another channel.
    Channel(u8),
    /// The pattern's nodes get another value.
    Pattern(u8),
    /// A module changes.
    Module(u8),
    /// A channel's settings change.
    Contact(u8),
    /// A host file comes, or goes.
    Host(u8, Option<u8>),
    /// Something is delegated to some nodes, or to others.
    Delegated(u8),
    /// What is synchronized with whom changes.
    Synchronized(u8),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => (0u8..40, any::<u8>()).prop_map(|(node, value)| Edit::Node(node, value)),
        2 => (0u8..40).prop_map(Edit::Removed),
        1 => (0u8..40).prop_map(Edit::Channel),
        1 => any::<u8>().prop_map(Edit::Pattern),
        1 => any::<u8>().prop_map(Edit::Module),
        1 => (1u8..60).prop_map(Edit::Contact),
        2 => (0u8..40, any::<Option<u8>>()).prop_map(|(node, value)| Edit::Host(node, value)),
        1 => any::<u8>().prop_map(Edit::Delegated),
        1 => any::<u8>().prop_map(Edit::Synchronized),
    ]
}

#[derive(Clone, Default)]
struct Repo {
    nodes: BTreeMap<u8, (u8, bool)>,
    hosts: BTreeMap<u8, u8>,
    pattern: u8,
    module: u8,
    contact: u8,
    delegated: u8,
    synchronized: u8,
}

impl Repo {
    fn apply(&mut self, edit: &Edit) {
        match edit {
            Edit::Node(node, value) => drop(self.nodes.insert(*node, (*value, false))),
            Edit::Removed(node) => drop(self.nodes.remove(node)),
            Edit::Channel(node) => {
                if let Some((_, edge)) = self.nodes.get_mut(node) {
                    *edge = !*edge;
                }
            }
            Edit::Pattern(value) => self.pattern = *value,
            Edit::Module(value) => self.module = *value,
            Edit::Contact(minutes) => self.contact = *minutes,
            Edit::Host(node, Some(value)) => drop(self.hosts.insert(*node, *value)),
            Edit::Host(node, None) => drop(self.hosts.remove(node)),
            Edit::Delegated(value) => self.delegated = *value,
            Edit::Synchronized(value) => self.synchronized = *value,
        }
    }

    fn files(&self) -> BTreeMap<String, RepoFile> {
        let mut nodes = "nodes:\n".to_owned();
        for (node, (value, edge)) in &self.nodes {
            let channel = if *edge { "edge" } else { "stable" };
            nodes += &format!(
                "  - match: [n{node}.test]\n    modules: [app]\n    channel: {channel}\n    vars: {{app.id: \"{value}\"}}\n"
            );
        }
        nodes += &format!(
            "  - match: [\"n*.test\"]\n    modules: [app]\n    vars: {{app.id: \"p{}\"}}\n",
            self.pattern
        );
        let module = format!(
            "params:\n  id: x\nresources:\n  - file: /etc/app\n    content: \"{} ${{{{ params.id }}}}\"\n",
            self.module
        );
        let fleet = FLEET.replace("CONTACT", &format!("{}m", self.contact.max(1))) + &self.grants();
        let hosts = self.hosts.iter().map(|(node, value)| {
            (format!("hosts/n{node}.test.yaml"), format!("vars: {{app.id: \"h{value}\"}}\n"))
        });
        let fixed = [("fleet.yaml", fleet), ("nodes.yaml", nodes), ("modules/app/module.yaml", module)];
        let all = fixed.into_iter().map(|(path, text)| (path.to_owned(), text)).chain(hosts);
        all.map(|(path, text)| (path, text.into_bytes().into())).collect()
    }
}

impl Repo {
    /// `delegations:` for one to twelve entries, and `sync:`.
    fn grants(&self) -> String {
        let mut text = "delegations:\n".to_owned();
        for entry in 0..=(self.delegated % 12) {
            let nodes = ["n1*.test", "n2.test", "**"][(usize::from(entry) + usize::from(self.delegated)) % 3];
            text += &format!("  d{entry}: {{nodes: [\"{nodes}\"], commands: [/bin/c{}]}}\n", self.delegated);
        }
        let (share, digit) = (self.synchronized % 100, self.synchronized % 10);
        text + &format!(
            "sync:\n  s: {{nodes: [\"n{digit}*.test\"], mode: managed, kinds: [App], max_delete: {share}%}}\n"
        )
    }
}

/// What has to change between two trees.
fn changes(
    old: &BTreeMap<String, RepoFile>,
    new: &BTreeMap<String, RepoFile>,
) -> BTreeMap<String, Option<RepoFile>> {
    let gone = old.keys().filter(|path| !new.contains_key(*path)).map(|path| (path.clone(), None));
    let come = new.iter().filter(|(path, bytes)| old.get(*path) != Some(bytes));
    come.map(|(path, bytes)| (path.clone(), Some(bytes.clone()))).chain(gone).collect()
}

fn hashes(built: &Built) -> BTreeSet<Digest> {
    let mut found = BTreeSet::new();
    let mut level = vec![built.top().unwrap()];
    while let Some(piece) = level.pop() {
        found.insert(piece.hash());
        let below = built.below(&piece).unwrap();
        found.extend(below.contents.iter().map(|content| content.digest));
        level.extend(below.pieces);
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn change_by_change_is_all_at_once(edits in proptest::collection::vec(edit(), 1..25)) {
        let (mut resolver, mut builder) = (Resolver::new(), Builder::new());
        // Enough nodes that an edit of one is an edit, and not a release built anew.
        let mut repo = Repo { nodes: (0..40).map(|node| (node, (node, false))).collect(), ..Repo::default() };
        let mut before = BTreeMap::new();
        for edit in std::iter::once(&Edit::Pattern(0)).chain(&edits) {
            repo.apply(edit);
            let files = repo.files();
            let (fleet, changed) = resolver.update(changes(&before, &files)).unwrap();
            let built = builder.build(fleet.specialize(), &changed).unwrap();
            let fresh = resolve::check(&Tree { files: files.clone() }).unwrap();
            let everything = resolve::Changed { patterns: true, modules: true, channels: true, ..Default::default() };
            let at_once = Builder::new().build(fresh.specialize(), &everything).unwrap();
            prop_assert_eq!(built.root().unwrap(), at_once.root().unwrap(), "after {:?}", edit);
            prop_assert_eq!(hashes(&built), hashes(&at_once));
            before = files;
        }
    }
}

#[test]
fn one_node_of_many_costs_its_own_path() {
    let mut repo = Repo::default();
    let mut hosts = String::from("nodes:\n");
    for number in 0..5000 {
        hosts +=
            &format!("  - match: [h{number}.test]\n    modules: [app]\n    vars: {{app.id: \"{number}\"}}\n");
    }
    (repo.contact, repo.delegated) = (5, 11);
    let mut files = repo.files();
    files.insert("nodes/many.yaml".to_owned(), hosts.into_bytes().into());
    let (mut resolver, mut builder) = (Resolver::new(), Builder::new());
    let (fleet, changed) = resolver.update(changes(&BTreeMap::new(), &files)).unwrap();
    let before = hashes(&builder.build(fleet.specialize(), &changed).unwrap());
    let edited =
        BTreeMap::from([("hosts/h77.test.yaml".to_owned(), Some(b"vars: {app.id: edited}\n"[..].into()))]);
    let (fleet, changed) = resolver.update(edited).unwrap();
    assert_eq!(changed.hostnames.len(), 1);
    let after = hashes(&builder.build(fleet.specialize(), &changed).unwrap());
    let new = after.difference(&before).count();
    // The selection, the levels of its trie, the set and the params.
    assert!((3..=8).contains(&new), "{new} of {} chunks and contents are new", after.len());
}
