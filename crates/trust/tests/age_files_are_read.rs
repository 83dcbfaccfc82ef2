//! SEC-2: age files are read and written as other programs of that format do, and what is wrong with one is named.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use trust::sealing::SealingKey;
use trust::sealing::age::{AgeError, armor, decrypt, encrypt};

/// Made by another program, for two recipients; it holds `hunter2` and a newline.
const ARMORED: &str = "\
-----BEGIN AGE ENCRYPTED FILE-----
YWdlLWVuY3J5cHRpb24ub3JnL3YxCi0+IFgyNTUxOSBHVmdtYmcxRVpMdmU3NmF0
UFM0NDllNVlJeE1EWTJ5akVjVFRHdGtGc3hnCnJXaGhzMW5tNnJVcDVpWXYwc3B6
d3R5Q0Z4YWpYZW5vNFVIRllRbTRMRkkKLT4gWDI1NTE5IHZ2RXRtTnErM2d6U1hj
Vjh2K0RUS2RDdXl4QkR0SWhjT2VUT1F3Ritjd0EKMlkrK0w4bW9iN0oyVEFmcTVW
ZjI0cHg4a2tLdnNMb1dFS2RHZjZMMVI1bwotPiBTck8+Rk5WdS1ncmVhc2UKWkN2
K0hOSnQ0QkJiTy9QQmxOcFF0b0JHSHBFUGw1cUhpNVh3YVEKLS0tIGZUUVN3Tzlx
YXN0OFRZcFFuQU1jWmpTSXpBdll4bEE0ZlFUYlRjbTRVcWMKW1VhAHlFjK3wHGsE
6Bk32FByGACIKKgMnTwYQpIuz96YVA8zaTAbYg==
-----END AGE ENCRYPTED FILE-----
";
/// One of its recipients.
const IDENTITY: &str = "AGE-SECRET-KEY-18MRACA8P3SXHGX6DW9TWN0PAXC2FHTWVZJXSNVV2PN5Y59HY58NSATQUS2";
const PUBLIC: &str = "age106vww2u0zkp0sqn0pcagac802g3shtkaj8e53x5hxhzkfdjgdfzqx95hrg";
const LIMIT: usize = 64 * 1024;

fn identity() -> SealingKey {
    SealingKey::from_file(IDENTITY).unwrap()
}

fn key(of: u8) -> SealingKey {
    SealingKey::from_secret(&[of; 32]).unwrap()
}

#[test]
fn a_file_of_another_program_is_read() {
    assert_eq!(identity().public().to_string(), PUBLIC);
    let plain = decrypt(ARMORED.as_bytes(), &[key(1), identity()], LIMIT).unwrap();
    assert_eq!(plain.as_slice(), b"hunter2\n");
}

#[test]
fn what_is_written_is_read_by_its_recipients_alone() {
    for length in [0, 1, 65_535, 65_536, 65_537, 140_000] {
        let plain = vec![7; length];
        let file = encrypt(&plain, &[key(1).public(), key(2).public()], &[9; 32]).unwrap();
        for of in [1, 2] {
            let read = decrypt(&file, &[key(of)], 200_000).unwrap();
            assert_eq!((read.len(), read.as_slice() == plain), (length, true));
        }
        assert_eq!(decrypt(armor(&file).as_bytes(), &[key(2)], 200_000).unwrap().len(), length);
        assert_eq!(decrypt(&file, &[key(3)], 200_000).unwrap_err(), AgeError::OtherRecipients);
    }
    let file = encrypt(&[7; 65_537], &[key(1).public()], &[9; 32]).unwrap();
    assert_eq!(decrypt(&file, &[key(1)], LIMIT).unwrap_err(), AgeError::TooLarge(LIMIT));
    assert_eq!(encrypt(b"", &[], &[9; 32]).unwrap_err(), AgeError::Recipients);
}

#[test]
fn what_is_wrong_with_a_file_is_named() {
    let file = encrypt(b"hunter2", &[key(1).public()], &[9; 32]).unwrap();
    let read = |file: &[u8]| decrypt(file, &[key(1)], LIMIT).map(drop).unwrap_err();
    assert_eq!(read(b"hunter2"), AgeError::NotAge);
    assert_eq!(read(b""), AgeError::NotAge);
    assert_eq!(
        read(b"age-encryption.org/v1\n-> scrypt c2FsdA 18\nAAAA\n--- AAAA\n"),
        AgeError::Damaged("its header is not of the form")
    );
    let tag = "A".repeat(43);
    let passphrase = format!("age-encryption.org/v1\n-> scrypt c2FsdA 18\nAAAA\n--- {tag}\n");
    assert_eq!(read(passphrase.as_bytes()), AgeError::Passphrase);
    // No byte of it may change, be added or be missing.
    for at in 0..file.len() {
        let mut changed = file.clone();
        changed[at] ^= 1;
        assert!(decrypt(&changed, &[key(1)], LIMIT).is_err(), "byte {at}");
        assert!(decrypt(&file[..at], &[key(1)], LIMIT).is_err(), "{at} bytes");
    }
    assert!(decrypt(&[file.as_slice(), b"x"].concat(), &[key(1)], LIMIT).is_err());
    // No error says what the file holds.
    let errors = format!("{:?} {:?}", read(&file[..file.len() - 1]), read(b"hunter2"));
    assert!(!errors.contains("hunter2"));
    for armored in [ARMORED.replace("YWdl", "YWd!"), ARMORED.replace("FILE-----\nYW", "FILE-----\n\nYW")] {
        assert!(decrypt(armored.as_bytes(), &[identity()], LIMIT).is_err());
    }
}
