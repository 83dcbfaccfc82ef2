//! SEC-1, SEC-2, CFG-9: which secrets a node gets follows from what is declared; a release seals each once, and wraps it
//! for the nodes whose recipient keys the fleet repo has; what did not change is sealed as the same bytes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use model::{Hostname, Kind};
use resolve::release::{Builder, Built};
use resolve::secrets::{FleetSealer, NotSealed, SealedFleet, SecretNeeds};
use resolve::{Changed, Fleet, SecretSourceKind, Tree, check};
use trust::SigningKey;
use trust::sealing::{InHand, MAX_NODE_SECRETS, SealedSecret, SealingKey, SecretKeys, SecretSealer, open};

use super::common::*;

fn key(of: u8) -> SealingKey {
    SealingKey::from_secret(&[of; 32]).unwrap()
}

const NODES: &str = "\
nodes:
  - match: [a.t]
    modules: [app]
    vars: {app.word: secret:team/word}
  - match: [b.t]
    modules: [app]
  - match: [plain.t]
    modules: [plain]
  - match: [\"*.p\"]
    modules: [app]
    conditional_vars:
      - when: traits.cpu.count > 1
        vars: {app.word: secret:team/other}
";

fn tree(recipients: &str) -> Tree {
    Tree::of([
        (
            "fleet.yaml",
            "format: 1\nname: t\nchannels: {stable: {freshness: 14d}}\ndefaults: {channel: stable}\n\
             secrets: {sources: {vault: {url: \"https://v.example\", path: kv/muster, prefix: team/}, files: {age: secrets/}}}\n",
        ),
        ("nodes.yaml", NODES),
        ("recipients.yaml", recipients),
        ("modules/plain/module.yaml", "resources:\n  - file: /etc/plain\n    content: x\n"),
        (
            "modules/app/module.yaml",
            "params:\n  word: {type: secret, default: \"secret:team/default\"}\nresources:\n  - file: /etc/key\n    \
             content: secret:team/key\n  - file: /etc/conf\n    content: \"x=${{ params.word }}\"\n",
        ),
    ])
}

fn fleet(recipients: &[(&str, u8)]) -> Fleet {
    let lines = recipients.iter().map(|(node, of)| format!("  {node}: {}\n", key(*of).public()));
    check(&tree(&format!("recipients:\n  none.t: {}\n{}", key(99).public(), lines.collect::<String>())))
        .unwrap()
}

fn values(of: &[(&str, &str)]) -> BTreeMap<String, InHand> {
    let sealer = SecretSealer::of(&SigningKey::from_seed(&[7; 32]));
    of.iter()
        .map(|(name, value)| ((*name).to_owned(), sealer.seal(name, value.as_bytes()).unwrap()))
        .collect()
}

const VALUES: [(&str, &str); 4] =
    [("team/key", "k"), ("team/word", "w"), ("team/other", "o"), ("team/default", "d")];

fn seal(
    sealer: &mut FleetSealer,
    fleet: &Fleet,
    values: &BTreeMap<String, InHand>,
) -> Result<SealedFleet, NotSealed> {
    let needs = SecretNeeds::of(fleet.specialize());
    let everything = Changed { patterns: true, modules: true, channels: true, hostnames: Vec::new() };
    sealer.seal(fleet.specialize(), &everything, &needs, fleet.recipients(), values)
}

fn built(sealed: &SealedFleet) -> Built {
    let everything = Changed { patterns: true, modules: true, channels: true, hostnames: Vec::new() };
    Builder::new().build(&sealed.fleet, &everything).unwrap()
}

/// What a node opens of what a release gives it.
fn opens(sealed: &SealedFleet, node: &str, of: u8) -> Vec<(String, String)> {
    let spec = sealed.fleet.node(node).unwrap();
    let secrets = spec.secrets.as_ref().unwrap();
    let keys: Option<SecretKeys> =
        secrets.keys.as_ref().map(|keys| model::canonical::parse_canonical(&keys.bytes).unwrap());
    let node: Hostname = node.parse().unwrap();
    let open_one = |object: &resolve::Grant| {
        let secret: SealedSecret = model::canonical::parse_canonical(&object.bytes).unwrap();
        let value = open(&key(of), &node, &secret, keys.as_ref()).map_err(|error| error.to_string());
        let value = value.map_or_else(|why| why, |value| String::from_utf8(value.to_vec()).unwrap());
        (secret.name, value)
    };
    secrets.sealed.objects.iter().map(open_one).collect()
}

#[test]
fn each_node_gets_what_it_is_declared_and_opens_what_is_sealed_for_it() {
    let fleet = fleet(&[("a.t", 1), ("x.p", 3)]);
    let sources: Vec<&str> = fleet.secret_sources().iter().map(|source| source.name.as_str()).collect();
    assert_eq!(sources, ["vault", "files"], "in the order of the file");
    assert!(
        matches!(&fleet.secret_sources()[1].kind, SecretSourceKind::Age { folder, .. } if folder == "secrets")
    );
    let needs = SecretNeeds::of(fleet.specialize());
    let texts: Vec<(&str, bool)> =
        needs.secrets.iter().map(|(name, needed)| (name.as_str(), needed.in_text)).collect();
    assert_eq!(
        texts,
        [("team/default", true), ("team/key", false), ("team/other", true), ("team/word", true)],
        "a secret that is the whole content of a file alone need not be a text"
    );
    let sealed = seal(&mut FleetSealer::default(), &fleet, &values(&VALUES)).unwrap();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(opens(&sealed, "a.t", 1), [pair("team/key", "k"), pair("team/word", "w")]);
    // Whatever it observes, a node gets all that may be chosen: it chooses no secret.
    let by_pattern = [pair("team/default", "d"), pair("team/key", "k"), pair("team/other", "o")];
    assert_eq!(opens(&sealed, "x.p", 3), by_pattern);
    assert!(sealed.fleet.exact.contains_key("x.p"), "it has keys of its own");
    assert!(opens(&sealed, "y.p", 3).iter().all(|(_, value)| value.contains("seals nothing for this node")));
    assert!(opens(&sealed, "a.t", 3).iter().all(|(_, value)| value.contains("another key")));
    let without: Vec<&str> = sealed.without_key.iter().map(|name| &**name).collect();
    assert_eq!((without, sealed.patterns.as_slice()), (vec!["b.t"], &["*.p".to_owned()][..]));
    assert!(sealed.fleet.node("plain.t").unwrap().secrets.is_none());
    // The set holds them, and an agent that does not know of them takes no such release.
    let release = built(&sealed);
    let set = release.set(sealed.fleet.node("a.t").unwrap()).unwrap();
    let kinds: Vec<String> = set.objects().map(|(key, _)| key.section.kind.to_string()).collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == Kind::SECRET_REF).count(), 2);
    assert_eq!(kinds.iter().filter(|kind| *kind == Kind::SECRET_KEYS).count(), 1);
    assert!(release.requires(trust::feature::FEATURES).contains(&"secrets".to_owned()));
}

