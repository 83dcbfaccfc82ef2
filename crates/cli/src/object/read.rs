//! Manifests from files, directories and standard input, with every mistake in them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use backends::manifest::{self, Format, MAX_FILE, Manifest, ReadManifestError};
use serde::Serialize;
use serde_json::{Value, json};
use server::api::objects::{Mapping, ObjectName};

use crate::failure::UserError;
use crate::screen::plural;

/// The most files of one command.
const MAX_FILES: usize = 10_000;
/// The deepest that directories are gone into.
const MAX_LEVELS: usize = 32;
/// What stands for standard input.
const STDIN: &str = "-";
/// The most mistakes that are printed.
const MAX_SHOWN: usize = 50;

/// Where manifests are, and whose they are.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Files, directories, or `-`.
    pub files: &'a [PathBuf],
    /// The node of all of them, instead of a mapping.
    pub node: Option<&'a str>,
    /// How each finds its node.
    pub mapping: Mapping,
}

/// A manifest that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadManifest {
    /// What it names.
    pub name: ObjectName,
    /// What it says.
    pub value: Value,
    /// Its length in canonical form, in bytes.
    pub size: usize,
    /// `file:line` of it.
    pub location: String,
}

/// Something that is wrong in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// The file, as it was named; `-` for standard input.
    pub file: String,
    /// The line, from 1, where one can be named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// A stable code.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
}

/// Why there are no manifests to go on with.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file or directory cannot be read.
    #[error("cannot read {path}")]
    Io {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Larger than a text of manifests may be.
    #[error("{0} is larger than {MAX_FILE} bytes")]
    TooLarge(String),
    /// More files than one command takes.
    #[error("there are more than {MAX_FILES} files, or directories deeper than {MAX_LEVELS}, below {0}")]
    TooMany(String),
    /// There is nothing in them.
    #[error("there is no manifest in what -f names")]
    Nothing,
    /// They have mistakes.
    #[error("{}", one_a_line(.0))]
    Mistakes(Vec<Mistake>),
}

impl UserError for ReadError {
    fn hint(&self) -> Option<String> {
        match self {
            ReadError::Mistakes(_) => Some("nothing was sent; put these right first".to_owned()),
            ReadError::Nothing => {
                Some("in a directory only files that end with .yaml, .yml or .json are read".to_owned())
            }
            ReadError::TooMany(_) => Some("name the directory that holds the manifests alone".to_owned()),
            ReadError::Io { .. } | ReadError::TooLarge(_) => None,
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            ReadError::Mistakes(mistakes) => Some(json!(mistakes)),
            _ => None,
        }
    }
}

fn one_a_line(mistakes: &[Mistake]) -> String {
    let count = mistakes.len();
    let mut out = plural(count, "mistake") + " in manifests";
    for Mistake { file, line, code, message } in mistakes.iter().take(MAX_SHOWN) {
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        out.push_str(&format!("\n  {file}{line}  {code}  {message}"));
    }
    if count > MAX_SHOWN {
        out.push_str(&format!("\n  ... and {} more", count - MAX_SHOWN));
    }
    out
}

/// Reads all manifests, in the order of the files and within each.
///
/// # Errors
/// With all mistakes at once, when there are any.
pub fn read(source: &Source<'_>) -> Result<Vec<ReadManifest>, ReadError> {
    let mut reading = ManifestReading {
        source: *source,
        given: Vec::new(),
        mistakes: Vec::new(),
        locations: BTreeMap::new(),
    };
    for path in source.files {
        if path.as_os_str() == STDIN {
            let text = limited(&mut io::stdin().lock(), STDIN)?;
            reading.text(STDIN, &text, notation(&text));
            continue;
        }
        for file in files(path)? {
            let name = file.display().to_string();
            let text = of_file(&file)?;
            let json = file.extension().is_some_and(|extension| extension == "json");
            reading.text(&name, &text, if json { Format::Json } else { Format::Yaml });
        }
    }
    let ManifestReading { given, mistakes, .. } = reading;
    match (given.is_empty(), mistakes.is_empty()) {
        (_, false) => Err(ReadError::Mistakes(mistakes)),
        (true, true) => Err(ReadError::Nothing),
        (false, true) => Ok(given),
    }
}

/// The notation of a text that has no file name to show it. YAML is the wider one: JSON is read by it
/// too.
pub(crate) fn notation(text: &[u8]) -> Format {
    let json = text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    if json { Format::Json } else { Format::Yaml }
}

