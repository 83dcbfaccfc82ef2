//! [`LocalVault`]: what an agent keeps for itself of files that held a secret, under a key of its own (SEC-3).

use zeroize::Zeroizing;

use super::key::SealingKey;
use super::primitives::{self, Key, NONCE_LEN};

/// What sealed bytes begin with.
const MAGIC: &[u8] = b"muster-kept-sealed-1\0";

/// Seals and opens with a key that is derived of the node's sealing key. The same bytes are always sealed as the same,
/// so that the digest of what is sealed is a keyed digest of them.
pub struct LocalVault {
    key: Key,
    nonces: Key,
}

impl LocalVault {
    /// The vault of a node.
    pub fn of(key: &SealingKey) -> LocalVault {
        LocalVault {
            key: primitives::hkdf(None, key.secret(), &[b"muster local vault key 1"]),
            nonces: primitives::hkdf(None, key.secret(), &[b"muster local vault nonces 1"]),
        }
    }

    /// Seals bytes; `None` only for what no memory holds.
    pub fn seal(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mac = primitives::mac(&self.nonces, &[bytes]);
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&mac[..NONCE_LEN]);
        let sealed = primitives::seal(&self.key, nonce, MAGIC, bytes)?;
        Some([MAGIC, &nonce, &sealed].concat())
    }

    /// Opens what this vault sealed; `None` for anything else.
    pub fn open(&self, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, sealed) = sealed.strip_prefix(MAGIC)?.split_first_chunk::<NONCE_LEN>()?;
        primitives::open(&self.key, *nonce, MAGIC, sealed)
    }

    /// How sealed bytes begin.
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// How many bytes tell whether something is sealed.
    pub const PREFIX: usize = MAGIC.len();
}

impl std::fmt::Debug for LocalVault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LocalVault(keys hidden)")
    }
}
