//! `download`: a file whose bytes come from a URL.

use catalog::types::{DownloadSpec, Ensure};
use model::{Edit, Fields, PathOwnership, PathState};

use super::{AccountLookup, DEFAULT_FILE_MODE, FieldDifference, ownership_differs};

/// Whether its bytes must be fetched.
pub fn fetches(spec: &DownloadSpec, prior: &PathState) -> bool {
    let right = matches!(prior, PathState::File { digest, .. } if *digest == spec.digest);
    spec.ensure == Ensure::Present && !right
}

/// What differs between the declared file and what is there.
///
/// # Errors
/// When a directory, or something that is no file, stands in its place.
pub fn assess(
    spec: &DownloadSpec,
    prior: &PathState,
    wanted: &PathOwnership,
    names: &dyn AccountLookup,
) -> Result<Option<Edit<Fields>>, String> {
    let mut edit = FieldDifference::default();
    let content = |digest: &model::Digest| format!("sha256:{}", digest.short());
    match (spec.ensure, prior) {
        (_, PathState::Directory { .. } | PathState::Other { .. }) => {
            Err(format!("{} is not a regular file ({}); it is left alone", spec.path, prior.what()))
        }
        (Ensure::Absent, PathState::Missing) => Ok(None),
        (Ensure::Absent, PathState::File { digest, .. }) => {
            edit.field("content", Some(content(digest)), None);
            Ok(Some(Edit::Remove { from: edit.from }))
        }
        (Ensure::Absent, PathState::Symlink { target }) => {
            edit.field("target", Some(target.clone()), None);
            Ok(Some(Edit::Remove { from: edit.from }))
        }
        (Ensure::Present, PathState::File { digest, mode, uid, gid, .. }) => {
            if *digest != spec.digest {
                let to = format!("{} from {}", content(&spec.digest), spec.from.url);
                edit.field("content", Some(content(digest)), Some(to));
            }
            if ownership_differs(wanted, *mode, *uid, *gid) {
                edit.ownership(wanted, Some((*mode, *uid, *gid)), names);
            }
            Ok(edit.change())
        }
        (Ensure::Present, PathState::Missing | PathState::Symlink { .. }) => {
            edit.field("content", None, Some(format!("{} from {}", content(&spec.digest), spec.from.url)));
            edit.new_ownership(wanted, DEFAULT_FILE_MODE, names);
            match prior {
                PathState::Symlink { target } => {
                    edit.field("target", Some(target.clone()), None);
                    Ok(edit.change())
                }
                _ => Ok(Some(Edit::Add { to: edit.to })),
            }
        }
    }
}
