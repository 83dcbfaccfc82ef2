//! [`ResourceAttributes`]: the evaluated attributes of one resource, read by their kinds.

use std::collections::BTreeMap;

use lang::Value;
use model::Digest;
use model::collect::CollectInserting;

use super::read::{self, Read};
use super::{ResourceType, find, rules};
use crate::module::{CommandLine, FileRef};
use crate::types::{Ensure, FileContent, Ownership};

/// What a resource's attributes may refer to.
#[derive(Clone, Debug)]
pub struct BindContext<'a> {
    /// The module's files by path (`files/x`, `executors/y.sh`).
    pub files: &'a BTreeMap<String, FileRef>,
    /// The text of `template:`, if the resource has one.
    pub rendered: Option<String>,
}

/// The attributes that are given, for the `bind` function of a type.
#[derive(Debug)]
pub struct ResourceAttributes<'a> {
    name: &'a str,
    values: BTreeMap<&'static str, Read>,
    context: &'a BindContext<'a>,
}

impl<'a> ResourceAttributes<'a> {
    pub(super) fn read(
        kind: &ResourceType,
        name: &'a str,
        attributes: &BTreeMap<String, Value>,
        context: &'a BindContext<'a>,
    ) -> Result<ResourceAttributes<'a>, String> {
        let given = attributes.iter().filter_map(|(name, value)| Some((kind.attribute(name)?, value)));
        let values = given
            .map(|(a, value)| Ok((a.name, read::read(a.kind, value)?)))
            .try_collect_inserting::<_, String, _>()?;
        Ok(ResourceAttributes { name, values, context })
    }

    /// The resource's name.
    pub(crate) fn name(&self) -> String {
        self.name.to_owned()
    }

    /// Whether an attribute is given.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// A text, a path, a word, an account or a URL.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        match self.values.get(name)? {
            Read::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    /// As [`ResourceAttributes::text`]; an empty text where it is not given.
    pub(crate) fn text_or_empty(&self, name: &str) -> String {
        self.text(name).unwrap_or_default()
    }

    /// A bool; false where it is not given.
    pub(crate) fn bool(&self, name: &str) -> bool {
        self.flag(name) == Some(true)
    }

    /// A bool, where it is given.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        match self.values.get(name)? {
            Read::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// An int, or a duration in seconds.
    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        match self.values.get(name)? {
            Read::Int(int) => Some(*int),
            _ => None,
        }
    }

    /// A list of texts.
    pub(crate) fn list(&self, name: &str) -> Option<Vec<String>> {
        match self.values.get(name)? {
            Read::List(items) => Some(items.clone()),
            _ => None,
        }
    }

    /// A command.
    pub(crate) fn command(&self, name: &str) -> Option<CommandLine> {
        match self.values.get(name)? {
            Read::Command(command) => Some(command.clone()),
            _ => None,
        }
    }

    /// A map of texts; an empty one where it is not given.
    pub(crate) fn texts(&self, name: &str) -> BTreeMap<String, String> {
        match self.values.get(name) {
            Some(Read::Texts(texts)) => texts.clone(),
            _ => BTreeMap::new(),
        }
    }

    /// A map of values; an empty one where it is not given.
    pub(crate) fn values(&self, name: &str) -> BTreeMap<String, Value> {
        match self.values.get(name) {
            Some(Read::Values(values)) => values.clone(),
            _ => BTreeMap::new(),
        }
    }

    /// A value of any kind.
    pub(crate) fn value(&self, name: &str) -> Option<Value> {
        match self.values.get(name)? {
            Read::Value(value) => Some(value.clone()),
            _ => None,
        }
    }

    /// A list of exit codes.
    pub(crate) fn codes(&self, name: &str) -> Option<Vec<i32>> {
        match self.values.get(name)? {
            Read::Codes(codes) => Some(codes.clone()),
            _ => None,
        }
    }

    /// A SHA-256.
    pub(crate) fn digest(&self, name: &str) -> Option<Digest> {
        match self.values.get(name)? {
            Read::Digest(digest) => Some(*digest),
            _ => None,
        }
    }

    /// `state`: present where it is not given.
    pub(crate) fn ensure(&self) -> Ensure {
        if self.text("state").as_deref() == Some("absent") { Ensure::Absent } else { Ensure::Present }
    }

    /// Permission bits.
    pub(crate) fn mode(&self, name: &str) -> Option<u32> {
        match self.values.get(name)? {
            Read::Mode(mode) => Some(*mode),
            _ => None,
        }
    }

    /// `mode`, `owner` and `group`.
    pub(crate) fn ownership(&self) -> Ownership {
        Ownership { mode: self.mode("mode"), owner: self.text("owner"), group: self.text("group") }
    }

    /// A file of the module.
    ///
    /// # Errors
    /// When the module has none at this path.
    pub(crate) fn module_file(&self, path: &str) -> Result<&FileRef, String> {
        self.context.files.get(path).ok_or_else(|| format!("{path} is not in the module"))
    }

    /// The files of the module below a folder, by their path below it, in order.
    pub(crate) fn module_folder<'b>(
        &'b self,
        folder: &str,
    ) -> impl Iterator<Item = (&'b str, &'b FileRef)> + 'b {
        let prefix = format!("{}/", folder.trim_end_matches('/'));
        let from = self.context.files.range(prefix.clone()..);
        from.map_while(move |(path, file)| Some((path.strip_prefix(&prefix)?, file)))
    }

    /// The text of `template`.
    ///
    /// # Errors
    /// When it was not rendered.
    pub(crate) fn rendered(&self) -> Result<String, String> {
        let template = self.text_or_empty("template");
        self.context.rendered.clone().ok_or_else(|| format!("template {template} was not rendered"))
    }

    /// What `source`, `template` or `content` says, in this order.
    ///
    /// # Errors
    /// When the file is not in the module, or the template was not rendered.
    pub(crate) fn content(&self) -> Result<Option<FileContent>, String> {
        if let Some(source) = self.text("source") {
            let file = self.module_file(&format!("files/{source}"))?;
            return Ok(Some(FileContent::Blob { digest: file.digest, size: file.size }));
        }
        if self.is_given("template") {
            return self.rendered().map(|text| Some(FileContent::text(text)));
        }
        Ok(self.text("content").map(FileContent::text))
    }
}

/// The problems of evaluated attributes as one text.
pub(super) fn refuse(
    kind: &str,
    name: &str,
    attributes: &BTreeMap<String, Value>,
) -> Result<&'static ResourceType, String> {
    let kind = find(kind).ok_or_else(|| format!("this version has no resource type `{kind}`"))?;
    // Whether a command has a guard is `muster check`'s to say: here it may be a handler.
    let problems = rules::problems(kind, name, attributes, true, |_| false);
    if problems.is_empty() {
        return Ok(kind);
    }
    let all: Vec<String> = problems
        .into_iter()
        .map(|problem| match problem.attribute {
            Some(attribute) => format!("{attribute}: {}", problem.message),
            None => problem.message,
        })
        .collect();
    Err(all.join("; "))
}
