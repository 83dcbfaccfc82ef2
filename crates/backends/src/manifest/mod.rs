//! [`Manifest`]: an object as its users write it, in YAML or JSON (SYN-9).
//!
//! What is synchronized of a manifest is its *spec content*: the whole manifest in canonical
//! form (RFC 8785), without `status`, without what a server keeps in `metadata`, and without
//! the mark of its source. So two texts that say the same have the same content, whatever
//! their order, comments and notation.

mod document;
mod emit;
mod error;
mod json;
mod names;
mod number;
mod splice;
mod yaml;

use std::collections::BTreeSet;

use bytes::Bytes;
use model::sort::SortCompactly;
use model::{Digest, ObjectKey};
use serde::Deserialize;
use serde_json::{Map, Value};

pub use emit::{Extras, render};
pub use error::{ManifestProblem, ReadManifestError};
pub use splice::splice;

use document::{FieldLines, ManifestDocument};

/// The largest text, in bytes.
pub const MAX_FILE: usize = 4 * 1024 * 1024;
/// The most documents in one text.
pub const MAX_DOCUMENTS: usize = 1000;
/// The deepest nesting.
pub const MAX_DEPTH: usize = model::canonical::MAX_DEPTH;
/// The most values in one text, aliases counted as often as they stand, and what an anchor names once more.
pub const MAX_NODES: usize = 500_000;
/// The longest kind, in bytes.
pub const MAX_KIND: usize = 63;
/// The longest namespace, in bytes.
pub const MAX_NAMESPACE: usize = 63;
/// The longest name, in bytes.
pub const MAX_NAME: usize = 253;
/// The most text in one file's values, in bytes, counted as [`MAX_NODES`] are.
const MAX_TEXT: usize = 2 * MAX_FILE;

/// The annotation in which the uid of an object at its source is recorded (SYN-7).
pub const SOURCE_UID: &str = "muster.dev/source-uid";
/// The same for kinds of Argo CD.
pub const ARGO_SOURCE_UID: &str = "argocd.argoproj.io/source-uid";
/// Whose kinds carry [`ARGO_SOURCE_UID`].
const ARGO_GROUP: &str = "argoproj.io/";

/// What a server keeps in `metadata`: no part of what a user says.
const SERVER_MANAGED: &[&str] = &[
    "resourceVersion",
    "uid",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
];

/// In which notation a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// YAML, several documents.
    Yaml,
    /// JSON, one document.
    Json,
}

/// An object as a manifest says it.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Kind, namespace (empty without one), name.
    pub key: ObjectKey,
    /// `metadata.uid`.
    pub uid: Option<String>,
    /// The recorded uid of its source: it was put here by synchronization.
    pub source_uid: Option<String>,
    /// Its spec content: canonical JSON, at most [`sync::object::MAX_CONTENT`] bytes.
    pub spec: Bytes,
    /// Its status, canonical JSON, if one stands in the manifest.
    pub status: Option<Bytes>,
    /// `metadata.finalizers`: who must agree before it is gone.
    pub finalizers: Vec<String>,
    /// The line on which it begins, from 1.
    pub line: u32,
    /// Which document of its text it is, from 0.
    pub position: usize,
}

impl Manifest {
    /// Its version: see [`version`].
    pub fn version(&self) -> String {
        version(&self.spec, self.source_uid.as_deref(), self.uid.as_deref())
    }
}

/// Reads the manifests of a text, in their order; empty documents are left out.
///
/// # Errors
/// With the first thing that is wrong; nothing of the text counts then.
pub fn read(bytes: &[u8], format: Format) -> Result<Vec<Manifest>, ReadManifestError> {
    let (manifests, mistakes) = read_documents(documents(bytes, format)?);
    mistakes.into_iter().next().map_or(Ok(manifests), Err)
}

/// Everything that is wrong with a text, in its order; nothing when [`read`] takes it. Mistakes of
/// notation are told before it is asked what the documents say.
pub fn mistakes(bytes: &[u8], format: Format) -> Vec<ReadManifestError> {
    let text = std::str::from_utf8(bytes).ok().filter(|_| bytes.len() <= MAX_FILE);
    let (Format::Yaml, Some(text)) = (format, text) else {
        return read(bytes, format).err().into_iter().collect();
    };
    let read = yaml::read_all(text.strip_prefix('\u{feff}').unwrap_or(text));
    if !read.mistakes.is_empty() {
        return read.mistakes;
    }
    read_documents(read.documents).1
}

