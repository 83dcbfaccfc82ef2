//! `block`: a block of lines between markers; every other byte of the file stays as it is.
//!
//! ```text
//! # BEGIN MUSTER BLOCK name
//! the lines
//! # END MUSTER BLOCK name
//! ```

use std::ops::Range;

use catalog::types::{BLOCK_BEGIN, BLOCK_END, BlockPosition, BlockSpec};
use model::Fields;

use super::lines::{FileLine, common_end, finished, regex, split};

/// What the file holds of the block; `None` when it holds no such block.
///
/// # Errors
/// When its markers are broken.
pub fn observe(spec: &BlockSpec, bytes: &[u8]) -> Result<Option<Fields>, String> {
    let lines = split(bytes);
    let Some(at) = locate(spec, &lines)? else { return Ok(None) };
    let content: Vec<_> = lines[at.start + 1..at.end].iter().map(FileLine::shown).collect();
    let comment = marker(spec, &lines[at.start], BLOCK_BEGIN).unwrap_or_default();
    Ok(Some(Fields::from([("content".to_owned(), content.join("\n")), ("comment".to_owned(), comment)])))
}

/// The file in which the block has the state `to`; what `to` does not name stays. Editing the
/// result again changes nothing.
///
/// # Errors
/// When its markers are broken, or a regular expression cannot be read.
pub fn edit(spec: &BlockSpec, bytes: &[u8], to: Option<&Fields>) -> Result<Vec<u8>, String> {
    let lines = split(bytes);
    let at = locate(spec, &lines)?;
    let now = observe(spec, bytes)?.unwrap_or_default();
    let Some(to) = to else {
        let Some(at) = at else { return Ok(bytes.to_vec()) };
        let rest = lines[..at.start].iter().chain(&lines[at.end + 1..]);
        return Ok(rest.flat_map(FileLine::bytes).collect());
    };
    let text = |name| to.get(name).or_else(|| now.get(name)).map_or("", String::as_str);
    let end = common_end(&lines);
    let block = block(spec, text("comment"), text("content"), end);
    let (before, block, after) = match at {
        Some(at) => {
            let unfinished = lines[at.end].end.is_empty();
            let block = if unfinished { block[..block.len() - end.len()].to_vec() } else { block };
            (&lines[..at.start], block, &lines[at.end + 1..])
        }
        None => {
            let at = position(&spec.place, &lines)?;
            (&lines[..at], block, &lines[at..])
        }
    };
    let mut out = finished(before, end);
    out.extend_from_slice(&block);
    out.extend(after.iter().flat_map(FileLine::bytes));
    Ok(out)
}

/// The whole block, each line ended.
fn block(spec: &BlockSpec, comment: &str, content: &str, end: &[u8]) -> Vec<u8> {
    let marker = |words: &str| {
        let parts = [comment, words, &spec.name, &spec.comment_end];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let mut out = Vec::new();
    let mut push = |line: &str| {
        out.extend_from_slice(line.as_bytes());
        out.extend_from_slice(end);
    };
    push(&marker(BLOCK_BEGIN));
    if !content.is_empty() {
        content.split('\n').for_each(&mut push);
    }
    push(&marker(BLOCK_END));
    out
}

/// Where a new block goes. A line inside another block is no place for one.
fn position(place: &BlockPosition, lines: &[FileLine<'_>]) -> Result<usize, String> {
    let (pattern, offset) = match place {
        BlockPosition::End => return Ok(lines.len()),
        BlockPosition::After(text) => (regex("after", text)?, 1),
        BlockPosition::Before(text) => (regex("insert_before", text)?, 0),
    };
    let mut inside = false;
    let mut found = None;
    for (index, line) in lines.iter().enumerate() {
        let text = line.shown();
        if text.contains(BLOCK_END) {
            inside = false;
        } else if text.contains(BLOCK_BEGIN) {
            inside = true;
        } else if !inside && line.matches(&pattern) {
            found = Some(index + offset);
        }
    }
    Ok(found.unwrap_or(lines.len()))
}

/// The lines of the two markers.
fn locate(spec: &BlockSpec, lines: &[FileLine<'_>]) -> Result<Option<Range<usize>>, String> {
    let all = |words| -> Vec<usize> {
        let is = |(at, line): (usize, &FileLine<'_>)| marker(spec, line, words).map(|_| at);
        lines.iter().enumerate().filter_map(is).collect()
    };
    let (begins, ends) = (all(BLOCK_BEGIN), all(BLOCK_END));
    match (begins.as_slice(), ends.as_slice()) {
        ([], []) => Ok(None),
        ([begin], [end]) if begin < end => {
            let inside = lines.iter().enumerate().take(*end).skip(begin + 1);
            let other = inside
                .map(|(at, line)| (at, line.shown()))
                .find(|(_, text)| text.contains(BLOCK_BEGIN) || text.contains(BLOCK_END));
            match other {
                Some((at, _)) => Err(broken(spec, &format!("line {} inside it marks another block", at + 1))),
                None => Ok(Some(*begin..*end)),
            }
        }
        (begins, ends) => {
            Err(broken(spec, &format!("its begin stands {}, its end {}", numbers(begins), numbers(ends))))
        }
    }
}

fn broken(spec: &BlockSpec, how: &str) -> String {
    let (name, path) = (&spec.name, &spec.file.path);
    format!(
        "the markers of block `{name}` in {path} are broken: {how}; put them right by hand, nothing is changed"
    )
}

fn numbers(lines: &[usize]) -> String {
    match lines {
        [] => "nowhere".to_owned(),
        lines => {
            let numbers: Vec<String> = lines.iter().take(8).map(|line| (line + 1).to_string()).collect();
            format!("in line {}", numbers.join(", "))
        }
    }
}

/// What begins the comment of a line that is this marker. It may be another than is declared, of
/// signs: what the declaration said before.
fn marker(spec: &BlockSpec, line: &FileLine<'_>, words: &str) -> Option<String> {
    let text = line.shown();
    let text = text.trim();
    let text = text.strip_suffix(&*spec.comment_end).unwrap_or(text).trim_end();
    let prefix = text.strip_suffix(&*spec.name)?.strip_suffix(' ')?.strip_suffix(words)?;
    let comment = prefix.trim_end();
    let apart = comment.is_empty() || comment.len() < prefix.len();
    let ours = comment == spec.comment || !comment.contains(char::is_alphanumeric);
    (apart && ours).then(|| comment.to_owned())
}
