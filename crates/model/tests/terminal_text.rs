//! SEC-3, CNV-2: what a node reports cannot take over an operator's terminal.

use model::Timestamp;
use model::text::{one_line, printable, printable_json};
use model::unadopted::{UnadoptedCause, UnadoptedRelease};

#[test]
fn control_characters_go_and_colours_stay() {
    let cases = [
        ("plain text\n\twith tab", "plain text\n\twith tab"),
        ("\u{1b}[31mred\u{1b}[0m", "\u{1b}[31mred\u{1b}[0m"),
        ("\u{1b}[2Jgone", "[2Jgone"),
        ("\u{1b}]0;title\u{7}x", "]0;titlex"),
        ("a\rb\u{8}c\u{7f}", "abc"),
        ("\u{9b}2J", "2J"),
        ("\u{1b}[1234m", "[1234m"),
        ("\u{1b}[8mhidden\u{1b}[0m", "[8mhidden\u{1b}[0m"),
        ("\u{1b}[mx", "[mx"),
        ("user\u{202e}gnp.exe\u{2066}x\u{200f}", "usergnp.exex"),
        ("a\u{2028}b", "ab"),
        ("tail \u{1b}", "tail "),
        ("grün ✓", "grün ✓"),
    ];
    for (given, shown) in cases {
        assert_eq!(printable(given), shown, "{given:?}");
    }
}

/// Programs read the same; a terminal sees text.
#[test]
fn json_means_the_same_and_is_text_alone() {
    let given = serde_json::json!({ "a\u{9b}2J": ["\u{1b}[2J", "\u{7f}\u{202e}\u{2028}", "grün ✓\n\t"] });
    let text = serde_json::to_string_pretty(&given).unwrap();
    let shown = printable_json(&text);
    assert!(shown.chars().all(|c| printable(&c.to_string()) == c.to_string()), "{shown:?}");
    assert!(shown.contains("\\u009b2J") && shown.contains("grün ✓"));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), given);
}

#[test]
fn a_field_keeps_to_its_line() {
    assert_eq!(one_line("a\u{202e}b\u{2029}"), "a?b?");
    for text in ["/usr/bin/x\nstate ok", "\u{1b}[8mhidden\u{1b}[0m", "a\tb\r"] {
        assert!(!one_line(text).contains(char::is_control), "{text:?}");
    }
    assert_eq!(one_line("/opt/x\nok"), "/opt/x?ok");
    assert_eq!(one_line("grün ✓"), "grün ✓");
}

#[test]
fn others_with_the_same_cause_are_nodes() {
    let text = [1, 2].map(model::text::same_cause);
    assert_eq!(text, ["same cause on 1 other node", "same cause on 2 other nodes"]);
}

/// SEC-3, LIF-10: what a control plane or a proxy says cannot look like a line of ours.
#[test]
fn a_reason_from_elsewhere_is_one_line_without_colours() {
    let reason = "no\nlast contact   now\t\u{1b}[32mok\u{1b}[0m\u{202e}";
    let unadopted = UnadoptedRelease::new(Timestamp(0), UnadoptedCause::Fetch, reason);
    assert_eq!(unadopted.reason, "no?last contact   now??[32mok?[0m?");
}
