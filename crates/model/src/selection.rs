//! The selection: which set each node gets, and a node's short proof of its own entry.
//!
//! A release commits to exact hostnames (a trie) and to ordered patterns. An exact name
//! wins over every pattern; of patterns the first that matches. A node proves its entry
//! with the path in the trie, and, when it has no exact entry, with the texts of all
//! patterns and the path to the first match's entry in a tree over the patterns' entries.
//! The whole is under 4 KiB at up to 32 patterns, whatever the size of the fleet.

use std::sync::Arc;

use data_encoding::BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Digest;
use crate::canonical::{self, CanonicalError};
use crate::id::{Channel, Hostname};
use crate::object::{Kind, SectionKey, Stub};
use crate::set::leaf;
use crate::trie::{BUCKET, Leaf, Top, Trie, TrieNode, branch_levels, bucket_hash, nibble_at, pair_hash};

/// The most patterns that one release may hold.
pub const MAX_PATTERNS: usize = 1000;
/// The deepest path that a proof may have; names differ long before.
const MAX_PATH: usize = 64;

/// What a release gives to a node, or to the nodes that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SelectionEntry {
    /// The node's channel.
    pub channel: Channel,
    /// The root of its set.
    pub root: Digest,
}

/// A pattern with its entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PatternEntry {
    /// The pattern, as `lang` reads it.
    pub pattern: String,
    /// Patterns of names that are excepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// What its nodes get.
    #[serde(flatten)]
    pub entry: SelectionEntry,
}

/// A whole selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    exact: Trie,
    patterns: Arc<Vec<PatternEntry>>,
}

/// Whether a pattern, with its exceptions, takes a hostname: `(pattern, except, hostname)`.
/// Given by the caller, because patterns are `lang`'s; both sides pass the same function.
pub type Matches<'a> = &'a dyn Fn(&str, &[String], &str) -> bool;

impl Selection {
    /// A selection of these entries.
    pub fn new(exact: Trie, patterns: Vec<PatternEntry>) -> Selection {
        Selection { exact, patterns: Arc::new(patterns) }
    }

    /// The same patterns over other exact entries.
    pub fn with_exact(&self, exact: Trie) -> Selection {
        Selection { exact, patterns: self.patterns.clone() }
    }

    /// The section in which exact entries are leaves.
    pub fn section() -> SectionKey {
        SectionKey::of(Kind::SELECTION)
    }

    /// The leaf of an exact entry: its digest is the set's root, its uid the channel.
    pub fn leaf(hostname: &Hostname, entry: &SelectionEntry) -> Leaf {
        let stub = Stub { uid: entry.channel.as_str().into(), digest: entry.root, size: 0 };
        leaf(&Selection::section(), hostname.as_str().into(), stub)
    }

    /// What a hostname gets: its exact entry, else that of the first pattern that matches.
    pub fn entry(&self, hostname: &str, matches: Matches<'_>) -> Option<SelectionEntry> {
        match self.exact.get(hostname) {
            Some(leaf) => Selection::entry_of(leaf),
            None => Some(self.patterns[self.first(hostname, matches)?].entry.clone()),
        }
    }

    /// The first pattern that matches, by its index.
    pub fn first(&self, hostname: &str, matches: Matches<'_>) -> Option<usize> {
        self.patterns.iter().position(|entry| matches(&entry.pattern, &entry.except, hostname))
    }

    /// The entry that a leaf stands for; `None` when it is no entry.
    pub fn entry_of(leaf: &Leaf) -> Option<SelectionEntry> {
        Some(SelectionEntry { channel: leaf.stub.uid.parse().ok()?, root: leaf.stub.digest })
    }

    /// The trie of exact entries.
    pub fn exact(&self) -> &Trie {
        &self.exact
    }

    /// The patterns in order.
    pub fn patterns(&self) -> &[PatternEntry] {
        &self.patterns
    }

    /// The root that a release's header names: `H(0x03, exact root, patterns digest)`.
    ///
    /// # Errors
    /// Never for valid patterns.
    pub fn root(&self) -> Result<Digest, CanonicalError> {
        Ok(root_of(&self.exact.hash(), &patterns_digest(&self.patterns)?))
    }

