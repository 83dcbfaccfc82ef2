//! From text to [`YamlNode`]s.

use std::collections::BTreeSet;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::{At, MAX_DEPTH, MAX_FILE, MAX_NODES, Spanned, YamlKind, YamlNode};
use crate::sink::FileSink;

/// Maps up to this size find duplicate keys by looking at all others.
const SMALL_MAP: usize = 16;

/// Reads the one document of a file; `None` when there is none, or when it cannot be read
/// (the sink then holds the reason).
pub(crate) fn read(bytes: &[u8], sink: &mut FileSink) -> Option<YamlNode> {
    let source = text(bytes, sink)?;
    let mut reader = Reader { parser: Parser::new_from_str(source), source, sink, nodes: 0 };
    match reader.document() {
        Ok(node) => node,
        Err(ReadStop::Reported) => None,
        Err(ReadStop::Yaml(error)) => {
            reader.syntax_error(&error);
            None
        }
    }
}

/// The bytes as text, if they are UTF-8 and not too many.
pub(crate) fn text<'b>(bytes: &'b [u8], sink: &mut FileSink) -> Option<&'b str> {
    if bytes.len() > MAX_FILE {
        let size = bytes.len() / (1024 * 1024);
        sink.whole_file(
            "E003",
            format!("the file is larger than {} MiB ({size} MiB)", MAX_FILE / (1024 * 1024)),
        )
        .help("split it: nodes/*.yaml and hosts/*.yaml are read together");
        return None;
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Err(error) => {
            let before = &bytes[..error.valid_up_to()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
            sink.error("E002", at(line, column, 1), "the file is not UTF-8").help("save it as UTF-8");
            None
        }
    }
}

/// Why reading ended early.
enum ReadStop {
    /// The sink holds the reason.
    Reported,
    /// The parser refused the text.
    Yaml(ScanError),
}

impl From<ScanError> for ReadStop {
    fn from(error: ScanError) -> ReadStop {
        ReadStop::Yaml(error)
    }
}

struct Reader<'s, 'k> {
    parser: Parser<'s, StrInput<'s>>,
    source: &'s str,
    sink: &'k mut FileSink,
    nodes: usize,
}

