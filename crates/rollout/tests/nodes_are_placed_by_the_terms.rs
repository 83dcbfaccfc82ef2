//! ROL-1: which wave, budgets and edges a node has is a function of the signed terms and of what is declared
//! of it; percent waves are drawn evenly, as docs/protocol.md says, and a wave that is drawn wider keeps whom it had.

use std::fmt::{Display, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::model::share::Share;
use ::model::{Digest, Hostname, Timestamp};
use lang::Pattern;
use rollout::{Coverage, CoverageMistake, DRAWS, Placement, PossiblePlaces, RolloutRules, draw, takes};
use trust::RolloutTerms;
use trust::rollout_terms::{NodeEdge, WaveMembers};

use crate::model::terms::{budget, declared, selector, wave};

const BEGIN: &str = "<!-- a draw: begin, made by a test -->\n";
const END: &str = "<!-- a draw: end -->\n";

fn host(number: u32) -> Hostname {
    format!("h{number}").parse().unwrap()
}

fn rules(terms: RolloutTerms) -> RolloutRules {
    RolloutRules::new(Arc::new(terms))
}

fn seeded() -> RolloutTerms {
    RolloutTerms { seed: "r41".to_owned(), ..RolloutTerms::default() }
}

#[test]
fn the_first_wave_that_takes_a_node_is_its_wave_and_the_rest_has_one() {
    let ring = WaveMembers::Where(selector("where:labels.ring == \"0\""));
    let named = WaveMembers::Where(selector("h1,h2"));
    let rules =
        rules(RolloutTerms { waves: vec![wave("a", named, 0, 100), wave("b", ring, 0, 100)], ..seeded() });
    let placed = |number, labels: &[(&str, &str)]| rules.place(&host(number), &declared(labels)).wave;
    assert_eq!(placed(1, &[("ring", "0")]), 0);
    assert_eq!(placed(3, &[("ring", "0")]), 1);
    assert_eq!(placed(3, &[("ring", "1")]), 2);
    assert_eq!(placed(3, &[]), 2, "a label that a node lacks reads as an empty text");
    assert_eq!((rules.waves(), rules.wave_name(2)), (3, "rest"));
}

#[test]
fn a_node_without_labels_lacks_them_all() {
    let groups = lang::Value::Map([("groups".to_owned(), lang::Value::from(vec!["all"]))].into());
    assert!(takes(&selector("*, !tier=web"), &host(1), &groups));
    assert!(takes(&selector("where:\"tier\" not in labels"), &host(1), &groups));
    assert!(!takes(&selector("tier=web"), &host(1), &groups));
}

#[test]
fn a_label_that_a_node_lacks_is_an_empty_text() {
    let other = WaveMembers::Where(selector("where:labels.ring != \"0\""));
    let rules = rules(RolloutTerms { waves: vec![wave("a", other, 0, 100)], ..seeded() });
    assert_eq!(rules.place(&host(1), &declared(&[])).wave, 0);
    assert_eq!(rules.place(&host(1), &lang::Value::Map(Default::default())).wave, 0);
    assert_eq!(rules.place(&host(1), &declared(&[("ring", "0")])).wave, 1);
}

#[test]
fn percentages_are_of_the_whole_channel() {
    let waves =
        vec![wave("tenth", WaveMembers::Percent(10), 0, 100), wave("half", WaveMembers::Percent(50), 0, 100)];
    let rules = rules(RolloutTerms { waves, ..seeded() });
    let mut counts = [0; 3];
    for number in 0..10_000 {
        counts[usize::from(rules.place(&host(number), &declared(&[])).wave)] += 1;
    }
    assert!((900..1100).contains(&counts[0]), "{counts:?}");
    assert!((3800..4200).contains(&counts[1]), "{counts:?}");
}

#[test]
fn a_draw_is_the_same_everywhere_and_another_with_another_seed() {
    assert_eq!(draw("r41", &host(1)), 8544);
    assert_eq!(draw("r41", &host(2)), 1340);
    let same = (0..1000).filter(|number| draw("a", &host(*number)) == draw("b", &host(*number))).count();
    assert!(same < 5 && (0..1000).all(|number| draw("a", &host(number)) < DRAWS));
    assert_ne!(draw("ab", &"c".parse().unwrap()), draw("a", &"bc".parse().unwrap()));
}

/// The page says how any client draws, with an example that follows from what stands there: made here by that text, and
/// by the code.
#[test]
fn the_draw_is_that_of_the_page() {
    let (seed, hostname) = ("stable", "web-1".parse::<Hostname>().unwrap());
    let (length, name) = ((seed.len() as u64).to_be_bytes(), hostname.as_str().as_bytes());
    let hashed = [b"muster rollout draw\0".as_slice(), &length, seed.as_bytes(), name].concat();
    let hash = Digest::of(&hashed);
    let number = u64::from_be_bytes(hash.as_bytes()[..8].try_into().unwrap());
    let drawn = draw(seed, &hostname);
    assert_eq!(u64::from(drawn), number % 10_000);
    let is_in = |percent: u8| {
        let waves = vec![wave("some", WaveMembers::Percent(percent), 0, 100)];
        let terms = RolloutTerms { waves, seed: seed.to_owned(), ..RolloutTerms::default() };
        rules(terms).place(&hostname, &declared(&[])).wave == 0
    };
    let least = (1..=100).find(|percent| is_in(*percent)).unwrap();
    assert!((1..=100).all(|percent| is_in(percent) == (percent >= least)));
    let mut made = String::from("```text\n");
    let mut line = |name: &str, value: &dyn Display| writeln!(made, "{name:<26} {value}").unwrap();
    line("seed", &seed);
    line("hostname", &hostname);
    let hex = hashed.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    line("what is hashed", &hex);
    line("its SHA-256", &hash);
    line("its first 8 bytes", &number);
    line("draw", &drawn);
    line("the least percent", &least);
    made.push_str("```\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the example");
    let (found, after) = rest.split_once(END).expect("the example ends");
    if std::env::var_os("MUSTER_BLESS").is_some() {
        return std::fs::write(&path, format!("{before}{BEGIN}{made}{END}{after}")).unwrap();
    }
    assert!(found == made, "the example of a draw is not current; MUSTER_BLESS=1 writes it:\n{made}");
}

#[test]
fn a_node_begins_not_before_its_wave_and_any_wave_before() {
    let at = Timestamp::from_secs(10_000);
    let mut waves = vec![wave("a", WaveMembers::Percent(10), 0, 100), wave("b", WaveMembers::Rest, 0, 100)];
    waves[0].not_before = Some(at);
    let rules = rules(RolloutTerms { waves, ..seeded() });
    for wave in [0, 1] {
        assert!(!rules.may_begin(wave, at.minus(Duration::from_secs(61))));
        assert!(rules.may_begin(wave, at.minus(Duration::from_secs(60))), "60 s of slack");
    }
}

#[test]
fn a_percentage_of_a_few_is_one_and_max_bounds_it() {
    assert_eq!(budget("*", Some(Share::Percent(5)), None).limit(10), 1);
    assert_eq!(budget("*", Some(Share::Percent(5)), None).limit(199), 9);
    assert_eq!(budget("*", Some(Share::Percent(5)), Some(50)).limit(100_000), 50);
    assert_eq!(budget("*", None, Some(3)).limit(0), 3);
}

fn edge(before: &str, after: &str) -> NodeEdge {
    NodeEdge { before: selector(before), after: selector(after) }
}

fn mistakes(terms: RolloutTerms, nodes: &[(u32, &[(&str, &str)])]) -> Vec<String> {
    let rules = rules(terms);
    let placed: Vec<Placement> =
        nodes.iter().map(|(number, labels)| rules.place(&host(*number), &declared(labels))).collect();
    let found: Vec<CoverageMistake> = Coverage::of(&rules, placed).mistakes(&rules);
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn what_takes_nobody_and_edges_in_a_circle_are_named() {
    let canary = WaveMembers::Where(selector("ring=9"));
    let terms = RolloutTerms {
        waves: vec![wave("canary", canary, 0, 100)],
        budgets: vec![budget("tier=gpu", None, Some(1))],
        edges: vec![edge("tier=db", "tier=web"), edge("ring=0", "tier=db"), edge("tier=mail", "tier=db")],
        ..seeded()
    };
    let nodes: &[(u32, &[(&str, &str)])] =
        &[(1, &[("tier", "db"), ("ring", "1")]), (2, &[("tier", "web"), ("ring", "0")])];
    let found = mistakes(terms, nodes);
    assert_eq!(
        found,
        [
            "nobody is in wave `canary`: its rule takes no node that no earlier wave took",
            "the budget of `tier=gpu` takes no node",
            "the edge from `tier=mail` to `tier=db` holds nobody: one of them takes no node",
            "the edges `tier=db` before `tier=web`, `ring=0` before `tier=db` close a cycle over the nodes that \
             they take, so they hold nobody",
        ]
    );
}

/// Nodes of patterns have no name before they are enrolled: where they may come to be, nobody is missing.
#[test]
fn what_nodes_of_patterns_may_fill_is_not_empty() {
    let named = |members: &str| WaveMembers::Where(selector(members));
    let terms = RolloutTerms {
        waves: vec![
            wave("mail", named("mail-*"), 0, 100),
            wave("first", named("web-1*"), 0, 100),
            wave("canary", named("ring=9"), 0, 100),
            wave("tenth", WaveMembers::Percent(10), 0, 100),
            wave("webs", named("tier=web"), 0, 100),
            wave("late", named("web-7*"), 0, 100),
            wave("rest", WaveMembers::Rest, 0, 100),
        ],
        budgets: vec![
            budget("tier=gpu", None, Some(1)),
            budget("where:hostname == \"web-3\"", None, Some(1)),
            budget("where:labels.tier == \"web\" and labels.ring == \"\"", None, Some(1)),
            budget("web-*, !tier=web", None, Some(1)),
        ],
        edges: vec![edge("tier=web", "web-2"), edge("tier=web", "tier=db")],
        ..seeded()
    };
    let rules = rules(terms);
    let mut possible = PossiblePlaces::default();
    possible.add(&rules.may_place(&Pattern::parse("web-*").unwrap(), &declared(&[("tier", "web")])));
    let found = Coverage::of(&rules, []).expecting(&possible).mistakes(&rules);
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    let nobody =
        |wave: &str| format!("nobody is in wave `{wave}`: its rule takes no node that no earlier wave took");
    assert_eq!(
        found,
        [
            nobody("mail"),
            nobody("canary"),
            // `webs` takes all that is left.
            nobody("late"),
            nobody("rest"),
            "the budget of `tier=gpu` takes no node".to_owned(),
            "the budget of `web-*, !tier=web` takes no node".to_owned(),
            "the edge from `tier=web` to `tier=db` holds nobody: one of them takes no node".to_owned(),
        ]
    );
}

#[test]
fn an_edge_against_the_order_of_waves_is_named() {
    let web = WaveMembers::Where(selector("tier=web"));
    let terms = RolloutTerms {
        waves: vec![wave("web", web, 0, 100)],
        edges: vec![edge("tier=db", "tier=web")],
        ..seeded()
    };
    let found = mistakes(terms, &[(1, &[("tier", "db")]), (2, &[("tier", "web")])]);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("is in a later wave"), "{found:?}");
}

/// Edges of which each leads to the next hold nobody where the last leads to the first, over any number of them.
#[test]
fn a_circle_is_seen_over_any_number_of_edges() {
    let chain = vec![edge("tier=a", "tier=b"), edge("tier=b", "tier=c"), edge("tier=c", "tier=d")];
    let closed: Vec<NodeEdge> = chain.iter().cloned().chain([edge("tier=d", "tier=a")]).collect();
    let nodes: &[(u32, &[(&str, &str)])] =
        &[(1, &[("tier", "a")]), (2, &[("tier", "b")]), (3, &[("tier", "c")]), (4, &[("tier", "d")])];
    assert_eq!(mistakes(RolloutTerms { edges: chain, ..seeded() }, nodes), [] as [&str; 0]);
    let found = mistakes(RolloutTerms { edges: closed, ..seeded() }, nodes);
    assert_eq!(
        found,
        [
            "the edges `tier=a` before `tier=b`, `tier=b` before `tier=c`, `tier=c` before `tier=d`, `tier=d` before \
             `tier=a` close a cycle over the nodes that they take, so they hold nobody"
        ]
    );
}

/// Also where a shorter way leads there.
#[test]
fn a_circle_is_seen_beside_a_shorter_one() {
    let edges = vec![edge("tier=a", "tier=b"), edge("tier=b", "tier=c"), edge("ring=9", "tier=a")];
    let ringed: [&[(&str, &str)]; 2] = [&[("tier", "b"), ("ring", "9")], &[("tier", "c"), ("ring", "9")]];
    let nodes: &[(u32, &[(&str, &str)])] = &[(1, &[("tier", "a")]), (2, ringed[0]), (3, ringed[1])];
    let named = "`tier=a` before `tier=b`, `tier=b` before `tier=c`, `ring=9` before `tier=a`";
    let why = "close a cycle over the nodes that they take, so they hold nobody";
    let found = mistakes(RolloutTerms { edges, ..seeded() }, nodes);
    assert_eq!(found, [format!("the edges {named} {why}")]);
}

/// A node may close two circles at once.
#[test]
fn a_node_closes_every_circle_that_it_is_in() {
    let edges = vec![edge("tier=a", "tier=b"), edge("tier=b", "tier=a"), edge("tier=b", "ring=1")];
    let nodes: &[(u32, &[(&str, &str)])] = &[(1, &[("tier", "a"), ("ring", "1")]), (2, &[("tier", "b")])];
    for nodes in [nodes.to_vec(), nodes.iter().rev().copied().collect()] {
        let found = mistakes(RolloutTerms { edges: edges.clone(), ..seeded() }, &nodes);
        let named = "`tier=a` before `tier=b`, `tier=b` before `tier=a`, `tier=b` before `ring=1`";
        let why = "close a cycle over the nodes that they take, so they hold nobody";
        assert_eq!(found, [format!("the edges {named} {why}")]);
    }
}

#[test]
fn places_that_were_counted_are_counted_once() {
    let terms = RolloutTerms {
        waves: vec![wave("web", WaveMembers::Where(selector("tier=web")), 0, 100)],
        budgets: vec![budget("tier=web", None, Some(1))],
        edges: vec![edge("tier=web", "tier=web")],
        ..seeded()
    };
    let rules = rules(terms);
    let some = rules.may_place(&Pattern::parse("web-*").unwrap(), &declared(&[("tier", "web")]));
    let mut twice = some.clone();
    twice.add(&some);
    assert_eq!(twice, some);
}

/// A wave of ten percent takes the draws below a thousand.
#[test]
fn a_draw_at_the_bound_is_not_in_the_wave() {
    let waves = vec![wave("tenth", WaveMembers::Percent(10), 0, 100)];
    let rules = rules(RolloutTerms { waves, ..seeded() });
    let drawn = |number: u16| (0..1_000_000).map(host).find(|host| draw("r41", host) == number).unwrap();
    let wave_of = |number: u16| rules.place(&drawn(number), &declared(&[])).wave;
    assert_eq!((wave_of(999), wave_of(1000)), (0, 1));
}