fn needed(tree: &Tree) -> Vec<(String, bool)> {
    let needs = SecretNeeds::of(check(tree).unwrap().specialize());
    needs.secrets.into_iter().map(|(name, needed)| (name, needed.in_text)).collect()
}

/// Nodes with the same modules: a default counts for the one that does not set the param, whoever else does.
#[test]
fn a_default_counts_for_whoever_does_not_set_it() {
    let nodes = "nodes:\n  - match: [a.t]\n    modules: [app]\n    vars: {app.word: secret:team/word}\n  \
                 - match: [b.t]\n    modules: [app]\n";
    let of = |name: &str, in_text| (name.to_owned(), in_text);
    assert_eq!(
        needed(&with(tree("recipients: {}\n"), [("nodes.yaml", nodes)])),
        [of("team/default", true), of("team/key", false), of("team/word", true)]
    );
}

/// A host's own vars, a template, a param that stands in two places.
#[test]
fn what_a_node_needs_is_found_wherever_it_stands() {
    let of = |name: &str, in_text| (name.to_owned(), in_text);
    let nodes = "nodes:\n  - match: [b.t]\n    modules: [app]\n";
    let own = [("nodes.yaml", nodes), ("hosts/b.t.yaml", "vars: {app.word: secret:team/host}\n")];
    assert_eq!(needed(&with(tree("recipients: {}\n"), own)), [of("team/host", true), of("team/key", false)]);
    let templated = [
        ("nodes.yaml", "nodes:\n  - match: [b.t]\n    modules: [plain]\n"),
        ("modules/plain/module.yaml", "resources:\n  - file: /etc/x\n    template: x.j2\n"),
        ("modules/plain/templates/x.j2", "x={{ secret(\"team/templated\") }}\n"),
    ];
    assert_eq!(needed(&with(tree("recipients: {}\n"), templated)), [of("team/templated", true)]);
    // A module that names none itself, and is given one.
    let given = "params:\n  word: {type: secret, required: true}\nresources:\n  - file: /etc/x\n    content: ${{ params.word }}\n";
    let nodes_given =
        "nodes:\n  - match: [a.t]\n    modules: [app]\n    vars: {app.word: secret:team/word}\n";
    let given =
        with(tree("recipients: {}\n"), [("nodes.yaml", nodes_given), ("modules/app/module.yaml", given)]);
    let given = check(&given).unwrap();
    let of_node = SecretNeeds::of(given.specialize()).of_node(given.specialize().node("a.t").unwrap());
    assert_eq!(of_node, ["team/word".to_owned()].into());
    let twice = "params:\n  both: {type: secret, default: \"secret:team/default\"}\nresources:\n  - file: /etc/whole\n    \
                 content: ${{ params.both }}\n  - file: /etc/text\n    content: \"x=${{ params.both }}\"\n";
    let twice = [("nodes.yaml", nodes), ("modules/app/module.yaml", twice)];
    assert_eq!(needed(&with(tree("recipients: {}\n"), twice)), [of("team/default", true)]);
}

