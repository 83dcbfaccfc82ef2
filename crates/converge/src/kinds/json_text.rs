//! A JSON text as a tree of spans, and edits that keep every byte outside what they change.

use std::collections::BTreeMap;
use std::ops::Range;

use model::collect::CollectInserting;

/// The deepest nesting of a document that is edited.
const MAX_DEPTH: usize = 128;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct JsonNode {
    pub(super) span: Range<usize>,
    pub(super) kind: JsonKind,
}

#[derive(Clone, Debug)]
pub(super) enum JsonKind {
    Object(Vec<JsonMember>),
    Array(Vec<JsonNode>),
    /// A text, a number, true, false or null.
    Scalar,
}

#[derive(Clone, Debug)]
pub(super) struct JsonMember {
    pub(super) key: String,
    pub(super) key_span: Range<usize>,
    pub(super) value: JsonNode,
}

impl JsonNode {
    /// What it is, for messages.
    pub(super) fn what(&self, text: &str) -> &'static str {
        match (&self.kind, text.as_bytes().get(self.span.start)) {
            (JsonKind::Object(_), _) => "an object",
            (JsonKind::Array(_), _) => "a list",
            (JsonKind::Scalar, Some(b'"')) => "a text",
            (JsonKind::Scalar, Some(b't' | b'f')) => "true or false",
            (JsonKind::Scalar, Some(b'n')) => "null",
            (JsonKind::Scalar, _) => "a number",
        }
    }

    /// The member of that name that counts: the last.
    pub(super) fn member(&self, key: &str) -> Option<&JsonMember> {
        match &self.kind {
            JsonKind::Object(members) => members.iter().rev().find(|member| member.key == key),
            JsonKind::Array(_) | JsonKind::Scalar => None,
        }
    }
}

/// Reads a whole document.
///
/// # Errors
/// With line and column, when it is not JSON, holds comments, or is nested too deeply.
pub(super) fn parse(text: &str) -> Result<JsonNode, String> {
    let checked: Result<serde::de::IgnoredAny, _> = serde_json::from_slice(text.as_bytes());
    if let Err(error) = checked {
        let at = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
        let near = at.as_bytes().get(error.column().saturating_sub(1));
        let (line, column) = (error.line(), error.column());
        return Err(match near {
            Some(b'/' | b'#') => {
                format!("line {line}, column {column}: a comment, which JSON does not have; it is left alone")
            }
            _ => format!("it is not JSON: {error}; it is left alone"),
        });
    }
    let mut reader = SpanReader { text, at: 0 };
    reader.value(0)
}

/// The text without blanks between its parts; members in their order, numbers as they are.
pub(super) fn compact(text: &str, node: &JsonNode) -> String {
    let mut out = String::new();
    write_compact(text, node, &mut out);
    out
}

fn write_compact(text: &str, node: &JsonNode, out: &mut String) {
    match &node.kind {
        JsonKind::Scalar => out.push_str(&text[node.span.clone()]),
        JsonKind::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                write_compact(text, item, out);
            }
            out.push(']');
        }
        JsonKind::Object(members) => {
            out.push('{');
            for (index, member) in members.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(&text[member.key_span.clone()]);
                out.push(':');
                write_compact(text, &member.value, out);
            }
            out.push('}');
        }
    }
}

/// Two texts are one value: the order of members and the way in which texts are escaped do not
/// count, and numbers are compared as they are written.
pub(super) fn same(a: &str, b: &str) -> bool {
    match (parse(a), parse(b)) {
        (Ok(x), Ok(y)) => canonical(a, &x) == canonical(b, &y),
        (Err(_), _) | (_, Err(_)) => a == b,
    }
}

fn canonical(text: &str, node: &JsonNode) -> String {
    match &node.kind {
        JsonKind::Scalar => {
            let raw = &text[node.span.clone()];
            let unescaped: Option<String> = serde_json::from_slice(raw.as_bytes()).ok();
            unescaped.map_or_else(|| raw.to_owned(), |value| format!("{value:?}"))
        }
        JsonKind::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| canonical(text, item)).collect();
            format!("[{}]", items.join(","))
        }
        JsonKind::Object(members) => {
            let members: BTreeMap<&str, String> = members
                .iter()
                .map(|member| (&*member.key, canonical(text, &member.value)))
                .collect_inserting();
            format!("{members:?}")
        }
    }
}

