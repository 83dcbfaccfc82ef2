//! `symlink`: a symbolic link.

use std::collections::BTreeMap;

use lang::Value;

use super::{Ensure, FILE_TIMEOUT_SECS, FORCE, STATE, Spec};
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ProblemKind, ResourceAttributes, ResourceType, Short,
    literal,
};

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "symlink",
    summary: "A symbolic link.",
    short: Short::Path,
    attributes: &[
        STATE,
        Attribute::required("target", FieldKind::Text, "what the link points to; it need not exist"),
        FORCE,
    ],
    timeout_secs: FILE_TIMEOUT_SECS,
    on_remove: &[Keep, Delete, Restore],
    handler: false,
    guarded: false,
    example: "- symlink: /etc/localtime\n  target: /usr/share/zoneinfo/Europe/Paris\n",
    manages: Manages::Path,
    removal: &[],
    rules,
    bind,
};

/// `symlink`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymlinkSpec {
    /// Absolute path of the link.
    pub path: String,
    /// Present or absent.
    pub ensure: Ensure,
    /// What it points to, as text.
    pub target: String,
    /// A directory in its place is removed.
    pub force: bool,
}

/// A link to nothing at all cannot be made.
fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let empty = literal(attributes, "target").is_some_and(str::is_empty);
    let problem = || AttributeProblem {
        attribute: Some("target".to_owned()),
        kind: ProblemKind::Value,
        message: "a link points to something, and this text is empty".to_owned(),
        help: Some("write a path; it need not exist".to_owned()),
    };
    empty.then(problem).into_iter().collect()
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    Ok(Spec::Symlink(SymlinkSpec {
        path: given.name(),
        ensure: given.ensure(),
        target: given.text_or_empty("target"),
        force: given.bool("force"),
    }))
}
