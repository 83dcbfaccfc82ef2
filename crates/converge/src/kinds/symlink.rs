//! `symlink`: a symbolic link and what it points to.

use catalog::spec::{Ensure, SymlinkSpec};
use model::{Edit, Fields};

use super::{Difference, Prior, content_field};

/// What differs between the declared link and what is there. `old` holds the bytes of a
/// regular file that the link replaces, where they are known.
///
/// # Errors
/// When what is there is no link and may not be replaced: a directory, a device, a
/// FIFO, or, for `state: absent`, a file.
pub fn assess(spec: &SymlinkSpec, prior: &Prior, old: Option<&[u8]>) -> Result<Option<Edit<Fields>>, String> {
    let mut edit = Difference::default();
    let wanted = || Some(spec.target.clone());
    match (spec.ensure, prior) {
        (Ensure::Absent, Prior::Missing) => Ok(None),
        (Ensure::Present, Prior::Symlink { target }) if *target == spec.target => Ok(None),
        (Ensure::Present, Prior::Missing) => {
            edit.field("target", None, wanted());
            Ok(Some(Edit::Add { to: edit.to }))
        }
        (Ensure::Present, Prior::Symlink { target }) => {
            edit.field("target", Some(target.clone()), wanted());
            Ok(edit.change())
        }
        (Ensure::Present, Prior::File { digest, size, .. }) => {
            edit.field("type", Some("file".to_owned()), Some("symlink".to_owned()));
            edit.field("content", Some(content_field(old, digest, *size)), None);
            edit.field("target", None, wanted());
            Ok(edit.change())
        }
        (Ensure::Absent, Prior::Symlink { target }) => {
            edit.field("target", Some(target.clone()), None);
            Ok(Some(Edit::Remove { from: edit.from }))
        }
        (Ensure::Absent, Prior::File { .. }) | (_, Prior::Directory { .. } | Prior::Other { .. }) => {
            Err(format!("{} is not a symlink ({}); it is left alone, move it away", spec.path, prior.what()))
        }
    }
}
