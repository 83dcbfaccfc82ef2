//! [`Locator`]: where a part of a YAML file stands.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::parse::Files;
use crate::sink::FileSink;
use crate::yaml::{self, At, YamlKind, YamlNode};

/// A place of a fleet repo.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RepoSource {
    /// The file, relative to the top of the repo.
    pub file: String,
    /// The line, from 1; a file as a whole has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

impl RepoSource {
    pub(super) fn at(file: &str, at: At) -> RepoSource {
        RepoSource { file: file.to_owned(), line: (at.line > 0).then_some(at.line) }
    }

    pub(super) fn file(file: &str) -> RepoSource {
        RepoSource { file: file.to_owned(), line: None }
    }
}

impl fmt::Display for RepoSource {
    /// `FILE:LINE`, as editors and compilers write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

/// A step into a YAML document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum YamlStep<'k> {
    Key(&'k str),
    Item(usize),
}

impl<'k> From<&'k str> for YamlStep<'k> {
    fn from(key: &'k str) -> YamlStep<'k> {
        YamlStep::Key(key)
    }
}

impl From<usize> for YamlStep<'_> {
    fn from(item: usize) -> Self {
        YamlStep::Item(item)
    }
}

/// Reads the files that positions are asked of, each once.
pub(super) struct Locator<'r> {
    files: &'r Files,
    read: BTreeMap<String, Option<YamlNode>>,
}

impl<'r> Locator<'r> {
    pub(super) fn new(files: &'r Files) -> Locator<'r> {
        Locator { files, read: BTreeMap::new() }
    }

    /// Where a part stands: its key, or the item; as near as it can be found.
    pub(super) fn find(&mut self, file: &str, path: &[YamlStep<'_>]) -> RepoSource {
        let Some(mut node) = self.root(file) else { return RepoSource::file(file) };
        let mut at = None;
        for step in path {
            let next = match (step, &node.kind) {
                (YamlStep::Key(name), YamlKind::Map(entries)) => {
                    let found = entries.iter().find(|(key, _)| key.value == *name);
                    found.map(|(key, value)| (key.at, value))
                }
                (YamlStep::Item(number), YamlKind::List(items)) => {
                    items.get(*number).map(|item| (item.at, item))
                }
                _ => None,
            };
            let Some((position, inner)) = next else { break };
            (at, node) = (Some(position), inner);
        }
        at.map_or_else(|| RepoSource::file(file), |at| RepoSource::at(file, at))
    }

    /// Where each key of a map stands.
    pub(super) fn keys(&mut self, file: &str, path: &[YamlStep<'_>]) -> BTreeMap<String, RepoSource> {
        let mut node = self.root(file);
        for step in path {
            node = match (step, node.map(|node| &node.kind)) {
                (YamlStep::Key(name), Some(YamlKind::Map(entries))) => {
                    entries.iter().find(|(key, _)| key.value == *name).map(|(_, value)| value)
                }
                (YamlStep::Item(number), Some(YamlKind::List(items))) => items.get(*number),
                _ => None,
            };
        }
        match node.map(|node| &node.kind) {
            Some(YamlKind::Map(entries)) => {
                entries.iter().map(|(key, _)| (key.value.clone(), RepoSource::at(file, key.at))).collect()
            }
            _ => BTreeMap::new(),
        }
    }

    fn root(&mut self, file: &str) -> Option<&YamlNode> {
        let bytes = self.files.get(file).map(|parsed| &parsed.file.bytes);
        let read = || yaml::read(bytes?, &mut FileSink::new(file));
        self.read.entry(file.to_owned()).or_insert_with(read).as_ref()
    }
}
