//! Percent-encoding of queries, paths and gRPC's status messages.

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// All but the unreserved characters of RFC 3986.
const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_').remove(b'~');
/// All but printable ASCII without the percent sign, as gRPC has it.
const MESSAGE: &AsciiSet = &CONTROLS.add(b'%');

/// A part of a path or a query.
pub fn encode_component(text: &str) -> String {
    utf8_percent_encode(text, COMPONENT).to_string()
}

/// A status message of gRPC.
pub fn encode_message(text: &str) -> String {
    utf8_percent_encode(text, MESSAGE).to_string()
}

/// Undoes either. What is wrongly encoded stays as it is; what is no UTF-8 is replaced.
pub fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::{decode, encode_component, encode_message};

    #[test]
    fn what_is_encoded_is_decoded() {
        for text in ["", "web-1.example", "a b/c?d=e&f%20", "gr\u{fc}n", "%"] {
            assert_eq!(decode(&encode_component(text)), text);
            assert_eq!(decode(&encode_message(text)), text);
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
