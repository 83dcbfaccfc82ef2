//! The contents of the state directory as the resource types use them.

use std::io::{self, Read};

use model::object::MAX_BLOB;
use model::{Digest, Fields};
use providers::{Blobs, KeepBytesError};
use spool::SpoolError;

use super::{ContentLoss, Durable};

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

    fn unpacked(&self, path: &str) -> io::Result<Option<Fields>> {
        self.unpacked.find(path).map_err(io::Error::other)
    }

    fn keep_unpacked(&self, path: &str, unpacked: Option<&Fields>) -> io::Result<()> {
        self.unpacked.keep(path, unpacked).map_err(io::Error::other)
    }
}