impl<'s> Reader<'s, '_> {
    fn document(&mut self) -> Result<Option<YamlNode>, ReadStop> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(root),
                Event::DocumentStart(_) if root.is_some() => {
                    self.sink
                        .error("E007", position_of(&span), "a second document begins here")
                        .help("one file holds one document; drop the `---`");
                    return Err(ReadStop::Reported);
                }
                Event::DocumentStart(_) | Event::DocumentEnd | Event::StreamStart | Event::Nothing => {}
                other => root = Some(self.node(other, span, 0)?),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'s>, Span), ReadStop> {
        match self.parser.next_event() {
            Some(event) => Ok(event?),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn node(&mut self, event: Event<'s>, span: Span, depth: usize) -> Result<YamlNode, ReadStop> {
        let at = position_of(&span);
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            self.sink
                .error("E004", at, format!("more than {MAX_NODES} values in one file"))
                .help("split the file");
            return Err(ReadStop::Reported);
        }
        if depth > MAX_DEPTH {
            self.sink
                .error("E004", at, format!("nested deeper than {MAX_DEPTH} levels"))
                .help("nothing needs that");
            return Err(ReadStop::Reported);
        }
        let refused = self.refuse_extras(&event, at);
        let kind = match event {
            Event::Scalar(text, style, _, _) => {
                YamlKind::Text { text: text.into_owned(), plain: style == ScalarStyle::Plain }
            }
            Event::SequenceStart(..) => self.list(depth)?,
            Event::MappingStart(..) => self.map(at, depth)?,
            _ => YamlKind::Bad,
        };
        Ok(YamlNode { at, kind: if refused { YamlKind::Bad } else { kind } })
    }

    /// Tags, anchors and aliases.
    fn refuse_extras(&mut self, event: &Event<'s>, at: At) -> bool {
        let (anchor, tag) = match event {
            Event::Alias(_) => {
                self.sink
                    .error("E006", at, "aliases (`*name`) are not used in a fleet repo")
                    .help("write the value out, or put it in a var that several layers share");
                return true;
            }
            Event::Scalar(_, _, anchor, tag)
            | Event::SequenceStart(anchor, tag)
            | Event::MappingStart(anchor, tag) => (*anchor, tag),
            _ => return false,
        };
        if let Some(tag) = tag {
            let tag = if tag.is_yaml_core_schema() { format!("!!{}", tag.suffix) } else { tag.to_string() };
            self.sink
                .error("E005", at, format!("the tag `{tag}` is not used in a fleet repo"))
                .help("drop it: a value's type is that of its field or param");
        }
        if anchor != 0 {
            self.sink.error("E006", at, "anchors (`&name`) are not used in a fleet repo").help("drop it");
        }
        anchor != 0 || tag.is_some()
    }

    fn list(&mut self, depth: usize) -> Result<YamlKind, ReadStop> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::SequenceEnd => return Ok(YamlKind::List(items)),
                other => items.push(self.node(other, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, start: At, depth: usize) -> Result<YamlKind, ReadStop> {
        let mut entries: Vec<(Spanned<String>, YamlNode)> = Vec::new();
        let mut seen = BTreeSet::new();
        let mut bad = false;
        loop {
            let (event, span) = self.next()?;
            let at = position_of(&span);
            let key = match event {
                Event::MappingEnd => break,
                Event::Scalar(text, _, 0, None) => Some(Spanned { value: text.into_owned(), at }),
                other => {
                    self.bad_key(&other, start, at);
                    self.skip(other)?;
                    bad = true;
                    None
                }
            };
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            let Some(key) = key else { continue };
            if let Some(first) = duplicate(&entries, &mut seen, &key.value) {
                self.sink
                    .error("E008", key.at, format!("`{}` stands here twice", key.value))
                    .help("keep one of the two")
                    .label(first, "first here");
                continue;
            }
            entries.push((key, value));
        }
        Ok(if bad && entries.is_empty() { YamlKind::Bad } else { YamlKind::Map(entries) })
    }

    fn bad_key(&mut self, event: &Event<'s>, map: At, key: At) {
        let braces = map.line == key.line && map.column + 1 == key.column;
        if matches!(event, Event::MappingStart(..)) && braces {
            self.braces(map.line, map.column);
        } else {
            self.sink
                .error("E009", key, "a key must be plain text")
                .help("quote it if it holds special characters");
        }
    }

    /// `{{ x }}` without a dollar sign.
    fn braces(&mut self, line: u32, column: u32) {
        let text: String = nth_line(self.source, line).chars().skip(column as usize - 1).collect();
        let inner =
            text.strip_prefix("{{").and_then(|rest| rest.split("}}").next()).unwrap_or_default().trim();
        let width = text.find("}}").map_or(2, |end| text[..end].chars().count() + 2);
        let at = At { line, column, len: clamp(width) };
        self.sink.error("E012", at, "{{ in YAML is read as a map").help(format!("write  ${{{{ {inner} }}}}"));
    }

    /// Skips the rest of a node whose first event was `event`.
    fn skip(&mut self, event: Event<'s>) -> Result<(), ReadStop> {
        let mut depth = usize::from(matches!(event, Event::MappingStart(..) | Event::SequenceStart(..)));
        while depth > 0 {
            match self.next()?.0 {
                Event::MappingStart(..) | Event::SequenceStart(..) => depth += 1,
                Event::MappingEnd | Event::SequenceEnd => depth -= 1,
                Event::StreamEnd => return Err(ReadStop::Reported),
                _ => {}
            }
        }
        Ok(())
    }

    fn syntax_error(&mut self, error: &ScanError) {
        let marker = error.marker();
        let line = nth_line(self.source, clamp(marker.line()));
        let bare = line.find("{{").filter(|found| !line[..*found].ends_with('$'));
        if let Some(found) = bare {
            self.braces(clamp(marker.line()), clamp(line[..found].chars().count() + 1));
            return;
        }
        let problem =
            self.sink.error("E001", at(marker.line(), marker.col() + 1, 1), plain_words(error.info()));
        if line.contains("${{") {
            problem.help("quote the whole value: \"${{ ... }}\"");
        } else if error.info().contains("illegal placement of ':'") {
            problem.help("is a bracket or a quote before this left open?");
        } else if line.starts_with('\t') || line.trim_start_matches(' ').starts_with('\t') {
            problem.help("indent with spaces");
        }
    }
}

/// The parser's words for what people meet most often.
fn plain_words(info: &str) -> String {
    match info {
        "mapping values are not allowed in this context" => {
            "this is not YAML: a second `: ` on the line, or a wrong indent".into()
        }
        "simple key expected ':'" | "simple key expect ':'" => {
            "this is not YAML: a key without its `:`".into()
        }
        other => format!("this is not YAML: {other}"),
    }
}

/// Where `key` stands already.
fn duplicate(entries: &[(Spanned<String>, YamlNode)], seen: &mut BTreeSet<String>, key: &str) -> Option<At> {
    if entries.len() == SMALL_MAP {
        seen.extend(entries.iter().map(|(key, _)| key.value.clone()));
    }
    let known = if entries.len() < SMALL_MAP {
        entries.iter().any(|(other, _)| other.value == key)
    } else {
        !seen.insert(key.to_owned())
    };
    if !known {
        return None;
    }
    entries.iter().find(|(other, _)| other.value == key).map(|(other, _)| other.at)
}

/// Line `number` of a text, from 1, without its newline.
fn nth_line(source: &str, number: u32) -> &str {
    source.lines().nth((number as usize).saturating_sub(1)).unwrap_or_default()
}

fn position_of(span: &Span) -> At {
    let len = if span.start.line() == span.end.line() { span.len().max(1) } else { 1 };
    at(span.start.line(), span.start.col() + 1, len)
}

fn at(line: usize, column: usize, len: usize) -> At {
    At { line: clamp(line), column: clamp(column), len: clamp(len) }
}

/// A file of [`MAX_FILE`] bytes has fewer lines and columns than this saturates at.
fn clamp(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
