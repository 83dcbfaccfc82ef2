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

/// A text without control characters, which could move a terminal's cursor, rewrite what it
/// shows or answer for its user. Newlines and tabs stay, and so do colours (`ESC [ digits m`),
/// which can do none of that.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(c) = rest.chars().next() {
        let colour = colour_at(rest);
        if colour > 0 {
            out.push_str(&rest[..colour]);
            rest = &rest[colour..];
            continue;
        }
        if !is_control(c) {
            out.push(c);
        }
        rest = &rest[c.len_utf8()..];
    }
    Cow::Owned(out)
}

/// A text of one field, on its one line: a `?` for every control character, newlines, tabs and colours
/// included. What somebody else at a host names can so not look like a line or a field of ours.
pub fn one_line(text: &str) -> Cow<'_, str> {
    match text.chars().any(char::is_control) {
        true => Cow::Owned(text.replace(char::is_control, "?")),
        false => Cow::Borrowed(text),
    }
}

/// A text as one word of a shell: as it is where that is plain, else in single quotes.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@,%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("'{}'", text.replace('\'', "'\\''"))),
    }
}

fn is_control(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
}

/// The length of the colour sequence that a text begins with; 0 when it begins with none.
fn colour_at(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\u{1b}[") else { return 0 };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if digits <= 3 && rest[digits..].starts_with('m') { digits + 3 } else { 0 }
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
