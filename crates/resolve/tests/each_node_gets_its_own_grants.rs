//! OPS-2, SYN-5, CFG-1: which delegations and which entry of `sync:` hold for a node follows
//! from its name alone, whether an entry names the node exactly, a host file, or a pattern
//! whose other nodes get something else; and a release says the same to whoever asks it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{codes, fleet_with, right, with};
use lang::Pattern;
use proptest::prelude::*;
use resolve::release::Builder;
use resolve::{Changed, Fleet, Tree};

const HEAD: &str = "format: 1\nname: t\nchannels: {stable: {freshness: 24h}}\ndefaults: {channel: stable}\n";

fn fleet(nodes: &str, grants: &str) -> Tree {
    let text = format!("{HEAD}{grants}");
    with(fleet_with("  x: y\n"), [("nodes.yaml", nodes), ("fleet.yaml", &*text)])
}

/// What holds for a node: the kind that its sync entry names, then its delegations.
fn held(fleet: &Fleet, node: &str) -> Option<(Option<String>, Vec<String>)> {
    let grants = &fleet.specialize().node(node)?.grants;
    let sync = grants.read_sync().unwrap().map(|policy| policy.kinds[0].clone());
    Some((sync, grants.delegations.iter().map(|grant| grant.name.to_string()).collect()))
}

fn everything() -> Changed {
    Changed { patterns: true, modules: true, channels: true, ..Changed::default() }
}

/// Patterns of few letters, so that they meet in every way.
fn pattern() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => Just("a"), 4 => Just("b"), 2 => Just("."), 3 => Just("*"), 2 => Just("**"), 2 => Just("?"),
    ];
    let glob = proptest::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat());
    // Three stars are read as two and one.
    prop_oneof![8 => glob, 1 => Just("/a.*/".to_owned()), 1 => Just("/(a|b)+\\\\..*/".to_owned())]
}

fn usable(text: &str) -> bool {
    Pattern::parse(text).is_ok_and(|pattern| !pattern.is_exact() || resolve::hostname(text).is_ok())
}

fn name() -> impl Strategy<Value = String> {
    let letter = prop_oneof![3 => Just('a'), 3 => Just('b'), 1 => Just('c'), 2 => Just('.')];
    proptest::collection::vec(letter, 1..8).prop_map(|letters| letters.into_iter().collect())
}

fn entries(word: &str, entries: &[Vec<String>], body: impl Fn(usize) -> String) -> String {
    let list = |patterns: &Vec<String>| {
        patterns.iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>().join(", ")
    };
    let lines = entries.iter().enumerate();
    let text: String = lines
        .map(|(n, patterns)| format!("  e{n}: {{nodes: [{}], {}}}\n", list(patterns), body(n)))
        .collect();
    if text.is_empty() { text } else { format!("{word}:\n{text}") }
}

fn shown(text: &str) -> String {
    text.replace("\\\\", "\\")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn by_the_name_alone(
        rules in proptest::collection::btree_set(pattern(), 1..4),
        except in proptest::option::of(pattern()),
        sync in proptest::collection::vec(proptest::collection::vec(pattern(), 1..3), 0..3),
        delegations in proptest::collection::vec(proptest::collection::vec(pattern(), 1..3), 0..4),
        names in proptest::collection::vec(name(), 1..40),
    ) {
        let ok = |text: &String| usable(&shown(text));
        let rules: Vec<String> = rules.into_iter().filter(ok).filter(|text| !Pattern::parse(&shown(text)).unwrap().is_exact()).collect();
        let lists = |all: Vec<Vec<String>>| -> Vec<Vec<String>> {
            let kept = all.into_iter().map(|list| list.into_iter().filter(ok).collect::<Vec<_>>());
            kept.filter(|list: &Vec<String>| !list.is_empty()).collect()
        };
        let (sync, delegations) = (lists(sync), lists(delegations));
        let except: Vec<String> = except.into_iter().filter(|text| ok(text)).collect();
        let mut nodes = "nodes:\n".to_owned();
        for rule in &rules {
            let except = except.iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>().join(", ");
            let except = if except.is_empty() { String::new() } else { format!("    except: [{except}]\n") };
            nodes += &format!("  - match: [\"{rule}\"]\n{except}    roles: [app]\n    owner: \"{}\"\n", rule.replace(['/', '\\'], "r"));
        }
        if rules.is_empty() {
            nodes = "nodes: []\n".to_owned();
        }
        let grants = entries("sync", &sync, |n| format!("mode: managed, kinds: [Kind{n}]"))
            + &entries("delegations", &delegations, |n| format!("commands: [/bin/c{n}]"));
        let tree = fleet(&nodes, &grants);
        let Ok(checked) = resolve::check(&tree) else {
            // Only what is taken by an earlier entry is refused here.
            prop_assert!(codes(&tree).iter().all(|code| *code == "E031"), "{:?}", resolve::check(&tree));
            return Ok(());
        };
        let built = Builder::new().build(checked.specialize(), &everything()).unwrap();
        let has = |patterns: &Vec<String>, name: &str| patterns.iter().any(|text| Pattern::parse(&shown(text)).unwrap().matches(name));
        for name in &names {
            let rule = rules.iter().find(|rule| has(&vec![(*rule).clone()], name) && !has(&except, name));
            let wanted = rule.map(|_| {
                let own = sync.iter().position(|patterns| has(patterns, name)).map(|n| format!("Kind{n}"));
                let all = delegations.iter().enumerate().filter(|(_, patterns)| has(patterns, name));
                (own, all.map(|(n, _)| format!("e{n}")).collect::<Vec<_>>())
            });
            prop_assert_eq!(&held(&checked, name), &wanted, "{} in\n{}{}", name, nodes, grants);
            let spec = checked.specialize().node(name);
            if let Some(rule) = rule {
                let owner = spec.unwrap().read_params().unwrap().node.owner.unwrap();
                prop_assert_eq!(owner, rule.replace(['/', '\\'], "r"));
            }
            let root = spec.map(|spec| built.set(spec).unwrap().root());
            let entry = built.selection().entry(name, &trust::adopt::takes);
            prop_assert_eq!(entry.map(|entry| entry.root), root);
        }
    }
}

