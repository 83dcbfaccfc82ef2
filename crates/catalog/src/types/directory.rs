//! `directory`: a directory, without what is in it.

use super::{Ensure, FILE_TIMEOUT_SECS, GROUP, MODE, OWNER, Ownership, STATE, Spec, no_rules};
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{Attribute, Attributes, FieldKind, Manages, ResourceType, Short};

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "directory",
    summary: "A directory: its mode and its owner. Parents are not made by themselves; declare them.",
    short: Short::Path,
    attributes: &[
        STATE,
        MODE,
        OWNER,
        GROUP,
        Attribute::new("recurse", FieldKind::Bool, "false", "`state: absent` removes what is inside too"),
    ],
    timeout_secs: FILE_TIMEOUT_SECS,
    on_remove: &[Keep, Delete, Restore],
    handler: false,
    guarded: false,
    example: "- directory: /etc/nginx/conf.d\n  mode: \"0755\"\n",
    manages: Manages::Path,
    removal: &[],
    rules: no_rules,
    bind,
};

/// `directory`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectorySpec {
    /// Absolute path.
    pub path: String,
    /// Present or absent (only an empty directory is ever removed unless `recurse`).
    pub ensure: Ensure,
    /// Wanted ownership.
    pub ownership: Ownership,
    /// `state: absent` removes what is inside too.
    pub recurse: bool,
}

fn bind(given: &Attributes<'_>) -> Result<Spec, String> {
    Ok(Spec::Directory(DirectorySpec {
        path: given.name(),
        ensure: given.ensure(),
        ownership: given.ownership(),
        recurse: given.bool("recurse"),
    }))
}
