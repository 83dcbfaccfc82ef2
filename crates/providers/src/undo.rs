//! Keeping what was there, putting it back, and removing what left the set (CNV-10).

use std::io::Read;

use catalog::module::OnRemove;
use catalog::schema::{self, Manages};
use catalog::types::Spec;
use converge::Prior;
use converge::kinds::{Checked, DEFAULT_DIRECTORY_MODE, DEFAULT_FILE_MODE};
use converge::ledger::{LedgerEntry, MAX_KEPT};
use converge::run::Undo;
use host::{FileWrite, Host};
use model::{Digest, PathOwnership, PathState};
use zeroize::Zeroizing;

use crate::kinds::text;
use crate::{KeepBytesError, Kinds};

/// The largest file, in bytes, that may hold a secret: the most that a template comes to, and more.
const MAX_SEALED: u64 = 4 * 1024 * 1024;

/// What to know before a change: that the previous content will not be there to go back to.
pub(crate) fn undo_note(prior: &PathState) -> Option<String> {
    match prior {
        PathState::File { size, .. } if *size > MAX_KEPT => {
            Some(format!("cannot be undone: the previous content is over {} MiB", MAX_KEPT >> 20))
        }
        _ => None,
    }
}

impl Kinds {
    /// Puts the bytes that are at a resource's path, as its check saw them, into the blob
    /// store before they are changed; false where there are none, or they are over
    /// [`MAX_KEPT`].
    ///
    /// # Errors
    /// In words, when they cannot be kept or are not those that were checked: the change
    /// must not be made then.
    pub fn keep_prior(&self, spec: &Spec, checked: &Checked) -> Result<bool, String> {
        let (Some((path, _)), Prior::Path(PathState::File { digest, size, .. })) =
            (spec.managed(), &checked.prior)
        else {
            return Ok(false);
        };
        if *size > MAX_KEPT {
            return Ok(false);
        }
        let file = self.host.open_file(path).map_err(text)?;
        let file = file.ok_or_else(|| format!("{path} went away while it was looked at"))?;
        self.keep_prior_bytes(path, &mut file.take(MAX_KEPT), digest).map(|()| true)
    }

    /// What is at a path now, and whether its bytes are in the blob store, to go back to.
    ///
    /// # Errors
    /// In words, when it cannot be looked at or kept.
    pub fn keep_path(&self, path: &str) -> Result<(PathState, bool), String> {
        let state = self.look(path)?;
        let PathState::File { digest, size, .. } = &state else { return Ok((state, false)) };
        if *size > MAX_KEPT {
            return Ok((state, false));
        }
        let file = self.host.open_file(path).map_err(text)?;
        let file = file.ok_or_else(|| format!("{path} went away while it was looked at"))?;
        self.keep_prior_bytes(path, &mut file.take(MAX_KEPT), digest)?;
        Ok((state, true))
    }

    /// As [`Kinds::keep_path`], of a file that may hold a secret: its bytes are kept sealed (SEC-3).
    ///
    /// # Errors
    /// In words, when it cannot be read or kept, or there is no key to seal with.
    pub fn keep_path_sealed(&self, path: &str) -> Result<(PathState, bool), String> {
        let mut state = self.look(path)?;
        let PathState::File { digest, size, .. } = &mut state else { return Ok((state, false)) };
        let Some(sealed) = self.sealed_at(path, *size)? else { return self.keep_path(path) };
        *digest = Digest::of(&sealed);
        self.keep_prior_bytes(path, &mut sealed.as_slice(), digest)?;
        Ok((state, true))
    }

    /// What a check of a resource that holds a secret came to, with the prior state as it is kept and recorded: by the
    /// digest of the sealed bytes, which tells nobody what they are (SEC-3).
    ///
    /// # Errors
    /// In words, when the file cannot be read, or there is no key to seal with.
    pub fn seal_prior(&self, spec: &Spec, mut checked: Checked) -> Result<Checked, String> {
        if let (Some((path, _)), Prior::Path(PathState::File { digest, size, .. })) =
            (spec.managed(), &mut checked.prior)
            && let Some(sealed) = self.sealed_at(path, *size)?
        {
            *digest = Digest::of(&sealed);
        }
        Ok(checked)
    }

