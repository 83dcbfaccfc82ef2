//! ROL-1, ROL-2: terms of a rollout that could not be kept, or would let nobody change, are named before they
//! are signed, all of them at once; terms travel in one form.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use lang::Selector;
use model::share::Share;
use model::window::DeclaredWindow;
use model::{Channel, Timestamp};
use trust::RolloutTerms;
use trust::rollout_terms::{
    BudgetTerms, FreezeTerms, GateTerms, MAX_WAVES, NodeEdge, PinTerms, TermsEntry, TermsMistake,
    WaveMembers, WaveTerms, cycles,
};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

fn selector(text: &str) -> Selector {
    Selector::parse(text).unwrap()
}

fn channel(name: &str) -> Channel {
    name.parse().unwrap()
}

fn wave(name: &str, members: WaveMembers) -> WaveTerms {
    WaveTerms { name: name.to_owned(), members, not_before: None, gate: GateTerms::default() }
}

fn waves(waves: Vec<WaveTerms>) -> RolloutTerms {
    RolloutTerms { waves, seed: "r41".to_owned(), ..RolloutTerms::default() }
}

fn budget(in_flight: Option<Share>, max: Option<u32>) -> RolloutTerms {
    let budgets = vec![BudgetTerms { of: selector("tier=db"), in_flight, max }];
    RolloutTerms { budgets, ..RolloutTerms::default() }
}

fn edges(edges: &[(&str, &str)]) -> RolloutTerms {
    let edge = |(before, after): &(&str, &str)| NodeEdge { before: selector(before), after: selector(after) };
    RolloutTerms { edges: edges.iter().map(edge).collect(), ..RolloutTerms::default() }
}

fn freeze(from: &str, to: &str) -> FreezeTerms {
    let (from, to, zone) = (from.to_owned(), to.to_owned(), "UTC".to_owned());
    let window = DeclaredWindow { days: Vec::new(), from, to, zone, rules: None };
    FreezeTerms { name: "nights".to_owned(), window }
}

fn said(terms: &RolloutTerms) -> Vec<String> {
    terms.mistakes(&channel("stable"), NOW).iter().map(ToString::to_string).collect()
}