/// A param that is the whole content of a file in its own module is a text where another module reads it as a var.
#[test]
fn what_another_module_reads_has_to_be_a_text() {
    let module = "params:\n  whole: {type: secret, default: \"secret:team/default\"}\nresources:\n  - file: /etc/whole\n    \
                  content: ${{ params.whole }}\n";
    let reader =
        "depends_on: [app]\nresources:\n  - file: /etc/reader\n    content: \"x=${{ vars.app.whole }}\"\n";
    let nodes = |modules: &str, vars: &str| {
        format!("nodes:\n  - match: [a.t]\n    modules: [{modules}]\n    vars: {{{vars}}}\n")
    };
    let fleet = |nodes: &str| {
        let changed = [
            ("nodes.yaml", nodes),
            ("modules/app/module.yaml", module),
            ("modules/plain/module.yaml", reader),
        ];
        with(tree("recipients: {}\n"), changed)
    };
    for (modules, vars, name, in_text) in [
        ("app", "", "team/default", false),
        ("app, plain", "", "team/default", true),
        ("app", "app.whole: secret:team/word", "team/word", false),
        ("app, plain", "app.whole: secret:team/word", "team/word", true),
    ] {
        let found = needed(&fleet(&nodes(modules, vars)));
        assert_eq!(found, [(name.to_owned(), in_text)], "{modules} {vars}");
    }
}

#[test]
fn what_did_not_change_is_sealed_as_the_same_bytes() {
    let fleet = fleet(&[("a.t", 1), ("b.t", 2), ("x.p", 3)]);
    let mut sealer = FleetSealer::default();
    let first = seal(&mut sealer, &fleet, &values(&VALUES)).unwrap();
    let again = seal(&mut sealer, &fleet, &values(&VALUES)).unwrap();
    assert!(again.changed.hostnames.is_empty() && !again.changed.patterns);
    let elsewhere = seal(&mut FleetSealer::default(), &fleet, &values(&VALUES)).unwrap();
    assert_eq!(
        built(&first).root().unwrap(),
        built(&elsewhere).root().unwrap(),
        "on another machine as well"
    );
    let mut rotated = VALUES;
    rotated[1].1 = "another";
    let rotated = seal(&mut sealer, &fleet, &values(&rotated)).unwrap();
    let names: Vec<&str> = rotated.changed.hostnames.iter().map(|name| &**name).collect();
    assert_eq!((names, rotated.changed.patterns), (vec!["a.t"], false), "only who has it");
    let of = |sealed: &SealedFleet| sealed.fleet.node("a.t").unwrap().secrets.clone().unwrap();
    let (was, is) = (of(&first), of(&rotated));
    assert_eq!(was.sealed.objects[0], is.sealed.objects[0]);
    assert_ne!(was.sealed.objects[1], is.sealed.objects[1]);
    let missing = seal(&mut sealer, &fleet, &values(&VALUES[1..])).unwrap_err();
    assert_eq!(missing, NotSealed::Missing("team/key".to_owned()));
}

/// What a node opens is bounded: a publish names the node that is declared to have more.
#[test]
fn a_node_that_is_declared_too_many_is_named() {
    let uses = (0..=MAX_NODE_SECRETS).map(|n| format!("{{{{ secret(\"team/s{n}\") }}}}\n"));
    let uses: String = uses.collect();
    let files = [
        ("nodes.yaml", "nodes:\n  - match: [b.t]\n    modules: [plain]\n"),
        ("modules/plain/module.yaml", "resources:\n  - file: /etc/x\n    template: x.j2\n"),
        ("modules/plain/templates/x.j2", &*uses),
    ];
    let fleet = check(&with(tree("recipients: {}\n"), files)).unwrap();
    let refused = seal(&mut FleetSealer::default(), &fleet, &values(&[])).unwrap_err();
    assert_eq!(refused, NotSealed::TooMany { node: "b.t".to_owned(), count: MAX_NODE_SECRETS + 1 });
}

