//! `group`: a group of the host's own files.

use std::collections::BTreeMap;

use lang::Value;
use model::Fields;
use model::sort::SortCompactly;

use super::account::{account_name_problem, group_names_problem};
use super::{COMMAND_TIMEOUT_SECS, Ensure, STATE, Spec, StateSpec};
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, literal,
    literals,
};

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "group",
    summary: "A group in `/etc/group`, kept by the tools of the shadow suite. One that is the primary group of \
              a user is not removed; one of the system (a gid below 1000) only with `system: true`.",
    short: Short::Name,
    attributes: &[
        STATE,
        Attribute::new(
            "gid",
            FieldKind::Int(0, 4_294_967_294),
            "",
            "its number; refused when another group has it",
        ),
        Attribute::new("members", FieldKind::List, "", "names of users that are in it"),
        Attribute::new(
            "append",
            FieldKind::Bool,
            "true",
            "`members` are added to those that it has; `false`: all others leave it",
        ),
        Attribute::new(
            "system",
            FieldKind::Bool,
            "false",
            "a new group gets a gid of the system's range; and such a one may be removed",
        ),
    ],
    timeout_secs: COMMAND_TIMEOUT_SECS,
    on_remove: &[Keep, Delete, Restore],
    handler: false,
    guarded: false,
    example: "- group: deployers\n  system: true\n  members: [root]\n",
    manages: Manages::State,
    removal: &["system"],
    rules,
    bind,
};

/// `group`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// Its name.
    pub name: String,
    /// Present or absent.
    pub ensure: Ensure,
    /// Its number.
    pub gid: Option<u32>,
    /// Names of users that are in it, sorted, each once.
    pub members: Option<Vec<String>>,
    /// Users that are not in `members` leave it.
    pub exclusive: bool,
    /// It is a group of the system.
    pub system: bool,
}

impl StateSpec for GroupSpec {
    fn ensure(&self) -> Ensure {
        self.ensure
    }

    fn declared(&self) -> Fields {
        let mut fields = Fields::new();
        fields.extend(self.gid.map(|gid| ("gid".to_owned(), gid.to_string())));
        fields.extend(self.members.as_ref().map(|members| ("members".to_owned(), members.join(" "))));
        fields
    }
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let mut found = Vec::new();
    found.extend(literal(attributes, "name").and_then(|name| account_name_problem("name", name)));
    found.extend(group_names_problem("members", literals(attributes, "members")));
    if attributes.contains_key("append") && !attributes.contains_key("members") {
        let message = "`append` says what becomes of users that `members` does not name".to_owned();
        found.push(AttributeProblem::conflict("append", message, "add `members`, or drop it"));
    }
    found
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let members = given.list("members").map(|mut members| {
        members.sort_compactly();
        members.dedup();
        members
    });
    let gid = given.int("gid").map(u32::try_from).transpose().map_err(|_| "gid is too large")?;
    Ok(Spec::Group(GroupSpec {
        name: given.name(),
        ensure: given.ensure(),
        gid,
        members,
        exclusive: given.flag("append") == Some(false),
        system: given.bool("system"),
    }))
}
