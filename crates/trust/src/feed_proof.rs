//! What proves objects and actions of the control plane's own authority to a node (IDN-9).
//!
//! ```text
//! changes of one commit group, of any nodes            the feed of one node, as it is asked for
//!   leaf  leaf  leaf  leaf                               (incarnation, revision, root, challenge)
//!     \  /        \  /                                             |
//!      pair ------ pair --> root, time --signed once              signed
//!   each leaf with its path: ChangeProof                       HeadProof
//! ```
//!
//! A leaf commits to the fleet, the node, the incarnation of its feed, the number of the change, the object's
//! key and uid, and the digest of its content, or that it is gone. So a proof counts for that node and change
//! alone, whoever carries it. That the newest change comes, and not one of before, is for the receiver to judge
//! by revisions; that the feed itself is the one of now, by a challenge of its own in the head.

use model::{Digest, FleetId, Incarnation, NodeId, ObjectKey, Timestamp};

use crate::document::Slots;
use crate::key::{PublicKey, SIGNATURE_LEN, SigningKey};

/// The most changes that one signature covers; a proof has 17 hashes at most then.
pub const MAX_GROUP: usize = 1 << 17;
/// The longest proof of a change, in bytes.
pub const MAX_PROOF: usize = GROUP_HEADER + 17 * HASH_LEN;

const HASH_LEN: usize = 32;
const KEY_ID_LEN: usize = 8;
/// The form, the key's id, the signature.
const HEADER: usize = 1 + KEY_ID_LEN + SIGNATURE_LEN;
/// And the time, the leaf's index, and how many leaves there are.
const GROUP_HEADER: usize = HEADER + 8 + 4 + 4;
const CHANGE_FORM: u8 = 1;
const HEAD_FORM: u8 = 2;
/// What a signature of this key is over, so that none counts for something else.
const GROUP: &[u8] = b"muster feed group 1\n";
const HEAD: &[u8] = b"muster feed head 1\n";

/// Whose feed it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedOwner {
    /// The fleet.
    pub fleet: FleetId,
    /// The node that the feed is for.
    pub node: NodeId,
}

/// A change as it is proven.
#[derive(Clone, Copy, Debug)]
pub struct ProvenChange<'a> {
    /// The incarnation of the feed.
    pub incarnation: &'a Incarnation,
    /// The number of the change in it.
    pub rev: u64,
    /// Which object.
    pub key: &'a ObjectKey,
    /// Its uid.
    pub uid: &'a str,
    /// The digest of its content; `None`: it is gone.
    pub digest: Option<&'a Digest>,
}

/// Where a feed stands, as it is proven to who asks.
#[derive(Clone, Copy, Debug)]
pub struct ProvenHead<'a> {
    /// The incarnation of the feed.
    pub incarnation: &'a Incarnation,
    /// The number of its last change.
    pub revision: u64,
    /// The root of its set.
    pub root: &'a Digest,
    /// What the asker chose, so that no answer of before counts.
    pub challenge: &'a str,
}

/// Why something is not proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnprovenError {
    /// There is no proof.
    #[error("it has no proof")]
    Missing,
    /// The bytes are not a proof.
    #[error("its proof is malformed")]
    Malformed,
    /// No key of the trust document's slot has the id that it names.
    #[error("its proof is of a key that is not the control plane's")]
    UnknownKey,
    /// It was signed before signatures count.
    #[error("its proof was signed before {0}, from when on they count")]
    RejectedBefore(Timestamp),
    /// The signature is over something else.
    #[error("its proof is of something else")]
    Forged,
}

/// Signs for one control plane.
#[derive(Debug)]
pub struct FeedSigner {
    fleet: FleetId,
    key: SigningKey,
    id: [u8; KEY_ID_LEN],
}

/// A group whose signature was verified: the next change of it costs hashes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedGroup {
    key: PublicKey,
    root: Digest,
    at: Timestamp,
    signature: [u8; SIGNATURE_LEN],
}

/// Verifies for one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedVerifier {
    owner: FeedOwner,
    keys: Slots,
}

impl ProvenChange<'_> {
    /// The leaf that a signature covers.
    pub fn leaf(&self, owner: &FeedOwner) -> Digest {
        let section = &self.key.section;
        let texts = [
            owner.fleet.as_str(),
            owner.node.as_str(),
            self.incarnation.as_str(),
            section.kind.as_str(),
            &section.namespace,
            &self.key.name,
            self.uid,
        ];
        let lengths: Vec<[u8; 4]> = texts.iter().map(|text| length(text)).collect();
        let rev = self.rev.to_be_bytes();
        let state: &[u8] = match self.digest {
            Some(digest) => digest.as_bytes(),
            None => &[],
        };
        let parts = lengths.iter().zip(texts).flat_map(|(length, text)| [&length[..], text.as_bytes()]);
        Digest::of_parts([&[0x00][..], &rev].into_iter().chain(parts).chain([state]))
    }
}

