//! `symlink`: a symbolic link and what it points to.

use catalog::types::{Ensure, SymlinkSpec};
use model::{Edit, Fields, PathState};

use super::system_directories::refuse_system_directory;
use super::{FieldDifference, content_field};

/// What differs between the declared link and what is there. `old` holds the bytes of a
/// regular file that the link replaces, where they are known.
///
/// # Errors
/// When what is there is no link and may not be replaced: a directory, a device, a
/// FIFO, or, for `state: absent`, a file.
pub fn assess(
    spec: &SymlinkSpec,
    prior: &PathState,
    old: Option<&[u8]>,
) -> Result<Option<Edit<Fields>>, String> {
    let mut edit = FieldDifference::default();
    let wanted = || Some(spec.target.clone());
    match (spec.ensure, prior) {
        (Ensure::Absent, PathState::Missing) => Ok(None),
        (Ensure::Present, PathState::Symlink { target }) if *target == spec.target => Ok(None),
        (Ensure::Present, PathState::Missing) => {
            edit.field("target", None, wanted());
            Ok(Some(Edit::Add { to: edit.to }))
        }
        (Ensure::Present, PathState::Symlink { target }) => {
            edit.field("target", Some(target.clone()), wanted());
            Ok(edit.change())
        }
        (Ensure::Present, PathState::File { digest, size, .. }) => {
            edit.field("type", Some("file".to_owned()), Some("symlink".to_owned()));
            edit.field("content", Some(content_field(old, digest, *size)), None);
            edit.field("target", None, wanted());
            Ok(edit.change())
        }
        (Ensure::Present, PathState::Directory { empty, .. })
            if spec.in_the_way.replaces_directory(*empty) =>
        {
            refuse_system_directory(&spec.path)?;
            edit.replaced_directory(prior, "symlink");
            edit.field("target", None, wanted());
            Ok(edit.change())
        }
        (Ensure::Present, PathState::Directory { .. }) => Err(format!(
            "{} is a directory, not a symlink; move it away, or say `force: true` to remove it",
            spec.path
        )),
        (Ensure::Absent, PathState::Symlink { target }) => {
            edit.field("target", Some(target.clone()), None);
            Ok(Some(Edit::Remove { from: edit.from }))
        }
        (Ensure::Absent, PathState::File { .. })
        | (_, PathState::Directory { .. } | PathState::Other { .. }) => {
            Err(format!("{} is not a symlink ({}); it is left alone, move it away", spec.path, prior.what()))
        }
    }
}
