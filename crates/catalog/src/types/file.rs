//! `file`: a regular file.

use std::collections::BTreeMap;

use lang::Value;

use super::{
    Ensure, FILE_TIMEOUT_SECS, FORCE, FileContent, GROUP, InTheWay, MODE, OWNER, Ownership, STATE, Spec,
};
use crate::module::CommandLine;
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, is_absent,
};

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "file",
    summary: "A regular file: its bytes, its mode, its owner.",
    short: Short::Path,
    attributes: &[
        STATE,
        Attribute::new("content", FieldKind::Text, "", "the bytes, inline; `${{ }}` is evaluated")
            .takes_secret(),
        Attribute::new(
            "source",
            FieldKind::Source,
            "",
            "the bytes, from a file of the module; never rendered",
        ),
        Attribute::new(
            "template",
            FieldKind::Template,
            "",
            "the bytes, from a template of the module; sees params, vars, traits, node",
        )
        .takes_secret(),
        MODE,
        OWNER,
        GROUP,
        Attribute::new(
            "validate",
            FieldKind::Command,
            "",
            "must succeed before the new bytes become visible; `%s` is the path of the temporary file",
        ),
        Attribute::new(
            "backup",
            FieldKind::Bool,
            "false",
            "keep the previous bytes beside the file, as `NAME.muster-backup`",
        ),
        FORCE,
    ],
    timeout_secs: FILE_TIMEOUT_SECS,
    on_remove: &[Keep, Delete, Restore],
    handler: false,
    guarded: false,
    example: "- file: /etc/motd\n  template: motd.j2\n  mode: \"0644\"\n  owner: root\n",
    manages: Manages::Path,
    removal: &[],
    rules,
    bind,
};

/// `file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Absolute path under the host root.
    pub path: String,
    /// Present or absent.
    pub ensure: Ensure,
    /// Declared bytes; `None` leaves the content as it is (the file is made empty if missing).
    pub content: Option<FileContent>,
    /// Declared ownership.
    pub ownership: Ownership,
    /// Command that must succeed on the new bytes before they become visible; `%s`
    /// stands for the temporary file's path.
    pub validate: Option<CommandLine>,
    /// Keep the previous bytes beside the file as `NAME.muster-backup`.
    pub backup: bool,
    /// What becomes of something of another kind in its place.
    pub in_the_way: InTheWay,
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let bodies: Vec<&str> =
        ["content", "source", "template"].into_iter().filter(|key| attributes.contains_key(*key)).collect();
    let mut found = Vec::new();
    if let [first, second, ..] = bodies.as_slice() {
        let message = format!("`{first}` and `{second}` both say what the file holds");
        found.push(AttributeProblem::conflict(second, message, "keep one of content, source and template"));
    }
    if let (true, Some(body)) = (is_absent(attributes), bodies.first()) {
        let message = format!("a file that is absent holds no `{body}`");
        found.push(AttributeProblem::conflict(body, message, "drop it, or drop `state: absent`"));
    }
    found
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    Ok(Spec::File(FileSpec {
        path: given.name(),
        ensure: given.ensure(),
        content: given.content()?,
        ownership: given.ownership(),
        validate: given.command("validate"),
        backup: given.bool("backup"),
        in_the_way: InTheWay::declared(given),
    }))
}