#[test]
fn each_mistake_is_named() {
    let at = |hours: u64| Some(NOW.plus(Duration::from_secs(hours * 3600)));
    let mut falls = waves(vec![wave("a", WaveMembers::Percent(10)), wave("b", WaveMembers::Percent(50))]);
    (falls.waves[0].not_before, falls.waves[1].not_before) = (at(2), at(1));
    let mut far = waves(vec![wave("a", WaveMembers::Percent(10))]);
    far.waves[0].not_before = at(24 * 400);
    let mut gate = waves(vec![wave("a", WaveMembers::Rest)]);
    gate.waves[0].gate = GateTerms { soak_secs: 31 * 24 * 3600, success: 0 };
    let mut confirm = RolloutTerms::default();
    (confirm.confirm.window_secs, confirm.confirm.tries) = (59, 6);
    let pin = |until, nodes: &[&str]| PinTerms {
        nodes: nodes.iter().map(|node| node.parse().unwrap()).collect(),
        until,
        reason: String::new(),
    };
    let pins = vec![pin(NOW, &["h1"]), pin(NOW.plus(Duration::from_secs(1)), &["h1"]), pin(NOW, &[])];
    let after = vec![channel("stable"), channel("edge"), channel("edge")];
    let unreadable = vec![freeze("25:00", "26:00")];
    let always = vec![freeze("00:00", "12:00"), freeze("12:00", "24:00")];
    let cases = [
        (budget(Some(Share::Count(0)), None), vec!["lets no node be in flight"]),
        (budget(Some(Share::Percent(0)), None), vec!["lets no node be in flight"]),
        (budget(None, Some(0)), vec!["lets no node be in flight"]),
        (budget(None, None), vec!["has no limit: write inFlight or max"]),
        (
            edges(&[("tier=db", "tier=web"), ("tier=web", "tier=db")]),
            vec!["the edges close a cycle: tier=db before tier=web before tier=db"],
        ),
        (edges(&[("tier=db", "tier=db")]), vec!["close a cycle: tier=db before tier=db"]),
        (
            waves(vec![wave("a", WaveMembers::Percent(10)), wave("a", WaveMembers::Percent(20))]),
            vec!["two waves are called `a`"],
        ),
        (waves(vec![wave("A b", WaveMembers::Percent(10))]), vec!["is no name of a wave"]),
        (
            waves(vec![wave("a", WaveMembers::Rest), wave("b", WaveMembers::Percent(9))]),
            vec!["what takes the rest is the last wave"],
        ),
        (waves(vec![wave("rest", WaveMembers::Percent(9))]), vec!["only it is called `rest`"]),
        (waves(vec![wave("a", WaveMembers::Percent(0))]), vec!["takes 0 %"]),
        (waves(vec![wave("a", WaveMembers::Percent(101))]), vec!["takes 101 %"]),
        (
            waves(vec![wave("a", WaveMembers::Percent(50)), wave("b", WaveMembers::Percent(50))]),
            vec!["leaves nobody"],
        ),
        (
            RolloutTerms { seed: String::new(), ..waves(vec![wave("a", WaveMembers::Percent(5))]) },
            vec!["there is no seed"],
        ),
        (falls, vec!["before an earlier wave"]),
        (far, vec!["at the latest a year after the signature"]),
        (gate, vec!["soaks longer", "asks for 0 %"]),
        (
            waves(vec![wave("a", WaveMembers::Where(selector("where:traits.os == \"x\"")))]),
            vec!["asks for `traits.os`, which is not declared"],
        ),
        (
            waves(vec![wave("a", WaveMembers::Where(selector("where:file_exists(\"/x\")")))]),
            vec!["asks for `file_exists`"],
        ),
        (confirm, vec!["the confirm window is 59 s", "there are 6 tries"]),
        (
            RolloutTerms { pins, ..RolloutTerms::default() },
            vec!["the pin of h1 is over", "h1 is pinned twice", "names no node"],
        ),
        (
            RolloutTerms { after, ..RolloutTerms::default() },
            vec!["goes after itself", "after channel `edge` twice"],
        ),
        (RolloutTerms { freeze: unreadable, ..RolloutTerms::default() }, vec!["`nights` cannot be read"]),
        (RolloutTerms { freeze: always, ..RolloutTerms::default() }, vec!["leave no minute of the week"]),
    ];
    for (terms, expected) in cases {
        let found = said(&terms);
        assert_eq!(found.len(), expected.len(), "{found:?} instead of {expected:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found:?} instead of {expected:?}");
        }
    }
}

#[test]
fn too_much_is_named() {
    let many = (0..=MAX_WAVES).map(|number| wave(&format!("w{number}"), WaveMembers::Where(selector("a"))));
    assert_eq!(said(&waves(many.collect())), ["the rollout has 33 waves, and there are at most 32"]);
    let long = RolloutTerms { seed: "s".repeat(201), ..RolloutTerms::default() };
    assert_eq!(said(&long), ["the seed is longer than 200 bytes"]);
    let names = (0..20).map(|number| format!("{}{number}", "a-long-hostname-in-a-list-of-hosts".repeat(5)));
    let hosts = selector(&names.collect::<Vec<_>>().join(","));
    let large = (0..8).map(|number| wave(&format!("w{number}"), WaveMembers::Where(hosts.clone())));
    let found = waves(large.collect()).mistakes(&channel("stable"), NOW);
    assert!(matches!(found.as_slice(), [TermsMistake::TooLarge(_)]), "{found:?}");
}

#[test]
fn an_empty_selector_is_no_selector() {
    let text = r#"{"waves": [{"name": "a", "members": {"where": ""}}]}"#;
    let error = serde_json::from_str::<RolloutTerms>(text).unwrap_err().to_string();
    assert!(error.contains("the selector is empty"), "{error}");
}

