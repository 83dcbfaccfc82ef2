//! The contents of the state directory as the resource types use them.

use std::io::{self, Read};

use model::object::MAX_BLOB;
use model::{Digest, Fields};
use providers::Blobs;

use super::Durable;

impl Blobs for Durable {
    fn open(&self, digest: &Digest) -> io::Result<Box<dyn Read>> {
        match self.contents.open(digest).map_err(io::Error::other)? {
            Some(file) => Ok(Box::new(file)),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn keep(&self, bytes: &mut dyn Read) -> io::Result<Digest> {
        self.contents.put(bytes, None, MAX_BLOB).map_err(io::Error::other)
    }

    fn unpacked(&self, path: &str) -> io::Result<Option<Fields>> {
        self.unpacked.find(path).map_err(io::Error::other)
    }

    fn keep_unpacked(&self, path: &str, unpacked: Option<&Fields>) -> io::Result<()> {
        self.unpacked.keep(path, unpacked).map_err(io::Error::other)
    }
}