const GRANTS: &str = "\
sync:
  lab: {nodes: [\"*-lab.t\"], mode: \"off\"}
  web: {nodes: [\"web-*.t\"], mode: managed, kinds: [Web]}
  all: {mode: autonomous, kinds: [Any]}
delegations:
  ops: {queries: [traits]}
  web: {nodes: [\"web-*.t\", db-1.t], commands: [/usr/bin/uptime]}
";

#[test]
fn exact_names_host_files_and_patterns_alike() {
    let nodes =
        "nodes:\n  - match: [web-1.t, db-1.t]\n    roles: [app]\n  - match: [\"*.t\"]\n    roles: [app]\n";
    let tree = with(fleet(nodes, GRANTS), [("hosts/web-2.t.yaml", "owner: me\n")]);
    let fleet = right(&tree);
    let both = || vec!["ops".to_owned(), "web".to_owned()];
    for name in ["web-1.t", "web-2.t", "web-3.t"] {
        assert_eq!(held(&fleet, name), Some((Some("Web".into()), both())), "{name}");
    }
    assert_eq!(held(&fleet, "db-1.t"), Some((Some("Any".into()), both())));
    assert_eq!(held(&fleet, "db-2.t"), Some((Some("Any".into()), vec!["ops".into()])));
    assert_eq!(held(&fleet, "web-lab.t"), Some((None, both())), "the first entry says off");
    let node = |name| fleet.specialize().node(name).unwrap();
    assert!(std::sync::Arc::ptr_eq(&node("web-1.t").grants, &node("web-2.t").grants), "shared where equal");
}

#[test]
fn patterns_that_cannot_meet_stay_one() {
    let nodes =
        "nodes:\n  - match: [\"web-*.t\"]\n    roles: [app]\n  - match: [\"db-*.t\"]\n    roles: [app]\n";
    let grants = "delegations:\n  web: {nodes: [\"web-*.*\"], queries: [traits]}\n  other: {nodes: [\"cache-*.t\", \"*\"], queries: [traits]}\n";
    assert_eq!(right(&fleet(nodes, grants)).specialize().patterns.len(), 2);
    let grants = "delegations:\n  one: {nodes: [web-1.t], queries: [traits]}\n";
    let patterns = right(&fleet(nodes, grants)).specialize().patterns.clone();
    let shown: Vec<(&str, Vec<&str>)> = patterns
        .iter()
        .map(|spec| (spec.pattern.as_str(), spec.except.iter().map(Pattern::as_str).collect()))
        .collect();
    assert_eq!(shown, [("web-*.t", vec!["web-1.t"]), ("web-*.t", vec![]), ("db-*.t", vec![])]);
}

#[test]
fn more_ways_than_a_release_can_say_are_a_mistake() {
    let nodes = "nodes:\n  - match: [\"**\"]\n    roles: [app]\n";
    let entry =
        |n: usize| format!("  d{n}: {{nodes: [\"**{}**\"], queries: [traits]}}\n", (b'a' + n as u8) as char);
    let grants = format!("delegations:\n{}", (0..11).map(entry).collect::<String>());
    assert_eq!(codes(&fleet(nodes, &grants)), ["E099"]);
}

#[test]
fn two_meanings_of_one_action_only_where_a_node_has_both() {
    let nodes = "nodes:\n  - match: [\"*.t\"]\n    roles: [app]\n";
    let grants = |second: &str| {
        format!(
            "delegations:\n  a: {{nodes: [\"web-*.t\"], actions: {{go: {{command: [/bin/a]}}}}}}\n  b: {{nodes: [\"{second}\"], actions: {{go: {{command: [/bin/b]}}}}}}\n"
        )
    };
    assert_eq!(codes(&fleet(nodes, &grants("db-*.t"))), Vec::<&str>::new());
    assert_eq!(codes(&fleet(nodes, &grants("*-1.t"))), ["E098"]);
}
