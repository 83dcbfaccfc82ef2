//! Text for people: errors with their causes; what comes from elsewhere, made safe to show.

use std::borrow::Cow;
use std::error::Error;

/// An error with all its causes on one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        // Some errors say what their cause says.
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = next.source();
    }
    text
}

/// The first so many bytes of a text, to the end of a character.
pub fn beginning(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// The beginning of a text of one field, on its one line: at most so many bytes, as [`beginning`] and [`one_line`] say.
/// What is kept or shown of a text that somebody else writes, who writes as much as they like.
pub fn bounded_line(text: &str, bytes: usize) -> Cow<'_, str> {
    // What takes the place of a character is no longer than it.
    one_line(beginning(text, bytes))
}

/// How we mark text on a terminal: nothing, bold, dim, red, green, yellow. Other ways hide it or make it blink.
const MARKS: [&str; 6] = ["0", "1", "2", "31", "32", "33"];

/// A text without control characters, which could move a terminal's cursor, rewrite what it
/// shows or answer for its user, and without those that change the direction of what follows. Newlines and
/// tabs stay, and so do marks (`ESC [ digits m`) that we make, which can do none of that.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(c) = rest.chars().next() {
        let mark = mark_at(rest);
        if mark > 0 {
            out.push_str(&rest[..mark]);
            rest = &rest[mark..];
            continue;
        }
        if !is_unsafe(c) {
            out.push(c);
        }
        rest = &rest[c.len_utf8()..];
    }
    Cow::Owned(out)
}

/// JSON with what [`printable`] leaves out written as escapes, so that it means the same and a terminal takes it
/// for text. In JSON that is well formed such characters stand in strings alone.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    if !json.chars().any(is_unsafe) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match is_unsafe(c) {
            // All of them are within 16 bits.
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// A text of one field, on its one line: a `?` for every control character, newlines, tabs and colours
/// included. What somebody else at a host names can so not look like a line or a field of ours.
pub fn one_line(text: &str) -> Cow<'_, str> {
    let is_no_text = |c: char| c.is_control() || is_unsafe(c);
    match text.chars().any(is_no_text) {
        true => Cow::Owned(text.replace(is_no_text, "?")),
        false => Cow::Borrowed(text),
    }
}

/// That others fail for the same cause.
pub fn same_cause(others: u32) -> String {
    format!("same cause on {others} other {}", if others == 1 { "node" } else { "nodes" })
}

/// A text as one word of a shell: as it is where that is plain, else in single quotes.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@,%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("'{}'", text.replace('\'', "'\\''"))),
    }
}

/// Control characters but for newlines and tabs, what marks or turns the direction of text, and the separators
/// that some take for the end of a line.
fn is_unsafe(c: char) -> bool {
    let is_control = c.is_control() && c != '\n' && c != '\t';
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    is_control || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

/// The length of the mark that a text begins with; 0 when it begins with none.
fn mark_at(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\u{1b}[") else { return 0 };
    let Some((code, _)) = rest.split_once('m') else { return 0 };
    if MARKS.contains(&code) { code.len() + 3 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn a_shell_reads_it_as_one_word() {
        assert_eq!(shell_word("/srv/web-1"), "/srv/web-1");
        assert_eq!(shell_word("/srv/my host's"), "'/srv/my host'\\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