    /// The proof of a hostname's entry: of its exact one, else of that of the pattern at
    /// `first`, which is the index of the first that matches.
    ///
    /// # Errors
    /// Never for valid patterns.
    pub fn prove(&self, hostname: &str, first: Option<usize>) -> Result<Proof, CanonicalError> {
        prove(descend(&self.exact, hostname), &self.patterns, first)
    }
}

/// As [`Selection::prove`], by the stored nodes on the way from the root of the exact entries to the hostname
/// ([`crate::lookup::nodes_to`]) and the patterns alone.
///
/// # Errors
/// Never for valid patterns.
pub fn prove_by_nodes(
    nodes: &[TrieNode],
    patterns: &[PatternEntry],
    hostname: &str,
    first: Option<usize>,
) -> Result<Proof, CanonicalError> {
    let position = Digest::of(hostname.as_bytes());
    let mut way = WayToEntry::default();
    for (depth, node) in nodes.iter().enumerate() {
        match node {
            TrieNode::Branch(children) => way.pass(children, nibble_at(&position, depth)),
            TrieNode::Bucket(leaves) => {
                let section = Selection::section();
                let leaves = leaves.iter().map(|one| leaf(&section, one.name.clone(), one.stub.clone()));
                way.end(leaves.map(|leaf| (leaf.position, leaf.hash)), &position);
            }
        }
    }
    prove(way, patterns, first)
}

fn prove(way: WayToEntry, patterns: &[PatternEntry], first: Option<usize>) -> Result<Proof, CanonicalError> {
    let (path, bucket) = (Hashes(way.path), Hashes(way.bucket));
    if way.exact {
        let digest = patterns_digest(patterns)?;
        return Ok(Proof { path, bucket, patterns: None, patterns_digest: Some(digest) });
    }
    let text = |entry: &PatternEntry| [std::slice::from_ref(&entry.pattern), &entry.except].concat();
    let siblings = first.map_or_else(Vec::new, |first| siblings(patterns, first));
    let texts = patterns.iter().map(text).collect();
    let patterns = Some(PatternsProof { texts, path: Hashes(siblings) });
    Ok(Proof { path, bucket, patterns, patterns_digest: None })
}

/// What lies beside the way from the root of the exact entries to a hostname.
#[derive(Default)]
struct WayToEntry {
    /// Four siblings for each branch, from the top down.
    path: Vec<Digest>,
    /// The bucket, as pairs.
    bucket: Vec<Digest>,
    /// The hostname has an entry there.
    exact: bool,
}

impl WayToEntry {
    fn pass(&mut self, children: &[Digest; 16], nibble: usize) {
        let levels = branch_levels(children);
        self.path.extend((0..4).map(|level| levels[level][(nibble >> level) ^ 1]));
    }

    fn end(&mut self, pairs: impl Iterator<Item = (Digest, Digest)>, position: &Digest) {
        for (name, leaf) in pairs {
            self.exact |= name == *position;
            self.bucket.extend([name, leaf]);
        }
    }
}

fn descend(exact: &Trie, hostname: &str) -> WayToEntry {
    let position = Digest::of(hostname.as_bytes());
    let (mut at, mut way, mut depth) = (exact, WayToEntry::default(), 0);
    loop {
        match at.top() {
            Top::Bucket(leaves) => {
                way.end(leaves.iter().map(|leaf| (leaf.position, leaf.hash)), &position);
                return way;
            }
            Top::Branch(children) => {
                let nibble = nibble_at(&position, depth);
                way.pass(&children.each_ref().map(Trie::hash), nibble);
                (at, depth) = (&children[nibble], depth + 1);
            }
        }
    }
}

/// The proof of one node's entry in a selection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Proof {
    /// Four sibling hashes for each branch from the top down.
    path: Hashes,
    /// The bucket at the end, as pairs of `H(name)` and leaf hash.
    bucket: Hashes,
    /// What proves a pattern's entry, when the name has no exact one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    patterns: Option<PatternsProof>,
    /// The digest of the patterns, when the name has an exact entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    patterns_digest: Option<Digest>,
}

