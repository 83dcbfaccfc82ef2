//! Sealing: how secrets travel from the machine that publishes to the memory of a node (SEC-1).
//!
//! ```text
//! publisher   SecretSealer::seal(name, value) -> InHand {SealedSecret, data key}    once for all nodes
//!             InHand::wrap(node, recipient)   -> a line of SecretKeys               for each node
//! release     objects `SecretRef` (SealedSecret) and `SecretKeys`, in the node's signed set
//! node        open(sealing key, node, SealedSecret, SecretKeys) -> the value, in memory
//! ```
//!
//! The data key of a value follows from the publisher's seed, the secret's name and the value itself, and what is
//! ephemeral in a wrap from the data key and the recipient. So what did not change is sealed as the same bytes, nothing
//! is uploaded anew and nobody has to remember anything; and who has the seed alone opens nothing. A key seals one value
//! only, so that its nonce may be fixed. A wrap is an X25519 agreement as age's, and is bound to the node, the secret
//! and what is sealed: at another node, or beside other bytes, it opens nothing.

pub mod age;
mod bech32;
mod key;
mod primitives;
mod statement;
mod vault;

use std::collections::BTreeMap;

use data_encoding::BASE64;
use model::{Digest, Hostname};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::key::SigningKey;
pub use key::{ParseRecipientError, RecipientKey, SealingKey};
use primitives::{KEY_LEN, Key, NONCE_LEN, TAG_LEN};
pub use statement::{RelayedStatement, SealingStatement, SealingStatementError};
pub use vault::LocalVault;

/// The longest value of a secret, in bytes.
pub const MAX_SECRET: usize = 64 * 1024;
/// The most secrets of one node.
pub const MAX_NODE_SECRETS: usize = 1000;
/// What sealed values, and what is said beside them, are about.
const SECRET: &[u8] = b"muster secret 1";
/// What wraps are about.
const WRAP: &[u8] = b"muster secret wrap 1";
/// The bytes of a wrap: a point, and a key with its tag.
const WRAP_LEN: usize = KEY_LEN + KEY_LEN + TAG_LEN;

/// Why a secret is not sealed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Its value is too long.
    #[error("secret `{name}` has {size} bytes; a secret has at most {MAX_SECRET}")]
    TooLarge {
        /// The secret.
        name: String,
        /// Its length in bytes.
        size: usize,
    },
    /// The recipient's key is a point that shares nothing with anybody.
    #[error("the recipient key {0} is no key that anything can be sealed for")]
    WeakRecipient(RecipientKey),
}

/// Why a node does not open a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenSecretError {
    /// The release has no keys for this node.
    #[error(
        "the release seals nothing for this node: its recipient key was not known when it was published; `muster secret trust` \
         it, with what `muster-agent identity` prints here, and publish"
    )]
    NoKeys,
    /// There is no wrap of this secret.
    #[error("the release does not seal it for this node")]
    NoWrap,
    /// The keys are of another node.
    #[error("its wrap is of another node")]
    OtherNode,
    /// The keys are for another key than the node has.
    #[error(
        "it is sealed for another key than this node's; `muster secret trust` what `muster-agent identity` prints here, and \
         publish"
    )]
    OtherKey,
    /// The wrap is not of this node and this secret.
    #[error("its wrap is not of this node and this secret")]
    Wrap,
    /// The sealed bytes are not what the data key is of.
    #[error("what is sealed is damaged")]
    Sealed,
    /// Something is not of the form.
    #[error("it is not of the form")]
    Form,
}

/// A secret as all its nodes get it: content of an object of kind `SecretRef`, whose name is the secret's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SealedSecret {
    /// The secret's name.
    pub name: String,
    /// A digest of the data key, so that no other key opens the same bytes as another value.
    pub commitment: Digest,
    /// The value under the data key, in base64.
    pub sealed: String,
}

/// A node's own keys to its secrets: content of its object of kind `SecretKeys`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeys {
    /// The node.
    pub node: Hostname,
    /// The key that the wraps are for.
    pub recipient: RecipientKey,
    /// By the secret's name its data key, wrapped for this node, in base64.
    pub wraps: BTreeMap<String, String>,
}

/// Seals for a publisher: with the same release key the same values are sealed as the same bytes.
pub struct SecretSealer {
    seed: Key,
}

/// A secret in the hands of the publisher, which wraps it for nodes.
pub struct InHand {
    data_key: Key,
    sealed: SealedSecret,
    digest: Digest,
    seed: Key,
}

impl SecretSealer {
    /// The sealer of a publisher that signs with this key.
    pub fn of(release: &SigningKey) -> SecretSealer {
        SecretSealer::of_source(release.secret().as_slice())
    }

    /// The sealer of a publisher who has some other bytes that nobody else knows, and the same ones at each publish.
    pub fn of_source(secret: &[u8]) -> SecretSealer {
        SecretSealer { seed: primitives::hkdf(None, secret, &[b"muster sealing seed 1"]) }
    }