impl ProvenHead<'_> {
    fn message(&self, owner: &FeedOwner) -> Vec<u8> {
        let texts = [owner.fleet.as_str(), owner.node.as_str(), self.incarnation.as_str(), self.challenge];
        let mut message = HEAD.to_vec();
        for text in texts {
            message.extend_from_slice(&length(text));
            message.extend_from_slice(text.as_bytes());
        }
        message.extend_from_slice(&self.revision.to_be_bytes());
        message.extend_from_slice(self.root.as_bytes());
        message
    }
}

impl FeedSigner {
    /// Signs with this key of the fleet's control plane.
    pub fn new(fleet: FleetId, key: SigningKey) -> FeedSigner {
        let id = key_id(&key.public());
        FeedSigner { fleet, key, id }
    }

    /// The feed of a node of the fleet.
    pub fn owner(&self, node: NodeId) -> FeedOwner {
        FeedOwner { fleet: self.fleet.clone(), node }
    }

    /// The key's public half.
    pub fn key(&self) -> PublicKey {
        self.key.public()
    }

    /// Signs a commit group: the proof of each leaf, in their order. At most [`MAX_GROUP`] leaves are covered;
    /// of those beyond nothing is returned.
    pub fn sign_changes(&self, leaves: &[Digest], at: Timestamp) -> Vec<Vec<u8>> {
        let leaves = &leaves[..leaves.len().min(MAX_GROUP)];
        let levels = levels(leaves);
        let Some(root) = levels.last().and_then(|top| top.first()) else { return Vec::new() };
        let signature = self.key.sign(&group_message(&self.fleet, root, at));
        let count = leaves.len() as u32;
        let proof = |index: u32| {
            let mut proof = self.header(CHANGE_FORM, &signature);
            proof.extend_from_slice(&at.0.to_be_bytes());
            proof.extend_from_slice(&index.to_be_bytes());
            proof.extend_from_slice(&count.to_be_bytes());
            let mut place = index as usize;
            for level in &levels {
                if let Some(sibling) = level.get(place ^ 1) {
                    proof.extend_from_slice(sibling.as_bytes());
                }
                place /= 2;
            }
            proof
        };
        (0..count).map(proof).collect()
    }

    /// Signs where a feed stands.
    pub fn sign_head(&self, owner: &FeedOwner, head: &ProvenHead<'_>) -> Vec<u8> {
        let signature = self.key.sign(&head.message(owner));
        self.header(HEAD_FORM, &signature)
    }

    fn header(&self, form: u8, signature: &[u8; SIGNATURE_LEN]) -> Vec<u8> {
        let mut header = vec![form];
        header.extend_from_slice(&self.id);
        header.extend_from_slice(signature);
        header
    }
}

impl FeedVerifier {
    /// Believes the keys of this slot of the trust document.
    pub fn new(owner: FeedOwner, keys: Slots) -> FeedVerifier {
        FeedVerifier { owner, keys }
    }

    /// Verifies a change by its proof. `last` is the group that was verified last.
    ///
    /// # Errors
    /// [`UnprovenError`].
    pub fn verify_change(
        &self,
        change: &ProvenChange<'_>,
        proof: Option<&[u8]>,
        last: &mut Option<VerifiedGroup>,
    ) -> Result<(), UnprovenError> {
        let proof = proof.ok_or(UnprovenError::Missing)?;
        let (header, path) = proof.split_at_checked(GROUP_HEADER).ok_or(UnprovenError::Malformed)?;
        let (key, signature) = self.read_header(CHANGE_FORM, header)?;
        if let Some(limit) = rejected(header, &self.keys) {
            return Err(UnprovenError::RejectedBefore(limit));
        }
        let at = signed_at(header);
        let (index, count) = (number(&header[HEADER + 8..]), number(&header[HEADER + 12..]));
        let root = root_of(change.leaf(&self.owner), index, count, path)?;
        let group = VerifiedGroup { key, root, at, signature };
        if *last != Some(group) {
            if !key.verifies(&group_message(&self.owner.fleet, &root, at), &signature) {
                return Err(UnprovenError::Forged);
            }
            *last = Some(group);
        }
        Ok(())
    }

