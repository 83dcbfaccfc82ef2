//! Percent-encoding, once for queries, paths and gRPC's status messages.

use std::fmt::Write;

/// Encodes all bytes that `is_plain` does not take. The percent sign must not be plain.
pub fn encode(text: &str, is_plain: impl Fn(u8) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if is_plain(byte) {
            out.push(char::from(byte));
        } else {
            // Writing into a string does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// A part of a path or a query: the unreserved characters of RFC 3986 stay.
pub fn encode_component(text: &str) -> String {
    encode(text, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'~'))
}

/// Undoes either. What is wrongly encoded stays as it is; what is no UTF-8 is replaced.
pub fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = (*byte == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        let decoded =
            hex.filter(|hex| !hex.starts_with('+')).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(decoded.unwrap_or(*byte));
        at += if decoded.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{decode, encode, encode_component};

    #[test]
    fn what_is_encoded_is_decoded() {
        for text in ["", "web-1.example", "a b/c?d=e&f%20", "gr\u{fc}n", "%"] {
            assert_eq!(decode(&encode_component(text)), text);
            assert_eq!(decode(&encode(text, |byte| matches!(byte, b' '..=b'~') && byte != b'%')), text);
        }
        assert_eq!(encode_component("a/b c"), "a%2Fb%20c");
    }

    #[test]
    fn what_is_wrongly_encoded_stays() {
        assert_eq!(decode("%"), "%");
        assert_eq!(decode("%2"), "%2");
        assert_eq!(decode("%+F%zz%41"), "%+F%zzA");
        assert_eq!(decode("%\u{e9}x"), "%\u{e9}x");
    }
}
