//! Versions of Debian packages: their order, and patterns with `*` (Debian policy, 5.6.12).

use std::cmp::Ordering;

/// Which of two versions is newer: epoch, upstream version, revision. A `~` sorts before everything,
/// even the end, so `1.0~rc1` comes before `1.0`.
pub fn compare(a: &str, b: &str) -> Ordering {
    let (a, b) = (VersionParts::of(a), VersionParts::of(b));
    a.epoch
        .cmp(&b.epoch)
        .then_with(|| compare_part(a.upstream, b.upstream))
        .then_with(|| compare_part(a.revision, b.revision))
}

/// Whether a version is one of those that a pattern means; `*` stands for any text.
pub fn matches(pattern: &str, version: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = version.strip_prefix(first) else { return false };
    if !is_pattern(pattern) {
        return rest.is_empty();
    }
    let mut parts: Vec<&str> = parts.collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Whether a version stands for several.
pub fn is_pattern(version: &str) -> bool {
    version.contains('*')
}

struct VersionParts<'a> {
    epoch: u64,
    upstream: &'a str,
    revision: &'a str,
}

impl<'a> VersionParts<'a> {
    fn of(version: &'a str) -> VersionParts<'a> {
        let (epoch, rest) = version.split_once(':').unwrap_or(("0", version));
        let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, ""));
        VersionParts { epoch: epoch.parse().unwrap_or(0), upstream, revision }
    }
}

/// Alternately what is no digits, by characters, and digits, by number.
fn compare_part(mut a: &str, mut b: &str) -> Ordering {
    while !a.is_empty() || !b.is_empty() {
        let (text_a, text_b) = (text(&mut a), text(&mut b));
        let longest = text_a.len().max(text_b.len());
        let weights = |text: &str| -> Vec<i32> {
            text.bytes().map(weight).chain(std::iter::repeat(0)).take(longest).collect()
        };
        let texts = weights(text_a).cmp(&weights(text_b));
        let found = if texts.is_eq() { compare_numbers(digits(&mut a), digits(&mut b)) } else { texts };
        if found.is_ne() {
            return found;
        }
    }
    Ordering::Equal
}

fn text<'a>(from: &mut &'a str) -> &'a str {
    split(from, |c| c.is_ascii_digit())
}

fn digits<'a>(from: &mut &'a str) -> &'a str {
    split(from, |c| !c.is_ascii_digit())
}

fn split<'a>(from: &mut &'a str, end: fn(char) -> bool) -> &'a str {
    let (head, tail) = from.split_at(from.find(end).unwrap_or(from.len()));
    *from = tail;
    head
}

/// Any length, so no number is too large.
fn compare_numbers(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// `~` before the end (0), the end before letters, letters before everything else.
fn weight(byte: u8) -> i32 {
    match byte {
        b'~' => -1,
        letter if letter.is_ascii_alphabetic() => i32::from(letter),
        other => i32::from(other) + 256,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_debian_policy() {
        // Each before the next; policy 5.6.12 and the tests of dpkg.
        let rising = [
            "0~~",
            "0~~a",
            "0~",
            "0",
            "0a",
            "0.1",
            "0.1a",
            "0.1b",
            "0.10",
            "1.0~beta1~svn1245",
            "1.0~beta1",
            "1.0",
            "1.0-1",
            "1.0-1+b1",
            "1.0-1.1",
            "1.0-2",
            "1.0-10",
            "1.0a",
            "1.0+dfsg",
            "1.2",
            "1.18.0",
            "1.22.1-9",
            "1.22.1-9+deb12u1",
            "1.22.1-10",
            "20230101",
            "1:0.1",
            "2:0.0.1",
        ];
        for (at, a) in rising.iter().enumerate() {
            for (other, b) in rising.iter().enumerate() {
                assert_eq!(compare(a, b), at.cmp(&other), "{a} {b}");
            }
        }
        for (a, b) in [("1.0", "1.00"), ("0:1.0", "1.0"), ("1.0-0", "1.0"), ("1.001", "1.1")] {
            assert_eq!(compare(a, b), Ordering::Equal, "{a} {b}");
        }
        let long = "1".repeat(60);
        assert_eq!(compare(&long, &format!("{long}0")), Ordering::Less);
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, version, same) in [
            ("1.22.*", "1.22.1-9", true),
            ("1.22.*", "1.22", false),
            ("1.22.*", "1.221.1", false),
            ("1.22.1-9", "1.22.1-9", true),
            ("1.22.1-9", "1.22.1-9+deb12u1", false),
            ("*", "", true),
            ("*+deb12*", "1.22.1-9+deb12u1", true),
            ("1*2*3", "1x2x3", true),
            ("1*2*3", "123x", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, version), same, "{pattern} {version}");
        }
    }
}
