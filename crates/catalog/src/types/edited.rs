//! [`EditedFile`]: the text file of which a resource manages a part.

use model::Fields;

use super::Ownership;
use crate::module::CommandLine;
use crate::schema::{Attribute, FieldKind, ResourceAttributes};

/// Whether a missing file is made.
pub(super) const CREATE: Attribute = Attribute::new(
    "create",
    FieldKind::Bool,
    "false",
    "make the file when it is missing; one that was made so goes with the last of its parts. With `state: \
     absent` the file goes when nothing is left in it. Otherwise a missing file is a failure",
);
/// What must accept the new file.
pub(super) const VALIDATE: Attribute = Attribute::new(
    "validate",
    FieldKind::Command,
    "",
    "must succeed on the whole new file before it becomes visible; `%s` is the path of the temporary file",
);
/// The text file of which a resource manages a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditedFile {
    /// Absolute path.
    pub path: String,
    /// It is made when it is missing; where the part is to be absent, it goes when nothing is left in it.
    pub create: bool,
    /// Declared ownership of the file.
    pub ownership: Ownership,
    /// Command that must succeed on the new file before it becomes visible.
    pub validate: Option<CommandLine>,
}

impl EditedFile {
    pub(super) fn read(given: &ResourceAttributes<'_>) -> EditedFile {
        EditedFile {
            path: given.text_or_empty("path"),
            create: given.bool("create"),
            ownership: given.ownership(),
            validate: given.command("validate"),
        }
    }

    /// Adds the declared mode, owner and group as texts.
    pub(super) fn declare(&self, fields: &mut Fields) {
        let Ownership { mode, owner, group } = &self.ownership;
        fields.extend(mode.map(|mode| ("mode".to_owned(), format!("{mode:04o}"))));
        fields.extend(owner.clone().map(|owner| ("owner".to_owned(), owner)));
        fields.extend(group.clone().map(|group| ("group".to_owned(), group)));
    }
}
