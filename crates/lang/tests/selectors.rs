//! OPS-2, OPS-5: one grammar says which nodes are meant, and "all" is never implied.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use lang::Value;
use lang::selector::{MAX_TERMS, Selector, SelectorError, SelectorMatch, Subject};
use proptest::prelude::*;

fn map<const N: usize>(pairs: [(&str, Value); N]) -> Value {
    Value::Map(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// name, os, region, groups
fn fleet() -> Vec<(&'static str, Value, Value)> {
    let node = |name, os: &str, cpus: i64, region: &str, groups: Vec<&str>| {
        let traits = map([("os", map([("id", os.into())])), ("cpu", map([("count", cpus.into())]))]);
        let declared = map([("labels", map([("region", region.into())])), ("groups", groups.into())]);
        (name, traits, declared)
    };
    vec![
        node("edge-1", "debian", 2, "eu", vec!["edge"]),
        node("edge-2", "alpine", 4, "us", vec!["edge", "canary"]),
        node("edge-3.lab.example", "debian", 8, "eu", vec!["edge"]),
        node("db1", "debian", 32, "eu", vec!["database"]),
    ]
}

const ID: &str = "n-0123456789abcdef0123456789abcdef";

fn chosen(selector: &str) -> Vec<&'static str> {
    let selector = Selector::parse(selector).unwrap();
    let meant = |(name, traits, declared): &(&'static str, Value, Value)| {
        let id = if *name == "db1" { ID } else { "n-f" };
        let subject = Subject { hostname: name, id, traits: Some(traits), declared: Some(declared) };
        (selector.judge(&subject) == SelectorMatch::Yes).then_some(*name)
    };
    fleet().iter().filter_map(meant).collect()
}

#[test]
fn terms_add_take_away_and_narrow() {
    let all = ["edge-1", "edge-2", "edge-3.lab.example", "db1"];
    let table: &[(&str, &[&str])] = &[
        ("*", &all),
        ("edge-1", &["edge-1"]),
        ("edge-*", &["edge-1", "edge-2"]),
        ("edge-**", &["edge-1", "edge-2", "edge-3.lab.example"]),
        ("edge-1, db1", &["edge-1", "db1"]),
        ("*,!edge-*", &["edge-3.lab.example", "db1"]),
        ("! edge-1 , *", &["edge-2", "edge-3.lab.example", "db1"]),
        ("/db[0-9]{1,2}/", &["db1"]),
        ("/db[0-9]{1,2}/,edge-2", &["edge-2", "db1"]),
        ("@edge", &["edge-1", "edge-2", "edge-3.lab.example"]),
        ("@edge,!@canary", &["edge-1", "edge-3.lab.example"]),
        ("@edge,region=eu", &["edge-1", "edge-3.lab.example"]),
        ("region=eu", &["edge-1", "edge-3.lab.example", "db1"]),
        ("*,!region=eu", &["edge-2"]),
        ("!region=eu", &["edge-2"]),
        (r#"where:traits.os.id == "debian""#, &["edge-1", "edge-3.lab.example", "db1"]),
        (r#"edge-*,where:traits.os.id in ["debian", "arch"]"#, &["edge-1"]),
        (r#"where:traits.cpu.count >= 8 and labels.region == "eu""#, &["edge-3.lab.example", "db1"]),
        (ID, &["db1"]),
        ("nobody", &[]),
    ];
    for (selector, wanted) in table {
        assert_eq!(chosen(selector), *wanted, "{selector}");
    }
}

#[test]
fn all_is_never_implied_and_mistakes_have_names() {
    type E = SelectorError;
    let is = |text: &str, wanted: fn(&E) -> bool| {
        let error = Selector::parse(text).unwrap_err();
        assert!(wanted(&error), "{text}: {error:?}");
    };
    is("", |e| *e == E::Empty);
    is("  ", |e| *e == E::Empty);
    is("!edge-1", |e| *e == E::OnlyTakesAway);
    is("a,,b", |e| matches!(e, E::Name { .. }));
    is("a,", |e| matches!(e, E::Name { .. }));
    is("edge 1", |e| matches!(e, E::Name { .. }));
    is("@", |e| matches!(e, E::BadName { what: "group", .. }));
    is("@Edge", |e| matches!(e, E::BadName { what: "group", .. }));
    is("=x", |e| matches!(e, E::BadName { what: "label", .. }));
    is("where:", |e| matches!(e, E::Where(_)));
    is("where:a +", |e| matches!(e, E::Where(_)));
    is("*,!where:true", |e| *e == E::NotWhere);
    is(&"a,".repeat(MAX_TERMS + 1), |e| *e == E::TooMany);
    is(&"a".repeat(5000), |e| *e == E::TooLong);
}

#[test]
fn what_cannot_be_known_is_said_and_never_taken_as_meant() {
    let bare = Subject { hostname: "edge-1", id: "n-1", traits: None, declared: None };
    let judge = |text: &str| Selector::parse(text).unwrap().judge(&bare);
    for unsure in ["@edge", "region=eu", "*,!@edge", "where:traits.os.id == \"debian\"", "where:1"] {
        assert!(matches!(judge(unsure), SelectorMatch::Unknown(_)), "{unsure}");
    }
    assert_eq!(judge("@edge,edge-1"), SelectorMatch::Yes, "one sure term is enough");
    assert_eq!(judge("@edge,!edge-1"), SelectorMatch::No, "it is taken away whatever its groups are");
    assert_eq!(judge("db1,where:traits.os.id == \"debian\""), SelectorMatch::No);
    assert_eq!(judge("where:hostname == \"edge-1\""), SelectorMatch::Yes);
    let SelectorMatch::Unknown(why) = judge("where:traits.os.id == \"x\"") else { panic!() };
    assert!(why.contains("no traits"), "{why}");
}

#[test]
fn a_selector_says_what_it_needs() {
    let parse = |text: &str| Selector::parse(text).unwrap();
    assert!(parse("where:traits.a == 1").uses_traits() && !parse("a").uses_traits());
    assert!(parse("@a").uses_declared() && parse("a=b").uses_declared() && parse("*,!@a").uses_declared());
    assert!(parse("where:labels.a == \"b\"").uses_declared() && !parse("where:true").uses_declared());
    assert_eq!(parse("edge-1").exact(), Some("edge-1"));
    assert_eq!(parse("edge-*").exact().or(parse("a,b").exact()), None);
    assert_eq!(parse(" edge-* ").to_string(), "edge-*");
}

proptest! {
    #[test]
    fn no_text_is_a_crash_and_what_parses_reads_back(text in "[ -~]{0,40}") {
        if let Ok(selector) = Selector::parse(&text) {
            prop_assert_eq!(&Selector::parse(selector.as_str()).unwrap(), &selector);
            let traits = Value::Map(BTreeMap::new());
            let subject = Subject { hostname: "a", id: "n-1", traits: Some(&traits), declared: None };
            selector.judge(&subject);
        }
    }
}
