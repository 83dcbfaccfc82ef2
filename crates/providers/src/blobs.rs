//! Where bytes are kept by digest: declared files and scripts, and what was there before. And what
//! archives were unpacked to, which trees of an image there are, and what a pair of commands switched to.

use std::io::{self, Read};

use model::{Digest, Fields};
use zeroize::Zeroizing;

/// Why bytes were not kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepBytesError {
    /// They are not those of the digest.
    #[error("the bytes have another digest")]
    WrongDigest,
    /// They cannot be read or stored.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// A store of bytes by digest, and of what was unpacked by its directory. The agent's is on disk and survives a crash.
pub trait Blobs: Send + Sync {
    /// Opens the bytes with this digest. The reader of the bytes verifies them.
    ///
    /// # Errors
    /// When they are not there ([`io::ErrorKind::NotFound`]) or cannot be read.
    fn open(&self, digest: &Digest) -> io::Result<Box<dyn Read>>;

    /// Keeps the bytes of this digest; they are durable when this returns.
    ///
    /// # Errors
    /// When they are other bytes, or cannot be read or stored; nothing is stored then.
    fn keep(&self, bytes: &mut dyn Read, digest: &Digest) -> Result<(), KeepBytesError>;

    /// Seals what is kept of a file that holds a secret, so that it lies nowhere in plain (SEC-3); `None` where there is
    /// no key for it. The same bytes are sealed as the same.
    fn seal(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let _ = bytes;
        None
    }

    /// What was sealed as the bytes with this digest; `None` where they are not sealed.
    ///
    /// # Errors
    /// As [`Blobs::open`], and when the key cannot be read.
    fn unsealed(&self, digest: &Digest) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        let _ = digest;
        Ok(None)
    }

    /// What was unpacked in a directory, or is remembered under another name that is no path; `None` when nothing is known of it.
    ///
    /// # Errors
    /// When it cannot be read.
    fn unpacked(&self, path: &str) -> io::Result<Option<Fields>>;

    /// Remembers what was unpacked in a directory, durably, or forgets it.
    ///
    /// # Errors
    /// When it cannot be written.
    fn keep_unpacked(&self, path: &str, unpacked: Option<&Fields>) -> io::Result<()>;
}
