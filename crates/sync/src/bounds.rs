//! Bounds of what a peer says: a message as a whole is bounded by its transport, and what a side
//! keeps of it by this, as it is read.

use std::sync::Arc;

use data_encoding::BASE64;
use model::chunk::LeafChunk;
use model::{Digest, ObjectKey, Stub, TrieNode};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::frame::MAX_REQUESTED;
use crate::object::MAX_CONTENT;

/// The highest number that is read of revisions and events: what stores keep as signed, and what
/// can be counted on from without overflow.
pub const MAX_NUMBER: u64 = i64::MAX as u64;
/// The longest part of an object's key, in bytes.
pub const MAX_NAME: usize = 1024;
/// The longest other text, in bytes, such as a message for people.
pub const MAX_TEXT: usize = 4096;

/// What has a bound.
pub trait Bounded {
    /// Whether it is within.
    fn fits(&self) -> bool;
}

impl Bounded for u64 {
    fn fits(&self) -> bool {
        *self <= MAX_NUMBER
    }
}

impl Bounded for String {
    fn fits(&self) -> bool {
        self.len() <= MAX_TEXT
    }
}

impl Bounded for ObjectKey {
    fn fits(&self) -> bool {
        let section = &self.section;
        [section.kind.as_str(), &section.namespace, &self.name].iter().all(|part| part.len() <= MAX_NAME)
    }
}

/// A nibble of a path.
impl Bounded for u8 {
    fn fits(&self) -> bool {
        *self < 16
    }
}

/// A name or a uid.
impl Bounded for Arc<str> {
    fn fits(&self) -> bool {
        self.len() <= MAX_NAME
    }
}

impl Bounded for Stub {
    fn fits(&self) -> bool {
        self.uid.fits() && self.size <= MAX_CONTENT as u64
    }
}

impl Bounded for LeafChunk {
    fn fits(&self) -> bool {
        self.name.fits() && self.stub.fits()
    }
}

impl Bounded for TrieNode {
    fn fits(&self) -> bool {
        match self {
            TrieNode::Branch(_) => true,
            TrieNode::Bucket(leaves) => leaves.len() <= model::trie::BUCKET && leaves.fits(),
        }
    }
}

impl<A: Bounded, B: Bounded> Bounded for (A, B) {
    fn fits(&self) -> bool {
        self.0.fits() && self.1.fits()
    }
}

/// What is asked for at once, and its answer.
impl<T: Bounded> Bounded for Vec<T> {
    fn fits(&self) -> bool {
        self.len() <= MAX_REQUESTED && self.iter().all(Bounded::fits)
    }
}

/// Reads what is within its bound.
pub(crate) fn bounded<'de, T: Bounded + Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    let read = T::deserialize(from)?;
    if read.fits() {
        Ok(read)
    } else {
        Err(D::Error::custom("a text or a list is too long, or a number too high"))
    }
}

/// Reads a text that is not empty.
pub(crate) fn named<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text: String = bounded(from)?;
    if text.is_empty() { Err(D::Error::custom("a resource has a name and a kind")) } else { Ok(text) }
}

/// Reads how long the other side asks to stay away: nobody is kept away for ever by one frame.
pub(crate) fn shorter<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::deserialize(from)?.map(crate::backoff::asked))
}

/// A proof: base64, of at most as many bytes as the proof of a change has.
pub(crate) mod base64 {
    use super::{BASE64, Deserialize, Deserializer, Error, Serialize, Serializer};
    use bytes::Bytes;

    pub fn serialize<S: Serializer>(proof: &Option<Bytes>, to: S) -> Result<S::Ok, S::Error> {
        proof.as_ref().map(|bytes| BASE64.encode(bytes)).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Bytes>, D::Error> {
        let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
        let bytes =
            BASE64.decode(text.as_bytes()).ok().filter(|bytes| bytes.len() <= trust::feed_proof::MAX_PROOF);
        bytes
            .map(|bytes| Some(bytes.into()))
            .ok_or_else(|| D::Error::custom("a proof is a few bytes in base64"))
    }
}

/// A checksum as the source document's peers have it: base64; hex is read as well. An empty one
/// means that the sender has none.
pub mod checksum {
    use super::{BASE64, Deserialize, Deserializer, Digest, Error, Serialize, Serializer};

    /// Writes it.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(checksum: &Option<Digest>, to: S) -> Result<S::Ok, S::Error> {
        checksum.map(|digest| BASE64.encode(digest.as_bytes())).serialize(to)
    }

    /// Reads it.
    ///
    /// # Errors
    /// When it is no SHA-256.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Digest>, D::Error> {
        let Some(text) = Option::<String>::deserialize(from)?.filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let bytes = || BASE64.decode(text.as_bytes()).ok()?.try_into().ok().map(Digest);
        let digest = text.parse().ok().or_else(bytes);
        digest.map(Some).ok_or_else(|| D::Error::custom("a checksum is SHA-256 in base64"))
    }
}
