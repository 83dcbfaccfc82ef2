//! SEC-3, CNV-2: what a node reports cannot take over an operator's terminal.

use model::text::{one_line, printable};

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
        ("tail \u{1b}", "tail "),
        ("grün ✓", "grün ✓"),
    ];
    for (given, shown) in cases {
        assert_eq!(printable(given), shown, "{given:?}");
    }
}

#[test]
fn a_field_keeps_to_its_line() {
    for text in ["/usr/bin/x\nstate ok", "\u{1b}[8mhidden\u{1b}[0m", "a\tb\r"] {
        assert!(!one_line(text).contains(char::is_control), "{text:?}");
    }
    assert_eq!(one_line("/opt/x\nok"), "/opt/x?ok");
    assert_eq!(one_line("grün ✓"), "grün ✓");
}
