//! `file`: bytes, mode, owner and group of a regular file.

use catalog::types::{Ensure, FileContent, FileSpec};
use model::{Digest, Edit, Fields, PathOwnership, PathState};

use super::system_directories::refuse_system_directory;
use super::{
    AccountLookup, DEFAULT_FILE_MODE, FieldDifference, content_field, mode_field, ownership_differs,
};

/// The bytes that an edit may show; what is absent is named by digest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bytes<'a> {
    /// What the file holds now.
    pub old: Option<&'a [u8]>,
    /// What it should hold.
    pub new: Option<&'a [u8]>,
}

/// Whether anything is to be done. Costs no allocation, so that a run that changes
/// nothing costs little more than looking.
pub fn differs(spec: &FileSpec, prior: &PathState, wanted: &PathOwnership) -> bool {
    match prior {
        PathState::Missing => spec.ensure == Ensure::Present,
        PathState::File { mode, uid, gid, .. } if spec.ensure == Ensure::Present => {
            writes(spec, prior) || ownership_differs(wanted, *mode, *uid, *gid)
        }
        _ => true,
    }
}

/// Whether the file's bytes are to be written (a new file's always are).
pub fn writes(spec: &FileSpec, prior: &PathState) -> bool {
    let differs = match prior {
        PathState::File { digest, .. } => content_differs(spec, digest),
        _ => true,
    };
    spec.ensure == Ensure::Present && differs
}

/// What differs between the declared file and what is there.
///
/// A symbolic link is replaced by the file, never written through.
///
/// # Errors
/// When what is there cannot be replaced by a file: a directory, a device, a FIFO.
pub fn assess(
    spec: &FileSpec,
    prior: &PathState,
    wanted: &PathOwnership,
    bytes: Bytes<'_>,
    names: &dyn AccountLookup,
) -> Result<Option<Edit<Fields>>, String> {
    if !differs(spec, prior, wanted) {
        return Ok(None);
    }
    match prior {
        PathState::Missing => {
            let mut edit = FieldDifference::default();
            let content = new_content(spec, bytes).unwrap_or_default();
            edit.field("content", None, Some(content));
            edit.new_ownership(wanted, DEFAULT_FILE_MODE, names);
            Ok(Some(Edit::Add { to: edit.to }))
        }
        PathState::File { digest, size, mode, uid, gid } => {
            let old = content_field(bytes.old, digest, *size);
            let mut edit = FieldDifference::default();
            if spec.ensure == Ensure::Absent {
                edit.field("content", Some(old), None);
                edit.field("mode", Some(mode_field(*mode)), None);
                edit.field("owner", Some(names.user(*uid)), None);
                edit.field("group", Some(names.group(*gid)), None);
                return Ok(Some(Edit::Remove { from: edit.from }));
            }
            if content_differs(spec, digest) {
                edit.field("content", Some(old), new_content(spec, bytes));
            }
            edit.ownership(wanted, Some((*mode, *uid, *gid)), names);
            Ok(edit.change())
        }
        PathState::Symlink { target } => symlink(spec, target, wanted, bytes, names).map(Some),
        PathState::Directory { empty, .. }
            if spec.in_the_way.replaces_directory(*empty) && spec.ensure == Ensure::Present =>
        {
            refuse_system_directory(&spec.path)?;
            let mut edit = FieldDifference::default();
            edit.replaced_directory(prior, "file");
            edit.field("content", None, Some(new_content(spec, bytes).unwrap_or_default()));
            edit.new_ownership(wanted, DEFAULT_FILE_MODE, names);
            Ok(edit.change())
        }
        PathState::Directory { .. } => {
            let forced = if spec.ensure == Ensure::Present { "; `force: true` removes it" } else { "" };
            Err(format!(
                "{} is a directory, not a file; move it away or declare a `directory` there{forced}",
                spec.path
            ))
        }
        PathState::Other { what } => {
            Err(format!("{} is {what}, not a file; it is left alone, remove it by hand", spec.path))
        }
    }
}

fn symlink(
    spec: &FileSpec,
    target: &str,
    wanted: &PathOwnership,
    bytes: Bytes<'_>,
    names: &dyn AccountLookup,
) -> Result<Edit<Fields>, String> {
    let mut edit = FieldDifference::default();
    if spec.ensure == Ensure::Absent {
        edit.field("target", Some(target.to_owned()), None);
        return Ok(Edit::Remove { from: edit.from });
    }
    let Some(content) = new_content(spec, bytes) else {
        return Err(format!(
            "{} is a symlink to {target}; say `content`, `source` or `template` to replace it by a file",
            spec.path
        ));
    };
    edit.field("type", Some("symlink".to_owned()), Some("file".to_owned()));
    edit.field("target", Some(target.to_owned()), None);
    edit.field("content", None, Some(content));
    edit.new_ownership(wanted, DEFAULT_FILE_MODE, names);
    Ok(Edit::Change { from: edit.from, to: edit.to })
}

fn content_differs(spec: &FileSpec, now: &Digest) -> bool {
    match &spec.content {
        Some(content) => content.digest() != *now,
        None => false,
    }
}

fn new_content(spec: &FileSpec, bytes: Bytes<'_>) -> Option<String> {
    match spec.content.as_ref()? {
        FileContent::Text { text, digest } => {
            Some(content_field(Some(text.as_bytes()), digest, text.len() as u64))
        }
        FileContent::Bytes { bytes, digest } => Some(content_field(Some(bytes), digest, bytes.len() as u64)),
        FileContent::Blob { digest, size } => Some(content_field(bytes.new, digest, *size)),
    }
}
