//! CFG-1: exact names, globs (`*` stops at a dot, `**` does not) and anchored `/regex/`;
//! an exploding regex is an error when it is read.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use lang::Pattern;
use lang::regex::Regex;
use proptest::prelude::*;

#[test]
fn what_matches_what() {
    let cases = [
        ("web-1.example.com", "web-1.example.com", true),
        ("web-1.example.com", "web-1.example.co", false),
        ("Web-1", "web-1", false),
        ("web-*", "web-1", true),
        ("web-*", "web-", true),
        ("web-*", "web-1.example.com", false),
        ("web-*.example.com", "web-1.example.com", true),
        ("web-*.example.com", "web-1.eu.example.com", false),
        ("web-**", "web-1.eu.example.com", true),
        ("**.example.com", "a.b.example.com", true),
        ("*.*", "a.b", true),
        ("*.*", "a.b.c", false),
        ("edge-????", "edge-0113", true),
        ("edge-????", "edge-01.3", false),
        ("***", "a.b", true),
        ("/web-[0-9]+/", "web-12", true),
        ("/web-[0-9]+/", "web-12a", false),
        ("/a|b/", "b", true),
        ("/a|b/", "ab", false),
    ];
    for (pattern, name, expected) in cases {
        assert_eq!(Pattern::parse(pattern).unwrap().matches(name), expected, "{pattern} {name}");
    }
    assert!(Pattern::parse("web-1").unwrap().is_exact());
    assert!(!Pattern::parse("web-*").unwrap().is_exact());
    assert!(!Pattern::parse("**").unwrap().matches(&"a".repeat(300)));
}

#[test]
fn what_cannot_be_used_says_why() {
    let cases = [
        ("", "the pattern is empty"),
        ("//", "the pattern is empty"),
        (
            "web 1",
            "` ` occurs in no node name; a glob knows * ** ?, and a regular expression stands between slashes",
        ),
        (
            "web-[12]",
            "`[` occurs in no node name; a glob knows * ** ?, and a regular expression stands between slashes",
        ),
        ("/a(/", "not a regular expression that can be used"),
        // An anchor's group must not be closed by the pattern.
        ("/a)|(b/", "not a regular expression that can be used"),
        ("/((a{1000}){1000}){1000}/", "not a regular expression that can be used"),
    ];
    for (pattern, expected) in cases {
        let error = Pattern::parse(pattern).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{pattern}: {error}");
    }
    assert!(Pattern::parse(&"a".repeat(600)).is_err());
    assert!(Regex::parse(&"a".repeat(2000)).is_err());
}

/// Backtracking would take longer than the age of the universe here.
#[test]
fn exploding_patterns_are_slow_for_nobody() {
    let glob = Pattern::parse(&"*a".repeat(200)).unwrap();
    assert!(!glob.matches(&"a".repeat(150)));
    let regex = Pattern::parse("/(a*)*(a*)*(a*)*b/").unwrap();
    assert!(!regex.matches(&"a".repeat(250)));
    assert!(Regex::parse("(((x{200}){200}){200})").is_err());
}

/// The plain recursive meaning of a glob.
fn reference(pattern: &[char], name: &[char]) -> bool {
    match pattern {
        [] => name.is_empty(),
        ['*', '*', rest @ ..] => (0..=name.len()).any(|n| reference(rest, &name[n..])),
        ['*', rest @ ..] => {
            let run = name.iter().take_while(|c| **c != '.').count();
            (0..=run).any(|n| reference(rest, &name[n..]))
        }
        ['?', rest @ ..] => matches!(name, [c, tail @ ..] if *c != '.' && reference(rest, tail)),
        [c, rest @ ..] => matches!(name, [first, tail @ ..] if first == c && reference(rest, tail)),
    }
}

proptest! {
    #[test]
    fn globs_mean_what_the_reference_means(pattern in "[ab.*?]{1,8}", name in "[ab.]{0,8}") {
        let chars: (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
        prop_assert_eq!(Pattern::parse(&pattern).unwrap().matches(&name), reference(&chars.0, &chars.1));
    }

    #[test]
    fn nothing_makes_the_readers_panic(source in "[a-c0-9 .|()\\[\\]{}%#\"'~+*/=<>!,:$-]{0,40}") {
        let _ = lang::Expr::parse(&source).map(|expr| expr.eval(&lang::Names::new()));
        let _ = lang::InterpolatedText::parse(&format!("${{{{{source}}}}}")).map(|text| text.eval(&lang::Names::new()));
        let _ = lang::Template::parse("t", &source).map(|template| template.render(&lang::Names::new()));
        let _ = Pattern::parse(&source);
    }
}
