//! [`OpenLinks`]: the trust documents after another, for whoever asks (IDN-8).
//!
//! Nodes and operators who believe no certificate that they are shown ask so, before anybody knows who they are. What is
//! answered is packed once for all who hold the same document, and who asks too often is told to come back.

use std::net::IpAddr;
use std::sync::Arc;

use model::{Digest, Timestamp};
use net::admission::AddressPrefix;
use wire::{Code, Problem};

use crate::answer::PackedJson;
use crate::cache::{ByteCache, HeldBytes};
use crate::prefix_limits::PrefixLimits;
use crate::trust_chain::ChainDocuments;

/// Questions of one address prefix in a second, after a burst.
const PREFIX_PER_SEC: u32 = 20;
/// Questions of one address prefix at once after a rest: the nodes of a site ask through one address.
const PREFIX_AT_ONCE: u32 = 200;
/// What is kept of packed answers, in bytes.
const KEPT_BYTES: u64 = 4 * 1024 * 1024;

impl HeldBytes for Arc<PackedJson> {
    fn held_bytes(&self) -> u64 {
        self.len() as u64
    }
}

/// Answers to those whom nobody knows.
pub(crate) struct OpenLinks {
    limits: PrefixLimits,
    /// By the newest document and the one that is held.
    packed: ByteCache<Arc<PackedJson>>,
}

impl Default for OpenLinks {
    fn default() -> OpenLinks {
        let limits = PrefixLimits::new(PREFIX_PER_SEC, PREFIX_AT_ONCE);
        OpenLinks { limits, packed: ByteCache::new(KEPT_BYTES) }
    }
}

impl OpenLinks {
    /// What follows the document with this digest, for somebody at this address.
    pub(crate) fn answer(
        &self,
        documents: &ChainDocuments,
        held: &str,
        address: IpAddr,
        now: Timestamp,
    ) -> Result<Arc<PackedJson>, Problem> {
        self.limits.take(AddressPrefix::of(address), now)?;
        let held: Digest = held.parse().map_err(|_| Code::NotFound)?;
        let key = Digest::of(&[documents.newest().digest.0, held.0].concat());
        if let Some(packed) = self.packed.get(&key) {
            return Ok(packed);
        }
        let answer = documents.links_from(&held).ok_or(Code::NotFound)?;
        let packed = Arc::new(PackedJson::of(&answer)?);
        self.packed.put(key, packed.clone());
        Ok(packed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use trust::chain::{self, ChainHead, SlotChange, SlotName};
    use trust::{SigningKey, Slots, TrustDocument};

    use super::*;
    use crate::trust_chain::TrustLinks;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed(&[seed; 32])
    }

    fn documents(rotations: u8) -> ChainDocuments {
        let slots = |seed| Slots::of(key(seed).public());
        let first = TrustDocument::first("acme-1".parse().unwrap(), slots(2), slots(1));
        let (mut head, mut links) = (ChainHead::of(first.clone()), Vec::new());
        for step in 0..rotations {
            let to = SlotChange::Rotate(key(100 + step).public());
            let next = chain::next_version(&head, SlotName::Release, to, None, Timestamp(1)).unwrap();
            let link = chain::sign(&next, &key(1)).unwrap();
            head = head.follow(&link).unwrap();
            links.push(link);
        }
        ChainDocuments::of(first, TrustLinks { links }).unwrap()
    }

    /// IDN-8: for all who hold the same document an answer is packed once, until there is a newer one.
    #[test]
    fn an_answer_is_packed_once_until_there_is_a_newer_document() {
        let (open, address) = (OpenLinks::default(), "192.0.2.1".parse().unwrap());
        let (one, two) = (documents(1), documents(2));
        let held = one.versions[0].head.digest.to_string();
        let ask = |documents| open.answer(documents, &held, address, Timestamp(0)).unwrap();
        let first = ask(&one);
        assert!(Arc::ptr_eq(&first, &ask(&one)));
        let newer = ask(&two);
        assert!(newer.len() > first.len());
        let guess = Digest::of(b"a guess").to_string();
        assert!(open.answer(&two, &guess, address, Timestamp(0)).is_err());
    }

    /// IDN-8: who asks without end keeps only those of his own prefix waiting.
    #[test]
    fn each_address_prefix_has_a_pace() {
        let (open, documents) = (OpenLinks::default(), documents(1));
        let held = documents.versions[0].head.digest.to_string();
        let ask = |address: &str, at| open.answer(&documents, &held, address.parse().unwrap(), Timestamp(at));
        let asked = (0..10 * PREFIX_AT_ONCE).filter(|_| ask("192.0.2.1", 0).is_ok()).count();
        assert_eq!(asked, PREFIX_AT_ONCE as usize);
        assert_eq!(ask("192.0.2.1", 0).err().unwrap().code, Code::Busy.as_str());
        assert!(ask("198.51.100.1", 0).is_ok());
        assert!(ask("192.0.2.1", 1000).is_ok());
    }
}