    /// As [`Kinds::keep_prior`], of a resource that holds a secret: the bytes are kept sealed.
    ///
    /// # Errors
    /// As there.
    pub fn keep_prior_sealed(&self, spec: &Spec, checked: &Checked) -> Result<bool, String> {
        let (Some((path, _)), Prior::Path(PathState::File { digest, size, .. })) =
            (spec.managed(), &checked.prior)
        else {
            return Ok(false);
        };
        match self.sealed_at(path, *size)? {
            Some(sealed) => self.keep_prior_bytes(path, &mut sealed.as_slice(), digest).map(|()| true),
            None => self.keep_prior(spec, checked),
        }
    }

    /// What a file holds, sealed; `None` where it is larger than anything that holds a secret.
    fn sealed_at(&self, path: &str, size: u64) -> Result<Option<Vec<u8>>, String> {
        if size > MAX_SEALED {
            return Ok(None);
        }
        let bytes = self.host.read(path, MAX_SEALED).map_err(text)?;
        let bytes = Zeroizing::new(bytes.ok_or_else(|| format!("{path} went away while it was looked at"))?);
        let sealed = self.blobs.seal(&bytes);
        sealed.map(Some).ok_or_else(|| "there is no key to seal what it holds with".to_owned())
    }

    /// Puts what a path held when it was looked at into the blob store.
    pub(crate) fn keep_prior_bytes(
        &self,
        path: &str,
        bytes: &mut dyn Read,
        digest: &Digest,
    ) -> Result<(), String> {
        self.blobs.keep(bytes, digest).map_err(|error| match error {
            KeepBytesError::WrongDigest => {
                format!("{path} was changed by something else just now; the next run looks again")
            }
            KeepBytesError::Failed(error) => format!("cannot keep what {path} holds now: {error}"),
        })
    }

    /// Puts back what was there before a run changed it.
    ///
    /// # Errors
    /// In words, when it cannot be put back.
    pub fn undo(&self, undo: &Undo) -> Result<(), String> {
        let put_back = match &undo.prior {
            Prior::Path(prior) => self.put_back(&undo.path, prior, undo.kept),
            Prior::State(before) => self.put_state_back(undo.into(), before.as_ref()),
        };
        put_back.map(drop)
    }

    /// Does with a resource that left the set what it declared; false when there was
    /// nothing to do. What a line did stays.
    ///
    /// # Errors
    /// In words, when it cannot be done.
    pub fn remove(&self, entry: &LedgerEntry, how: OnRemove) -> Result<bool, String> {
        match (&entry.prior, how) {
            (_, OnRemove::Keep) => Ok(false),
            // A directory that was declared without its files last.
            (Prior::State(_), OnRemove::Delete) if is_path(entry) && !by_state(entry) => {
                self.clear(&entry.path)
            }
            (Prior::State(before), OnRemove::Delete) => self.remove_state(entry.into(), before.as_ref()),
            (Prior::State(before), OnRemove::Restore) => self.put_state_back(entry.into(), before.as_ref()),
            // Its files were declared later than the directory.
            (Prior::Path(_), OnRemove::Delete) if by_state(entry) => self.remove_state(entry.into(), None),
            (Prior::Path(prior), OnRemove::Restore) if by_state(entry) => {
                let removed = self.remove_state(entry.into(), None)?;
                self.put_back(&entry.path, prior, entry.kept).map(|put_back| removed || put_back)
            }
            (Prior::Path(prior), _) => {
                self.sweep_path(&entry.path);
                let whole = is_path(entry);
                match how {
                    OnRemove::Delete if whole => self.clear(&entry.path),
                    OnRemove::Restore if whole => self.put_back(&entry.path, prior, entry.kept),
                    OnRemove::Keep | OnRemove::Delete | OnRemove::Restore => Ok(false),
                }
            }
        }
    }

