//! `symlink`: a symbolic link.

use super::{Ensure, FILE_TIMEOUT_SECS, FORCE, InTheWay, STATE, Spec, no_rules};
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{Attribute, FieldKind, Manages, ResourceAttributes, ResourceType, Short};

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
    rules: no_rules,
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
    /// What becomes of something of another kind in its place.
    pub in_the_way: InTheWay,
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    Ok(Spec::Symlink(SymlinkSpec {
        path: given.name(),
        ensure: given.ensure(),
        target: given.text_or_empty("target"),
        in_the_way: InTheWay::declared(given),
    }))
}