/// What is in a file, if it is no larger than a text of manifests may be.
pub(crate) fn of_file(path: &Path) -> Result<Vec<u8>, ReadError> {
    let name = path.display().to_string();
    let file = fs::File::open(path);
    limited(&mut file.map_err(|source| ReadError::Io { path: name.clone(), source })?, &name)
}

fn limited(from: &mut dyn Read, name: &str) -> Result<Vec<u8>, ReadError> {
    let mut text = Vec::new();
    let read = from.take(MAX_FILE as u64 + 1).read_to_end(&mut text);
    read.map_err(|source| ReadError::Io { path: name.to_owned(), source })?;
    if text.len() > MAX_FILE { Err(ReadError::TooLarge(name.to_owned())) } else { Ok(text) }
}

/// The files that a path stands for: itself, or all manifests below it, in their order.
fn files(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let io_error = |path: &Path| {
        let path = path.display().to_string();
        move |source| ReadError::Io { path, source }
    };
    if !fs::metadata(path).map_err(io_error(path))?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let too_many = || ReadError::TooMany(path.display().to_string());
    let (mut found, mut directories) = (Vec::new(), vec![(path.to_owned(), 0)]);
    while let Some((directory, level)) = directories.pop() {
        if level >= MAX_LEVELS {
            return Err(too_many());
        }
        for entry in fs::read_dir(&directory).map_err(io_error(&directory))? {
            let entry = entry.map_err(io_error(&directory))?;
            let (path, name) = (entry.path(), entry.file_name());
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            // A link to a directory is not followed: it could lead in circles.
            if entry.file_type().map_err(io_error(&path))?.is_dir() {
                directories.push((path, level + 1));
            } else if path.extension().is_some_and(|it| it == "yaml" || it == "yml" || it == "json") {
                found.push(path);
            }
            if found.len() > MAX_FILES || directories.len() > MAX_FILES {
                return Err(too_many());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// What was read so far.
struct ManifestReading<'a> {
    source: Source<'a>,
    given: Vec<ReadManifest>,
    mistakes: Vec<Mistake>,
    /// Where each object stands: node, kind, namespace, name.
    locations: BTreeMap<[String; 4], String>,
}

impl ManifestReading<'_> {
    fn text(&mut self, file: &str, text: &[u8], format: Format) {
        match manifest::read(text, format) {
            Ok(manifests) => manifests.into_iter().for_each(|manifest| self.manifest(file, manifest)),
            Err(whole) => {
                let mut found = match format {
                    Format::Yaml => of_documents(text),
                    Format::Json => Vec::new(),
                };
                if found.is_empty() {
                    found.push(whole);
                }
                self.mistakes.extend(found.into_iter().map(|error| Mistake {
                    file: file.to_owned(),
                    line: error.line,
                    code: error.problem.code(),
                    message: error.problem.to_string(),
                }));
            }
        }
    }

    fn manifest(&mut self, file: &str, manifest: Manifest) {
        let location = format!("{file}:{}", manifest.line);
        let mut mistake = |code, message| {
            self.mistakes.push(Mistake { file: file.to_owned(), line: Some(manifest.line), code, message });
        };
        let (kind, namespace) = (manifest.key.section.kind.to_string(), &*manifest.key.section.namespace);
        // It is canonical JSON.
        let value: Value = match serde_json::from_slice(&manifest.spec) {
            Ok(value) => value,
            Err(error) => return mistake("not-json", error.to_string()),
        };
        let node = match (self.source.node, self.source.mapping) {
            (Some(node), _) => node.to_owned(),
            (None, Mapping::Namespace) if namespace.is_empty() => {
                let message = "there is no `metadata.namespace`, which names the node; or say --node";
                return mistake("no-node", message.to_owned());
            }
            (None, Mapping::Namespace) => namespace.to_owned(),
            (None, Mapping::Destination) => {
                match value.pointer("/spec/destination/name").and_then(Value::as_str) {
                    Some(node) if !node.is_empty() => node.to_owned(),
                    _ => {
                        let message =
                            "there is no `spec.destination.name`, which names the node; or say --node";
                        return mistake("no-node", message.to_owned());
                    }
                }
            }
        };
        let (namespace, name) = (namespace.to_owned(), manifest.key.name.to_string());
        let key = [node.clone(), kind.clone(), namespace.clone(), name.clone()];
        if let Some(first) = self.locations.get(&key) {
            let message = format!("{} of {node} stands at {first} already", manifest.key);
            return mistake("duplicate-object", message);
        }
        self.locations.insert(key, location.clone());
        let name = ObjectName { node, kind, namespace, name };
        self.given.push(ReadManifest { name, value, size: manifest.spec.len(), location });
    }
}

/// The mistakes of each document of a text that has any, read one by one: a line `---`
/// always ends a document. Each keeps its lines.
fn of_documents(text: &[u8]) -> Vec<ReadManifestError> {
    let mut found = Vec::new();
    let (mut begin, mut lines_before, mut lines) = (0, 0, 0);
    let mut one = |begin: usize, end: usize, lines_before: usize| {
        let mut padded = vec![b'\n'; lines_before];
        padded.extend_from_slice(&text[begin..end]);
        found.extend(manifest::mistakes(&padded, Format::Yaml));
    };
    let mut at = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let mark =
            line.strip_prefix(b"---").is_some_and(|rest| rest.first().is_none_or(u8::is_ascii_whitespace));
        if mark && at > begin {
            one(begin, at, lines_before);
            (begin, lines_before) = (at, lines);
        }
        at += line.len();
        lines += 1;
    }
    one(begin, text.len(), lines_before);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str, mapping: Mapping) -> ManifestReading<'static> {
        let source = Source { files: &[], node: None, mapping };
        let mut reading =
            ManifestReading { source, given: vec![], mistakes: vec![], locations: BTreeMap::new() };
        reading.text("a.yaml", text.as_bytes(), Format::Yaml);
        reading
    }

    #[test]
    fn every_document_tells_its_mistake_with_its_line() {
        let text = "kind: App\nmetadata: {name: one, namespace: web-1}\n---\nkind: App\n---\n\
                    kind: 7\nmetadata: {name: x}\n---\nkind: App\nmetadata: {name: [1]}\n";
        let reading = read_text(text, Mapping::Namespace);
        let found: Vec<_> = reading.mistakes.iter().map(|it| (it.line.unwrap(), it.code)).collect();
        assert_eq!(found, [(3, "no-name"), (6, "not-a-text"), (10, "not-a-text")], "{:?}", reading.mistakes);
        let text = ReadError::Mistakes(reading.mistakes).to_string();
        assert!(text.starts_with("3 mistakes in manifests\n  a.yaml:3  no-name  "), "{text}");
    }

    #[test]
    fn a_manifest_finds_its_node() {
        let text = "kind: App\nmetadata: {name: one, namespace: web-1}\nspec: {destination: {name: web-2}}\n";
        let node = |mapping| read_text(text, mapping).given[0].name.node.clone();
        assert_eq!(node(Mapping::Namespace), "web-1");
        assert_eq!(node(Mapping::Destination), "web-2");
        for mapping in [Mapping::Namespace, Mapping::Destination] {
            let reading = read_text("kind: App\nmetadata: {name: one}\n", mapping);
            assert_eq!(reading.mistakes[0].code, "no-node");
        }
    }

    #[test]
    fn an_object_stands_in_one_place_of_all_files() {
        let mut reading =
            read_text("kind: App\nmetadata: {name: one, namespace: web-1}\n", Mapping::Namespace);
        reading.text("b.yaml", b"kind: App\nmetadata: {name: one, namespace: web-1}\n", Format::Yaml);
        assert_eq!(reading.mistakes[0].message, "App/web-1/one of web-1 stands at a.yaml:1 already");
    }

    #[test]
    fn a_directory_is_read_in_order_without_what_is_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, name: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{{\"kind\": \"App\", \"metadata\": {{\"name\": \"{name}\"}}}}"))
                .unwrap();
        };
        for (path, name) in
            [("b/two.yml", "two"), ("a.json", "one"), (".git/x.yaml", "hidden"), ("note.txt", "not")]
        {
            put(path, name);
        }
        let files = [dir.path().to_owned()];
        let source = Source { files: &files, node: Some("web-1"), mapping: Mapping::Namespace };
        let names: Vec<String> = read(&source).unwrap().into_iter().map(|given| given.name.name).collect();
        assert_eq!(names, ["one", "two"]);
        let nothing = Source { files: &[dir.path().join(".git")], ..source };
        assert!(matches!(read(&nothing), Ok(given) if given.len() == 1), "named by itself it is read");
    }
}
