//! `directory`: that it is there, or not, and its mode, owner and group.

use catalog::types::{DirectorySpec, Ensure};
use model::{Edit, Fields, PathOwnership, PathState};

use super::system_directories::refuse_system_directory;
use super::{AccountLookup, DEFAULT_DIRECTORY_MODE, FieldDifference, mode_field, ownership_differs};

/// What differs between the declared directory and what is there.
///
/// A symbolic link to a directory is not one: it is an error, because what is below it
/// may be managed under its own name.
///
/// # Errors
/// When what is there is no directory, or one that is to go and is not empty while
/// `recurse` is not set.
pub fn assess(
    spec: &DirectorySpec,
    prior: &PathState,
    wanted: &PathOwnership,
    names: &dyn AccountLookup,
) -> Result<Option<Edit<Fields>>, String> {
    let mut edit = FieldDifference::default();
    match (spec.ensure, prior) {
        (Ensure::Absent, PathState::Missing) => Ok(None),
        (Ensure::Present, PathState::Missing) => {
            edit.new_ownership(wanted, DEFAULT_DIRECTORY_MODE, names);
            Ok(Some(Edit::Add { to: edit.to }))
        }
        (Ensure::Present, PathState::Directory { mode, uid, gid, .. }) => {
            if !ownership_differs(wanted, *mode, *uid, *gid) {
                return Ok(None);
            }
            edit.ownership(wanted, Some((*mode, *uid, *gid)), names);
            Ok(edit.change())
        }
        (Ensure::Absent, PathState::Directory { empty, mode, .. }) => {
            if !empty && !spec.recurse {
                return Err(format!(
                    "{} is not empty; say `recurse: true` to remove what is inside too",
                    spec.path
                ));
            }
            if !empty {
                refuse_system_directory(&spec.path)?;
            }
            edit.field("mode", Some(mode_field(*mode)), None);
            if !empty {
                edit.field("entries", Some("removed with everything inside".to_owned()), None);
            }
            Ok(Some(Edit::Remove { from: edit.from }))
        }
        (Ensure::Present, PathState::File { .. } | PathState::Symlink { .. })
            if spec.in_the_way.replaces() =>
        {
            refuse_system_directory(&spec.path)?;
            edit.field("type", Some(prior.what().to_owned()), Some("directory".to_owned()));
            if let PathState::Symlink { target } = prior {
                edit.field("target", Some(target.clone()), None);
            }
            edit.new_ownership(wanted, DEFAULT_DIRECTORY_MODE, names);
            Ok(edit.change())
        }
        (Ensure::Present, PathState::File { .. } | PathState::Symlink { .. }) => Err(format!(
            "{} is not a directory ({}); move it away, or say `force: true` to remove it",
            spec.path,
            prior.what()
        )),
        (_, PathState::File { .. } | PathState::Symlink { .. } | PathState::Other { .. }) => Err(format!(
            "{} is not a directory ({}); it is left alone, move it away",
            spec.path,
            prior.what()
        )),
    }
}
