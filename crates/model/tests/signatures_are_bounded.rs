//! IDN-8: the text of a signature is bounded where it is read: whoever hands a signed document on may write what he likes
//! beside it, and nothing of that is kept before it is verified.

#![allow(clippy::unwrap_used)]

use model::exchange::{MAX_SIGNATURE, MAX_SIGNATURE_KEY, Signature, Signed};
use serde_json::json;

#[test]
fn a_text_that_is_too_long_is_not_read() {
    let read = |key: usize, sig: usize| {
        let signature = json!({"key": "k".repeat(key), "sig": "s".repeat(sig)});
        let document = json!({"payload": "{}", "signatures": [signature]}).to_string();
        serde_json::from_str::<Signed>(&document)
    };
    let longest = read(MAX_SIGNATURE_KEY, MAX_SIGNATURE).unwrap();
    assert_eq!(longest.signatures[0].sig.len(), MAX_SIGNATURE);
    assert!(read(MAX_SIGNATURE_KEY + 1, 1).is_err());
    let refused = read(1, MAX_SIGNATURE + 1).unwrap_err();
    assert!(refused.to_string().contains("at most 8192 bytes"), "{refused}");
    // With escapes it is another way of reading, and the same bound.
    let escaped = format!("{{\"key\": \"k\", \"sig\": \"\\u0041{}\"}}", "s".repeat(MAX_SIGNATURE));
    assert!(serde_json::from_str::<Signature>(&escaped).is_err());
}
