//! `ini`: a key of a section; every other byte of the file stays as it is.
//!
//! A line is a header `[section]`, a key (`key = value`, `key: value` or `key` alone), the
//! continuation of a key's value (indented deeper than the key, or after a backslash), or something
//! that is kept. Sections of one name are one section.

use catalog::types::IniSpec;
use model::Fields;
use model::collect::CollectInserting;

use super::lines::{FileLine, common_end, finished, split};

/// What Windows editors put before a text.
const MARK: &[u8] = b"\xef\xbb\xbf";
/// What stands between a key and its value where nothing says otherwise.
const SEPARATOR: &str = " = ";

/// What the file holds of the key, or of the section; `None` when it holds no such thing.
pub fn observe(spec: &IniSpec, bytes: &[u8]) -> Option<Fields> {
    let file = IniFile::read(spec, bytes);
    let field = |name: &str, text: String| Some(Fields::from([(name.to_owned(), text)]));
    if spec.key.is_none() {
        let body: Vec<_> = file.body().map(|at| file.lines[at].shown()).collect();
        return if file.headers.is_empty() { None } else { field("keys", body.join("\n")) };
    }
    match file.keys.as_slice() {
        [] => None,
        [key] if key.value.is_none() => field("bare", "true".to_owned()),
        keys => {
            let values = keys.iter().map(|key| file.value(key));
            field("value", values.collect::<Vec<_>>().join("\n"))
        }
    }
}

/// The file in which the key, or the section, has the state `to`. Editing the result again changes
/// nothing.
pub fn edit(spec: &IniSpec, bytes: &[u8], to: Option<&Fields>) -> Vec<u8> {
    let file = IniFile::read(spec, bytes);
    let mut out = if file.marked { MARK.to_vec() } else { Vec::new() };
    let (Some(key), Some(to)) = (&spec.key, to) else {
        out.extend(file.without(spec, to));
        return out;
    };
    let wanted = wanted(to);
    let had = file.keys.len();
    // The last ones count: where there are too many, those before them go.
    let reused = had.min(wanted.len());
    let new: Vec<String> = wanted.iter().map(|value| file.line(spec, key, value.as_deref())).collect();
    let (old, new) = new.split_at(reused);
    let insert_at = match file.keys.last() {
        Some(last) => last.at + last.lines,
        None => file.place(spec),
    };
    let end = common_end(&file.lines);
    let mut changed = old.iter().zip(&wanted).map(|(line, value)| (line, value.as_deref()));
    let mut at = 0;
    while at < file.lines.len() {
        if at == insert_at {
            file.insert(spec, &mut out, new, end);
        }
        let Some(index) = file.keys.iter().position(|key| key.at == at) else {
            out.extend(file.lines[at].bytes());
            at += 1;
            continue;
        };
        let occurrence = &file.keys[index];
        let last = &file.lines[at + occurrence.lines - 1];
        if index >= had - reused
            && let Some((line, value)) = changed.next()
        {
            match occurrence.value.is_some() == value.is_some()
                && value.is_none_or(|value| file.value(occurrence) == value)
            {
                true => out.extend(file.lines[at..at + occurrence.lines].iter().flat_map(FileLine::bytes)),
                false => {
                    out.extend_from_slice(file.changed(occurrence, line, value).as_bytes());
                    out.extend_from_slice(last.end);
                }
            }
        }
        at += occurrence.lines;
    }
    if insert_at >= file.lines.len() {
        file.insert(spec, &mut out, new, end);
    }
    out
}

/// Nothing is left but blank lines and headers.
pub fn is_void(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(MARK).unwrap_or(bytes);
    split(bytes).iter().all(|line| {
        let text = line.shown();
        text.trim().is_empty() || header(&text).is_some()
    })
}

/// The values of a state; `None` for a key that stands alone. A line that begins with a blank
/// continues the value before it.
fn wanted(to: &Fields) -> Vec<Option<String>> {
    let Some(text) = to.get("value") else { return vec![None] };
    let mut values: Vec<Option<String>> = Vec::new();
    for line in text.split('\n') {
        match values.last_mut() {
            Some(Some(value)) if line.starts_with([' ', '\t']) => {
                value.push('\n');
                value.push_str(line);
            }
            _ => values.push(Some(line.to_owned())),
        }
    }
    values
}

/// A file as the spec sees it.
struct IniFile<'a> {
    marked: bool,
    lines: Vec<FileLine<'a>>,
    /// The lines of the headers of the section.
    headers: Vec<usize>,
    /// Where the spec's key stands in the section.
    keys: Vec<IniKeyLine>,
    /// The last line that is a key or a header of the section, or names the key in a comment.
    last: Option<usize>,
    /// What stands between keys and values, the section's last one first.
    separator: Option<String>,
    /// The blanks before the section's last key.
    indent: String,
}

