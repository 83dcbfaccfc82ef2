//! The declaration of every resource type: one table for `muster check`, for binding on
//! the node and for the generated reference.

mod bind;
mod markdown;
mod read;
mod rules;
mod table;

pub use bind::bind;
pub use markdown::markdown;
pub use read::command;
pub use rules::{AttributeProblem, ProblemKind, check};
pub use table::{COMMON, LATER_TYPES, TYPES};

use crate::module::OnRemove;

/// The longest `timeout:`, in seconds: a day.
pub const MAX_TIMEOUT_SECS: u32 = 24 * 3600;

/// A resource type.
#[derive(Clone, Copy, Debug)]
pub struct ResourceType {
    /// Its name, as `type:` and the short form use it.
    pub name: &'static str,
    /// What it manages, in one sentence.
    pub summary: &'static str,
    /// What the value of the short form (`name: VALUE`) is.
    pub short: Short,
    /// Its own attributes.
    pub attributes: &'static [Attribute],
    /// Seconds after which its commands are killed, unless `timeout:` says otherwise.
    pub timeout_secs: u32,
    /// What may happen when it leaves a node's set; the first is the default.
    pub on_remove: &'static [OnRemove],
    /// It may be a handler.
    pub handler: bool,
    /// Outside handlers it needs `creates`, `unless`, `onlyif` or `always: true`.
    pub guarded: bool,
    /// A working example in YAML, as an item of `resources:`.
    pub example: &'static str,
}

/// What the value of the short form is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    /// The resource's name, which is an absolute path.
    Path,
    /// The resource's name.
    Name,
    /// This attribute; the name is `name:`, or made of the attributes.
    Attribute(&'static str),
}

/// An attribute of a type.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// Its key.
    pub name: &'static str,
    /// What its value is.
    pub kind: FieldKind,
    /// It must be given, unless `state: absent`.
    pub required: bool,
    /// What holds without it, for the reference; empty when nothing does.
    pub default: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
}

/// What an attribute's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// Any text.
    Text,
    /// One line of text.
    Line,
    /// An absolute path.
    Path,
    /// Permission bits in octal.
    Mode,
    /// true/false, yes/no, on/off.
    Bool,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A user's or group's name or number.
    Account,
    /// A list of program and arguments.
    Argv,
    /// A text for `/bin/sh -c`.
    Shell,
    /// A list of program and arguments, or a text for `/bin/sh -c`.
    Command,
    /// A regular expression.
    Regex,
    /// A map of texts.
    Texts,
    /// A map of anything.
    Values,
    /// A list of exit codes.
    Codes,
    /// A SHA-256 in hex.
    Sha256,
    /// A name below the module's `files/`.
    Source,
    /// A name below the module's `templates/`.
    Template,
    /// A path below the module's `executors/`, or an absolute path on the host.
    Script,
}

impl FieldKind {
    /// How the reference and messages call it.
    pub fn describe(&self) -> String {
        match self {
            FieldKind::Text => "text".into(),
            FieldKind::Line => "one line of text".into(),
            FieldKind::Path => "absolute path".into(),
            FieldKind::Mode => "octal mode".into(),
            FieldKind::Bool => "bool".into(),
            FieldKind::Word(words) => {
                words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ")
            }
            FieldKind::Account => "name or number".into(),
            FieldKind::Argv => "argv list".into(),
            FieldKind::Shell => "shell text".into(),
            FieldKind::Command => "argv list or shell text".into(),
            FieldKind::Regex => "regular expression".into(),
            FieldKind::Texts => "map of texts".into(),
            FieldKind::Values => "map".into(),
            FieldKind::Codes => "list of exit codes".into(),
            FieldKind::Sha256 => "SHA-256 in hex".into(),
            FieldKind::Source => "name below `files/`".into(),
            FieldKind::Template => "name below `templates/`".into(),
            FieldKind::Script => "path below `executors/`, or absolute path".into(),
        }
    }
}

impl ResourceType {
    /// The attribute of that name.
    pub fn attribute(&self, name: &str) -> Option<&'static Attribute> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }

    /// What happens when it leaves a node's set and `on_remove:` says nothing.
    pub fn default_on_remove(&self) -> OnRemove {
        self.on_remove.first().copied().unwrap_or(OnRemove::Keep)
    }
}

/// The type of that name.
pub fn find(name: &str) -> Option<&'static ResourceType> {
    TYPES.iter().find(|kind| kind.name == name)
}
