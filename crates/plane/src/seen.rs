//! [`KeptSeen`]: the newest of a node's signed `seen` documents, as the index remembers it.

use model::exchange::{HeldRelease, Signed};
use model::log::Cursor;
use model::{Digest, Incarnation};
use serde::Deserialize;
use trust::PublicKey;
use trust::seen::{Seen, SeenError};

/// What is remembered of a node's newest `seen` document; the document itself is in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSeen {
    /// What the document says.
    pub seen: Seen,
    /// The digest of payload and signatures: what came once is not verified again.
    bytes: Digest,
}

impl KeptSeen {
    /// As the store has it: it was verified before it was stored.
    pub fn restored(document: &Signed) -> Option<KeptSeen> {
        let seen = Seen::deserialize(&mut serde_json::Deserializer::from_str(&document.payload)).ok()?;
        Some(KeptSeen { seen, bytes: bytes(document) })
    }

    /// Takes a document that a node sent; the new one to remember and to store, or `None` when the
    /// one that is known is the same or says more.
    ///
    /// # Errors
    /// When it is not believed.
    pub fn after(
        known: Option<&KeptSeen>,
        document: &Signed,
        key: &PublicKey,
    ) -> Result<Option<KeptSeen>, SeenError> {
        let bytes = bytes(document);
        if known.is_some_and(|known| known.bytes == bytes) {
            return Ok(None);
        }
        let seen = Seen::verify(document, key)?;
        let behind = known.is_some_and(|known| is_behind(&seen, &known.seen));
        Ok((!behind).then_some(KeptSeen { seen, bytes }))
    }

    /// A check-in with these says more than this document.
    pub fn lacks(
        &self,
        held: Option<&HeldRelease>,
        incarnation: &Incarnation,
        cursor: Option<&Cursor>,
    ) -> bool {
        let head = &self.seen.log_head;
        let behind = |cursor: &Cursor| cursor.incarnation == head.incarnation && cursor.seq > head.seq;
        held.is_some_and(|held| held.seq > self.seen.seq)
            || head.incarnation != *incarnation
            || cursor.is_some_and(behind)
    }
}

/// One log's earlier document: delivered late, or of a host that was set back to a snapshot.
fn is_behind(seen: &Seen, known: &Seen) -> bool {
    let same_log = seen.log_head.incarnation == known.log_head.incarnation;
    same_log && (seen.seq < known.seq || seen.log_head.seq < known.log_head.seq)
}

fn bytes(document: &Signed) -> Digest {
    let signatures = document.signatures.iter().flat_map(|signature| [&signature.key, &signature.sig]);
    Digest::of_parts(std::iter::once(&document.payload).chain(signatures).map(|text| text.as_bytes()))
}
