//! [`TarReader`]: the members of a tar file, in order.
//!
//! ```text
//! header (512) [GNU long name, long link; pax: path, linkpath, size] -> header -> content, padded to 512
//! two blocks of zeros, or the end -> over
//! ```
//!
//! It reads what GNU tar, bsdtar, Git and the tar of other languages write: ustar, GNU and pax. It writes
//! nothing and judges no name; a member of a kind that is not read is told as such.

use std::io::{self, Read};

/// The unit of a tar file, in bytes.
const BLOCK: usize = 512;
/// The most bytes of an extended header.
const MAX_EXTENSION: u64 = 64 * 1024;
/// Lengths below this can be rounded up to whole blocks.
const SIZE_LIMIT: u64 = u64::MAX / 2;
/// The most extended headers before one member.
const MAX_EXTENSIONS: usize = 8;

/// A member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TarMember {
    /// Its name as it is written.
    pub(crate) name: String,
    /// Permission bits and more.
    pub(crate) mode: u32,
    /// Length of its content.
    pub(crate) size: u64,
    pub(crate) kind: TarKind,
}

/// What a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TarKind {
    File,
    Directory,
    Symlink(String),
    HardLink(String),
    Other,
}

/// Reads members one by one; between two of them it reads as the content of the first.
pub(crate) struct TarReader<R> {
    from: R,
    /// Bytes of the content that were not read, and of its padding.
    left: u64,
    padding: u64,
}

/// What extended headers say of the next member.
#[derive(Default)]
struct Extension {
    name: Option<String>,
    link: Option<String>,
    size: Option<u64>,
}

impl<R: Read> TarReader<R> {
    pub(crate) fn new(from: R) -> TarReader<R> {
        TarReader { from, left: 0, padding: 0 }
    }

    /// Passes over what is left of the member's content, and reads the next header; `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<TarMember>> {
        let mut extension = Extension::default();
        for _ in 0..=MAX_EXTENSIONS {
            self.skip()?;
            let Some(block) = self.block()? else { return Ok(None) };
            let field = |from: usize, len: usize| &block[from..from + len];
            let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum::<u64>() + 8 * u64::from(b' ')
                - field(148, 8).iter().map(|byte| u64::from(*byte)).sum::<u64>();
            if number(field(148, 8)) != Some(sum) {
                return Err(malformed("it is no tar file, or damaged"));
            }
            let size = number(field(124, 12)).ok_or_else(|| malformed("a length cannot be read"))?;
            let kind = block[156];
            if matches!(kind, b'x' | b'L' | b'K' | b'g') {
                self.begin(size);
                let bytes = self.extension()?;
                match kind {
                    b'L' => extension.name = Some(text(&bytes)?),
                    b'K' => extension.link = Some(text(&bytes)?),
                    // What holds for all members is nothing that is read.
                    b'g' => {}
                    _ => extension.read(&bytes)?,
                }
                continue;
            }
            let mut name = text(field(0, 100))?;
            // GNU tar has other things where ustar has the beginning of a long name.
            let prefix = if field(257, 6) == b"ustar\0" { text(field(345, 155))? } else { String::new() };
            if !prefix.is_empty() {
                name = format!("{prefix}/{name}");
            }
            let name = extension.name.take().unwrap_or(name);
            let link = match extension.link.take() {
                Some(link) => link,
                None => text(field(157, 100))?,
            };
            let kind = match kind {
                b'0' | b'\0' | b'7' if name.ends_with('/') => TarKind::Directory,
                b'0' | b'\0' | b'7' => TarKind::File,
                b'1' => TarKind::HardLink(link),
                b'2' => TarKind::Symlink(link),
                b'5' => TarKind::Directory,
                _ => TarKind::Other,
            };
            let size = if kind == TarKind::File { extension.size.unwrap_or(size) } else { 0 };
            let mode = number(field(100, 8)).and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o644);
            self.begin(size);
            return Ok(Some(TarMember { name, mode, size, kind }));
        }
        Err(malformed("it has too many extended headers"))
    }

    fn begin(&mut self, size: u64) {
        self.left = size;
        self.padding = size.next_multiple_of(BLOCK as u64) - size;
    }

    fn skip(&mut self) -> io::Result<()> {
        let left = self.left + self.padding;
        (self.left, self.padding) = (0, 0);
        let passed = io::copy(&mut (&mut self.from).take(left), &mut io::sink())?;
        if passed < left { Err(malformed("it ends in the middle of a file")) } else { Ok(()) }
    }

    /// The next header; `None` where the file ends, by its blocks of zeros or without them.
    fn block(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        let mut got = 0;
        while got < BLOCK {
            match self.from.read(&mut block[got..])? {
                0 if got == 0 => return Ok(None),
                0 => return Err(malformed("it ends in the middle of a header")),
                count => got += count,
            }
        }
        Ok(block.iter().any(|byte| *byte != 0).then_some(block))
    }

    fn extension(&mut self) -> io::Result<Vec<u8>> {
        if self.left > MAX_EXTENSION {
            return Err(malformed("an extended header is too long"));
        }
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes)?;
        if self.left > 0 { Err(malformed("it ends in an extended header")) } else { Ok(bytes) }
    }
}

impl<R: Read> Read for TarReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (&mut self.from).take(self.left).read(buffer)?;
        self.left -= count as u64;
        Ok(count)
    }
}

impl Extension {
    /// Reads the records of pax: `LENGTH KEY=VALUE` and a newline each.
    fn read(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let wrong = || malformed("an extended header cannot be read");
        while !bytes.is_empty() {
            let space = bytes.iter().position(|byte| *byte == b' ').ok_or_else(wrong)?;
            let length =
                std::str::from_utf8(&bytes[..space]).ok().and_then(|text| text.parse::<usize>().ok());
            let length =
                length.filter(|length| (space + 2..=bytes.len()).contains(length)).ok_or_else(wrong)?;
            let (record, rest) = bytes.split_at(length);
            let record = record[space + 1..].strip_suffix(b"\n").ok_or_else(wrong)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(wrong)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" => self.name = Some(text(value)?),
                b"linkpath" => self.link = Some(text(value)?),
                b"size" => {
                    let size = text(value)?.parse().ok().filter(|size| *size < SIZE_LIMIT);
                    self.size = Some(size.ok_or_else(wrong)?);
                }
                _ if key.starts_with(b"GNU.sparse.") => {
                    return Err(malformed("it holds a sparse file, which is not read"));
                }
                _ => {}
            }
            bytes = rest;
        }
        Ok(())
    }
}

fn malformed(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// A text up to its first NUL.
fn text(bytes: &[u8]) -> io::Result<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = std::str::from_utf8(&bytes[..end]).map_err(|_| malformed("a name in it is not UTF-8"))?;
    Ok(text.to_owned())
}

/// A number: octal digits, or a binary number whose first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        let (first, rest) = field.split_first()?;
        let zero = first & 0x7f == 0 && rest[..rest.len().saturating_sub(8)].iter().all(|byte| *byte == 0);
        let last = &rest[rest.len().saturating_sub(8)..];
        let number = last.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
        return (zero && number < SIZE_LIMIT).then_some(number);
    }
    let text = std::str::from_utf8(field).ok()?;
    let digits = text.trim_matches(|c| c == ' ' || c == '\0');
    if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 8).ok() }
}
