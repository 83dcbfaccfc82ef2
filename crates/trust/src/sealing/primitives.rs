//! What sealing is made of: HKDF-SHA256, ChaCha20-Poly1305 and X25519, with fixed sizes and nothing random.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::hmac;
use zeroize::Zeroizing;

/// The length of keys and points, in bytes.
pub(super) const KEY_LEN: usize = 32;
/// The length of an authentication tag, in bytes.
pub(super) const TAG_LEN: usize = 16;
/// The length of a nonce, in bytes.
pub(super) const NONCE_LEN: usize = 12;

/// A key in memory; wiped when dropped.
pub(super) type Key = Zeroizing<[u8; KEY_LEN]>;

/// HMAC-SHA256 of some parts, one after the other.
pub(super) fn mac(key: &[u8; KEY_LEN], parts: &[&[u8]]) -> Key {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    parts.iter().for_each(|part| context.update(part));
    let tag = context.sign();
    let mut out = Zeroizing::new([0; KEY_LEN]);
    // The tag of SHA-256 has this length.
    out.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
    out
}

/// Whether a tag is the HMAC-SHA256 of some bytes, in constant time.
pub(super) fn is_mac(key: &[u8; KEY_LEN], bytes: &[u8], tag: &[u8]) -> bool {
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key), bytes, tag).is_ok()
}

/// HKDF-SHA256 (RFC 5869) of one block. No salt is the empty one.
pub(super) fn hkdf(salt: Option<&[u8]>, secret: &[u8], info: &[&[u8]]) -> Key {
    // HMAC pads a short key with zeros, and hashes a long one.
    let extracted = match salt {
        Some(salt) => {
            let key = hmac::Key::new(hmac::HMAC_SHA256, salt);
            let mut out = Zeroizing::new([0; KEY_LEN]);
            out.iter_mut().zip(hmac::sign(&key, secret).as_ref()).for_each(|(to, from)| *to = *from);
            out
        }
        None => mac(&[0; KEY_LEN], &[secret]),
    };
    let parts: Vec<&[u8]> = info.iter().copied().chain([&[1_u8][..]]).collect();
    mac(&extracted, &parts)
}

/// Seals with ChaCha20-Poly1305; `None` only for what is too long for it.
pub(super) fn seal(
    key: &[u8; KEY_LEN],
    nonce: [u8; NONCE_LEN],
    about: &[u8],
    plain: &[u8],
) -> Option<Vec<u8>> {
    let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).ok()?);
    let mut out = Vec::with_capacity(plain.len() + TAG_LEN);
    out.extend_from_slice(plain);
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(about), &mut out).ok()?;
    Some(out)
}

/// Opens what [`seal`] made; `None` for anything else.
pub(super) fn open(
    key: &[u8; KEY_LEN],
    nonce: [u8; NONCE_LEN],
    about: &[u8],
    sealed: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).ok()?);
    let mut out = Zeroizing::new(sealed.to_vec());
    let length =
        key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(about), &mut out).ok()?.len();
    out.truncate(length);
    Some(out)
}

/// The public half of an X25519 key.
pub(super) fn public(secret: &[u8; KEY_LEN]) -> Option<[u8; KEY_LEN]> {
    let key = PrivateKey::from_private_key(&X25519, secret).ok()?;
    key.compute_public_key().ok()?.as_ref().try_into().ok()
}

/// What both sides of an X25519 agreement share; `None` for a point that shares nothing.
pub(super) fn shared(secret: &[u8; KEY_LEN], point: &[u8; KEY_LEN]) -> Option<Key> {
    let key = PrivateKey::from_private_key(&X25519, secret).ok()?;
    let peer = UnparsedPublicKey::new(&X25519, point);
    let shared =
        agree(&key, peer, (), |shared| shared.try_into().map(Zeroizing::new).map_err(|_| ())).ok()?;
    (*shared != [0; KEY_LEN]).then_some(shared)
}

/// Parts, each with its length, so that no two lists of parts are the same bytes.
pub(super) fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        out.extend_from_slice(&(part.len() as u64).to_be_bytes());
        out.extend_from_slice(part);
    }
    out
}