/// A key and its value.
struct IniKeyLine {
    at: usize,
    /// How many lines it takes.
    lines: usize,
    /// Where the value begins in the first line; `None` for a key alone.
    value: Option<usize>,
}

impl<'a> IniFile<'a> {
    fn read(spec: &IniSpec, bytes: &'a [u8]) -> IniFile<'a> {
        let marked = bytes.starts_with(MARK);
        let lines = split(bytes.strip_prefix(MARK).unwrap_or(bytes));
        let (headers, keys) = (Vec::new(), Vec::new());
        let mut file =
            IniFile { marked, lines, headers, keys, last: None, separator: None, indent: String::new() };
        let mut inside = spec.section.is_none();
        let (mut at, mut commented) = (0, None);
        let mut elsewhere = None;
        while at < file.lines.len() {
            let text = file.lines[at].shown();
            let mut taken = 1;
            if let Some(name) = header(&text) {
                inside = spec.section.as_deref() == Some(name);
                if inside {
                    file.headers.push(at);
                    file.last = Some(at);
                }
            } else if let Some((key, separator)) = key(&text) {
                taken = file.continued(at);
                let value = separator.map(|(_, end)| end);
                // A separator without a value says nothing of the blanks after it.
                let full = separator.filter(|(_, end)| !text[*end..].trim().is_empty());
                let style = full.map(|(start, end)| text[start..end].to_owned());
                match (inside, style) {
                    (true, style) => {
                        file.separator = style.or(file.separator.take());
                        file.indent = text[..text.len() - text.trim_start().len()].to_owned();
                        file.last = Some(at + taken - 1);
                        if spec.key.as_deref() == Some(key) {
                            file.keys.push(IniKeyLine { at, lines: taken, value });
                        }
                    }
                    (false, style) => elsewhere = style.or(elsewhere),
                }
            } else if inside && spec.key.as_deref().is_some_and(|key| commented_out(&text, key)) {
                commented = Some(at);
            }
            at += taken;
        }
        file.last = commented.or(file.last);
        file.separator = file.separator.or(elsewhere);
        file
    }

    /// How many lines the key at a line takes with what continues its value.
    fn continued(&self, at: usize) -> usize {
        let indent = |text: &str| text.len() - text.trim_start().len();
        let first = self.lines[at].shown();
        let mut taken = 1;
        while let Some(line) = self.lines.get(at + taken) {
            let text = line.shown();
            let broken = self.lines[at + taken - 1].text.ends_with(b"\\");
            let deeper = indent(&text) > indent(&first)
                && !text.trim_start().starts_with(['#', ';'])
                && header(&text).is_none()
                && key(&first).is_some_and(|(_, separator)| separator.is_some())
                && indent(&first) == 0;
            if text.trim().is_empty() || (!broken && !deeper) {
                break;
            }
            taken += 1;
        }
        taken
    }

    /// The text of a value; lines that continue it begin with a blank.
    fn value(&self, key: &IniKeyLine) -> String {
        let first = self.lines[key.at].shown();
        let mut value = key.value.map_or("", |from| &first[from..]).trim_end().to_owned();
        for line in &self.lines[key.at + 1..key.at + key.lines] {
            let text = line.shown();
            let blank = if text.starts_with([' ', '\t']) { "" } else { " " };
            value.push('\n');
            value.push_str(blank);
            value.push_str(text.trim_end());
        }
        value
    }

    /// A new line of a key.
    fn line(&self, spec: &IniSpec, key: &str, value: Option<&str>) -> String {
        let separator = spec.separator.as_deref().or(self.separator.as_deref()).unwrap_or(SEPARATOR);
        // Beside another of its name it stands as that one does: deeper lines continue a value.
        let beside = self.keys.last().map(|last| self.lines[last.at].shown().into_owned());
        let indent = match &beside {
            Some(text) => &text[..text.len() - text.trim_start().len()],
            None => self.indent.as_str(),
        };
        let line = match value {
            None => format!("{indent}{key}"),
            Some(value) => format!("{indent}{key}{separator}{value}"),
        };
        line.trim_end().to_owned()
    }

    /// A key's line with another value; what stands before the value is kept.
    fn changed(&self, key: &IniKeyLine, line: &str, value: Option<&str>) -> String {
        let first = self.lines[key.at].shown();
        match (key.value, value) {
            (Some(from), Some(value)) => format!("{}{value}", &first[..from]).trim_end().to_owned(),
            _ => line.to_owned(),
        }
    }

    /// Where a new key goes: after a comment that names it, else after the section's last key; one
    /// without a section, before everything. A section that is missing goes to the end.
    fn place(&self, spec: &IniSpec) -> usize {
        let place = match (self.last, &spec.section) {
            (Some(last), _) => last + 1,
            (None, None) => 0,
            (None, Some(_)) => self.lines.len(),
        };
        // What would continue the new key's value stays where it is.
        let continues = |line: &&FileLine<'_>| {
            let text = line.shown();
            text.starts_with([' ', '\t'])
                && !text.trim_start().starts_with(['#', ';'])
                && !text.trim().is_empty()
                && header(&text).is_none()
        };
        place + self.lines[place..].iter().take_while(continues).count()
    }

