//! Where bytes are kept by digest: declared files and scripts, and what was there before.

use std::io::{self, Read};

use model::Digest;

/// A store of bytes by digest. The agent's is on disk and survives a crash.
pub trait Blobs: Send + Sync {
    /// Opens the bytes with this digest. The reader of the bytes verifies them.
    ///
    /// # Errors
    /// When they are not there ([`io::ErrorKind::NotFound`]) or cannot be read.
    fn open(&self, digest: &Digest) -> io::Result<Box<dyn Read>>;

    /// Keeps bytes; they are durable when this returns. Gives their digest.
    ///
    /// # Errors
    /// When they cannot be read or stored.
    fn keep(&self, bytes: &mut dyn Read) -> io::Result<Digest>;
}