/// The proof of the entry of the first pattern that matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct PatternsProof {
    /// All patterns in order, each with its exceptions after it, so that the verifier sees
    /// which one is the first to match.
    texts: Vec<Vec<String>>,
    /// The siblings from its entry up to the root of all patterns' entries.
    path: Hashes,
}

/// Why a proof does not prove.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// Not the shape of a proof.
    #[error("the selection proof is malformed: {0}")]
    Malformed(&'static str),
    /// It leads to another root than the release signed.
    #[error("the selection proof does not lead to the root that the release signed")]
    WrongRoot,
    /// It proves another entry than the one claimed.
    #[error("the selection proof is not for {hostname}: the release gives it another entry, or none")]
    WrongEntry {
        /// The node's hostname.
        hostname: String,
    },
}

impl Proof {
    /// Verifies that the selection with this root gives exactly `claimed` to the hostname.
    ///
    /// # Errors
    /// [`ProofError`] says how it fails; any flipped bit makes it fail.
    pub fn verify(
        &self,
        root: &Digest,
        hostname: &Hostname,
        claimed: &SelectionEntry,
        matches: Matches<'_>,
    ) -> Result<(), ProofError> {
        let position = Digest::of(hostname.as_str().as_bytes());
        let exact = self.exact_root(&position)?;
        let here = self.bucket.0.chunks(2).find(|pair| pair[0] == position);
        let wrong = || ProofError::WrongEntry { hostname: hostname.to_string() };
        let patterns = match (here, &self.patterns, self.patterns_digest) {
            (Some(pair), None, Some(digest)) => {
                if pair[1] != Selection::leaf(hostname, claimed).hash {
                    return Err(wrong());
                }
                digest
            }
            (None, Some(patterns), None) => {
                let texts = patterns.texts_hash()?;
                let leads = |at: usize| root_of(&exact, &patterns.digest(&texts, at, claimed)) == *root;
                // Reading a pattern costs far more than hashing it: none is read that was not signed.
                if !(0..patterns.texts.len()).any(leads) {
                    return Err(ProofError::WrongRoot);
                }
                let takes = |(pattern, except)| matches(pattern, except, hostname.as_str());
                let first = patterns.texts().position(takes);
                patterns.digest(&texts, first.ok_or_else(wrong)?, claimed)
            }
            _ => return Err(ProofError::Malformed("patterns travel only when there is no exact entry")),
        };
        if root_of(&exact, &patterns) == *root { Ok(()) } else { Err(ProofError::WrongRoot) }
    }

    fn exact_root(&self, position: &Digest) -> Result<Digest, ProofError> {
        let (path, bucket) = (&self.path.0, &self.bucket.0);
        if !path.len().is_multiple_of(4) || path.len() / 4 > MAX_PATH {
            return Err(ProofError::Malformed("path length"));
        }
        if !bucket.len().is_multiple_of(2) || bucket.len() / 2 > BUCKET {
            return Err(ProofError::Malformed("bucket size"));
        }
        let pairs = bucket.chunks(2).map(|pair| (pair[0], pair[1]));
        let mut hash = bucket_hash(pairs);
        for (depth, siblings) in path.chunks(4).enumerate().rev() {
            let nibble = nibble_at(position, depth);
            for (level, sibling) in siblings.iter().enumerate() {
                hash = if (nibble >> level) & 1 == 0 {
                    pair_hash(&hash, sibling)
                } else {
                    pair_hash(sibling, &hash)
                };
            }
        }
        Ok(hash)
    }
}

impl PatternsProof {
    fn texts(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.texts.iter().filter_map(|text| text.split_first()).map(|(p, except)| (p.as_str(), except))
    }

