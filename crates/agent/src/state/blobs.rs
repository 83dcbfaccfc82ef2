//! The contents of the state directory as the resource types use them.

use std::io::{self, Read};
use std::sync::Arc;

use model::object::MAX_BLOB;
use model::{Digest, Fields};
use providers::{Blobs, KeepBytesError};
use spool::SpoolError;
use trust::SealingKey;
use trust::sealing::LocalVault;
use zeroize::Zeroizing;

use super::{ContentLoss, Durable};
use crate::identity::{self, KeyError};

impl Durable {
    /// The key that secrets are sealed for. Once it was read it is that of this process: a directory that is lost
    /// makes it no other one.
    ///
    /// # Errors
    /// When it cannot be read or made.
    pub(crate) fn sealing_key(&self) -> Result<Arc<SealingKey>, KeyError> {
        if let Some(known) = self.sealing.get() {
            return Ok(known.clone());
        }
        let key = Arc::new(identity::sealing_key(self.path())?);
        Ok(self.sealing.get_or_init(|| key).clone())
    }

    /// Writes the sealing key back where it is gone or damaged: secrets are sealed for it, and what is kept of files
    /// that held one is sealed under it (SEC-1, LIF-10). Another one stays.
    ///
    /// # Errors
    /// [`KeyError`] names the file.
    pub(crate) fn put_back_sealing_key(&self) -> Result<(), KeyError> {
        match self.sealing.get() {
            Some(key) => identity::put_back_sealing(key, self.path()),
            None => Ok(()),
        }
    }

    /// What seals what is kept of files that hold a secret.
    fn vault(&self) -> Result<LocalVault, KeyError> {
        let key = self.sealing_key()?;
        Ok(LocalVault::of(&key))
    }
}

impl Blobs for Durable {
    fn open(&self, digest: &Digest) -> io::Result<Box<dyn Read>> {
        match self.contents.open(digest).map_err(io::Error::other)? {
            Some(file) => Ok(Box::new(file)),
            None => Err(match self.loss_of(digest) {
                ContentLoss::Missing => io::ErrorKind::NotFound.into(),
                ContentLoss::Damaged => io::Error::other(format!("it {}", ContentLoss::Damaged)),
            }),
        }
    }

    fn keep(&self, bytes: &mut dyn Read, digest: &Digest) -> Result<(), KeepBytesError> {
        match self.contents.put(bytes, Some(*digest), MAX_BLOB) {
            Ok(_) => Ok(()),
            Err(SpoolError::WrongDigest { .. }) => Err(KeepBytesError::WrongDigest),
            Err(error) => Err(io::Error::other(error).into()),
        }
    }

    fn seal(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.vault().ok()?.seal(bytes)
    }

    fn unsealed(&self, digest: &Digest) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        let mut content = Blobs::open(self, digest)?;
        let mut bytes = Vec::new();
        content.by_ref().take(LocalVault::PREFIX as u64).read_to_end(&mut bytes)?;
        if !LocalVault::begins(&bytes) {
            return Ok(None);
        }
        content.take(MAX_BLOB).read_to_end(&mut bytes)?;
        Ok(self.vault().map_err(io::Error::other)?.open(&bytes))
    }

    fn unpacked(&self, path: &str) -> io::Result<Option<Fields>> {
        self.unpacked.find(path).map_err(io::Error::other)
    }

    fn keep_unpacked(&self, path: &str, unpacked: Option<&Fields>) -> io::Result<()> {
        self.unpacked.keep(path, unpacked).map_err(io::Error::other)
    }
}
