//! Secrets of a fleet: who needs which, and what a release seals for whom (SEC-1, SEC-2).
//!
//! ```text
//! Specialized -> SecretNeeds::of           which names its expressions use, by node
//!   AwaitedStatements                      who may say its recipient key itself, beside what the fleet repo names
//!   sources (the shell's) -> InHand        each value sealed once
//!     FleetSealer::seal                    Specialized, with what each node's set has of its secrets
//! ```
//!
//! A node that a pattern classifies and whose recipient key is known becomes an exact entry of the release: its wraps
//! are its own. What is sealed is shared by all nodes with the same secrets. No observed trait is read: which secrets a
//! node gets follows from what is declared (CFG-9).

mod needs;
mod reseal;
mod seal;
mod stated;

use std::sync::Arc;

use model::trie::Trie;
use model::{Digest, Kind, SectionKey, Stub, set};

use crate::specialize::Grant;
pub use needs::{NeededSecret, SecretNeeds};
pub use reseal::{ResealedSet, Resealer, sealed_in};
pub use seal::{FleetSealer, NotSealed, SealedFleet};
pub use stated::{AwaitedStatements, StatedRecipients};

/// The name of the one object of kind `SecretKeys` in a node's set.
pub const KEYS_NAME: &str = "node";

/// The secrets that nodes share, sealed: objects of kind `SecretRef`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SealedSection {
    /// By name.
    pub objects: Vec<Grant>,
    section: Trie,
}

/// What a node's set has of its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSecrets {
    /// What is sealed.
    pub sealed: Arc<SealedSection>,
    /// The object of kind `SecretKeys`; none where no recipient key is known.
    pub keys: Option<Grant>,
}

impl SealedSection {
    fn of(objects: Vec<Grant>) -> SealedSection {
        let key = SectionKey::of(Kind::SECRET_REF);
        let section = Trie::build(objects.iter().map(|object| leaf(&key, object)));
        SealedSection { objects, section }
    }
}

impl NodeSecrets {
    /// The sections of a set that they are.
    pub(crate) fn sections(&self) -> [(SectionKey, Trie); 2] {
        let [sealed, keys] = secret_sections();
        let own = Trie::build(self.keys.iter().map(|object| leaf(&keys, object)));
        [(sealed, self.sealed.section.clone()), (keys, own)]
    }

    /// What is sealed, as a section.
    pub(crate) fn sealed_section(&self) -> &Trie {
        &self.sealed.section
    }
}

/// The sections of a set that are its secrets.
fn secret_sections() -> [SectionKey; 2] {
    [SectionKey::of(Kind::SECRET_REF), SectionKey::of(Kind::SECRET_KEYS)]
}

fn leaf(section: &SectionKey, object: &Grant) -> model::trie::Leaf {
    let stub = Stub { uid: "".into(), digest: object.digest, size: object.bytes.len() as u64 };
    set::leaf(section, object.name.clone(), stub)
}

fn object(name: &str, bytes: Vec<u8>) -> Grant {
    Grant { name: name.into(), digest: Digest::of(&bytes), bytes: bytes.into() }
}
