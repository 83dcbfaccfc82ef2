//! Keys: ed25519 or ECDSA P-256; the algorithm belongs to the key (IDN-1, IDN-8).
//!
//! A signature never says which algorithm it is of: the key that verifies it decides, so that a
//! signature of one algorithm counts under no key of the other. Both algorithms have private
//! halves of 32 bytes and signatures of 64 (for P-256 `r || s`, as RFC 9421 has it). The raw form
//! of a public key is what stands in the bit string of its SubjectPublicKeyInfo: 32 bytes for
//! ed25519, the 65 bytes of the uncompressed point for P-256; key ids, fingerprints and node ids
//! are derived from it. The private half cannot be printed.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE64, HEXLOWER};
use ed25519_dalek::Signer;
use model::{Digest, NodeId};
use p256::ecdsa::signature::Verifier;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

/// The length of a private half, in bytes.
pub const SECRET_LEN: usize = 32;
/// The length of a signature, in bytes.
pub const SIGNATURE_LEN: usize = 64;
/// The length of the longest raw public key, in bytes.
const MAX_RAW: usize = 65;
/// The first byte of an uncompressed point.
const UNCOMPRESSED: u8 = 4;

/// What stands before the raw form in a SubjectPublicKeyInfo: its DER form has one prefix for each algorithm.
const SPKI_PREFIXES: [(KeyAlgorithm, &[u8]); 2] = [
    (KeyAlgorithm::Ed25519, &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00]),
    (
        KeyAlgorithm::EcdsaP256,
        &[
            0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
            0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
        ],
    ),
];

/// What a key signs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyAlgorithm {
    /// Ed25519, verified strictly (RFC 8032).
    Ed25519,
    /// ECDSA over NIST P-256 with SHA-256, for hosts whose TPM or client has only that.
    EcdsaP256,
}

impl KeyAlgorithm {
    /// All algorithms.
    pub const ALL: [KeyAlgorithm; 2] = [KeyAlgorithm::Ed25519, KeyAlgorithm::EcdsaP256];

    /// Its name before the colon of a key's text form.
    pub fn as_str(self) -> &'static str {
        match self {
            KeyAlgorithm::Ed25519 => "ed25519",
            KeyAlgorithm::EcdsaP256 => "ecdsa-p256",
        }
    }

    /// Its name as `alg` of an HTTP signature (RFC 9421).
    pub fn http_name(self) -> &'static str {
        match self {
            KeyAlgorithm::Ed25519 => "ed25519",
            KeyAlgorithm::EcdsaP256 => "ecdsa-p256-sha256",
        }
    }
}

impl fmt::Display for KeyAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for KeyAlgorithm {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<KeyAlgorithm, ParseKeyError> {
        KeyAlgorithm::ALL.into_iter().find(|algorithm| algorithm.as_str() == text).ok_or(ParseKeyError)
    }
}

/// The private half of a key. Never printed, wiped when dropped.
pub struct SigningKey(PrivateHalf);

enum PrivateHalf {
    Ed25519(ed25519_dalek::SigningKey),
    EcdsaP256(p256::ecdsa::SigningKey),
}

impl SigningKey {
    /// The ed25519 key with this seed.
    pub fn from_seed(seed: &[u8; SECRET_LEN]) -> SigningKey {
        SigningKey(PrivateHalf::Ed25519(ed25519_dalek::SigningKey::from_bytes(seed)))
    }

    /// The key of an algorithm with this private half: an ed25519 seed, or a big-endian scalar.
    ///
    /// # Errors
    /// When the scalar is zero or not below the curve's order.
    pub fn from_secret(
        algorithm: KeyAlgorithm,
        secret: &[u8; SECRET_LEN],
    ) -> Result<SigningKey, ParseKeyError> {
        match algorithm {
            KeyAlgorithm::Ed25519 => Ok(SigningKey::from_seed(secret)),
            KeyAlgorithm::EcdsaP256 => {
                let key = p256::ecdsa::SigningKey::from_slice(secret).map_err(|_| ParseKeyError)?;
                Ok(SigningKey(PrivateHalf::EcdsaP256(key)))
            }
        }
    }