    fn insert(&self, spec: &IniSpec, out: &mut Vec<u8>, new: &[String], end: &[u8]) {
        if new.is_empty() {
            return;
        }
        let text = out.strip_prefix(MARK).unwrap_or(out);
        if !text.is_empty() && !text.ends_with(b"\n") {
            out.extend_from_slice(end);
        }
        let mut push = |line: &str| {
            out.extend_from_slice(line.as_bytes());
            out.extend_from_slice(end);
        };
        if let (Some(section), true) = (&spec.section, self.headers.is_empty()) {
            if self.lines.last().is_some_and(|line| !line.shown().trim().is_empty()) {
                push("");
            }
            push(&format!("[{section}]"));
        }
        new.iter().for_each(|line| push(line));
    }

    /// The lines of the section, without its headers.
    fn body(&self) -> impl Iterator<Item = usize> {
        self.headers.iter().flat_map(|at| self.extent(*at).skip(1))
    }

    /// The lines from a header to the next one.
    fn extent(&self, at: usize) -> std::ops::Range<usize> {
        let rest = self.lines.iter().enumerate().skip(at + 1);
        let mut next = rest.filter(|(_, line)| header(&line.shown()).is_some());
        at..next.next().map_or(self.lines.len(), |(next, _)| next)
    }

    /// The file without the key, or without the section; a section that is put back goes to the end.
    fn without(&self, spec: &IniSpec, to: Option<&Fields>) -> Vec<u8> {
        let gone: std::collections::BTreeSet<usize> = match &spec.key {
            Some(_) => self.keys.iter().flat_map(|key| key.at..key.at + key.lines).collect_inserting(),
            None => self.headers.iter().flat_map(|at| self.extent(*at)).collect_inserting(),
        };
        let left: Vec<FileLine<'_>> = self
            .lines
            .iter()
            .enumerate()
            .filter(|(at, _)| !gone.contains(at))
            .map(|(_, line)| *line)
            .collect();
        let Some(body) = to.and_then(|to| to.get("keys")) else {
            return left.iter().flat_map(FileLine::bytes).collect();
        };
        let end = common_end(&self.lines);
        let mut out = finished(&left, end);
        let header = spec.section.iter().map(|section| format!("[{section}]"));
        let body = (!body.is_empty()).then(|| body.split('\n').map(str::to_owned)).into_iter().flatten();
        for line in header.chain(body) {
            out.extend_from_slice(line.as_bytes());
            out.extend_from_slice(end);
        }
        out
    }
}

/// The name of the section that a line begins.
fn header(text: &str) -> Option<&str> {
    let inner = text.trim_start().strip_prefix('[')?;
    Some(inner[..inner.find(']')?].trim())
}

/// The key of a line, and where what separates it from its value begins and ends.
fn key(text: &str) -> Option<(&str, Option<(usize, usize)>)> {
    let begin = text.len() - text.trim_start().len();
    if text.trim().is_empty() || text[begin..].starts_with(['#', ';', '[']) {
        return None;
    }
    let Some(sign) = sign(&text[begin..]).map(|at| at + begin) else {
        return Some((text.trim(), None));
    };
    let key = text[begin..sign].trim_end();
    let start = begin + key.len();
    let after = &text[sign + 1..];
    let end = sign + 1 + (after.len() - after.trim_start().len());
    (!key.is_empty()).then_some((key, Some((start, end))))
}

/// Where the sign between key and value is: `=`, or a colon before it that a blank follows.
fn sign(text: &str) -> Option<usize> {
    let equals = text.find('=');
    let ends = |(at, _): &(usize, &str)| !text[at + 1..].starts_with(|c: char| !c.is_whitespace());
    let colon = text.match_indices(':').find(ends).map(|(at, _)| at);
    match (equals, colon) {
        (Some(equals), Some(colon)) => Some(equals.min(colon)),
        (equals, colon) => equals.or(colon).or_else(|| text.find(':')),
    }
}

/// A comment that is the key with a value, switched off.
fn commented_out(text: &str, name: &str) -> bool {
    let Some(rest) = text.trim_start().strip_prefix(['#', ';']) else { return false };
    matches!(key(rest), Some((found, Some(_))) if found == name)
}
