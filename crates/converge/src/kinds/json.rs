//! `json`: values in a JSON file; every other byte stays as it is.

use catalog::types::{Ensure, JsonSpec};
use model::Fields;
use model::collect::CollectInserting;

use super::json_text::{self, JsonKind, JsonLayout, JsonMember, JsonNode};

/// What Windows editors put before a text.
const MARK: &str = "\u{feff}";
/// How a state says that there is no value.
const NOTHING: &str = "";

/// The values that the file holds, by their pointers, and no text for those that it does not;
/// `None` when it holds none of them.
///
/// # Errors
/// When the file is not UTF-8 or not JSON, or a value's parent is no object.
pub fn observe(spec: &JsonSpec, bytes: &[u8]) -> Result<Option<Fields>, String> {
    let JsonFile { text, root, .. } = JsonFile::read(spec, bytes)?;
    let mut fields = Fields::new();
    for pointer in spec.values.keys() {
        let found = find(spec, &text, &root, pointer)?;
        let value = found.map_or_else(|| NOTHING.to_owned(), |node| json_text::compact(&text, node));
        fields.insert(pointer.clone(), value);
    }
    let none = fields.values().all(|value| value == NOTHING);
    Ok((!none).then_some(fields))
}

/// The state that it should have: what is there already counts as declared when it is the same
/// value in another writing.
pub fn desired(spec: &JsonSpec, declared: Fields, now: Option<&Fields>) -> Option<Fields> {
    if spec.ensure == Ensure::Absent {
        return None;
    }
    let as_it_is = |pointer: &String, value: String| match now.and_then(|now| now.get(pointer)) {
        Some(there) if pointer.starts_with('/') && json_text::same(there, &value) => there.clone(),
        _ => value,
    };
    Some(declared.into_iter().map(|(name, value)| (name.clone(), as_it_is(&name, value))).collect_inserting())
}

/// The file in which the values are as the state `to` says; what `to` does not name stays. Editing
/// the result again changes nothing.
///
/// # Errors
/// As [`observe`].
pub fn edit(spec: &JsonSpec, bytes: &[u8], to: Option<&Fields>) -> Result<Vec<u8>, String> {
    let JsonFile { mark, mut text, mut root } = JsonFile::read(spec, bytes)?;
    for pointer in spec.values.keys() {
        let value = match to {
            None => NOTHING,
            Some(to) => match to.get(pointer) {
                Some(value) => value,
                None => continue,
            },
        };
        let there = find(spec, &text, &root, pointer)?.map(|node| json_text::compact(&text, node));
        if there.as_deref().unwrap_or(NOTHING) == value {
            continue;
        }
        text = match value {
            NOTHING => without(spec, &text, &root, pointer)?,
            value => with(spec, &text, &root, pointer, value)?,
        };
        root = json_text::parse(&text)?;
    }
    Ok([mark.as_bytes(), text.as_bytes()].concat())
}

/// Nothing is left but an object that holds nothing, or nothing but such: those that were made around a value
/// stay when it is removed.
pub fn is_void(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let text = text.trim_start_matches(MARK);
    text.trim().is_empty() || json_text::parse(text).is_ok_and(|root| holds_nothing(&root))
}

fn holds_nothing(node: &JsonNode) -> bool {
    matches!(&node.kind, JsonKind::Object(members) if members.iter().all(|member| holds_nothing(&member.value)))
}

struct JsonFile<'a> {
    mark: &'a str,
    text: String,
    root: JsonNode,
}

