//! Public keys as people hand them on: our text form, or the PEM that key services and OpenSSL write.

use std::io::ErrorKind;
use std::path::Path;

use data_encoding::BASE64;
use trust::PublicKey;

use super::{FleetSigner, SignerError, file};

/// The longest text of a public key, in bytes.
const MAX_TEXT: usize = 4 * 1024;
const BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const END: &str = "-----END PUBLIC KEY-----";

/// The public key that a text is; `None` for anything else.
pub(super) fn parse(text: &[u8]) -> Option<PublicKey> {
    let text = std::str::from_utf8(text.get(..text.len().min(MAX_TEXT))?).ok()?.trim();
    let Some(body) = text.strip_prefix(BEGIN).and_then(|text| text.strip_suffix(END)) else {
        return text.parse().ok();
    };
    let body: String = body.split_whitespace().collect();
    PublicKey::from_spki(&BASE64.decode(body.as_bytes()).ok()?).ok()
}

/// The public key that a file stands for: it may hold that alone, or be any signer.
///
/// # Errors
/// When it is neither, or a signer of it cannot be used.
pub(crate) fn read(path: &Path) -> Result<PublicKey, SignerError> {
    let missing = || SignerError::Read { path: path.to_owned(), source: ErrorKind::NotFound.into() };
    let bytes = file::read(path)?.ok_or_else(missing)?;
    if let Some(key) = parse(&bytes) {
        return Ok(key);
    }
    let signer = FleetSigner::open(path)?.ok_or_else(|| SignerError::NotASigner(path.to_owned()))?;
    Ok(signer.public())
}

#[cfg(test)]
mod tests {
    use trust::{KeyAlgorithm, SigningKey};

    use super::*;

    #[test]
    fn both_forms_of_both_algorithms_are_read() {
        let prefixes: [&[u8]; 2] = [
            &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00],
            &[
                0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08,
                0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
            ],
        ];
        for (algorithm, prefix) in KeyAlgorithm::ALL.into_iter().zip(prefixes) {
            let key = SigningKey::from_secret(algorithm, &[7; 32]).unwrap().public();
            let der = [prefix, &key.raw()].concat();
            let body = BASE64.encode(&der);
            let (first, rest) = body.split_at(64.min(body.len()));
            for text in [format!("{key}\n"), format!("{BEGIN}\n{first}\n{rest}\n{END}\n")] {
                assert_eq!(parse(text.as_bytes()), Some(key), "{text}");
            }
            assert_eq!(parse(format!("{BEGIN}\n{first}\n{END}\n").as_bytes()).is_some(), rest.is_empty());
        }
        assert_eq!(parse(b"hello"), None);
    }
}
