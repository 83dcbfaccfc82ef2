//! The contents of the state directory as the resource types use them.

use std::io::{self, Read};

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
    /// The key that secrets are sealed for.
    ///
    /// # Errors
    /// When it cannot be read or made.
    pub(crate) fn sealing_key(&self) -> Result<SealingKey, KeyError> {
        identity::sealing_key(self.path())
    }

    /// What seals what is kept of files that hold a secret.
    fn vault(&self) -> Result<LocalVault, KeyError> {
        Ok(LocalVault::of(&self.sealing_key()?))
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