/// The manifests of documents, and everything that is wrong with the others.
fn read_documents(documents: Vec<ManifestDocument>) -> (Vec<Manifest>, Vec<ReadManifestError>) {
    let (mut seen, mut manifests, mut mistakes) = (BTreeSet::new(), Vec::new(), Vec::new());
    for document in documents {
        match manifest(document) {
            Ok(manifest) if seen.insert(manifest.key.clone()) => manifests.push(manifest),
            Ok(manifest) => {
                let problem = ManifestProblem::DuplicateObject(manifest.key.to_string());
                mistakes.push(problem.at(manifest.line as usize));
            }
            Err(found) => mistakes.extend(found),
        }
    }
    (manifests, mistakes)
}

/// The values of a text's documents, which need not be manifests; empty ones are left out.
///
/// # Errors
/// With the first thing that is wrong.
pub fn values(bytes: &[u8], format: Format) -> Result<Vec<Value>, ReadManifestError> {
    Ok(documents(bytes, format)?.into_iter().map(|document| document.value).collect())
}

fn documents(bytes: &[u8], format: Format) -> Result<Vec<ManifestDocument>, ReadManifestError> {
    if bytes.len() > MAX_FILE {
        return Err(ManifestProblem::FileTooLarge.anywhere());
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => {
            let before = &bytes[..error.valid_up_to()];
            return Err(ManifestProblem::NotText.at(1 + before.iter().filter(|byte| **byte == b'\n').count()));
        }
    };
    match format {
        Format::Yaml => yaml::read(text).map(|(documents, _)| documents),
        Format::Json => json::read(text),
    }
}

/// Reads the manifest that a JSON value is, by the rules of a text.
///
/// # Errors
/// With the first thing that is wrong.
pub fn of_value(value: Value) -> Result<Manifest, ReadManifestError> {
    json::check(&value)?;
    let document = ManifestDocument { value, line: 1, lines: FieldLines::default(), position: 0 };
    let (manifests, mistakes) = read_documents(vec![document]);
    // Of one document there is one manifest or a mistake.
    let mistake = || mistakes.into_iter().next().unwrap_or(ManifestProblem::NotMap.anywhere());
    manifests.into_iter().next().ok_or_else(mistake)
}

/// The version of an object as a folder and the embedded store count versions: a digest of
/// what is said, so that touching or reformatting a file is no change.
pub fn version(spec: &[u8], source_uid: Option<&str>, uid: Option<&str>) -> String {
    let source = source_uid.unwrap_or_default();
    let lengths = [spec.len(), source.len()].map(|length| (length as u64).to_be_bytes());
    let uid = uid.unwrap_or_default();
    Digest::of_parts([&lengths[0][..], &lengths[1], spec, source.as_bytes(), uid.as_bytes()]).to_string()
}

/// The normal form of a spec content, for comparing contents of different writers; `None`
/// when it is no manifest.
pub fn normal(spec: &[u8]) -> Option<Bytes> {
    let mut manifests = read(spec, Format::Json).ok()?;
    let only = manifests.pop()?;
    Some(only.spec)
}

/// Whether a content is one of this object: what every backend asks before it takes it.
///
/// # Errors
/// When it is no JSON, too large, or names another object.
pub fn identify(key: &ObjectKey, spec: &[u8]) -> Result<(), ReadManifestError> {
    if spec.len() > sync::object::MAX_CONTENT {
        return Err(ManifestProblem::TooLarge { size: spec.len() }.anywhere());
    }
    #[derive(Deserialize)]
    struct Names<'s> {
        #[serde(borrow)]
        kind: std::borrow::Cow<'s, str>,
        #[serde(borrow)]
        metadata: Metadata<'s>,
    }
    #[derive(Deserialize)]
    struct Metadata<'s> {
        #[serde(borrow)]
        name: std::borrow::Cow<'s, str>,
        #[serde(borrow, default)]
        namespace: Option<std::borrow::Cow<'s, str>>,
    }
    let named: Names<'_> = serde_json::from_slice(spec)
        .map_err(|error| ManifestProblem::NotJson(error.to_string()).at(error.line().max(1)))?;
    let namespace = named.metadata.namespace.unwrap_or_default();
    let named =
        names::key(&named.kind, &namespace, &named.metadata.name).map_err(ManifestProblem::anywhere)?;
    if named != *key {
        let why = "the content is of another object";
        return Err(ManifestProblem::bad_name("metadata.name", &named.to_string(), why).anywhere());
    }
    Ok(())
}

