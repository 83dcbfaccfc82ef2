//! [`BusValue`]: what a message holds, read by its signature.

use super::BusError;

/// How deep containers may be nested; the protocol's own limit is 64 in all.
const MAX_DEPTH: u8 = 64;

/// One value of a message. Numbers of one sign are one kind: no decision needs their width.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BusValue {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    /// A string, an object path or a signature.
    Text(String),
    /// An array of bytes, which may be long.
    Bytes(Vec<u8>),
    /// An array, of dictionary entries too: each is a structure of key and value.
    Array(Vec<BusValue>),
    Struct(Vec<BusValue>),
}

impl BusValue {
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            BusValue::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn uint(&self) -> Option<u64> {
        match self {
            BusValue::Uint(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn int(&self) -> Option<i64> {
        match self {
            BusValue::Int(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn flag(&self) -> Option<bool> {
        match self {
            BusValue::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// The items of an array or a structure; none of anything else.
    pub(crate) fn items(&self) -> &[BusValue] {
        match self {
            BusValue::Array(items) | BusValue::Struct(items) => items,
            _ => &[],
        }
    }

    /// The value of a key, in an array of dictionary entries.
    pub(crate) fn entry(&self, key: &str) -> Option<&BusValue> {
        self.items().iter().find_map(|entry| match entry.items() {
            [name, value] if name.text() == Some(key) => Some(value),
            _ => None,
        })
    }
}

/// The length of the first complete type of a signature.
///
/// # Errors
/// When it does not begin with one.
pub(super) fn type_length(signature: &[u8]) -> Result<usize, BusError> {
    length(signature, 0)
}

fn length(signature: &[u8], depth: u8) -> Result<usize, BusError> {
    let bad = BusError::Malformed("a signature is none");
    if depth > MAX_DEPTH {
        return Err(bad);
    }
    match signature.first() {
        Some(
            b'y' | b'b' | b'n' | b'q' | b'i' | b'u' | b'x' | b't' | b'd' | b's' | b'o' | b'g' | b'v' | b'h',
        ) => Ok(1),
        Some(b'a') => Ok(1 + length(&signature[1..], depth + 1)?),
        Some(open @ (b'(' | b'{')) => {
            let close = if *open == b'(' { b')' } else { b'}' };
            let mut at = 1;
            while signature.get(at) != Some(&close) {
                at += length(signature.get(at..).unwrap_or_default(), depth + 1)?;
            }
            if at == 1 { Err(bad) } else { Ok(at + 1) }
        }
        _ => Err(bad),
    }
}

/// Reads a message's bytes; positions count from its beginning, as alignment does.
#[derive(Debug)]
pub(super) struct BusReader<'a> {
    bytes: &'a [u8],
    at: usize,
    big_endian: bool,
}

impl<'a> BusReader<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize, big_endian: bool) -> BusReader<'a> {
        BusReader { bytes, at, big_endian }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// All values of a body.
    pub(super) fn all(&mut self, signature: &str) -> Result<Vec<BusValue>, BusError> {
        let (mut rest, mut values) = (signature.as_bytes(), Vec::new());
        while !rest.is_empty() {
            let length = type_length(rest)?;
            values.push(self.value(&rest[..length], 0)?);
            rest = &rest[length..];
        }
        Ok(values)
    }

    pub(super) fn align(&mut self, to: usize) -> Result<(), BusError> {
        let aligned = self.at.next_multiple_of(to);
        self.take(aligned - self.at).map(drop)
    }

    pub(super) fn uint32(&mut self) -> Result<u32, BusError> {
        self.align(4)?;
        let bytes: [u8; 4] = self.array()?;
        Ok(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    pub(super) fn byte(&mut self) -> Result<u8, BusError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    pub(super) fn signature(&mut self) -> Result<&'a str, BusError> {
        let length = self.byte()?.into();
        self.terminated(length)
    }

    /// One complete type.
    pub(super) fn value(&mut self, signature: &[u8], depth: u8) -> Result<BusValue, BusError> {
        if depth > MAX_DEPTH {
            return Err(BusError::Malformed("values are nested too deep"));
        }
        let kind = signature.first().copied().unwrap_or_default();
        Ok(match kind {
            b'y' => BusValue::Uint(self.byte()?.into()),
            b'b' => BusValue::Bool(self.uint32()? != 0),
            b'n' | b'q' => {
                let short = self.uint16()?;
                if kind == b'n' {
                    BusValue::Int(short.cast_signed().into())
                } else {
                    BusValue::Uint(short.into())
                }
            }
            b'i' => BusValue::Int(self.uint32()?.cast_signed().into()),
            b'u' | b'h' => BusValue::Uint(self.uint32()?.into()),
            b'x' => BusValue::Int(self.uint64()?.cast_signed()),
            b't' => BusValue::Uint(self.uint64()?),
            b'd' => BusValue::Double(f64::from_bits(self.uint64()?)),
            b's' | b'o' => {
                let length = self.uint32()? as usize;
                BusValue::Text(self.terminated(length)?.to_owned())
            }
            b'g' => BusValue::Text(self.signature()?.to_owned()),
            b'v' => {
                let inner = self.signature()?.as_bytes();
                if type_length(inner)? != inner.len() {
                    return Err(BusError::Malformed("a variant holds more than one value"));
                }
                self.value(inner, depth + 1)?
            }
            b'a' => self.sequence(&signature[1..], depth)?,
            b'(' | b'{' => {
                self.align(8)?;
                let mut rest = &signature[1..signature.len() - 1];
                let mut fields = Vec::new();
                while !rest.is_empty() {
                    let length = type_length(rest)?;
                    fields.push(self.value(&rest[..length], depth + 1)?);
                    rest = &rest[length..];
                }
                BusValue::Struct(fields)
            }
            _ => return Err(BusError::Malformed("a signature is none")),
        })
    }

    fn sequence(&mut self, item: &[u8], depth: u8) -> Result<BusValue, BusError> {
        let length = self.uint32()? as usize;
        self.align(alignment(item))?;
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or(BusError::Malformed("an array is longer than its message"))?;
        if item == b"y" {
            return self.take(length).map(|bytes| BusValue::Bytes(bytes.to_vec()));
        }
        let mut items = Vec::new();
        while self.at < end {
            items.push(self.value(item, depth + 1)?);
        }
        if self.at == end {
            Ok(BusValue::Array(items))
        } else {
            Err(BusError::Malformed("an array ends inside of a value"))
        }
    }

    fn uint16(&mut self) -> Result<u16, BusError> {
        self.align(2)?;
        let bytes: [u8; 2] = self.array()?;
        Ok(if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn uint64(&mut self) -> Result<u64, BusError> {
        self.align(8)?;
        let bytes: [u8; 8] = self.array()?;
        Ok(if self.big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    /// Text of a length, and the NUL after it.
    fn terminated(&mut self, length: usize) -> Result<&'a str, BusError> {
        let bytes = self.take(length)?;
        if self.byte()? != 0 {
            return Err(BusError::Malformed("a text does not end where it says"));
        }
        std::str::from_utf8(bytes).map_err(|_| BusError::Malformed("a text is not UTF-8"))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BusError> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| BusError::Malformed("a message ends too early"))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], BusError> {
        let end = self.at.checked_add(length);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or(BusError::Malformed("a message ends too early"))?;
        self.at += length;
        Ok(taken)
    }
}

/// To how many bytes a type is aligned.
fn alignment(signature: &[u8]) -> usize {
    match signature.first() {
        Some(b'n' | b'q') => 2,
        Some(b'x' | b't' | b'd' | b'(' | b'{') => 8,
        Some(b'y' | b'g' | b'v') => 1,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(signature: &str, bytes: &[u8]) -> Result<Vec<BusValue>, BusError> {
        BusReader::new(bytes, 0, false).all(signature)
    }

    #[test]
    fn values_are_read_by_their_signature() {
        let text = |text: &str| BusValue::Text(text.to_owned());
        let table: &[(&str, &[u8], Vec<BusValue>)] = &[
            ("y", &[7], vec![BusValue::Uint(7)]),
            ("yu", &[7, 0, 0, 0, 1, 0, 0, 0], vec![BusValue::Uint(7), BusValue::Uint(1)]),
            ("i", &[0xff, 0xff, 0xff, 0xff], vec![BusValue::Int(-1)]),
            ("n", &[0xfe, 0xff], vec![BusValue::Int(-2)]),
            ("b", &[1, 0, 0, 0], vec![BusValue::Bool(true)]),
            ("s", &[2, 0, 0, 0, b'h', b'i', 0], vec![text("hi")]),
            ("g", &[1, b's', 0], vec![text("s")]),
            ("v", &[1, b's', 0, 0, 1, 0, 0, 0, b'x', 0], vec![text("x")]),
            ("ay", &[3, 0, 0, 0, 1, 2, 3], vec![BusValue::Bytes(vec![1, 2, 3])]),
            ("au", &[4, 0, 0, 0, 9, 0, 0, 0], vec![BusValue::Array(vec![BusValue::Uint(9)])]),
            ("at", &[0, 0, 0, 0, 0, 0, 0, 0], vec![BusValue::Array(Vec::new())]),
            (
                "a{sv}",
                &[10, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, b'k', 0, 1, b'y', 0, 5],
                vec![BusValue::Array(vec![BusValue::Struct(vec![text("k"), BusValue::Uint(5)])])],
            ),
        ];
        for (signature, bytes, wanted) in table {
            // What the length of an array says is what the row holds.
            let mut bytes = bytes.to_vec();
            if *signature == "a{sv}" {
                bytes[0] = u8::try_from(bytes.len() - 8).unwrap();
            }
            assert_eq!(&read(signature, &bytes).unwrap(), wanted, "{signature}");
        }
    }

    #[test]
    fn what_is_cut_or_wrong_is_refused() {
        let table: &[(&str, &[u8])] = &[
            ("u", &[1, 0, 0]),
            ("s", &[9, 0, 0, 0, b'h', 0]),
            ("s", &[1, 0, 0, 0, b'h', 1]),
            ("s", &[1, 0, 0, 0, 0xff, 0]),
            ("s", &[0xff, 0xff, 0xff, 0xff, 0]),
            ("au", &[0xff, 0xff, 0xff, 0xff]),
            ("au", &[2, 0, 0, 0, 1, 0, 0, 0]),
            ("v", &[2, b'u', b'u', 0]),
            ("v", &[0, 0]),
            ("z", &[0]),
            ("(", &[0]),
            ("()", &[0]),
            ("a", &[0, 0, 0, 0]),
        ];
        for (signature, bytes) in table {
            assert!(read(signature, bytes).is_err(), "{signature}");
        }
        let deep = "a".repeat(70) + "y";
        assert!(read(&deep, &[0; 8]).is_err());
        // A variant in a variant in a variant.
        assert!(read("v", &[1, b'v', 0].repeat(100)).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        let signatures = ["a{sv}", "a(ssssssouso)", "susv", "v", "aav", "ayat", "(ii(dg))"];
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for round in 0..20_000 {
            let length = (next() % 96) as usize;
            // Small numbers make lengths and types that hold.
            let bytes: Vec<u8> = (0..length)
                .map(|_| [0, 0, 1, b's', b'v', b'u', (next() >> 9) as u8][(next() % 7) as usize])
                .collect();
            let _ = read(signatures[round % signatures.len()], &bytes);
        }
    }
}
