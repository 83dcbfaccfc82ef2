//! From YAML text to JSON values: the core schema of YAML 1.2, and what other readers take
//! otherwise is refused rather than guessed.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};
use serde_json::{Map, Number, Value};

use super::document::{FieldLines, ManifestDocument};
use super::error::{ManifestProblem, ReadManifestError};
use super::{MAX_DEPTH, MAX_DOCUMENTS, MAX_NODES, MAX_TEXT, number};

/// The most mistakes of one text that are told.
const MAX_MISTAKES: usize = 50;

/// What a text holds, and what is wrong in it: one mistake does not hide the next.
#[derive(Default)]
pub(super) struct YamlText {
    /// All documents but empty ones.
    pub(super) documents: Vec<ManifestDocument>,
    /// The lines, from 1, on which documents begin, the first with the text.
    pub(super) begins: Vec<usize>,
    /// At most [`MAX_MISTAKES`], in the order of the text. Nothing of the documents counts where there are any.
    pub(super) mistakes: Vec<ReadManifestError>,
}

/// Reads all documents.
///
/// # Errors
/// With the first thing that is wrong.
pub(super) fn read(source: &str) -> Result<(Vec<ManifestDocument>, Vec<usize>), ReadManifestError> {
    let YamlText { documents, begins, mistakes } = read_all(source);
    mistakes.into_iter().next().map_or(Ok((documents, begins)), Err)
}

/// Reads all documents, with everything that is wrong up to what cannot be read past.
pub(super) fn read_all(source: &str) -> YamlText {
    let mut text = YamlText::default();
    let end = documents(source, &mut text);
    text.mistakes.extend(end.err());
    // The parser counts the end of the text as a line of its own.
    let lines = u32::try_from(source.lines().count().max(1)).unwrap_or(u32::MAX);
    for mistake in &mut text.mistakes {
        mistake.line = mistake.line.map(|line| line.min(lines));
    }
    text
}

fn documents(source: &str, text: &mut YamlText) -> Result<(), ReadManifestError> {
    let mut reader = YamlReader {
        parser: Parser::new_from_str(source),
        anchors: BTreeMap::new(),
        spent: Cost::default(),
        lines: FieldLines::default(),
        mistakes: Vec::new(),
    };
    let read = read_documents(&mut reader, text);
    text.mistakes = reader.mistakes;
    read
}

fn read_documents(reader: &mut YamlReader<'_>, text: &mut YamlText) -> Result<(), ReadManifestError> {
    let YamlText { documents, begins, .. } = text;
    let mut line = 1;
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => break,
            Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
            Event::DocumentStart(_) => {
                if begins.len() >= MAX_DOCUMENTS {
                    return Err(ManifestProblem::TooManyDocuments.at(span.start.line()));
                }
                line = span.start.line();
                begins.push(if begins.is_empty() { 1 } else { line });
                reader.anchors.clear();
            }
            other => {
                let value = reader.node(other, span, 0, &FieldPath::Root)?.value;
                let lines = std::mem::take(&mut reader.lines);
                let position = begins.len().saturating_sub(1);
                if !value.is_null() {
                    documents.push(ManifestDocument { value, line, lines, position });
                }
            }
        }
    }
    Ok(())
}

/// How much a value weighs: aliases repeat it.
#[derive(Clone, Copy, Default)]
struct Cost {
    values: usize,
    text: usize,
}

/// A value that may be repeated.
#[derive(Clone)]
struct YamlValue {
    value: Value,
    cost: Cost,
    height: usize,
}

/// Where in a document: only the upper two levels are distinguished.
enum FieldPath<'p> {
    Root,
    Top(&'p str),
    Deep,
}

struct YamlReader<'s> {
    parser: Parser<'s, StrInput<'s>>,
    anchors: BTreeMap<usize, YamlValue>,
    spent: Cost,
    lines: FieldLines,
    /// What can be read past.
    mistakes: Vec<ReadManifestError>,
}

impl<'s> YamlReader<'s> {
    /// Notes a mistake and goes on; with too many of them the text ends here.
    fn note(&mut self, mistake: ReadManifestError) -> Result<(), ReadManifestError> {
        if self.mistakes.len() + 1 >= MAX_MISTAKES {
            return Err(mistake);
        }
        self.mistakes.push(mistake);
        Ok(())
    }