/// Canonical bytes of a status: a JSON map of at most [`sync::object::MAX_CONTENT`] bytes.
///
/// # Errors
/// When it is none.
pub fn read_status(bytes: &[u8]) -> Result<Bytes, ReadManifestError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ManifestProblem::NotText.anywhere())?;
    let value = json::value(text)?;
    if !value.is_object() {
        return Err(ManifestProblem::NotMap.at(1));
    }
    canonical(&value).map_err(ManifestProblem::anywhere)
}

/// Reads a document as a manifest.
///
/// # Errors
/// With all that is wrong with what names the object, or else the first thing that is wrong with the rest.
fn manifest(document: ManifestDocument) -> Result<Manifest, Vec<ReadManifestError>> {
    let ManifestDocument { value, line, lines, position } = document;
    let at = |problem: ManifestProblem, field: &str| problem.at(lines.of(field).unwrap_or(line));
    let Value::Object(mut map) = value else { return Err(vec![ManifestProblem::NotMap.at(line)]) };
    let mut metadata = match map.remove("metadata") {
        Some(Value::Object(metadata)) => metadata,
        _ => Map::new(),
    };
    let mut mistakes = Vec::new();
    let mut text = |map: &Map<String, Value>, field: &str, shown: &'static str| match map.get(field) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(_) => {
            mistakes.push(at(ManifestProblem::NotAText(shown), shown));
            Some(String::new())
        }
    };
    let kind = text(&map, "kind", "kind");
    let name = text(&metadata, "name", "metadata.name");
    let namespace = text(&metadata, "namespace", "metadata.namespace").unwrap_or_default();
    let uid = text(&metadata, "uid", "metadata.uid").filter(|uid| !uid.is_empty());
    if kind.is_none() {
        mistakes.push(ManifestProblem::NoKind.at(line));
    }
    if name.is_none() {
        mistakes.push(at(ManifestProblem::NoName, "metadata"));
    }
    let (Some(kind), Some(name), true) = (kind, name, mistakes.is_empty()) else {
        mistakes.sort_compactly_by_key(|mistake| mistake.line);
        return Err(mistakes);
    };
    let one = |mistake: ReadManifestError| vec![mistake];
    let key = names::key(&kind, &namespace, &name).map_err(|problem| {
        let field = if let ManifestProblem::BadName { field, .. } = &problem { *field } else { "kind" };
        one(at(problem, field))
    })?;
    if namespace.is_empty() {
        metadata.remove("namespace");
    }
    let finalizers = metadata.get("finalizers").and_then(Value::as_array);
    let finalizers = finalizers.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    for field in SERVER_MANAGED {
        metadata.remove(*field);
    }
    let source_uid = take_source_uid(&mut metadata);
    map.insert("metadata".to_owned(), Value::Object(metadata));
    let status = map.remove("status").filter(|status| !status.is_null());
    let status =
        status.map(|status| canonical(&status)).transpose().map_err(|problem| one(at(problem, "status")))?;
    let spec = canonical(&Value::Object(map)).map_err(|problem| one(problem.at(line)))?;
    let line = u32::try_from(line).unwrap_or(u32::MAX);
    Ok(Manifest { key, uid, source_uid, spec, status, finalizers, line, position })
}

/// Takes the mark out; annotations that are empty then were there for it alone.
fn take_source_uid(metadata: &mut Map<String, Value>) -> Option<String> {
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let marks = [SOURCE_UID, ARGO_SOURCE_UID].map(|name| annotations.remove(name));
    let uid = marks.into_iter().flatten().find_map(|mark| mark.as_str().map(str::to_owned));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    uid.filter(|uid| !uid.is_empty())
}

fn canonical(value: &Value) -> Result<Bytes, ManifestProblem> {
    // Keys are text and numbers finite, so nothing is left that could not be written.
    let written =
        if is_plain(value) { serde_json::to_vec(value) } else { serde_json_canonicalizer::to_vec(value) };
    let bytes = written.map_err(|error| ManifestProblem::NotJson(error.to_string()))?;
    if bytes.len() > sync::object::MAX_CONTENT {
        return Err(ManifestProblem::TooLarge { size: bytes.len() });
    }
    Ok(bytes.into())
}

/// Whether the ordinary writer gives the canonical form, in a fifth of the time: it sorts keys by
/// bytes, as RFC 8785 does those of ASCII, and writes all but fractions in the same way.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => !number.is_f64(),
        Value::Array(items) => items.iter().all(is_plain),
        Value::Object(map) => map.iter().all(|(key, value)| key.is_ascii() && is_plain(value)),
    }
}