    /// What it signs with.
    pub fn algorithm(&self) -> KeyAlgorithm {
        match self.0 {
            PrivateHalf::Ed25519(_) => KeyAlgorithm::Ed25519,
            PrivateHalf::EcdsaP256(_) => KeyAlgorithm::EcdsaP256,
        }
    }

    /// The private half, for writing the key to its own 0600 file and for TLS.
    pub fn secret(&self) -> Zeroizing<[u8; SECRET_LEN]> {
        Zeroizing::new(match &self.0 {
            PrivateHalf::Ed25519(key) => key.to_bytes(),
            PrivateHalf::EcdsaP256(key) => key.to_bytes().into(),
        })
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        PublicKey(match &self.0 {
            PrivateHalf::Ed25519(key) => PublicHalf::Ed25519(key.verifying_key()),
            PrivateHalf::EcdsaP256(key) => PublicHalf::EcdsaP256(*key.verifying_key()),
        })
    }

    /// Signs bytes; the same bytes always get the same signature.
    pub fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_LEN] {
        match &self.0 {
            PrivateHalf::Ed25519(key) => key.sign(message).to_bytes(),
            PrivateHalf::EcdsaP256(key) => {
                let signature: p256::ecdsa::Signature = key.sign(message);
                signature.to_bytes().into()
            }
        }
    }

    /// The text form for key files: the algorithm, `-private:` and base64 of the private half.
    pub fn to_file(&self) -> Zeroizing<String> {
        let secret = BASE64.encode(self.secret().as_slice());
        Zeroizing::new(format!("{}-private:{secret}\n", self.algorithm()))
    }

    /// Reads the text form of a key file.
    ///
    /// # Errors
    /// When the text has another form; the error does not repeat it.
    pub fn from_file(text: &str) -> Result<SigningKey, ParseKeyError> {
        let (algorithm, encoded) = text.trim().split_once("-private:").ok_or(ParseKeyError)?;
        let secret = Zeroizing::new(BASE64.decode(encoded.as_bytes()).map_err(|_| ParseKeyError)?);
        let secret: &[u8; SECRET_LEN] = secret.as_slice().try_into().map_err(|_| ParseKeyError)?;
        SigningKey::from_secret(algorithm.parse()?, secret)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({}, private half hidden)", self.public().id())
    }
}

/// A public key. Text form: the algorithm, a colon, base64 of the raw form.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(PublicHalf);

#[derive(Clone, Copy, PartialEq, Eq)]
enum PublicHalf {
    Ed25519(ed25519_dalek::VerifyingKey),
    EcdsaP256(p256::ecdsa::VerifyingKey),
}

/// The text or bytes are not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a key: expected ed25519 and 32 bytes, or ecdsa-p256 and 65 bytes of an uncompressed point, in base64"
)]
pub struct ParseKeyError;

impl PublicKey {
    /// The key with this raw form.
    ///
    /// # Errors
    /// When the bytes are not a point on the algorithm's curve in its one raw form, or a weak one.
    pub fn from_raw(algorithm: KeyAlgorithm, raw: &[u8]) -> Result<PublicKey, ParseKeyError> {
        Ok(PublicKey(match algorithm {
            KeyAlgorithm::Ed25519 => {
                let raw = raw.try_into().map_err(|_| ParseKeyError)?;
                let key = ed25519_dalek::VerifyingKey::from_bytes(raw).map_err(|_| ParseKeyError)?;
                if key.is_weak() {
                    return Err(ParseKeyError);
                }
                PublicHalf::Ed25519(key)
            }
            KeyAlgorithm::EcdsaP256 => {
                // One form alone, so that one key has one id.
                if raw.len() != MAX_RAW || raw[0] != UNCOMPRESSED {
                    return Err(ParseKeyError);
                }
                let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(raw).map_err(|_| ParseKeyError)?;
                PublicHalf::EcdsaP256(key)
            }
        }))
    }

