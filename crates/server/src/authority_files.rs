//! [`AuthorityFiles`]: the files of a CA, and how another CA takes its place among them.
//!
//! ```text
//! NAME.key, NAME.pem   the one that certifies
//! NAME.next            certificate and key of the one that is to take its place
//! NAME.previous        the same of the one before
//! ```
//!
//! Invariant: what is cut off is gone on with, as `NAME.next` is there until the rest is in its place.

use std::fs;
use std::path::{Path, PathBuf};

use net::issue::{Ca, Certified};
use spool::Disk;
use zeroize::Zeroizing;

use crate::posture::{self, FoundError};

/// The files of one CA of a control plane's directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuthorityFiles {
    /// What all of them begin with.
    pub(crate) name: &'static str,
    pub(crate) next: &'static str,
    pub(crate) previous: &'static str,
}

impl AuthorityFiles {
    /// The one that certifies.
    pub(crate) fn current(self, dir: &Path) -> Result<Ca, FoundError> {
        posture::read_ca(dir, self.name)
    }

    /// The one that is to take its place; `None` where there is none.
    pub(crate) fn next(self, dir: &Path) -> Result<Option<Ca>, FoundError> {
        read_bundle(&dir.join(self.next))
    }

    /// The one before; `None` where there is none.
    pub(crate) fn previous(self, dir: &Path) -> Result<Option<Ca>, FoundError> {
        read_bundle(&dir.join(self.previous))
    }

    /// Writes one that was made as the next one.
    pub(crate) fn stage(self, dir: &Path, made: &Certified) -> Result<(), FoundError> {
        let bundle = Zeroizing::new([made.cert_pem.as_str(), made.key_pem.as_str()].concat());
        Ok(spool::atomic::write_file(&Disk::new(), &dir.join(self.next), bundle.as_bytes(), 0o600)?)
    }

    /// Puts the next one in the place of the one before, which stays beside it, where it is the `wanted` one.
    pub(crate) fn put_in_place(self, dir: &Path, wanted: impl Fn(&Ca) -> bool) -> Result<(), FoundError> {
        let (next, disk) = (dir.join(self.next), Disk::new());
        let Some(staged) = self.next(dir)?.filter(wanted) else { return Ok(()) };
        let [key, pem] = self.paths(dir);
        // Cut off between the two files below, they do not go together, and the one before is beside them by then.
        if let Ok(before) = self.current(dir)
            && before.key() != staged.key()
        {
            let key = Zeroizing::new(posture::read(&key)?);
            let bundle = Zeroizing::new([before.cert_pem(), key.as_str()].concat());
            spool::atomic::write_file(&disk, &dir.join(self.previous), bundle.as_bytes(), 0o600)?;
        }
        let bundle = Zeroizing::new(posture::read(&next)?);
        spool::atomic::write_file(&disk, &key, parts(&bundle).1.as_bytes(), 0o600)?;
        spool::atomic::write_file(&disk, &pem, staged.cert_pem().as_bytes(), 0o644)?;
        remove(&next)
    }

    /// The one before is there no more.
    pub(crate) fn drop_previous(self, dir: &Path) -> Result<(), FoundError> {
        let path = dir.join(self.previous);
        if path.exists() { remove(&path) } else { Ok(()) }
    }

    fn paths(self, dir: &Path) -> [PathBuf; 2] {
        ["key", "pem"].map(|kind| dir.join(format!("{}.{kind}", self.name)))
    }
}

fn remove(path: &Path) -> Result<(), FoundError> {
    fs::remove_file(path).map_err(|source| FoundError::Write { path: path.to_owned(), source })
}

/// A CA's certificate and key in one file; `None` when there is none.
fn read_bundle(path: &Path) -> Result<Option<Ca>, FoundError> {
    if !path.exists() {
        return Ok(None);
    }
    let bundle = Zeroizing::new(posture::read(path)?);
    let (cert, key) = parts(&bundle);
    Ca::load(cert, key).map(Some).map_err(posture::authority(path))
}

/// A certificate and the key behind it.
fn parts(bundle: &str) -> (&str, &str) {
    const END: &str = "-----END CERTIFICATE-----\n";
    bundle.split_at(bundle.find(END).map_or(bundle.len(), |at| at + END.len()))
}