/// How a document is laid out.
#[derive(Clone, Debug)]
pub(super) struct JsonLayout {
    /// What ends a line; `None` where all stands in one line.
    newline: Option<&'static str>,
    indent: String,
    /// Between a key and its value.
    colon: String,
    /// Between two members in one line.
    comma: String,
}

impl JsonLayout {
    /// How a document is laid out, as its outermost object or list shows.
    pub(super) fn of(text: &str, root: &JsonNode) -> JsonLayout {
        let mut layout =
            JsonLayout { newline: Some("\n"), indent: "  ".into(), colon: ": ".into(), comma: ", ".into() };
        let starts: Vec<usize> = match &root.kind {
            JsonKind::Object(members) => members.iter().map(|member| member.key_span.start).collect(),
            JsonKind::Array(items) => items.iter().map(|item| item.span.start).collect(),
            JsonKind::Scalar => Vec::new(),
        };
        let Some(first) = starts.first() else { return layout };
        let gap = &text[root.span.start + 1..*first];
        match gap.rfind('\n') {
            Some(at) => {
                layout.newline = Some(if gap.contains("\r\n") { "\r\n" } else { "\n" });
                layout.indent = gap[at + 1..].to_owned();
            }
            None => layout.newline = None,
        }
        if let JsonKind::Object(members) = &root.kind {
            if let Some(member) = members.first() {
                layout.colon = text[member.key_span.end..member.value.span.start].to_owned();
            }
            if let [first, second, ..] = members.as_slice() {
                layout.comma = text[first.value.span.end..second.key_span.start].to_owned();
            } else if layout.newline.is_none() && layout.colon == ":" {
                layout.comma = ",".to_owned();
            }
        }
        if layout.newline.is_some() {
            layout.comma = ",".to_owned();
        }
        layout
    }

    /// A value of another text, laid out as this document is, at a depth.
    fn render(&self, text: &str, node: &JsonNode, depth: usize, out: &mut String) {
        let (open, close, parts): (char, char, Vec<(Option<&str>, &JsonNode)>) = match &node.kind {
            JsonKind::Scalar => return out.push_str(&text[node.span.clone()]),
            JsonKind::Array(items) => ('[', ']', items.iter().map(|item| (None, item)).collect()),
            JsonKind::Object(members) => {
                let part = |member: &'_ JsonMember| member.key_span.clone();
                let parts = members.iter().map(|m| (Some(&text[part(m)]), &m.value));
                ('{', '}', parts.collect())
            }
        };
        out.push(open);
        let full = !parts.is_empty();
        for (index, (key, value)) in parts.into_iter().enumerate() {
            out.push_str(if index > 0 { &self.comma } else { "" });
            self.line(depth + 1, out);
            if let Some(key) = key {
                out.push_str(key);
                out.push_str(&self.colon);
            }
            self.render(text, value, depth + 1, out);
        }
        if full {
            self.line(depth, out);
        }
        out.push(close);
    }

    /// A new line at a depth, where values have lines of their own.
    fn line(&self, depth: usize, out: &mut String) {
        if let Some(newline) = self.newline {
            out.push_str(newline);
            (0..depth).for_each(|_| out.push_str(&self.indent));
        }
    }

    fn rendered(&self, value: &str, depth: usize) -> Result<String, String> {
        let node = parse(value)?;
        let mut out = String::new();
        self.render(value, &node, depth, &mut out);
        Ok(out)
    }
}

/// The text with another value at a node.
pub(super) fn replace(
    text: &str,
    layout: &JsonLayout,
    node: &JsonNode,
    depth: usize,
    value: &str,
) -> Result<String, String> {
    Ok(spliced(text, node.span.clone(), &layout.rendered(value, depth)?))
}