    fn next(&mut self) -> Result<(Event<'s>, Span), ReadManifestError> {
        match self.parser.next_event() {
            Some(event) => event.map_err(|error| syntax(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn spend(&mut self, cost: Cost, line: usize) -> Result<(), ReadManifestError> {
        self.spent.values += cost.values;
        self.spent.text += cost.text;
        if self.spent.values > MAX_NODES {
            return Err(ManifestProblem::TooManyValues.at(line));
        }
        if self.spent.text > MAX_TEXT {
            return Err(ManifestProblem::TooLarge { size: self.spent.text }.at(line));
        }
        Ok(())
    }

    fn node(
        &mut self,
        event: Event<'s>,
        span: Span,
        depth: usize,
        path: &FieldPath<'_>,
    ) -> Result<YamlValue, ReadManifestError> {
        let line = span.start.line();
        if depth > MAX_DEPTH {
            return Err(ManifestProblem::TooDeep.at(line));
        }
        let (anchor, tagged) = match &event {
            Event::Scalar(_, _, anchor, tag)
            | Event::SequenceStart(anchor, tag)
            | Event::MappingStart(anchor, tag) => (*anchor, tag.is_some()),
            _ => (0, false),
        };
        if tagged {
            return Err(ManifestProblem::NotPlain(
                "tags (`!name`) are not used in manifests; drop it".into(),
            )
            .at(line));
        }
        let node = match event {
            Event::Scalar(text, style, _, _) => {
                let cost = Cost { values: 1, text: text.len() };
                self.spend(cost, line)?;
                let plain = style == ScalarStyle::Plain;
                let value = match plain {
                    true => match plain_scalar(&text, line) {
                        Ok(value) => value,
                        Err(mistake) => {
                            self.note(mistake)?;
                            // It counts no more; a text lets what is around it be judged.
                            Value::String(text.into_owned())
                        }
                    },
                    false => Value::String(text.into_owned()),
                };
                YamlValue { value, cost, height: 0 }
            }
            Event::SequenceStart(..) => self.list(line, depth)?,
            Event::MappingStart(..) => self.map(line, depth, path)?,
            Event::Alias(id) => self.alias(id, line, depth)?,
            _ => return Err(ManifestProblem::NotYaml("a value is missing".into()).at(line)),
        };
        if anchor != 0 {
            // It is kept beside the document, so it counts as often as an alias that repeats it.
            self.spend(node.cost, line)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn alias(&mut self, id: usize, line: usize, depth: usize) -> Result<YamlValue, ReadManifestError> {
        // An anchor counts once its value is complete, so no value can hold itself.
        let Some(node) = self.anchors.get(&id) else {
            return Err(
                ManifestProblem::NotPlain("the alias names nothing that is complete here".into()).at(line)
            );
        };
        let (cost, height) = (node.cost, node.height);
        if depth + height > MAX_DEPTH {
            return Err(ManifestProblem::TooDeep.at(line));
        }
        self.spend(cost, line)?;
        self.anchors.get(&id).cloned().ok_or_else(|| ManifestProblem::TooDeep.at(line))
    }

    fn list(&mut self, line: usize, depth: usize) -> Result<YamlValue, ReadManifestError> {
        let mut cost = Cost { values: 1, text: 0 };
        self.spend(cost, line)?;
        let (mut items, mut height) = (Vec::new(), 1);
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(YamlValue { value: Value::Array(items), cost, height });
            }
            let node = self.node(event, span, depth + 1, &FieldPath::Deep)?;
            add(&mut cost, &mut height, &node);
            items.push(node.value);
        }
    }

    fn map(
        &mut self,
        line: usize,
        depth: usize,
        path: &FieldPath<'_>,
    ) -> Result<YamlValue, ReadManifestError> {
        let mut cost = Cost { values: 1, text: 0 };
        self.spend(cost, line)?;
        let (mut map, mut height) = (Map::new(), 1);
        loop {
            let (event, span) = self.next()?;
            let at = span.start.line();
            let key = match event {
                Event::MappingEnd => return Ok(YamlValue { value: Value::Object(map), cost, height }),
                Event::Scalar(key, style, 0, None) => {
                    if style == ScalarStyle::Plain && key == "<<" {
                        let why = "merge keys (`<<`) are not used in manifests; write the values out";
                        return Err(ManifestProblem::NotPlain(why.into()).at(at));
                    }
                    key.into_owned()
                }
                _ => return Err(ManifestProblem::NotPlain("a key must be plain text".into()).at(at)),
            };
            let key_cost = Cost { values: 0, text: key.len() };
            self.spend(key_cost, at)?;
            cost.text += key_cost.text;
            if map.contains_key(&key) {
                self.note(ManifestProblem::Duplicate(key.clone()).at(at))?;
            }
            let below = match path {
                FieldPath::Root => FieldPath::Top(&key),
                FieldPath::Top(_) | FieldPath::Deep => FieldPath::Deep,
            };
            match path {
                FieldPath::Root => self.lines.note(&key, at),
                FieldPath::Top(top) => self.lines.note(&format!("{top}.{key}"), at),
                FieldPath::Deep => {}
            }
            let (event, span) = self.next()?;
            let node = self.node(event, span, depth + 1, &below)?;
            add(&mut cost, &mut height, &node);
            map.insert(key, node.value);
        }
    }
}

fn add(cost: &mut Cost, height: &mut usize, node: &YamlValue) {
    cost.values += node.cost.values;
    cost.text += node.cost.text;
    *height = (*height).max(node.height + 1);
}

fn syntax(error: &ScanError) -> ReadManifestError {
    ManifestProblem::NotYaml(error.info().to_owned()).at(error.marker().line())
}

/// What an unquoted word means.
fn plain_scalar(text: &str, line: usize) -> Result<Value, ReadManifestError> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        _ => {}
    }
    if matches!(text.to_ascii_lowercase().as_str(), "yes" | "no" | "on" | "off") {
        let why = format!("`{text}` is true or false for some readers and text for others; quote it");
        return Err(ManifestProblem::NotPlain(why).at(line));
    }
    match looks_like_number(text) {
        ScalarShape::Text => Ok(Value::String(text.to_owned())),
        ScalarShape::Integer => integer(text).map(Value::Number).map_err(|problem| problem.at(line)),
        ScalarShape::Float => float(text).map(Value::Number).map_err(|problem| problem.at(line)),
    }
}

enum ScalarShape {
    Text,
    Integer,
    Float,
}

fn looks_like_number(text: &str) -> ScalarShape {
    let bare = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let octal = |text: &str| !text.is_empty() && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    if digits(bare) || text.strip_prefix("0x").is_some_and(hex) || text.strip_prefix("0o").is_some_and(octal)
    {
        return ScalarShape::Integer;
    }
    if matches!(bare, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return ScalarShape::Float;
    }
    let (mantissa, exponent) = match bare.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (bare, None),
    };
    let mantissa_fits = match mantissa.split_once('.') {
        Some((whole, part)) => {
            (digits(whole) && (part.is_empty() || digits(part))) || (whole.is_empty() && digits(part))
        }
        None => digits(mantissa),
    };
    if mantissa_fits && exponent.is_none_or(digits) { ScalarShape::Float } else { ScalarShape::Text }
}

fn integer(text: &str) -> Result<Number, ManifestProblem> {
    let too_large = || ManifestProblem::NotPlain(number::TOO_LARGE.into());
    let parsed = if let Some(hex) = text.strip_prefix("0x") {
        i64::from_str_radix(hex, 16)
    } else if let Some(octal) = text.strip_prefix("0o") {
        i64::from_str_radix(octal, 8)
    } else {
        let bare = text.trim_start_matches(['-', '+']);
        if bare.len() > 1 && bare.starts_with('0') {
            let why =
                format!("`{text}` is octal for some readers and decimal for others; write 0o... or quote it");
            return Err(ManifestProblem::NotPlain(why));
        }
        text.parse::<i64>()
    };
    let number = Number::from(parsed.map_err(|_| too_large())?);
    number::check(&number).map(|()| number)
}

fn float(text: &str) -> Result<Number, ManifestProblem> {
    let number = read_float(text)?;
    // A number has one notation in JSON; what is written otherwise may be a version.
    let written = super::canonical(&Value::Number(number.clone())).unwrap_or_default();
    if written != text.as_bytes() {
        let written = String::from_utf8_lossy(&written);
        let why = format!("`{text}` would become {written}; quote it if it is a version, or write {written}");
        return Err(ManifestProblem::NotPlain(why));
    }
    Ok(number)
}

fn read_float(text: &str) -> Result<Number, ManifestProblem> {
    let parsed = text.parse::<f64>().ok().filter(|_| !text.contains(['n', 'N']));
    let number = parsed.and_then(Number::from_f64);
    let number = number.ok_or_else(|| {
        ManifestProblem::NotPlain(format!("`{text}` is no number that JSON can hold; quote it"))
    })?;
    number::check(&number).map(|()| number)
}
