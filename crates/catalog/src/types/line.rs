//! `line`: one line of a text file, the rest kept as it is.

use std::collections::BTreeMap;

use lang::Value;

use super::edited::VALIDATE;
use super::{Ensure, FILE_TIMEOUT_SECS, GROUP, MODE, OWNER, Ownership, STATE, Spec};
use crate::module::CommandLine;
use crate::module::OnRemove::Keep;
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, is_absent,
};

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "line",
    summary: "One line in a text file; every other line is kept as it is.",
    short: Short::Attribute("line"),
    attributes: &[
        STATE,
        Attribute::always("path", FieldKind::Path, "the file"),
        Attribute::required("line", FieldKind::Line, "the line, without its newline"),
        Attribute::new(
            "matching",
            FieldKind::Regex,
            "",
            "the last line that matches is replaced; with `state: absent` every such line goes",
        ),
        Attribute::new(
            "after",
            FieldKind::Regex,
            "",
            "a new line goes after the last line that matches, else at the end",
        ),
        Attribute::new(
            "create",
            FieldKind::Bool,
            "false",
            "make the file when it is missing; otherwise that is a failure. With `state: absent` the file goes \
             when nothing is left in it",
        ),
        VALIDATE,
        MODE,
        OWNER,
        GROUP,
    ],
    timeout_secs: FILE_TIMEOUT_SECS,
    on_remove: &[Keep],
    handler: false,
    guarded: false,
    example: "- line: PermitRootLogin no\n  path: /etc/ssh/sshd_config\n  matching: ^#?PermitRootLogin\n",
    manages: Manages::Part,
    removal: &[],
    rules,
    bind,
};

/// `line`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineSpec {
    /// Absolute path of the file.
    pub path: String,
    /// Present or absent.
    pub ensure: Ensure,
    /// The line, without its newline.
    pub line: String,
    /// Regular expression: the last line that matches is replaced (all are, for absent).
    pub matching: Option<String>,
    /// Regular expression: a new line goes after the last line that matches, else at the end.
    pub after: Option<String>,
    /// Make the file when it is missing; otherwise that is a failure.
    pub create: bool,
    /// Declared ownership.
    pub ownership: Ownership,
    /// Command that must succeed on the new file before it becomes visible.
    pub validate: Option<CommandLine>,
}

/// What is to go is named by the line itself or by `matching`.
fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let named = attributes.contains_key("line") || attributes.contains_key("matching");
    if named || !is_absent(attributes) {
        return Vec::new();
    }
    let help = "add `line:` (one line of text): the line, without its newline";
    vec![AttributeProblem::missing(None, "`line` needs `line`".to_owned(), help)]
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    Ok(Spec::Line(LineSpec {
        path: given.text_or_empty("path"),
        ensure: given.ensure(),
        line: given.text_or_empty("line"),
        matching: given.text("matching"),
        after: given.text("after"),
        create: given.bool("create"),
        ownership: given.ownership(),
        validate: given.command("validate"),
    }))
}