    /// The hash of the texts, once the shape of the whole is sound.
    fn texts_hash(&self) -> Result<Digest, ProofError> {
        let malformed = || ProofError::Malformed("patterns");
        let levels = self.texts.len().next_power_of_two().trailing_zeros() as usize;
        if self.texts.len() > MAX_PATTERNS || self.path.0.len() != levels {
            return Err(malformed());
        }
        if self.texts.iter().any(Vec::is_empty) {
            return Err(malformed());
        }
        texts_hash(self.texts()).map_err(|_| malformed())
    }

    /// The digest of the patterns if the one at `index` has this entry.
    fn digest(&self, texts: &Digest, index: usize, entry: &SelectionEntry) -> Digest {
        let mut hash = entry_hash(entry);
        for (level, sibling) in self.path.0.iter().enumerate() {
            hash =
                if (index >> level) & 1 == 0 { pair_hash(&hash, sibling) } else { pair_hash(sibling, &hash) };
        }
        patterns_hash(texts, &hash)
    }
}

/// The selection root from its two parts.
pub fn root_of(exact: &Digest, patterns: &Digest) -> Digest {
    Digest::of_parts([&[0x03][..], exact.as_bytes(), patterns.as_bytes()])
}

/// The digest of the ordered patterns: of their texts, and of a tree over their entries.
///
/// # Errors
/// Never for valid patterns.
pub fn patterns_digest(patterns: &[PatternEntry]) -> Result<Digest, CanonicalError> {
    let levels = entry_levels(patterns);
    let root = levels.last().and_then(|top| top.first()).copied().unwrap_or(Digest::ZERO);
    let texts = patterns.iter().map(|entry| (entry.pattern.as_str(), entry.except.as_slice()));
    Ok(patterns_hash(&texts_hash(texts)?, &root))
}

fn texts_hash<'a>(texts: impl Iterator<Item = (&'a str, &'a [String])>) -> Result<Digest, CanonicalError> {
    Ok(Digest::of(&canonical::to_bytes(&texts.collect::<Vec<_>>())?))
}

fn patterns_hash(texts: &Digest, entries: &Digest) -> Digest {
    Digest::of_parts([&[0x04, b'p'][..], texts.as_bytes(), entries.as_bytes()])
}

fn entry_hash(entry: &SelectionEntry) -> Digest {
    let channel = entry.channel.as_str().as_bytes();
    let length = (channel.len() as u32).to_be_bytes();
    Digest::of_parts([&[0x04, b'e'][..], &length, channel, entry.root.as_bytes()])
}

/// The binary tree over the patterns' entries, filled up with zero to a power of two: its
/// levels from the leaves to the root.
fn entry_levels(patterns: &[PatternEntry]) -> Vec<Vec<Digest>> {
    let mut level: Vec<Digest> = patterns.iter().map(|pattern| entry_hash(&pattern.entry)).collect();
    level.resize(patterns.len().next_power_of_two(), Digest::ZERO);
    let mut levels = vec![level];
    while let Some(below) = levels.last().filter(|level| level.len() > 1) {
        let above = below.chunks(2).map(|pair| pair_hash(&pair[0], &pair[1])).collect();
        levels.push(above);
    }
    levels
}

fn siblings(patterns: &[PatternEntry], at: usize) -> Vec<Digest> {
    let levels = entry_levels(patterns);
    let below_top = levels.iter().enumerate().take(levels.len() - 1);
    below_top.filter_map(|(depth, level)| level.get((at >> depth) ^ 1).copied()).collect()
}

/// Digests on the wire: one base64 text of all their bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hashes(Vec<Digest>);

impl Serialize for Hashes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|digest| digest.0).collect();
        serializer.serialize_str(&BASE64.encode(&bytes))
    }
}

impl<'de> Deserialize<'de> for Hashes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hashes, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let bytes = BASE64.decode(text.as_bytes()).map_err(serde::de::Error::custom)?;
        let (digests, rest) = bytes.as_chunks::<32>();
        if !rest.is_empty() {
            return Err(serde::de::Error::custom("not a whole number of digests"));
        }
        Ok(Hashes(digests.iter().map(|bytes| Digest(*bytes)).collect()))
    }
}
