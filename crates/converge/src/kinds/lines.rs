//! Lines of a text file as bytes: LF or CRLF, a last line without an end, bytes that are no UTF-8.

use std::borrow::Cow;

use lang::regex::Regex;

/// A line and the bytes that end it: LF, CRLF, or none for an unfinished last line.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileLine<'a> {
    pub(super) text: &'a [u8],
    pub(super) end: &'a [u8],
}

impl<'a> FileLine<'a> {
    pub(super) fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        self.text.iter().chain(self.end).copied()
    }

    pub(super) fn matches(&self, regex: &Regex) -> bool {
        regex.is_match(&self.shown())
    }

    /// Its text, for people and for what is text.
    pub(super) fn shown(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.text)
    }
}

pub(super) fn split(bytes: &[u8]) -> Vec<FileLine<'_>> {
    bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| {
            let end = match line {
                [.., b'\r', b'\n'] => 2,
                [.., b'\n'] => 1,
                _ => 0,
            };
            let (text, end) = line.split_at(line.len() - end);
            FileLine { text, end }
        })
        .collect()
}

/// How lines of this file end.
pub(super) fn common_end<'a>(lines: &[FileLine<'a>]) -> &'a [u8] {
    lines.iter().map(|line| line.end).find(|end| !end.is_empty()).unwrap_or(b"\n")
}

/// The bytes of some lines, the last one ended as `end` says where it is unfinished.
pub(super) fn finished(lines: &[FileLine<'_>], end: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = lines.iter().flat_map(FileLine::bytes).collect();
    if lines.last().is_some_and(|line| line.end.is_empty()) {
        bytes.extend_from_slice(end);
    }
    bytes
}

pub(super) fn regex(attribute: &str, text: &str) -> Result<Regex, String> {
    Regex::parse(text).map_err(|error| format!("`{attribute}`: {error}"))
}