    /// Verifies where a feed stands.
    ///
    /// # Errors
    /// [`UnprovenError`].
    pub fn verify_head(&self, head: &ProvenHead<'_>, proof: Option<&[u8]>) -> Result<(), UnprovenError> {
        let proof = proof.ok_or(UnprovenError::Missing)?;
        if proof.len() != HEADER {
            return Err(UnprovenError::Malformed);
        }
        let (key, signature) = self.read_header(HEAD_FORM, proof)?;
        match key.verifies(&head.message(&self.owner), &signature) {
            true => Ok(()),
            false => Err(UnprovenError::Forged),
        }
    }

    /// The key and the signature that a proof begins with.
    fn read_header(
        &self,
        form: u8,
        header: &[u8],
    ) -> Result<(PublicKey, [u8; SIGNATURE_LEN]), UnprovenError> {
        let malformed = UnprovenError::Malformed;
        let (found, rest) = header.split_first().ok_or(malformed)?;
        let (id, rest) = rest.split_first_chunk::<KEY_ID_LEN>().ok_or(malformed)?;
        let signature = rest.first_chunk::<SIGNATURE_LEN>().ok_or(malformed)?;
        if *found != form {
            return Err(malformed);
        }
        let key = self.keys.keys().find(|key| key_id(key) == *id).ok_or(UnprovenError::UnknownKey)?;
        Ok((*key, *signature))
    }
}

/// Whether a stored proof of a change counts by these slots as far as its key and its time tell: nodes that believe
/// them verify it. Its signature is not verified.
pub fn counts(proof: &[u8], keys: &Slots) -> bool {
    let Some((header, _)) = proof.split_at_checked(GROUP_HEADER) else { return false };
    let is_believed = |key: &PublicKey| header[1..1 + KEY_ID_LEN] == key_id(key);
    header[0] == CHANGE_FORM && keys.keys().any(is_believed) && rejected(header, keys).is_none()
}

/// The time that the header of a change's proof names.
fn signed_at(header: &[u8]) -> Timestamp {
    Timestamp(header[HEADER..].first_chunk::<8>().map_or(0, |at| i64::from_be_bytes(*at)))
}

/// From when on signatures count, if what this header begins was signed before.
fn rejected(header: &[u8], keys: &Slots) -> Option<Timestamp> {
    keys.reject_before.filter(|limit| signed_at(header) < *limit)
}

fn key_id(key: &PublicKey) -> [u8; KEY_ID_LEN] {
    let mut id = [0; KEY_ID_LEN];
    id.copy_from_slice(&Digest::of(&key.raw()).as_bytes()[..KEY_ID_LEN]);
    id
}

fn group_message(fleet: &FleetId, root: &Digest, at: Timestamp) -> Vec<u8> {
    let parts =
        [GROUP, &length(fleet.as_str()), fleet.as_str().as_bytes(), root.as_bytes(), &at.0.to_be_bytes()];
    parts.concat()
}

/// The length of a text before it, so that no two lists of texts have the same bytes.
fn length(text: &str) -> [u8; 4] {
    // Texts of frames and ids are of a few kilobytes at most.
    u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes()
}

fn number(bytes: &[u8]) -> usize {
    bytes.first_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes) as usize)
}

fn pair(left: &Digest, right: &Digest) -> Digest {
    Digest::of_parts([&[0x01][..], left.as_bytes(), right.as_bytes()])
}

/// All levels of the tree, the leaves first; a last one without a neighbour is passed on as it is.
fn levels(leaves: &[Digest]) -> Vec<Vec<Digest>> {
    let mut levels = vec![leaves.to_vec()];
    while let Some(below) = levels.last().filter(|level| level.len() > 1) {
        let above = below.chunks(2).map(|two| match two {
            [left, right] => pair(left, right),
            alone => alone[0],
        });
        let above = above.collect();
        levels.push(above);
    }
    levels
}

/// The root that a leaf and its path lead to.
fn root_of(leaf: Digest, mut index: usize, mut count: usize, path: &[u8]) -> Result<Digest, UnprovenError> {
    if index >= count || count > MAX_GROUP || !path.len().is_multiple_of(HASH_LEN) {
        return Err(UnprovenError::Malformed);
    }
    let mut siblings = path.chunks_exact(HASH_LEN).filter_map(|hash| Some(Digest(hash.try_into().ok()?)));
    let mut node = leaf;
    while count > 1 {
        if index ^ 1 < count {
            let sibling = siblings.next().ok_or(UnprovenError::Malformed)?;
            node = if index & 1 == 0 { pair(&node, &sibling) } else { pair(&sibling, &node) };
        }
        (index, count) = (index / 2, count.div_ceil(2));
    }
    if siblings.next().is_some() { Err(UnprovenError::Malformed) } else { Ok(node) }
}