    /// Removes temporary files that a run that died left beside these paths. Where that may hang they
    /// stay until the path is written again.
    pub fn sweep<'a>(&self, paths: impl IntoIterator<Item = &'a str>) {
        let mounts = self.mounts_that_may_hang();
        for path in paths.into_iter().filter(|path| self.mount_of_path(&mounts, path).is_none()) {
            self.sweep_path(path);
        }
    }

    fn sweep_path(&self, path: &str) {
        if let Some(left) = self.host.sweep(path) {
            tracing::warn!(
                path,
                left,
                "a run that was killed may have left what was at this path before in a directory beside it; \
                 look at what it holds and remove it by hand"
            );
        }
    }

    fn put_back(&self, path: &str, prior: &PathState, kept: bool) -> Result<bool, String> {
        let now = self.look(path)?;
        if now == *prior {
            return Ok(false);
        }
        let host: &Host = &self.host;
        // Something of another kind took its place by force.
        match (prior, &now) {
            (PathState::File { .. } | PathState::Symlink { .. }, PathState::Directory { .. }) => {
                host.remove_directory(path, false).map_err(text)?;
            }
            (PathState::Directory { .. }, PathState::File { .. } | PathState::Symlink { .. }) => {
                host.remove_file(path).map_err(text)?;
            }
            _ => {}
        }
        match (prior, &now) {
            (PathState::Missing, _) => return self.clear(path),
            (PathState::File { digest, mode, uid, gid, .. }, PathState::File { digest: is, .. })
                if digest == is =>
            {
                host.set_ownership(path, &all(*mode, *uid, *gid))
            }
            (PathState::File { digest, mode, uid, gid, .. }, _) => {
                return self.put_back_file(path, digest, all(*mode, *uid, *gid), kept).map(|()| true);
            }
            (
                PathState::Directory { mode, uid, gid, .. },
                PathState::Missing | PathState::File { .. } | PathState::Symlink { .. },
            ) => host.make_directory(path, &all(*mode, *uid, *gid), DEFAULT_DIRECTORY_MODE),
            (PathState::Directory { mode, uid, gid, .. }, _) => {
                host.set_ownership(path, &all(*mode, *uid, *gid))
            }
            (PathState::Symlink { target }, _) => host.make_symlink(path, target),
            (PathState::Other { .. }, _) => return Ok(false),
        }
        .map(|()| true)
        .map_err(text)
    }

    fn put_back_file(
        &self,
        path: &str,
        digest: &Digest,
        ownership: PathOwnership,
        kept: bool,
    ) -> Result<(), String> {
        if !kept {
            return Err(format!("{path} cannot be put back: its previous content was too large to keep"));
        }
        let unsealed = self
            .blobs
            .unsealed(digest)
            .map_err(|error| format!("what {path} held cannot be read: {error}"))?;
        let (mut plain, digest) = match &unsealed {
            Some(plain) => (Box::new(plain.as_slice()) as Box<dyn Read + '_>, Digest::of(plain)),
            None => (self.blob(digest)? as Box<dyn Read>, *digest),
        };
        let write = FileWrite {
            content: &mut *plain,
            digest,
            ownership,
            default_mode: DEFAULT_FILE_MODE,
            backup: false,
            validate: None,
        };
        self.host.write(path, write).map_err(text)
    }

    /// Removes a file, a link or an empty directory.
    pub(crate) fn clear(&self, path: &str) -> Result<bool, String> {
        match self.look(path)? {
            PathState::Missing => Ok(false),
            PathState::Directory { .. } => self.host.remove_directory(path, false).map_err(text),
            PathState::File { .. } | PathState::Symlink { .. } | PathState::Other { .. } => {
                self.host.remove_file(path).map_err(text)
            }
        }
    }
}

fn all(mode: u32, uid: u32, gid: u32) -> PathOwnership {
    PathOwnership { mode: Some(mode), uid: Some(uid), gid: Some(gid) }
}

/// Its path is a directory that was declared last with the files that are in it.
fn by_state(entry: &LedgerEntry) -> bool {
    let kept = |kind: &schema::ResourceType| kind.manages == Manages::Path && !kind.removal.is_empty();
    schema::find(&entry.kind).is_some_and(kept) || entry.attributes.contains_key("tree")
}

/// All that is at its path is the resource's.
fn is_path(entry: &LedgerEntry) -> bool {
    schema::find(&entry.kind).is_some_and(|kind| kind.manages == Manages::Path)
}
