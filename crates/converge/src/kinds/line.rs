//! `line`: one line of a text file; every other byte stays as it is.
//!
//! The file is bytes: CRLF or LF, a last line without newline, bytes that are no UTF-8.
//! Only the line itself is understood.

use catalog::types::{Ensure, LineSpec};
use lang::regex::Regex;
use model::{Edit, Fields, PathOwnership, PathState};

use super::lines::{FileLine, common_end, regex, split};
use super::{AccountLookup, DEFAULT_FILE_MODE, FieldDifference, ownership_differs};

/// The largest file, in bytes, that a line is edited in.
pub const MAX_FILE: u64 = 4 * 1024 * 1024;
/// The longest line, in bytes, that an edit shows.
const MAX_SHOWN: usize = 1024;

/// The new bytes of a file, and which line made the difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineChange {
    /// The whole file.
    pub bytes: Vec<u8>,
    /// The lines that go, joined by newlines.
    pub from: Option<String>,
    /// The line that comes.
    pub to: Option<String>,
}

/// Edits the bytes of a file; `None` when the line is as declared. `bytes` is `None` for
/// a missing file.
///
/// The last line that `matching` matches is replaced (all are removed, for `absent`).
/// Without a match the line counts as there when a line equals it; else it goes after
/// the last line that `after` matches, else to the end. Editing the result again
/// changes nothing.
///
/// # Errors
/// When a regular expression cannot be read, the line holds a line break, or the file
/// is missing and may not be made.
pub fn edit(spec: &LineSpec, bytes: Option<&[u8]>) -> Result<Option<LineChange>, String> {
    if spec.line.contains(['\n', '\r']) {
        return Err("`line` holds a line break; it must be one line".to_owned());
    }
    let matching = spec.matching.as_deref().map(|text| regex("matching", text)).transpose()?;
    let after = spec.after.as_deref().map(|text| regex("after", text)).transpose()?;
    let Some(bytes) = bytes else {
        return missing(spec);
    };
    let lines = split(bytes);
    match spec.ensure {
        Ensure::Absent => Ok(remove(spec, &lines, matching.as_ref())),
        Ensure::Present => Ok(put(spec, &lines, matching.as_ref(), after.as_ref())),
    }
}

/// What differs between the declared line and the file, ownership included.
///
/// # Errors
/// As [`edit`], and when what is there is no file.
pub fn assess(
    spec: &LineSpec,
    prior: &PathState,
    bytes: Option<&[u8]>,
    wanted: &PathOwnership,
    names: &dyn AccountLookup,
) -> Result<Option<Edit<Fields>>, String> {
    let ownership = match prior {
        PathState::Missing => None,
        PathState::File { mode, uid, gid, .. } => Some((*mode, *uid, *gid)),
        PathState::Directory { .. } | PathState::Symlink { .. } | PathState::Other { .. } => {
            return Err(format!("{} is not a regular file ({}); it is left alone", spec.path, prior.what()));
        }
    };
    let change = edit(spec, bytes)?;
    let mut edit = FieldDifference::default();
    let created = change.is_some() && ownership.is_none();
    if let Some(change) = change {
        edit.field("line", change.from, change.to);
    }
    match ownership {
        Some((mode, uid, gid)) if ownership_differs(wanted, mode, uid, gid) => {
            edit.ownership(wanted, ownership, names);
        }
        None if created => {
            edit.new_ownership(wanted, DEFAULT_FILE_MODE, names);
            return Ok(Some(Edit::Add { to: edit.to }));
        }
        Some(_) | None => {}
    }
    Ok(edit.change())
}

fn missing(spec: &LineSpec) -> Result<Option<LineChange>, String> {
    match (spec.ensure, spec.create) {
        (Ensure::Absent, _) => Ok(None),
        (Ensure::Present, true) => Ok(Some(LineChange {
            bytes: format!("{}\n", spec.line).into_bytes(),
            from: None,
            to: Some(shown(spec.line.as_bytes())),
        })),
        (Ensure::Present, false) => {
            Err(format!("{} does not exist; say `create: true` to make it", spec.path))
        }
    }
}

fn remove(spec: &LineSpec, lines: &[FileLine<'_>], matching: Option<&Regex>) -> Option<LineChange> {
    let goes = |line: &FileLine<'_>| match matching {
        Some(regex) => line.matches(regex),
        None => line.text == spec.line.as_bytes(),
    };
    if !lines.iter().any(goes) {
        return None;
    }
    let bytes = lines.iter().filter(|line| !goes(line)).flat_map(FileLine::bytes).collect();
    let gone: Vec<u8> =
        lines.iter().filter(|line| goes(line)).map(|line| line.text).collect::<Vec<_>>().join(&b'\n');
    Some(LineChange { bytes, from: Some(shown(&gone)), to: None })
}

fn put(
    spec: &LineSpec,
    lines: &[FileLine<'_>],
    matching: Option<&Regex>,
    after: Option<&Regex>,
) -> Option<LineChange> {
    let wanted = spec.line.as_bytes();
    let present = || lines.iter().any(|line| line.text == wanted);
    if let Some(regex) = matching {
        // A wanted line that its own pattern does not match is looked for by itself;
        // otherwise the next run would replace one more of the lines that match.
        if !regex.is_match(&spec.line) && present() {
            return None;
        }
        if let Some(at) = lines.iter().rposition(|line| line.matches(regex)) {
            return replace(wanted, lines, at);
        }
    } else if present() {
        return None;
    }
    let after = after.and_then(|regex| lines.iter().rposition(|line| line.matches(regex)));
    Some(insert(wanted, lines, after))
}

fn replace(wanted: &[u8], lines: &[FileLine<'_>], at: usize) -> Option<LineChange> {
    if lines[at].text == wanted {
        return None;
    }
    let mut bytes = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let (text, end) =
            if index == at { (wanted, own_end(wanted, line.end, lines)) } else { (line.text, line.end) };
        bytes.extend_from_slice(text);
        bytes.extend_from_slice(end);
    }
    Some(LineChange { bytes, from: Some(shown(lines[at].text)), to: Some(shown(wanted)) })
}

/// Puts the line after the one at `after`, else at the end. A file whose last line has
/// no newline keeps that habit: the line before gets one, the new last line has none.
fn insert(wanted: &[u8], lines: &[FileLine<'_>], after: Option<usize>) -> LineChange {
    let at = after.map_or(lines.len(), |after| after + 1);
    let mut bytes: Vec<u8> = lines[..at].iter().flat_map(FileLine::bytes).collect();
    let before = at.checked_sub(1).map(|before| &lines[before]);
    match before {
        Some(before) if before.end.is_empty() => {
            bytes.extend_from_slice(common_end(lines));
            bytes.extend_from_slice(wanted);
            bytes.extend_from_slice(own_end(wanted, b"", lines));
        }
        Some(before) => {
            bytes.extend_from_slice(wanted);
            bytes.extend_from_slice(before.end);
        }
        None => {
            bytes.extend_from_slice(wanted);
            bytes.extend_from_slice(common_end(lines));
        }
    }
    bytes.extend(lines[at..].iter().flat_map(FileLine::bytes));
    LineChange { bytes, from: None, to: Some(shown(wanted)) }
}

/// How the wanted line ends where `end` would be its end: an empty line is only one when
/// something ends it.
fn own_end<'a>(wanted: &[u8], end: &'a [u8], lines: &[FileLine<'a>]) -> &'a [u8] {
    if wanted.is_empty() && end.is_empty() { common_end(lines) } else { end }
}

fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into_owned(),
    }
}
