//! Whether bytes are canonical JSON, so that a value made from them gives the same bytes.

use super::envelope::Data;

/// The content type of JSON.
pub(super) const JSON: &str = "application/json";
/// The content type of bytes that are not JSON.
pub(super) const OCTETS: &str = "application/octet-stream";
/// Deeper documents take the slow way.
const MAX_DEPTH: usize = 64;
/// Integers of more digits take the slow way.
const MAX_DIGITS: usize = 15;

/// What a content claims to be, by its ends: nothing is decided by it.
pub(super) fn content_type(data: &[u8]) -> &'static str {
    match (data.first(), data.last()) {
        (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']')) => JSON,
        _ => OCTETS,
    }
}

/// Whether bytes are the canonical form (RFC 8785) of a JSON value.
pub(super) fn is_canonical(bytes: &[u8]) -> bool {
    plain(bytes) || again(bytes).is_some_and(|canonical| canonical == bytes)
}

/// The canonical form of a JSON text; `None` when there is none, such as for huge numbers.
pub(super) fn canonical(bytes: &[u8]) -> Option<Data<'_>> {
    if plain(bytes) {
        return Some(Data::Slice(bytes));
    }
    let canonical = again(bytes)?;
    Some(if canonical == bytes { Data::Slice(bytes) } else { Data::Made(canonical) })
}

fn again(bytes: &[u8]) -> Option<Vec<u8>> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    serde_json_canonicalizer::to_vec(&value).ok()
}

/// Whether bytes are certainly canonical: small integers, keys that compare as bytes, plain
/// escapes. It goes over them once; whatever is unusual is for the slow way.
fn plain(bytes: &[u8]) -> bool {
    let mut scan = Scan { rest: bytes, utf8: true };
    scan.value(0).is_some() && scan.rest.is_empty() && (scan.utf8 || std::str::from_utf8(bytes).is_ok())
}

struct Scan<'a> {
    rest: &'a [u8],
    /// Only ASCII was seen so far.
    utf8: bool,
}

impl<'a> Scan<'a> {
    fn take(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn skip(&mut self, literal: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(literal)?;
        Some(())
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        match self.rest.first()? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string().map(|_| ()),
            b't' => self.skip(b"true"),
            b'f' => self.skip(b"false"),
            b'n' => self.skip(b"null"),
            _ => self.integer(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        self.take()?;
        if self.skip(b"}").is_some() {
            return Some(());
        }
        let mut last: Option<&'a [u8]> = None;
        loop {
            if self.rest.first() != Some(&b'"') {
                return None;
            }
            let key = self.string()?;
            // Escapes and characters beyond U+DFFF do not order as their bytes do.
            let plain = key.iter().all(|b| *b != b'\\' && *b < 0xee);
            if !plain || last.is_some_and(|last| last >= key) {
                return None;
            }
            last = Some(key);
            self.skip(b":")?;
            self.value(depth + 1)?;
            match self.take()? {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.take()?;
        if self.skip(b"]").is_some() {
            return Some(());
        }
        loop {
            self.value(depth + 1)?;
            match self.take()? {
                b',' => {}
                b']' => return Some(()),
                _ => return None,
            }
        }
    }

    /// A string with its quotes; gives what is between them.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.take()?;
        let whole = self.rest;
        loop {
            let before = self.rest;
            match self.take()? {
                b'"' => return Some(&whole[..whole.len() - before.len()]),
                b'\\' => match self.take()? {
                    b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                    // Control characters without a short form take the slow way.
                    _ => return None,
                },
                0..0x20 => return None,
                0x80.. => self.utf8 = false,
                _ => {}
            }
        }
    }

    fn integer(&mut self) -> Option<()> {
        let negative = self.skip(b"-").is_some();
        let digits = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let number = &self.rest[..digits];
        self.rest = &self.rest[digits..];
        let leading = number.first()? == &b'0';
        (digits <= MAX_DIGITS && !(leading && (negative || digits > 1))).then_some(())
    }
}
