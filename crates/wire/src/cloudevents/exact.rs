//! Whether bytes are canonical JSON, so that a value made from them gives the same bytes.

use std::borrow::Cow;

use serde_json::value::RawValue;

/// Deeper documents take the slow way.
const MAX_DEPTH: usize = 64;
/// Integers of more digits take the slow way.
const MAX_DIGITS: usize = 15;

/// Whether a content claims to be an object or array in JSON, by its ends.
pub(super) fn looks_like_json(content: &[u8]) -> bool {
    matches!((content.first(), content.last()), (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']')))
}

/// A content as JSON, when it is the canonical form (RFC 8785) of an object or array: any client
/// makes the same bytes of the value again.
pub(super) fn as_canonical(content: &[u8]) -> Option<&RawValue> {
    if !looks_like_json(content) {
        return None;
    }
    let text = std::str::from_utf8(content).ok()?;
    (canonical(text)? == content).then(|| serde_json::from_str(text).ok())?
}

/// The canonical form of a JSON text; `None` when there is none, such as for huge numbers.
pub(super) fn canonical(json: &str) -> Option<Cow<'_, [u8]>> {
    if plain(json.as_bytes()) {
        return Some(Cow::Borrowed(json.as_bytes()));
    }
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    serde_json_canonicalizer::to_vec(&value).ok().map(Cow::Owned)
}

/// Whether bytes are certainly canonical: small integers, keys that compare as bytes, plain
/// escapes. It goes over them once; whatever is unusual is for the slow way.
fn plain(bytes: &[u8]) -> bool {
    let mut scan = Scan { rest: bytes };
    scan.value(0).is_some() && scan.rest.is_empty()
}

struct Scan<'a> {
    rest: &'a [u8],
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
