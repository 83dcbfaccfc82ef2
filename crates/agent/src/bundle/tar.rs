//! [`TarWriter`]: files into a gzipped tar archive (POSIX ustar), as `tar xzf` reads it.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use model::Timestamp;

/// The unit of a tar archive, in bytes.
const BLOCK: usize = 512;
/// The longest name that is written, in bytes.
const MAX_NAME: usize = 100;

/// An archive under way.
pub(super) struct TarWriter<W: Write> {
    out: GzEncoder<W>,
    at: u64,
}

impl<W: Write> TarWriter<W> {
    /// An archive whose files are all of this time.
    pub(super) fn new(out: W, at: Timestamp) -> TarWriter<W> {
        let at = u64::try_from(at.0 / 1000).unwrap_or(0);
        TarWriter { out: GzEncoder::new(out, Compression::default()), at }
    }

    /// Adds a file, readable by its owner alone.
    pub(super) fn file(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{name:?} is no name for a tar archive"),
            ));
        }
        let mut header = [0; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, name.as_bytes());
        put(100, b"0000600\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", content.len()).as_bytes());
        put(136, format!("{:011o}\0", self.at).as_bytes());
        // The checksum counts itself as spaces.
        put(148, b"        ");
        put(156, b"0");
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.out.write_all(&header)?;
        self.out.write_all(content)?;
        let padding = content.len().next_multiple_of(BLOCK) - content.len();
        self.out.write_all(&[0; BLOCK][..padding])
    }

    /// Ends the archive.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.finish()
    }
}
