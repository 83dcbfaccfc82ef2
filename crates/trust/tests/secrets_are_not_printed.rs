//! SEC-3: the private half of a key is in no debug text, error or panic.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER};
use trust::SigningKey;

const SEED: [u8; 32] = *b"the seed of a key, 32 bytes long";

/// All the ways in which a seed could be read out of a text.
fn betrays(text: &str) -> bool {
    let decimal = format!("{SEED:?}");
    let shown = [
        HEXLOWER.encode(&SEED),
        BASE64.encode(&SEED),
        BASE64URL_NOPAD.encode(&SEED),
        decimal.trim_matches(['[', ']']).to_owned(),
        String::from_utf8(SEED.to_vec()).unwrap(),
    ];
    let text = text.to_lowercase();
    shown
        .iter()
        .any(|secret| text.contains(&secret.to_lowercase()) || text.contains(&secret[..12].to_lowercase()))
}

#[test]
fn debug_text() {
    let key = SigningKey::from_seed(&SEED);
    for text in
        [format!("{key:?}"), format!("{key:#?}"), format!("{:?}", Some(&key)), format!("{:?}", vec![&key])]
    {
        assert!(!betrays(&text), "{text}");
        assert!(text.contains(&key.public().id()) && text.contains("hidden"), "{text}");
    }
    assert!(betrays(&key.to_file()), "the test would notice");
}

#[test]
fn errors_do_not_repeat_a_key_file() {
    let file = SigningKey::from_seed(&SEED).to_file();
    let whole = file.trim_end();
    assert_eq!(SigningKey::from_file(whole).unwrap().public(), SigningKey::from_seed(&SEED).public());
    for broken in
        [&whole[1..], &whole[..whole.len() - 1], &format!("{whole}AAAA"), &whole.replace("ed25519", "ed448")]
    {
        let error = SigningKey::from_file(broken).unwrap_err();
        assert!(!betrays(&format!("{error} {error:?}")));
    }
}

#[test]
fn panics_do_not_show_a_key() {
    let panic = std::panic::catch_unwind(|| {
        let failed = || Err::<(), SigningKey>(SigningKey::from_seed(&SEED));
        failed().unwrap();
    });
    let text = *panic.unwrap_err().downcast::<String>().unwrap();
    assert!(!betrays(&text), "{text}");
    assert!(text.contains("hidden"));
}
