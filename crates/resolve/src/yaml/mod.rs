//! YAML as the fleet repo uses it: maps, lists and texts, each with its position.
//!
//! What YAML would guess is not guessed here: a scalar keeps its raw text, and the reader
//! of the field decides what it means. Tags, anchors, aliases, several documents and keys
//! that are no text are refused, so no file can expand to more than was written.

mod read;
mod value;

pub(crate) use read::{read, text};
pub(crate) use value::value_of;

/// The largest YAML file, in bytes.
pub const MAX_FILE: usize = 8 * 1024 * 1024;
/// The deepest nesting.
pub const MAX_DEPTH: usize = 32;
/// The most maps, lists and texts in one file.
pub const MAX_NODES: usize = 2_000_000;

/// A position in a file: line and column from 1, and how many characters are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct At {
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) len: u32,
}

/// A thing and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spanned<T> {
    pub(crate) value: T,
    pub(crate) at: At,
}

/// A part of a YAML document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct YamlNode {
    pub(crate) at: At,
    pub(crate) kind: YamlKind,
}

/// What a [`YamlNode`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum YamlKind {
    /// Text as written; `plain` when no quotes and no block style say that it is text.
    Text { text: String, plain: bool },
    /// A list.
    List(Vec<YamlNode>),
    /// A map in the order of the file; keys are unique.
    Map(Vec<(Spanned<String>, YamlNode)>),
    /// Something refused and already reported: whoever meets it says nothing more.
    Bad,
}

impl YamlNode {
    /// How messages call it.
    pub(crate) fn describe(&self) -> &'static str {
        match &self.kind {
            YamlKind::Text { text, plain: true } if text.is_empty() => "nothing",
            YamlKind::Text { .. } => "text",
            YamlKind::List(_) => "a list",
            YamlKind::Map(_) => "a map",
            YamlKind::Bad => "something refused",
        }
    }

    pub(crate) fn is_bad(&self) -> bool {
        matches!(self.kind, YamlKind::Bad)
    }

    /// A key with nothing after it.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(&self.kind, YamlKind::Text { text, plain: true } if text.is_empty())
    }
}
