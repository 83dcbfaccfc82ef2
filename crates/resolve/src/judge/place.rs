//! Where in the fleet repo a part of a declaration stands that cannot be bound.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::module::CommandLine;
use converge::bind::{BindMistake, BindPart, GuardKind, TextPlace};
use lang::Value;

use crate::check::modules::module_file;
use crate::decl::module::ModuleDecl;
use crate::decl::resource::Placed;
use crate::exprs;
use crate::yaml::At;

/// A position in a file of the fleet repo.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeclaredPosition {
    pub(super) file: Arc<str>,
    pub(super) line: u32,
    pub(super) column: u32,
    pub(super) len: u32,
}

impl DeclaredPosition {
    pub(super) fn new(file: &str, at: At) -> DeclaredPosition {
        DeclaredPosition { file: file.into(), line: at.line, column: at.column, len: at.len }
    }

    pub(super) fn at(&self) -> At {
        At { line: self.line, column: self.column, len: self.len }
    }
}

/// A module with its text.
pub(super) struct ModuleSource<'d> {
    pub(super) name: &'d str,
    pub(super) decl: &'d ModuleDecl,
    pub(super) source: &'d str,
}

impl ModuleSource<'_> {
    /// The place of a mistake in a resource or handler, or in the module itself.
    pub(super) fn place(&self, placed: Option<&Placed>, mistake: &BindMistake) -> DeclaredPosition {
        let file = module_file(self.name);
        if let (BindPart::Template(name), Some(TextPlace::Line { line, column, len })) =
            (&mistake.part, mistake.place)
        {
            return DeclaredPosition {
                file: format!("modules/{}/templates/{name}", self.name).into(),
                line,
                column,
                len,
            };
        }
        let (at, text) = match placed {
            Some(placed) => of_resource(placed, &mistake.part),
            None => self.of_module(&mistake.part),
        };
        let at = match (mistake.place, text) {
            (Some(TextPlace::Bytes { offset, len }), Some(text)) => {
                exprs::locate(self.source, at, text, offset, len)
            }
            _ => at,
        };
        DeclaredPosition::new(&file, at)
    }

    /// The place of a part, and its text.
    pub(super) fn part(&self, placed: Option<&Placed>, part: &BindPart) -> DeclaredPosition {
        let mistake = BindMistake { part: part.clone(), message: String::new(), place: None };
        self.place(placed, &mistake)
    }

    fn of_module(&self, part: &BindPart) -> (At, Option<&str>) {
        match part {
            BindPart::When => (self.decl.when_at, self.decl.when.as_deref()),
            BindPart::Verify => (self.decl.verify_at, self.decl.verify.as_ref().and_then(text_of)),
            _ => (At { line: 1, column: 1, len: 1 }, None),
        }
    }
}

fn of_resource<'p>(placed: &'p Placed, part: &BindPart) -> (At, Option<&'p str>) {
    let resource = &placed.resource;
    let guard = |guard: &'p Option<CommandLine>| guard.as_ref().and_then(text_of);
    let (key, text) = match part {
        BindPart::Whole | BindPart::Verify | BindPart::Param(_) => return (placed.at, None),
        BindPart::Name => ("name", Some(resource.name.as_str())),
        BindPart::When => ("when", resource.when.as_deref()),
        BindPart::Foreach => ("foreach", resource.foreach.as_ref().and_then(Value::as_str)),
        BindPart::Guard(kind @ GuardKind::OnlyIf) => (kind.key(), guard(&resource.only_if)),
        BindPart::Guard(kind @ GuardKind::NotIf) => (kind.key(), guard(&resource.not_if)),
        BindPart::Attribute(name) => (name.as_str(), resource.attributes.get(name).and_then(Value::as_str)),
        BindPart::Template(_) => ("template", None),
    };
    (position(&placed.attributes, key).unwrap_or(placed.at), text)
}

fn position(attributes: &BTreeMap<String, At>, key: &str) -> Option<At> {
    attributes.get(key).copied()
}

/// The text of a command, if it is one text.
fn text_of(command: &CommandLine) -> Option<&str> {
    match command {
        CommandLine::Shell(text) => Some(text),
        CommandLine::Argv(_) => None,
    }
}