/// The text with one more member at the end of an object, which stands at `depth`.
pub(super) fn insert(
    text: &str,
    layout: &JsonLayout,
    object: &JsonNode,
    members: &[JsonMember],
    depth: usize,
    key: &str,
    value: &str,
) -> Result<String, String> {
    let key = serde_json::to_string(key).map_err(|error| error.to_string())?;
    let value = layout.rendered(value, depth + 1)?;
    let Some((first, last)) = members.first().zip(members.last()) else {
        let mut whole = String::from("{");
        layout.line(depth + 1, &mut whole);
        whole.push_str(&format!("{key}{}{value}", layout.colon));
        layout.line(depth, &mut whole);
        whole.push('}');
        return Ok(spliced(text, object.span.clone(), &whole));
    };
    // As the members before it: after a line break, or in the same line.
    let gap = &text[object.span.start + 1..first.key_span.start];
    let between = match (members, gap.contains('\n')) {
        (_, true) => format!(",{gap}"),
        ([.., before, last], false) => text[before.value.span.end..last.key_span.start].to_owned(),
        (_, false) => {
            if layout.newline.is_some() {
                ", ".to_owned()
            } else {
                layout.comma.clone()
            }
        }
    };
    let at = last.value.span.end;
    Ok(spliced(text, at..at, &format!("{between}{key}{}{value}", layout.colon)))
}

/// The text without a member of an object.
pub(super) fn remove(text: &str, object: &JsonNode, members: &[JsonMember], index: usize) -> String {
    let member = &members[index];
    let span = match (members.get(index + 1), index.checked_sub(1).map(|before| &members[before])) {
        (Some(next), _) => member.key_span.start..next.key_span.start,
        (None, Some(before)) => before.value.span.end..member.value.span.end,
        (None, None) => object.span.start + 1..object.span.end - 1,
    };
    spliced(text, span, "")
}

fn spliced(text: &str, span: Range<usize>, new: &str) -> String {
    format!("{}{new}{}", &text[..span.start], &text[span.end..])
}

/// Reads spans of a text that is known to be JSON.
struct SpanReader<'a> {
    text: &'a str,
    at: usize,
}

impl SpanReader<'_> {
    fn value(&mut self, depth: usize) -> Result<JsonNode, String> {
        if depth > MAX_DEPTH {
            return Err(format!("it is nested more than {MAX_DEPTH} levels deep; it is left alone"));
        }
        let start = self.peek();
        let kind = match self.text.as_bytes().get(start) {
            Some(b'{') => JsonKind::Object(self.members(depth)?),
            Some(b'[') => JsonKind::Array(self.items(depth)?),
            _ => {
                self.scalar();
                JsonKind::Scalar
            }
        };
        Ok(JsonNode { span: start..self.at, kind })
    }

    fn members(&mut self, depth: usize) -> Result<Vec<JsonMember>, String> {
        let mut members = Vec::new();
        self.at += 1;
        while !self.ends(b'}') {
            let start = self.peek();
            self.scalar();
            let key_span = start..self.at;
            let key = serde_json::from_slice(&self.text.as_bytes()[key_span.clone()])
                .map_err(|error| error.to_string())?;
            self.peek();
            self.at += 1;
            let value = self.value(depth + 1)?;
            members.push(JsonMember { key, key_span, value });
        }
        Ok(members)
    }

    fn items(&mut self, depth: usize) -> Result<Vec<JsonNode>, String> {
        let mut items = Vec::new();
        self.at += 1;
        while !self.ends(b']') {
            items.push(self.value(depth + 1)?);
        }
        Ok(items)
    }

    /// Passes a comma, or what closes.
    fn ends(&mut self, close: u8) -> bool {
        let at = self.peek();
        match self.text.as_bytes().get(at) {
            Some(b',') => {
                self.at += 1;
                false
            }
            Some(byte) if *byte == close => {
                self.at += 1;
                true
            }
            Some(_) => false,
            None => true,
        }
    }

    /// Passes blanks.
    fn peek(&mut self) -> usize {
        while matches!(self.text.as_bytes().get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.at
    }

    fn scalar(&mut self) {
        let bytes = self.text.as_bytes();
        if bytes.get(self.at) == Some(&b'"') {
            self.at += 1;
            while let Some(byte) = bytes.get(self.at) {
                self.at += if *byte == b'\\' { 2 } else { 1 };
                if *byte == b'"' {
                    return;
                }
            }
            return;
        }
        while bytes.get(self.at).is_some_and(|byte| !b" \t\r\n,]}:".contains(byte)) {
            self.at += 1;
        }
    }
}
