//! Base 32 as Nix writes it: its own alphabet, the last bits first.

use model::Digest;

/// Without e, o, t and u.
pub(super) const ALPHABET: &[u8; 32] = b"0123456789abcdfghijklmnpqrsvwxyz";
/// The length of a SHA-256, in characters.
const DIGEST_CHARS: usize = 52;

/// A SHA-256 as Nix writes it.
pub(super) fn encode(digest: &Digest) -> String {
    let bytes = digest.as_bytes();
    let char_at = |at: usize| {
        let (byte, bit) = (at * 5 / 8, at * 5 % 8);
        let low = u16::from(bytes[byte]);
        let high = u16::from(bytes.get(byte + 1).copied().unwrap_or(0));
        char::from(ALPHABET[usize::from(((low | high << 8) >> bit) & 31)])
    };
    (0..DIGEST_CHARS).rev().map(char_at).collect()
}

/// Reads what [`encode`] writes; nothing else.
pub(super) fn decode(text: &str) -> Option<Digest> {
    if text.len() != DIGEST_CHARS {
        return None;
    }
    let mut bytes = [0_u8; 32];
    for (at, c) in text.bytes().rev().enumerate() {
        let digit = u16::try_from(ALPHABET.iter().position(|known| *known == c)?).ok()?;
        let (byte, bit) = (at * 5 / 8, at * 5 % 8);
        let [low, high] = (digit << bit).to_le_bytes();
        bytes[byte] |= low;
        match bytes.get_mut(byte + 1) {
            Some(next) => *next |= high,
            None if high == 0 => {}
            // Bits behind the end: another text of the same digest.
            None => return None,
        }
    }
    Some(Digest(bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_digest_has_the_text_that_nix_gives_it() {
        // `nix-hash --type sha256 --to-base32` of the SHA-256 of nothing.
        let empty = "0mdqa9w1p6cmli6976v4wi0sw9r4p5prkj7lzfd1877wk11c9c73";
        assert_eq!(encode(&Digest::of(b"")), empty);
        assert_eq!(decode(empty), Some(Digest::of(b"")));
        for number in 0_u32..200 {
            let digest = Digest::of(&number.to_be_bytes());
            assert_eq!(decode(&encode(&digest)), Some(digest));
        }
        for other in
            ["", "0mdqa9", &empty.to_uppercase(), &empty.replacen('0', "e", 1), &empty.replacen('0', "z", 1)]
        {
            assert_eq!(decode(other), None, "{other}");
        }
    }
}
