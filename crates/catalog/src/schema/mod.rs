//! What declares a resource type: its attributes, their kinds, and the rules between them.
//!
//! Each type declares itself in a file of [`crate::types`]; `muster check`, binding on the node
//! and the generated reference read those declarations through this module.

mod attributes;
mod bind;
mod keys;
mod markdown;
mod read;
mod rules;

use std::borrow::Cow;
use std::collections::BTreeMap;

use lang::Value;

pub use attributes::{BindContext, ResourceAttributes};
pub use bind::{bind, bind_removal};
pub use keys::{COMMON, LATER_TYPES};
pub use markdown::markdown;
pub use read::command;
pub use rules::{AttributeProblem, ProblemKind, check};
pub(crate) use rules::{is_absent, literal, literals};

use crate::module::OnRemove;
use crate::own_paths::normalized;
use crate::params;
use crate::types::{Spec, TYPES};

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
    /// What of the host it manages.
    pub manages: Manages,
    /// The attributes that the ledger keeps, so that the node can undo the resource when its
    /// declaration is gone. None for types whose path says it all.
    pub removal: &'static [&'static str],
    /// The rules between its attributes, beside what the table says. With [`Short::Name`] they see the
    /// resource's name too, as `name`.
    pub rules: fn(&BTreeMap<String, Value>) -> Vec<AttributeProblem>,
    /// Reads its evaluated attributes.
    pub bind: fn(&ResourceAttributes<'_>) -> Result<Spec, String>,
}

/// What of the host a type manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manages {
    /// All that is at the path that the resource is named after.
    Path,
    /// A part of the file at `path:`.
    Part,
    /// A thing of the host that has a state: it is observed, compared and set as named texts.
    State,
    /// Nothing that can be looked at: a command or a script that does something.
    Effect,
}

/// When an attribute must be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It may be left out.
    Optional,
    /// Unless the resource is `state: absent`.
    UnlessAbsent,
    /// Always.
    Always,
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
    /// When it must be given.
    pub need: Need,
    /// What holds without it, for the reference; empty when nothing does.
    pub default: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// Its value may be a secret: what shows resources shows that it changes, and not what it is.
    pub may_be_secret: bool,
    /// A secret of the fleet may stand in it (SEC-3): what the type does with it leaves it nowhere but where it is
    /// meant to be.
    pub takes_secret: bool,
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
    /// Anything.
    Value,
    /// A list of exit codes.
    Codes,
    /// A whole number from the first to the second.
    Int(i64, i64),
    /// A list of texts of one line each; one text stands for a list of one.
    List,
    /// A duration such as `90s` or `5m`, in whole seconds.
    Duration,
    /// An `http://` or `https://` address.
    Url,
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
            FieldKind::Value => "any value".into(),
            FieldKind::Codes => "list of exit codes".into(),
            FieldKind::Int(i64::MIN, i64::MAX) => "int".into(),
            FieldKind::Int(least, i64::MAX) => format!("int, at least {least}"),
            FieldKind::Int(least, most) => format!("int, {least} to {most}"),
            FieldKind::List => "list of texts".into(),
            FieldKind::Duration => "duration".into(),
            FieldKind::Url => "URL".into(),
            FieldKind::Sha256 => "SHA-256 in hex".into(),
            FieldKind::Source => "name below `files/`".into(),
            FieldKind::Template => "name below `templates/`".into(),
            FieldKind::Script => "path below `executors/`, or absolute path".into(),
        }
    }
}

impl Attribute {
    /// An attribute that may be left out; `default` is what holds then, for the reference.
    pub(crate) const fn new(
        name: &'static str,
        kind: FieldKind,
        default: &'static str,
        summary: &'static str,
    ) -> Attribute {
        Attribute {
            name,
            kind,
            need: Need::Optional,
            default,
            summary,
            may_be_secret: false,
            takes_secret: false,
        }
    }

    /// An attribute that must be given unless the resource is `state: absent`.
    pub(crate) const fn required(name: &'static str, kind: FieldKind, summary: &'static str) -> Attribute {
        Attribute { need: Need::UnlessAbsent, ..Attribute::new(name, kind, "", summary) }
    }

    /// An attribute that must be given whatever `state:` says.
    pub(crate) const fn always(name: &'static str, kind: FieldKind, summary: &'static str) -> Attribute {
        Attribute { need: Need::Always, ..Attribute::new(name, kind, "", summary) }
    }

    /// Its value may be a secret.
    pub(crate) const fn secret(self) -> Attribute {
        Attribute { may_be_secret: true, ..self }
    }

    /// A secret of the fleet may stand in it.
    pub(crate) const fn takes_secret(self) -> Attribute {
        Attribute { takes_secret: true, ..self }
    }
}

impl ResourceType {
    /// A resource's name as it is known by: of a type that is named after a path, the path with one way to write it.
    /// `/etc//motd` is `/etc/motd`: two names would be two owners of one file. What is no right path stays as it is, to be
    /// refused.
    pub fn canonical_name<'n>(&self, name: &'n str) -> Cow<'n, str> {
        let is_path = self.manages == Manages::Path && self.short == Short::Path;
        if is_path && name.contains("//") && !name.ends_with('/') && params::path(name).is_ok() {
            normalized(name)
        } else {
            Cow::Borrowed(name)
        }
    }

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
    TYPES.iter().copied().find(|kind| kind.name == name)
}