#[test]
fn good_terms_have_no_mistake_and_one_form() {
    let text = concat!(
        r#"{"waves":[{"name":"canary","members":{"where":"where:labels.ring == \"0\""},"#,
        r#""gate":{"soakSecs":1800,"success":100}},{"name":"tenth","members":{"percent":10},"#,
        r#""notBefore":"2027-01-16T08:00:00Z","gate":{"soakSecs":300,"success":95}},"#,
        r#"{"name":"rest","members":"rest","gate":{"soakSecs":300,"success":100}}],"#,
        r#""budgets":[{"where":"tier=db","inFlight":"5%","max":50}],"#,
        r#""edges":[{"before":"tier=db","after":"tier=web"}],"after":["edge"],"onFailure":"rollback","#,
        r#""confirm":{"windowSecs":600,"tries":5,"offline":"return"},"seed":"r41","#,
        r#""pins":[{"nodes":["web-7"],"until":"2027-02-01T00:00:00Z","reason":"ticket 812"}],"#,
        r#""freeze":[{"name":"nights","window":{"days":["mon-fri"],"from":"22:00","to":"04:00","zone":"UTC"}}]}"#,
    );
    let terms: RolloutTerms = serde_json::from_str(text).unwrap();
    assert_eq!(said(&terms), [""; 0]);
    assert_eq!(serde_json::to_string(&terms).unwrap(), text);
    let empty = RolloutTerms::default();
    assert_eq!(said(&empty), [""; 0]);
    assert_eq!(serde_json::from_str::<RolloutTerms>("{}").unwrap(), empty);
}

/// Two entries may be called alike: a mistake names the one that is wrong.
#[test]
fn each_mistake_says_which_entry_is_meant() {
    let budget = |max| BudgetTerms { of: selector("*"), in_flight: None, max: Some(max) };
    let terms = RolloutTerms {
        budgets: [0, 0, 2].map(budget).to_vec(),
        waves: vec![wave("a", WaveMembers::Percent(0)), wave("a", WaveMembers::Percent(10))],
        seed: "r41".to_owned(),
        ..RolloutTerms::default()
    };
    let entry = |index, name: &str| TermsEntry { index, name: name.to_owned() };
    assert_eq!(
        terms.mistakes(&channel("stable"), NOW),
        [
            TermsMistake::Percent { wave: entry(0, "a"), percent: 0 },
            TermsMistake::WaveTwice(entry(1, "a")),
            TermsMistake::BudgetOfNothing(entry(0, "*")),
            TermsMistake::BudgetOfNothing(entry(1, "*")),
            TermsMistake::BudgetTwice(entry(1, "*")),
        ]
    );
}

/// Each cycle is named by an edge that lies on it, those beside another one too, and without these edges there is none.
#[test]
fn every_cycle_is_found() {
    let found = |edges: &[(&'static str, &'static str)]| {
        let found = cycles(edges);
        let closing = |index: usize| found.iter().any(|(edge, _)| *edge == index);
        let rest = edges.iter().enumerate().filter(|(index, _)| !closing(*index)).map(|(_, edge)| *edge);
        assert_eq!(cycles(&rest.collect::<Vec<_>>()), [], "{edges:?}");
        for (edge, path) in &found {
            let (from, to) = edges[*edge];
            assert!(path.windows(2).any(|pair| pair == [from, to]), "{from} to {to} is not on {path:?}");
        }
        found.into_iter().map(|(edge, path)| (edge, path.join(" "))).collect::<Vec<_>>()
    };
    let said = |edge: usize, path: &str| (edge, path.to_owned());
    assert_eq!(found(&[("a1", "a2"), ("a2", "a1"), ("a1", "a3")]), [said(1, "a1 a2 a1")]);
    assert_eq!(
        found(&[("a", "b"), ("c", "c"), ("b", "a"), ("x", "y"), ("y", "x")]),
        [said(1, "c c"), said(2, "a b a"), said(4, "x y x")]
    );
    assert_eq!(
        found(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "b")]),
        [said(2, "a b c a"), said(3, "b c b")]
    );
    assert_eq!(found(&[("a", "b"), ("a", "b"), ("b", "c"), ("a", "c")]), []);
    let long: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
    let chain: Vec<(&str, &str)> = long.windows(2).map(|pair| (&*pair[0], &*pair[1])).collect();
    assert_eq!(cycles(&chain), []);
}
