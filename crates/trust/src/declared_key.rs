//! A node's public key as people write it into the fleet repo (CFG-8).

use data_encoding::BASE64;

use crate::key::{KeyAlgorithm, PublicKey};

const SSH_ED25519: &str = "ssh-ed25519";
const SSH_ECDSA: &str = "ecdsa-sha2-nistp256";
const ECDSA_CURVE: &[u8] = b"nistp256";
const FINGERPRINT: &str = "SHA256:";
/// The length of a fingerprint's digest, in bytes.
const DIGEST_LEN: usize = 32;

/// A text that names no key which a node can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeclaredKeyError {
    /// It is a fingerprint as SSH prints it, which is another digest.
    #[error(
        "that is the fingerprint that ssh-keygen prints, which is another one than `muster-agent fingerprint` does"
    )]
    SshFingerprint,
    /// It is none of the forms, or of an algorithm that nodes do not have.
    #[error(
        "it is neither an ed25519 or ecdsa-sha2-nistp256 SSH public key nor what `muster-agent fingerprint` prints"
    )]
    Form,
}

/// The fingerprint of a declared key: of an SSH public key (`ssh-ed25519 AAAA...`, `ecdsa-sha2-nistp256 AAAA...`, with
/// or without a comment), of a key as Muster writes it (`ed25519:...`), or given itself (`SHA256:...`).
///
/// # Errors
/// [`DeclaredKeyError`] says what the text is instead.
pub fn fingerprint(text: &str) -> Result<String, DeclaredKeyError> {
    let text = text.trim();
    if let Some(digest) = text.strip_prefix(FINGERPRINT) {
        return match BASE64.decode(digest.as_bytes()) {
            Ok(bytes) if bytes.len() == DIGEST_LEN => Ok(text.to_owned()),
            Ok(_) => Err(DeclaredKeyError::Form),
            // SSH leaves the padding out.
            Err(_) if BASE64.decode(format!("{digest}=").as_bytes()).is_ok() => {
                Err(DeclaredKeyError::SshFingerprint)
            }
            Err(_) => Err(DeclaredKeyError::Form),
        };
    }
    let key = text.parse::<PublicKey>().ok().or_else(|| ssh_key(text));
    key.map(|key| key.fingerprint()).ok_or(DeclaredKeyError::Form)
}

/// Reads a line of `ssh_host_*_key.pub` (RFC 4253, RFC 5656).
fn ssh_key(text: &str) -> Option<PublicKey> {
    let mut words = text.split_ascii_whitespace();
    let (algorithm, encoded) = (words.next()?, words.next()?);
    let blob = BASE64.decode(encoded.as_bytes()).ok()?;
    let mut rest = blob.as_slice();
    if field(&mut rest)? != algorithm.as_bytes() {
        return None;
    }
    let (algorithm, raw) = match algorithm {
        SSH_ED25519 => (KeyAlgorithm::Ed25519, field(&mut rest)?),
        SSH_ECDSA if field(&mut rest)? == ECDSA_CURVE => (KeyAlgorithm::EcdsaP256, field(&mut rest)?),
        _ => return None,
    };
    PublicKey::from_raw(algorithm, raw).ok().filter(|_| rest.is_empty())
}

/// The next string of SSH's wire form: four bytes of its length, then its bytes.
fn field<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (found, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::key::SigningKey;

    fn line(algorithm: &str, fields: &[&[u8]]) -> String {
        let mut blob = Vec::new();
        for field in [algorithm.as_bytes()].iter().chain(fields) {
            blob.extend(u32::try_from(field.len()).unwrap().to_be_bytes());
            blob.extend(*field);
        }
        format!("{algorithm} {} root@db-1", BASE64.encode(&blob))
    }

    /// CFG-8: a key is declared as SSH writes it, as Muster does, or by its fingerprint.
    #[test]
    fn each_form_names_the_same_key() {
        let ed = SigningKey::from_seed(&[7; 32]).public();
        let p256 = SigningKey::from_secret(KeyAlgorithm::EcdsaP256, &[9; 32]).unwrap().public();
        for (text, key) in [
            (line(SSH_ED25519, &[&ed.raw()]), ed),
            (line(SSH_ECDSA, &[ECDSA_CURVE, &p256.raw()]), p256),
            (ed.to_string(), ed),
            (p256.fingerprint(), p256),
        ] {
            assert_eq!(fingerprint(&text), Ok(key.fingerprint()), "{text}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let ed = SigningKey::from_seed(&[7; 32]).public();
        let longer = line(SSH_ED25519, &[&ed.raw(), b"more"]);
        let other_curve = line(SSH_ECDSA, &[b"nistp384", &[4; 65]]);
        let rsa = line("ssh-rsa", &[&[1; 3], &[2; 256]]);
        let weak = line(SSH_ED25519, &[&[0; 32]]);
        // Of a curve that a point of ours cannot be of, and a digest of another length.
        let p256 = SigningKey::from_secret(KeyAlgorithm::EcdsaP256, &[9; 32]).unwrap().public();
        let misnamed = line(SSH_ECDSA, &[b"nistp384", &p256.raw()]);
        let short = format!("{FINGERPRINT}{}", BASE64.encode(&[1; DIGEST_LEN - 2]));
        let odd = ["", "ssh-ed25519", "ssh-ed25519 !", "SHA256:short", &short];
        for text in odd.into_iter().chain([&*longer, &other_curve, &misnamed, &rsa, &weak]) {
            assert_eq!(fingerprint(text), Err(DeclaredKeyError::Form), "{text}");
        }
        let of_ssh = ed.fingerprint().trim_end_matches('=').to_owned();
        assert_eq!(fingerprint(&of_ssh), Err(DeclaredKeyError::SshFingerprint));
    }
}
