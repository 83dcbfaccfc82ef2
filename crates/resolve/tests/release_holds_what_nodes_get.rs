//! DLT-2, DLT-3, ROL-1, OPS-2, SYN-5: a release commits to every node's set; a module is one object however
//! many nodes use it; a walk from the top finds every chunk and content, and each node can
//! prove its entry.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};

use catalog::module::{Module, Params};
use model::canonical;
use model::chunk::TreeChunk;
use model::descent::{self, DescentError};
use model::policy::Policy;
use model::replication::{Mode, SyncPolicy, TransportPolicy};
use model::work::Delegation;
use model::{Digest, Kind, ObjectKey, Selection, Timestamp};
use resolve::release::{self, Builder, Built, Stamp};
use resolve::{Changed, RepoFile, Specialized, Tree};
use trust::feature::Feature;
use trust::release::Fallback;

const FLEET: &str = "format: 1\nname: test\nchannels:\n  stable: {contact: 5m, jitter: 10%, freshness: 24h}\n  edge: {contact: 1h, freshness: 7d, metered: true}\ndefaults: {channel: stable}\n";
const NODES: &str = "\
nodes:
  - match: [web-1.test, web-2.test]
    roles: [web]
  - match: [edge-1.test]
    modules: [base]
    channel: edge
    vars: {base.note: mine}
  - match: [\"edge-*.test\"]
    except: [\"edge-lab-*.test\"]
    modules: [base]
    channel: edge
";

fn tree() -> Tree {
    Tree::of([
        ("fleet.yaml", FLEET),
        ("nodes.yaml", NODES),
        ("roles/web.yaml", "modules: [base, web]\n"),
        (
            "modules/base/module.yaml",
            "params:\n  note: {type: string, default: hi}\nresources:\n  - file: /etc/motd\n    content: ${{ params.note }}\n",
        ),
        ("modules/web/module.yaml", "resources:\n  - file: /srv/index.html\n    source: index.html\n"),
        ("modules/web/files/index.html", "<p>hello</p>\n"),
    ])
}

fn everything() -> Changed {
    Changed { hostnames: Vec::new(), patterns: true, modules: true, channels: true }
}

fn built(fleet: &Specialized) -> Built {
    Builder::new().build(fleet, &everything()).unwrap()
}

/// Everything below the top: chunks and contents by digest.
fn walk(built: &Built) -> (BTreeMap<Digest, TreeChunk>, BTreeMap<Digest, Vec<u8>>) {
    let (mut chunks, mut contents) = (BTreeMap::new(), BTreeMap::new());
    let mut level = vec![built.top().unwrap()];
    while let Some(piece) = level.pop() {
        let chunk = built.chunk(&piece).unwrap();
        assert_eq!(chunk.hash().unwrap(), piece.hash(), "a chunk has the hash that it is asked for by");
        let below = built.below(&piece).unwrap();
        let needs = chunk.needs();
        let offered: BTreeSet<Digest> = below.pieces.iter().map(release::ReleaseChunk::hash).collect();
        assert!(
            needs.chunks.iter().all(|needed| offered.contains(needed)),
            "every chunk that is needed is offered"
        );
        for content in &below.contents {
            assert_eq!(Digest::of(&content.bytes), content.digest);
            contents.insert(content.digest, content.bytes.to_vec());
        }
        assert!(needs.contents.iter().all(|(digest, size)| contents[digest].len() as u64 == *size));
        chunks.insert(piece.hash(), chunk);
        level.extend(below.pieces);
    }
    (chunks, contents)
}

#[test]
fn every_set_can_be_put_together_from_a_walk() {
    let fleet = resolve::check(&tree()).unwrap();
    let built = built(fleet.specialize());
    let (chunks, contents) = walk(&built);
    for name in ["web-1.test", "edge-1.test"] {
        let entry = built.selection().entry(name, &trust::adopt::takes).unwrap();
        let set =
            descent::read_set::<DescentError>(&entry.root, &mut |digest| Ok(chunks.get(digest).cloned()))
                .unwrap();
        assert_eq!(set.root(), entry.root);
        let content = |kind, object| &contents[&set.get(&ObjectKey::of(kind, object)).unwrap().digest];
        let params: Params = canonical::parse_canonical(content(Kind::PARAMS, "node")).unwrap();
        let policy: Policy = canonical::parse_canonical(content(Kind::POLICY, "channel")).unwrap();
        let base: Module = canonical::parse_canonical(content(Kind::MODULE, "base")).unwrap();
        assert_eq!(base.name, "base");
        assert_eq!(params.modules.len() + 2, set.len());
        let metered = name == "edge-1.test";
        assert_eq!((policy.metered, policy.contact_secs), (metered, if metered { 3600 } else { 300 }));
        assert_eq!(policy.jitter_percent, if metered { 20 } else { 10 });
    }
}

/// The content of an object in a node's set, put together from a walk.
fn object(built: &Built, node: &str, kind: &str, name: &str) -> Option<Vec<u8>> {
    let (chunks, contents) = walk(built);
    let entry = built.selection().entry(node, &trust::adopt::takes)?;
    let set = descent::read_set::<DescentError>(&entry.root, &mut |digest| Ok(chunks.get(digest).cloned()))
        .unwrap();
    set.get(&ObjectKey::of(kind, name)).map(|stub| contents[&stub.digest].clone())
}

#[test]
fn a_set_holds_what_is_granted_to_the_node() {
    let delegations: String =
        (0..20).map(|n| format!("  d{n}: {{nodes: [\"web-**\"], commands: [/bin/c{n}]}}\n")).collect();
    let grants = format!(
        "sync:\n  edge: {{nodes: [\"edge-*.test\"], mode: managed, kinds: [AppProject, Application], folder: /srv/manifests, max_delete: 10%}}\n\
         delegations:\n{delegations}  one: {{nodes: [edge-2.test], queries: [traits, {{file: /etc/*}}], timeout: 10m}}\n"
    );
    let fleet = FLEET.replace("freshness: 7d", "freshness: 7d, transport: websocket") + &grants;
    let mut tree = tree();
    tree.files.insert("fleet.yaml".to_owned(), fleet.into_bytes().into());
    let built = built(resolve::check(&tree).unwrap().specialize());
    let sync: SyncPolicy =
        canonical::parse_canonical(&object(&built, "edge-1.test", Kind::SYNC, "sync").unwrap()).unwrap();
    assert_eq!((sync.mode, sync.max_delete_percent), (Mode::Managed, 10));
    assert_eq!(
        (sync.kinds.join(" "), sync.folder.as_deref()),
        ("AppProject Application".into(), Some("/srv/manifests"))
    );
    for n in 0..20 {
        let content = object(&built, "web-2.test", Kind::DELEGATION, &format!("d{n}")).unwrap();
        let delegation: Delegation = canonical::parse_canonical(&content).unwrap();
        assert_eq!(delegation.commands, [[format!("/bin/c{n}")]]);
    }
    let one: Delegation =
        canonical::parse_canonical(&object(&built, "edge-2.test", Kind::DELEGATION, "one").unwrap()).unwrap();
    assert_eq!((one.queries.len(), one.timeout_secs), (2, Some(600)));
    assert_eq!(object(&built, "edge-3.test", Kind::DELEGATION, "one"), None, "only for edge-2");
    assert!(object(&built, "edge-3.test", Kind::SYNC, "sync").is_some());
    assert_eq!(object(&built, "web-1.test", Kind::SYNC, "sync"), None);
    let policy = |node| -> Policy {
        canonical::parse_canonical(&object(&built, node, Kind::POLICY, "channel").unwrap()).unwrap()
    };
    assert_eq!(policy("edge-3.test").transport, TransportPolicy::Websocket);
    assert_eq!(policy("web-1.test").transport, TransportPolicy::Auto);
}

/// CNV-11: hosts know within what time a contact must follow a guarded run; where nothing is said, no hash moves.
#[test]
fn a_channels_guard_travels_with_its_policy() {
    let policy = |fleet: &str| {
        let mut tree = tree();
        tree.files.insert("fleet.yaml".into(), fleet.as_bytes().into());
        let built = built(resolve::check(&tree).unwrap().specialize());
        object(&built, "web-1.test", Kind::POLICY, "channel").unwrap()
    };
    assert!(!String::from_utf8_lossy(&policy(FLEET)).contains("guard"), "no hash moves");
    let bytes = policy(&FLEET.replace("24h}", "24h, guard: {window: 90s, offline: confirm}}"));
    let read = canonical::parse_canonical::<Policy>(&bytes).unwrap();
    assert_eq!((read.guard.window_secs, read.guard.offline.as_str()), (90, "confirm"));
    assert_eq!(catalog::channel::fields(&read)["guard"], "window 90s, offline confirm");
    let bytes = policy(&FLEET.replace("24h}", "24h, guard: {window: 5m, offline: return}}"));
    assert_eq!(bytes, policy(FLEET), "what is said is the default");
}

/// CNV-12: hosts know their window for reboots; those of a channel that only observes know that by their params.
#[test]
fn a_channels_window_for_reboots_travels_with_its_policy() {
    let policies = |fleet: &str| {
        let mut tree = tree();
        tree.files.insert("fleet.yaml".into(), fleet.as_bytes().into());
        let built = built(resolve::check(&tree).unwrap().specialize());
        ["web-1.test", "edge-1.test"].map(|node| object(&built, node, Kind::POLICY, "channel").unwrap())
    };
    let read = |bytes: &Vec<u8>| canonical::parse_canonical::<Policy>(bytes).unwrap();
    let plain = policies(FLEET);
    assert!(plain.iter().all(|bytes| !String::from_utf8_lossy(bytes).contains("reboot")), "no hash moves");
    let windows =
        "windows: {nights: {days: [mon-fri], from: \"22:00\", to: \"04:00\", zone: Europe/Berlin}}\n";
    let fleet = FLEET.replace("24h}", "24h, reboot: {window: nights}}");
    let fleet = fleet.replace("metered: true}", "observe: true, reboot: {window: nights}}") + windows;
    let [stable, edge] = policies(&fleet);
    let reboot = read(&stable).reboot.unwrap();
    assert_eq!((&*reboot.name, &*reboot.window.from), ("nights", "22:00"));
    assert!(model::window::TimeWindow::read(&reboot.window).is_ok(), "with the rules of its zone");
    assert_eq!(read(&edge).reboot, Some(reboot));
}

#[test]
fn blobs_travel_with_the_module_that_names_them() {
    let fleet = resolve::check(&tree()).unwrap();
    let (_, contents) = walk(&built(fleet.specialize()));
    assert!(contents.values().any(|content| content == b"<p>hello</p>\n"));
}

#[test]
fn nodes_that_are_declared_alike_share_one_set_and_patterns_keep_their_order() {
    let fleet = resolve::check(&tree()).unwrap();
    let built = built(fleet.specialize());
    let entry = |name: &str| built.selection().entry(name, &trust::adopt::takes);
    assert_eq!(entry("web-1.test"), entry("web-2.test"));
    assert_ne!(entry("edge-1.test"), entry("edge-2.test"), "edge-1 has a var of its own");
    assert_eq!(entry("edge-2.test"), entry("edge-3.test"));
    assert_eq!(entry("edge-lab-1.test"), None, "excepted");
    assert_eq!(entry("db-1.test"), None, "nothing matches");
    assert_eq!(entry("edge-2.test").unwrap().channel.as_str(), "edge");
}

#[test]
fn a_node_proves_its_entry_and_no_other() {
    let fleet = resolve::check(&tree()).unwrap();
    let built = built(fleet.specialize());
    let root = built.root().unwrap();
    for name in ["web-1.test", "edge-2.test"] {
        let entry = built.selection().entry(name, &trust::adopt::takes).unwrap();
        let first = built.selection().first(name, &trust::adopt::takes);
        let proof = built.selection().prove(name, first).unwrap();
        proof.verify(&root, &name.parse().unwrap(), &entry, &trust::adopt::takes).unwrap();
        let other = proof.verify(&root, &"db-1.test".parse().unwrap(), &entry, &trust::adopt::takes);
        assert!(other.is_err(), "{name}'s proof is nobody else's");
    }
}

#[test]
fn a_header_for_every_channel_with_its_own_freshness() {
    let fleet = resolve::check(&tree()).unwrap();
    let built = built(fleet.specialize());
    let fallback = Fallback { seq: 3, header: Digest::of(b"earlier") };
    let stamp = Stamp {
        fleet: "test-1".parse().unwrap(),
        seq: 7,
        label: Some("r7".to_owned()),
        created: Timestamp(1000),
        before: [("edge".parse().unwrap(), vec![fallback])].into(),
    };
    let headers = release::headers(&built, &stamp).unwrap();
    let said: Vec<(&str, u64, usize)> = headers
        .values()
        .map(|header| (header.channel.as_str(), header.freshness_secs, header.fallbacks.len()))
        .collect();
    assert_eq!(
        said,
        [("edge", 7 * 86_400, 0), ("stable", 86_400, 0)],
        "only `onFailure: rollback` names fallbacks"
    );
    for header in headers.values() {
        assert_eq!(
            (header.seq, header.selection, header.created),
            (7, built.root().unwrap(), Timestamp(1000))
        );
    }
    assert_eq!(built.contact_secs().values().copied().collect::<Vec<_>>(), [3600, 300]);
}

#[test]
fn an_empty_fleet_is_a_release_too() {
    let tree = Tree::of([("fleet.yaml", FLEET)]);
    let built = built(resolve::check(&tree).unwrap().specialize());
    let (chunks, contents) = walk(&built);
    assert_eq!((chunks.len(), contents.len()), (1, 0));
    assert_eq!(built.selection(), &Selection::default());
}

#[test]
fn loops_and_guards_are_required_of_agents() {
    let tree = |resource: &str| {
        let module = format!(
            "resources:\n  - file: /etc/${{{{ item | default(\"x\") }}}}\n    content: x\n{resource}"
        );
        let mut tree = tree();
        tree.files.insert("modules/looped/module.yaml".into(), module.into_bytes().into());
        tree
    };
    let required = |resource: &str| {
        let fleet = resolve::check(&tree(resource)).unwrap();
        built(fleet.specialize()).requires(trust::feature::FEATURES)
    };
    assert_eq!(required("    foreach: [a, b]\n"), ["foreach"]);
    assert_eq!(required("    foreach: [a]\n    when: dir_exists(\"/x\")\n"), ["foreach", "predicates"]);
    assert_eq!(required("    foreach: [a]\n    when: file_exists(\"/x\")\n"), ["foreach"]);
    assert_eq!(required("    foreach: {a: b}\n    not_if: [test, -e, /x]\n"), ["foreach", "guards"]);
}

#[test]
fn executable_bits_travel_where_a_tree_is_copied_and_nowhere_else() {
    let release = |executable: &[&str], resource: &str| {
        let mut tree = tree();
        let module = format!("resources:\n{resource}");
        tree.files.insert("modules/web/module.yaml".into(), module.into_bytes().into());
        for path in ["files/site/run", "files/site/data", "files/other/run", "executors/x.sh"] {
            let file = RepoFile { bytes: b"#!x".as_slice().into(), executable: executable.contains(&path) };
            tree.files.insert(format!("modules/web/{path}"), file);
        }
        let fleet = resolve::check(&tree).unwrap();
        let built = built(fleet.specialize());
        (built.root().unwrap(), built.requires(trust::feature::FEATURES))
    };
    let copied = "  - directory: /srv/site\n    source: site\n";
    let (plain, requires) = release(&[], copied);
    assert!(requires.is_empty());
    assert_eq!(release(&["executors/x.sh", "files/other/run"], copied), (plain, Vec::new()));
    let (root, requires) = release(&["files/site/run"], copied);
    assert_eq!((root == plain, requires), (false, vec!["executable-files".to_owned()]));
    // Which folder it is may be known on the node alone.
    let open = "  - directory: /srv/site\n    source: ${{ traits.os.family }}\n";
    assert_eq!(release(&["files/other/run"], open).1, ["executable-files"]);
    let single = "  - file: /srv/run\n    source: site/run\n";
    assert!(release(&["files/site/run"], single).1.is_empty());
    let stdin = "  - exec: [cat]\n    always: true\n    stdin: text\n";
    assert_eq!(release(&[], stdin).1, ["stdin"]);
}

#[test]
fn named_groups_and_windows_travel_to_the_nodes_that_they_concern() {
    let params = |tree: &Tree, node: &str| {
        let fleet = resolve::check(tree).unwrap();
        fleet.specialize().node(node).unwrap().read_params().unwrap()
    };
    let mut tree = Tree::of([
        (
            "fleet.yaml",
            "format: 1\nname: acme\nchannels: {stable: {freshness: 24h}}\ndefaults: {channel: stable}\nwindows:\n  nights: {days: [mon-fri], from: \"22:00\", to: \"04:00\", zone: Europe/Berlin}\n  days: {from: \"08:00\", to: \"17:00\", zone: UTC}\n",
        ),
        (
            "nodes.yaml",
            "nodes:\n  - {match: [a], modules: [m], labels: {region: eu}}\n  - {match: [b], modules: [n], labels: {region: us}}\n",
        ),
        ("modules/m/module.yaml", "resources:\n  - {file: /x, content: x, when: 'in_window(\"nights\")'}\n"),
        ("modules/n/module.yaml", "resources:\n  - {file: /x, content: x}\n"),
        ("groups.yaml", "groups:\n  - {where: 'labels.region == \"eu\"', observe: true}\n"),
    ]);
    let unnamed = params(&tree, "b");
    assert!(unnamed.node.groups.is_empty() && unnamed.windows.is_empty());
    let text = |params: &catalog::module::Params| {
        String::from_utf8(model::canonical::to_bytes(params).unwrap()).unwrap()
    };
    assert!(!text(&unnamed).contains("groups") && !text(&unnamed).contains("windows"), "no hash moves");
    tree.files.insert(
        "groups.yaml".into(),
        b"groups:\n  - {name: eu, where: 'labels.region == \"eu\"'}\n  - {name: all, where: 'true'}\n"[..]
            .into(),
    );
    let (a, b) = (params(&tree, "a"), params(&tree, "b"));
    assert_eq!(a.node.groups.iter().collect::<Vec<_>>(), ["all", "eu"]);
    assert_eq!(b.node.groups.iter().collect::<Vec<_>>(), ["all"]);
    let nights = &a.windows["nights"];
    assert_eq!((a.windows.len(), nights.rules.as_deref()), (1, Some("CET-1CEST,M3.5.0,M10.5.0/3")));
    let window = model::window::TimeWindow::read(nights).unwrap();
    assert!(window.contains("2026-11-23T21:30:00Z".parse().unwrap()));
    assert!(b.windows.is_empty(), "nothing of its modules asks");
}

#[test]
fn a_release_requires_what_it_uses() {
    const TABLE: &[Feature] = &[
        Feature { name: "z-files", resource_types: &["file"], ..Feature::NONE },
        Feature { name: "a-files", resource_types: &["symlink", "file"], ..Feature::NONE },
        Feature { name: "units", resource_types: &["unit"], ..Feature::NONE },
    ];
    let fleet = resolve::check(&tree()).unwrap();
    let built = built(fleet.specialize());
    assert_eq!(built.requires(TABLE), ["a-files", "z-files"], "sorted, and nothing that is not used");
    assert!(built.requires(trust::feature::FEATURES).is_empty(), "every agent has what this fleet uses");
}