    /// Seals a value of at most [`MAX_SECRET`] bytes.
    ///
    /// # Errors
    /// [`SealError::TooLarge`].
    pub fn seal(&self, name: &str, value: &[u8]) -> Result<InHand, SealError> {
        let too_large = || SealError::TooLarge { name: name.to_owned(), size: value.len() };
        if value.len() > MAX_SECRET {
            return Err(too_large());
        }
        let about = primitives::joined(&[SECRET, name.as_bytes()]);
        let data_key = primitives::mac(&self.seed, &[&about, value]);
        let sealed = primitives::seal(&data_key, [0; NONCE_LEN], &about, value).ok_or_else(too_large)?;
        let digest = Digest::of(&sealed);
        let (commitment, sealed) = (commitment(&data_key), BASE64.encode(&sealed));
        let sealed = SealedSecret { name: name.to_owned(), commitment, sealed };
        Ok(InHand { data_key, sealed, digest, seed: self.seed.clone() })
    }
}

impl InHand {
    /// What all nodes get of it.
    pub fn sealed(&self) -> &SealedSecret {
        &self.sealed
    }

    /// Its data key for one node: a line of [`SecretKeys::wraps`].
    ///
    /// # Errors
    /// [`SealError::WeakRecipient`].
    pub fn wrap(&self, node: &Hostname, recipient: &RecipientKey) -> Result<String, SealError> {
        let weak = || SealError::WeakRecipient(*recipient);
        let about = [WRAP, node.as_str().as_bytes(), recipient.raw().as_slice()];
        let ephemeral = primitives::hkdf(
            Some(self.seed.as_slice()),
            self.data_key.as_slice(),
            &[&primitives::joined(&about)],
        );
        let point = primitives::public(&ephemeral).ok_or_else(weak)?;
        let shared = primitives::shared(&ephemeral, recipient.raw()).ok_or_else(weak)?;
        let key = wrap_key(&shared, &point, recipient);
        let about = wrap_about(node, &self.sealed.name, &self.digest);
        let wrapped =
            primitives::seal(&key, [0; NONCE_LEN], &about, self.data_key.as_slice()).ok_or_else(weak)?;
        Ok(BASE64.encode(&[point.as_slice(), &wrapped].concat()))
    }
}

/// Opens a secret at its node, in memory alone.
///
/// # Errors
/// [`OpenSecretError`]; nothing of the value is in it.
pub fn open(
    key: &SealingKey,
    node: &Hostname,
    sealed: &SealedSecret,
    keys: Option<&SecretKeys>,
) -> Result<Zeroizing<Vec<u8>>, OpenSecretError> {
    let keys = keys.ok_or(OpenSecretError::NoKeys)?;
    if keys.node != *node {
        return Err(OpenSecretError::OtherNode);
    }
    if keys.recipient != key.public() {
        return Err(OpenSecretError::OtherKey);
    }
    let wrap = keys.wraps.get(&sealed.name).ok_or(OpenSecretError::NoWrap)?;
    if sealed.sealed.len() > MAX_SECRET * 2 || wrap.len() > WRAP_LEN * 2 {
        return Err(OpenSecretError::Form);
    }
    let wrap = BASE64.decode(wrap.as_bytes()).map_err(|_| OpenSecretError::Form)?;
    let bytes = BASE64.decode(sealed.sealed.as_bytes()).map_err(|_| OpenSecretError::Form)?;
    let (point, wrapped) = wrap.split_first_chunk::<KEY_LEN>().ok_or(OpenSecretError::Form)?;
    let shared = primitives::shared(key.secret(), point).ok_or(OpenSecretError::Wrap)?;
    let wrap_key = wrap_key(&shared, point, &key.public());
    let about = wrap_about(node, &sealed.name, &Digest::of(&bytes));
    let data_key =
        primitives::open(&wrap_key, [0; NONCE_LEN], &about, wrapped).ok_or(OpenSecretError::Wrap)?;
    let data_key: Key = Zeroizing::new(data_key.as_slice().try_into().map_err(|_| OpenSecretError::Form)?);
    if commitment(&data_key) != sealed.commitment {
        return Err(OpenSecretError::Sealed);
    }
    let about = primitives::joined(&[SECRET, sealed.name.as_bytes()]);
    primitives::open(&data_key, [0; NONCE_LEN], &about, &bytes).ok_or(OpenSecretError::Sealed)
}

fn commitment(data_key: &Key) -> Digest {
    Digest(*primitives::mac(data_key, &[b"muster secret commitment 1"]))
}

fn wrap_key(shared: &Key, point: &[u8; KEY_LEN], recipient: &RecipientKey) -> Key {
    let salt = [point.as_slice(), recipient.raw().as_slice()].concat();
    primitives::hkdf(Some(&salt), shared.as_slice(), &[WRAP])
}

fn wrap_about(node: &Hostname, name: &str, sealed: &Digest) -> Vec<u8> {
    primitives::joined(&[WRAP, node.as_str().as_bytes(), name.as_bytes(), sealed.as_bytes()])
}