    /// The key in this SubjectPublicKeyInfo (RFC 8410, RFC 5480), as key services and OpenSSL write one.
    ///
    /// # Errors
    /// As [`PublicKey::from_raw`], and for a key of another algorithm.
    pub fn from_spki(der: &[u8]) -> Result<PublicKey, ParseKeyError> {
        let of = |(algorithm, prefix): &(KeyAlgorithm, &[u8])| {
            Some(PublicKey::from_raw(*algorithm, der.strip_prefix(*prefix)?))
        };
        SPKI_PREFIXES.iter().find_map(of).unwrap_or(Err(ParseKeyError))
    }

    /// Its SubjectPublicKeyInfo in DER.
    pub fn spki(&self) -> Vec<u8> {
        let prefix = SPKI_PREFIXES.iter().find(|(algorithm, _)| *algorithm == self.algorithm());
        // Each algorithm has one.
        [prefix.map_or(&[][..], |(_, prefix)| prefix), &self.raw()].concat()
    }

    /// What its signatures are verified with.
    pub fn algorithm(&self) -> KeyAlgorithm {
        match self.0 {
            PublicHalf::Ed25519(_) => KeyAlgorithm::Ed25519,
            PublicHalf::EcdsaP256(_) => KeyAlgorithm::EcdsaP256,
        }
    }

    /// The raw form.
    pub fn raw(&self) -> Vec<u8> {
        match &self.0 {
            PublicHalf::Ed25519(key) => key.as_bytes().to_vec(),
            PublicHalf::EcdsaP256(key) => key.to_sec1_point(false).as_bytes().to_vec(),
        }
    }

    /// The id of the node that holds this key.
    pub fn node_id(&self) -> NodeId {
        NodeId::of_key(&self.raw())
    }

    /// A short id: the first 16 hex digits of the raw key's digest.
    pub fn id(&self) -> String {
        HEXLOWER.encode(&Digest::of(&self.raw()).0[..8])
    }

    /// What people compare and tokens name: SHA-256 of the raw key, `SHA256:` and base64.
    pub fn fingerprint(&self) -> String {
        format!("SHA256:{}", BASE64.encode(Digest::of(&self.raw()).as_bytes()))
    }

    /// The raw form of a signature of this key's algorithm: 64 bytes as they are, or of P-256 also the DER form that
    /// key services print. It says nothing of whether the signature is good.
    pub fn raw_signature(&self, bytes: &[u8]) -> Option<[u8; SIGNATURE_LEN]> {
        match (bytes.try_into(), &self.0) {
            (Ok(raw), _) => Some(raw),
            (Err(_), PublicHalf::Ed25519(_)) => None,
            (Err(_), PublicHalf::EcdsaP256(_)) => {
                p256::ecdsa::Signature::from_der(bytes).ok().map(|signature| signature.to_bytes().into())
            }
        }
    }

    /// Whether this key made the signature over exactly these bytes. Ed25519 strictly: no
    /// malleable signature and no weak key passes. Of a P-256 signature `(r, s)` anybody can make
    /// `(r, n - s)`, and stock clients make both: nothing may be identified by its signature.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.0 {
            PublicHalf::Ed25519(key) => ed25519_dalek::Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify_strict(message, &signature).is_ok()),
            PublicHalf::EcdsaP256(key) => p256::ecdsa::Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify(message, &signature).is_ok()),
        }
    }
}

impl FromStr for PublicKey {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<PublicKey, ParseKeyError> {
        let (algorithm, encoded) = text.split_once(':').ok_or(ParseKeyError)?;
        let raw = BASE64.decode(encoded.as_bytes()).map_err(|_| ParseKeyError)?;
        PublicKey::from_raw(algorithm.parse()?, &raw)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm(), BASE64.encode(&self.raw()))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PublicKey, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