#[test]
fn where_a_secret_must_not_stand_it_is_refused_by_name() {
    let module = |line: &str| {
        with(
            fleet_with("  key: {type: secret}\n  n: {type: int, default: 1}\n"),
            [(
                "modules/app/module.yaml",
                &*format!(
                    "params:\n  key: {{type: secret, default: \"secret:a/b\"}}\nresources:\n  - file: /etc/x\n    content: x\n{line}"
                ),
            )],
        )
    };
    for (line, code) in [
        ("    when: params.key == \"x\"\n", "E066"),
        ("    when: secret(\"a/b\") == \"x\"\n", "E050"),
        ("    mode: ${{ params.key }}\n", "E066"),
        ("    owner: secret:a/b\n", "E066"),
        ("    only_if: [test, \"${{ params.key }}\"]\n", "E066"),
        ("  - exec: [echo, '${{ secret(\"a/b\") }}']\n    always: true\n", "E066"),
        ("  - exec: [echo]\n    always: true\n    stdin: ${{ secret(params.key) }}\n", "E050"),
        ("verify: echo ${{ params.key }}\n", "E066"),
    ] {
        let found = codes(&module(line));
        assert!(found.contains(&code), "{line}: {found:?}");
    }
    assert_eq!(
        codes(&module("  - exec: [cat]\n    always: true\n    stdin: ${{ params.key }}\n")),
        Vec::<&str>::new()
    );
    let role = "modules: [app]\nvars: {app.n: secret:a/b}\n";
    assert_eq!(
        codes(&with(fleet_with("  n: {type: int, default: 1}\n"), [("roles/app.yaml", role)])),
        ["E050"]
    );
}

#[test]
fn mistakes_in_sources_and_recipients_are_named() {
    for (text, code) in [
        ("secrets: {sources: {a: {age: ../x}}}\n", "E017"),
        ("secrets: {sources: {a: {url: \"http://v.example\", path: kv/x}}}\n", "E017"),
        ("secrets: {sources: {a: {url: \"http://127.0.0.1.v.example\", path: kv/x}}}\n", "E017"),
        ("secrets: {sources: {a: {url: \"http://localhost@v.example\", path: kv/x}}}\n", "E017"),
        ("secrets: {sources: {a: {url: \"http://localhost:x@v.example/\", path: kv/x}}}\n", "E017"),
        ("secrets: {sources: {a: {url: \"https://v.example\"}}}\n", "E016"),
        ("secrets: {sources: {a: {command: []}}}\n", "E017"),
        ("secrets: {sources: {a: {age: x, command: [b]}}}\n", "E016"),
        ("secrets: {sources: {a: {age: x, timeout: 2h}}}\n", "E017"),
        ("secrets: {}\n", "E016"),
    ] {
        let fleet = format!(
            "format: 1\nname: t\nchannels: {{stable: {{freshness: 14d}}}}\ndefaults: {{channel: stable}}\n{text}"
        );
        let tree = with(tree("recipients: {}\n"), [("fleet.yaml", &*fleet)]);
        assert!(codes(&tree).contains(&code), "{text}: {:?}", codes(&tree));
    }
    for local in ["http://127.0.0.1:8200", "http://localhost/v", "http://[::1]:8200"] {
        let fleet = format!(
            "format: 1\nname: t\nchannels: {{stable: {{freshness: 14d}}}}\ndefaults: {{channel: stable}}\n\
             secrets: {{sources: {{a: {{url: \"{local}\", path: kv/x}}}}}}\n"
        );
        let tree = with(tree("recipients: {}\n"), [("fleet.yaml", &*fleet)]);
        assert_eq!(codes(&tree), Vec::<&str>::new(), "{local}");
    }
    for (text, code) in [
        ("recipients: {a.t: age1x}\n", "E017"),
        ("recipients: {\"a b\": age1x}\n", "E034"),
        ("a.t: age1x\n", "E016"),
    ] {
        assert!(codes(&tree(text)).contains(&code), "{text}: {:?}", codes(&tree(text)));
    }
    let two = with(
        tree(&format!("recipients: {{a.t: {}}}\n", key(1).public())),
        [("recipients/more.yaml", &*format!("recipients: {{a.t: {}}}\n", key(2).public()))],
    );
    assert_eq!(codes(&two), ["E084"]);
}
