//! [`Version`]: how `version()` reads and orders.

use std::cmp::Ordering;

/// The longest version, in bytes.
const MAX_VERSION: usize = 128;

/// Words that mark what comes before a release.
const BEFORE: [&str; 9] = ["alpha", "beta", "rc", "pre", "preview", "dev", "snapshot", "a", "b"];

/// A version: numbers compare as numbers, a missing part is zero, `~` and the words
/// alpha, beta, rc, pre, dev sort before the release, `-1` and other letters after it, and
/// a leading `EPOCH:` counts first.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    text: String,
    parts: Vec<VersionPart>,
}

/// In order: what sorts before a release, its end, what sorts after it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum VersionPart {
    Tilde,
    Before(String),
    /// Equal to a number zero, so that 1.2 is 1.2.0.
    End,
    /// A `-` before a digit: a packager's revision of that release.
    Revision,
    Word(String),
    /// Digits without leading zeros, by length and then by text: no limit on size.
    Number(usize, String),
}

impl Version {
    /// Reads a text that begins with a digit, or with `v` and a digit.
    pub(crate) fn parse(text: &str) -> Option<Version> {
        let trimmed = text.trim();
        let bare = trimmed.strip_prefix(['v', 'V']).unwrap_or(trimmed);
        if bare.len() > MAX_VERSION || !bare.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let (epoch, rest) = match bare.split_once(':') {
            Some((epoch, rest)) if epoch.bytes().all(|b| b.is_ascii_digit()) => (number(epoch), rest),
            Some(_) => return None,
            None => (VersionPart::End, bare),
        };
        let mut parts = vec![epoch];
        let mut rest = rest;
        while let Some(first) = rest.chars().next() {
            let run = |wanted: fn(char) -> bool| rest.find(|c| !wanted(c)).unwrap_or(rest.len());
            let len = match first {
                '0'..='9' => {
                    let len = run(|c| c.is_ascii_digit());
                    parts.push(number(&rest[..len]));
                    len
                }
                'a'..='z' | 'A'..='Z' => {
                    let len = run(|c| c.is_ascii_alphabetic());
                    parts.push(word(&rest[..len]));
                    len
                }
                '~' => {
                    parts.push(VersionPart::Tilde);
                    1
                }
                '-' => {
                    let revision = rest[1..].starts_with(|c: char| c.is_ascii_digit());
                    parts.extend(revision.then_some(VersionPart::Revision));
                    1
                }
                '.' | '+' | '_' => 1,
                _ => return None,
            };
            rest = &rest[len..];
        }
        Some(Version { text: trimmed.to_owned(), parts })
    }

    /// The text as written.
    pub(crate) fn into_text(self) -> String {
        self.text
    }

    pub(crate) fn order(&self, other: &Version) -> Ordering {
        let longest = self.parts.len().max(other.parts.len());
        (0..longest)
            .map(|i| {
                let part = |version: &Version| version.parts.get(i).cloned().unwrap_or(VersionPart::End);
                part(self).cmp(&part(other))
            })
            .find(|ordering| ordering.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

fn number(digits: &str) -> VersionPart {
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() { VersionPart::End } else { VersionPart::Number(digits.len(), digits.to_owned()) }
}

fn word(letters: &str) -> VersionPart {
    let lower = letters.to_ascii_lowercase();
    if BEFORE.contains(&lower.as_str()) { VersionPart::Before(lower) } else { VersionPart::Word(lower) }
}

/// Whether ordering this text as text would surely be a mistake: digits only, or numbers
/// with dots between them, with or without a suffix. A date such as 2026-01-31 is neither.
pub(crate) fn looks_like_version(text: &str) -> bool {
    let bare = text.strip_prefix('v').unwrap_or(text);
    let head = bare.find(|c: char| !c.is_ascii_digit()).unwrap_or(bare.len());
    if head == 0 || bare.len() > MAX_VERSION {
        return false;
    }
    let rest = &bare[head..];
    rest.is_empty()
        || rest.strip_prefix('.').is_some_and(|rest| {
            rest.starts_with(|c: char| c.is_ascii_digit())
                && rest.chars().all(|c| c.is_ascii_alphanumeric() || ".-+~_".contains(c))
        })
}