impl<'a> JsonFile<'a> {
    /// A file that holds nothing is an empty object.
    fn read(spec: &JsonSpec, bytes: &'a [u8]) -> Result<JsonFile<'a>, String> {
        let path = &spec.file.path;
        let text = std::str::from_utf8(bytes).map_err(|error| {
            format!("{path} is not UTF-8 (byte {}); it is left alone", error.valid_up_to())
        })?;
        let (mark, text) = if text.starts_with(MARK) { text.split_at(MARK.len()) } else { ("", text) };
        let text = if text.trim().is_empty() { "{}\n" } else { text };
        let root = json_text::parse(text).map_err(|error| format!("{path}: {error}"))?;
        Ok(JsonFile { mark, text: text.to_owned(), root })
    }
}

/// The keys of a pointer.
fn keys(pointer: &str) -> impl Iterator<Item = String> {
    pointer.split('/').skip(1).map(|key| key.replace("~1", "/").replace("~0", "~"))
}

/// The value at a pointer.
fn find<'a>(
    spec: &JsonSpec,
    text: &str,
    root: &'a JsonNode,
    pointer: &str,
) -> Result<Option<&'a JsonNode>, String> {
    let mut node = root;
    for key in keys(pointer) {
        match step(spec, text, node, &key, pointer)? {
            Some(next) => node = next,
            None => return Ok(None),
        }
    }
    Ok(Some(node))
}

/// The value of a key, or of an index of a list.
fn step<'a>(
    spec: &JsonSpec,
    text: &str,
    node: &'a JsonNode,
    key: &str,
    pointer: &str,
) -> Result<Option<&'a JsonNode>, String> {
    match &node.kind {
        JsonKind::Object(_) => Ok(node.member(key).map(|member| &member.value)),
        JsonKind::Array(items) => {
            let index = key.parse::<usize>().ok().filter(|index| index.to_string() == key);
            let found = index.and_then(|index| items.get(index));
            found.map(Some).ok_or_else(|| {
                let path = &spec.file.path;
                format!("{path}: `{key}` of {pointer} is no item of a list of {}", items.len())
            })
        }
        JsonKind::Scalar if spec.ensure == Ensure::Absent => Ok(None),
        JsonKind::Scalar => {
            let (path, what) = (&spec.file.path, node.what(text));
            Err(format!(
                "{path}: what should hold `{key}` of {pointer} is {what}, not an object; it is left alone"
            ))
        }
    }
}

/// The text with a value at a pointer; objects on the way are made.
fn with(spec: &JsonSpec, text: &str, root: &JsonNode, pointer: &str, value: &str) -> Result<String, String> {
    let layout = JsonLayout::of(text, root);
    let keys: Vec<String> = keys(pointer).collect();
    let mut node = root;
    for (depth, key) in keys.iter().enumerate() {
        if let Some(next) = step(spec, text, node, key, pointer)? {
            node = next;
            continue;
        }
        let JsonKind::Object(members) = &node.kind else {
            return Err(format!("{}: {pointer} cannot be made", spec.file.path));
        };
        let mut nested = value.to_owned();
        for key in keys[depth + 1..].iter().rev() {
            let key = serde_json::to_string(key).map_err(|error| error.to_string())?;
            nested = format!("{{{key}:{nested}}}");
        }
        return json_text::insert(text, &layout, node, members, depth, key, &nested);
    }
    json_text::replace(text, &layout, node, keys.len(), value)
}

/// The text without the value at a pointer.
fn without(spec: &JsonSpec, text: &str, root: &JsonNode, pointer: &str) -> Result<String, String> {
    let keys: Vec<String> = keys(pointer).collect();
    let Some((last, way)) = keys.split_last() else { return Ok(text.to_owned()) };
    let mut node = root;
    for key in way {
        match step(spec, text, node, key, pointer)? {
            Some(next) => node = next,
            None => return Ok(text.to_owned()),
        }
    }
    match &node.kind {
        JsonKind::Object(members) => {
            let is = |member: &JsonMember| member.key == *last;
            let Some(index) = members.iter().rposition(is) else { return Ok(text.to_owned()) };
            let left = json_text::remove(text, node, members, index);
            // A key may stand twice.
            let root = json_text::parse(&left)?;
            without(spec, &left, &root, pointer)
        }
        JsonKind::Array(_) => Err(format!(
            "{}: {pointer} is an item of a list, which is not removed by its index",
            spec.file.path
        )),
        JsonKind::Scalar => Ok(text.to_owned()),
    }
}
