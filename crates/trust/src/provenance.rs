//! [`Provenance`]: what leads from a fleet's root to the objects of one node, checked with that root alone.
//!
//! ```text
//! root -> trust documents -> release key -> header -> selection -> the node's entry -> set -> objects
//!         TrustLinks              EntryProof                                ProvenObject
//! ```
//!
//! Nothing of a document is believed for where it comes from: each step is verified by what the step before it
//! verified, and the first that does not hold ends it. What an object makes of a path is for who binds it
//! (`converge::declared_path`).

use model::chunk::TreeChunk;
use model::exchange::Signed;
use model::log::Cursor;
use model::lookup::find_object;
use model::selection::{Matches, ProofError};
use model::{
    Channel, DescentError, Digest, FleetId, Hostname, NodeId, ObjectKey, Proof, SelectionEntry, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::chain::{ChainError, ChainHead, MAX_VERSION};
use crate::document::{Slots, TrustDocument};
use crate::feature::{self, FEATURES};
use crate::key::PublicKey;
use crate::release::Header;
use crate::signed::{self, VerifyError};
use crate::threshold::HeaderSigners;

/// The format of a [`Provenance`].
pub const FORMAT: u32 = 1;
/// The longest [`Provenance`] that is read, in bytes: as long as a few modules.
pub const MAX_PROVENANCE: u64 = 128 * 1024 * 1024;
/// The most objects, and the most pieces of the set.
const MAX_PARTS: usize = 4096;

/// What proves a path of one node, as it is exported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Provenance {
    /// [`FORMAT`].
    pub format: u32,
    /// When it was made, by the clock of who made it.
    pub made: Timestamp,
    /// The node.
    pub hostname: Hostname,
    /// The path that is meant.
    pub path: String,
    /// The trust documents in order, from the first on. The first is signed where the root key was at hand.
    pub trust: Vec<Signed>,
    /// What the release gives to the node.
    #[serde(flatten)]
    pub entry: EntryProof,
    /// The pieces of the node's set on the way to the objects.
    pub chunks: Vec<TreeChunk>,
    /// The objects that say what the path holds.
    pub objects: Vec<ProvenObject>,
    /// What the node observed of itself, where that counts: its own word, which nobody signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traits: Option<serde_json::Value>,
    /// How far the control plane says that it has the node's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<NodeHistory>,
}

/// How far a control plane says that it has a node's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeHistory {
    /// The node.
    pub node: NodeId,
    /// The newest fact.
    pub newest: Cursor,
}

/// An object with its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvenObject {
    /// Its key.
    pub key: ObjectKey,
    /// Its content, canonical JSON.
    pub content: String,
}

/// A node's own proof: what a release gives to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EntryProof {
    /// The signed header.
    pub header: Signed,
    /// The node's entry.
    pub entry: SelectionEntry,
    /// Shows that the header's selection has it.
    pub proof: Proof,
}

/// From whom all the rest is believed.
#[derive(Clone, Debug)]
pub enum TrustAnchor {
    /// A trust document of the fleet, whichever version.
    Document(Box<TrustDocument>),
    /// A root key of the fleet: it signed one of the documents.
    RootKey(PublicKey),
}

/// A step of the way that holds, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProofStep {
    /// The form of the whole.
    Form,
    /// The trust documents.
    Trust,
    /// The header's signature.
    Release,
    /// The node's entry.
    Selection,
    /// The objects in the node's set.
    Set,
    /// What the objects make of the path.
    Resource,
    /// The bytes that are there.
    Bytes,
}

impl ProofStep {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            ProofStep::Form => "form",
            ProofStep::Trust => "trust",
            ProofStep::Release => "release",
            ProofStep::Selection => "selection",
            ProofStep::Set => "set",
            ProofStep::Resource => "resource",
            ProofStep::Bytes => "bytes",
        }
    }
}

/// A step that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProofEvidence {
    /// Which.
    pub step: ProofStep,
    /// What it shows, for people.
    pub shows: String,
}

/// Why a step does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProvenanceError {
    /// Another version wrote it.
    #[error("it has format {0}, and this program reads {FORMAT}")]
    Format(u64),
    /// It has more parts than any has.
    #[error("it has more than {MAX_PARTS} parts")]
    TooMany,
    /// None of its trust documents is signed by the root key.
    #[error("no trust document in it is signed by root key {0}")]
    OtherRoot(String),
    /// A trust document does not follow.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// No release key that counts signed the header.
    #[error("the release header is not believed: {error}{}", retired(*.counted))]
    Header {
        /// Why.
        error: VerifyError,
        /// The version of the trust document by which it would have been.
        counted: Option<u64>,
    },
    /// The release needs what this program does not know.
    #[error("the release requires {0}, which this program does not know")]
    Requires(String),
    /// The release is of another fleet.
    #[error("the release is of fleet {theirs}, and the root of fleet {ours}")]
    OtherFleet {
        /// The release's.
        theirs: FleetId,
        /// The root's.
        ours: FleetId,
    },
    /// The header is of another channel than the entry.
    #[error("the header is of channel {header}, and the node's entry of channel {entry}")]
    OtherChannel {
        /// The header's.
        header: Channel,
        /// The entry's.
        entry: Channel,
    },
    /// The release gives the node something else.
    #[error("{0}")]
    Entry(#[from] ProofError),
    /// A piece of the set is not what it should be.
    #[error("the node's set: {0}")]
    Chunk(#[from] DescentError),
    /// The set has no such object.
    #[error("the node's set has no object {0}")]
    NotInSet(ObjectKey),
    /// An object's content is another than the set's.
    #[error("the content of {key} has digest {got}, and the set says {want}")]
    OtherContent {
        /// The object.
        key: ObjectKey,
        /// Of what is here.
        got: Digest,
        /// As the set says.
        want: Digest,
    },
}

fn retired(version: Option<u64>) -> String {
    version
        .map(|version| format!(" (its key counted by trust document {version}, and counts no more)"))
        .unwrap_or_default()
}

impl ProvenanceError {
    /// The step that does not hold.
    pub fn step(&self) -> ProofStep {
        match self {
            ProvenanceError::Format(_) | ProvenanceError::TooMany => ProofStep::Form,
            ProvenanceError::OtherRoot(_) | ProvenanceError::Chain(_) => ProofStep::Trust,
            ProvenanceError::Header { .. }
            | ProvenanceError::Requires(_)
            | ProvenanceError::OtherFleet { .. }
            | ProvenanceError::OtherChannel { .. } => ProofStep::Release,
            ProvenanceError::Entry(_) => ProofStep::Selection,
            ProvenanceError::Chunk(_)
            | ProvenanceError::NotInSet(_)
            | ProvenanceError::OtherContent { .. } => ProofStep::Set,
        }
    }
}

/// Whom documents are verified by: the newest trust document that the anchor leads to.
#[derive(Clone, Debug)]
pub struct AnchoredTrust {
    /// The document.
    pub document: TrustDocument,
    /// Those before it, from the anchor's on.
    before: Vec<TrustDocument>,
    /// How it was come to.
    evidence: ProofEvidence,
}

impl AnchoredTrust {
    /// A trust document that is believed as it is.
    pub fn of(document: TrustDocument) -> AnchoredTrust {
        let shows = format!("trust document {} of fleet {} is given", document.version, document.fleet);
        AnchoredTrust {
            document,
            before: Vec::new(),
            evidence: ProofEvidence { step: ProofStep::Trust, shows },
        }
    }

    /// Where documents lead to from an anchor.
    ///
    /// # Errors
    /// When the anchor has nothing to do with them, or one does not follow.
    pub fn reach(anchor: &TrustAnchor, documents: &[Signed]) -> Result<AnchoredTrust, ProvenanceError> {
        if documents.len() as u64 > MAX_VERSION {
            return Err(ChainError::TooLong.into());
        }
        let (mut head, rest, how) = match anchor {
            TrustAnchor::Document(document) => {
                let head = ChainHead::of((**document).clone());
                let version =
                    |signed: &Signed| ChainHead::read(signed).map_or(0, |head| head.document.version);
                let at = documents.iter().position(|signed| version(signed) > document.version);
                let rest = &documents[at.unwrap_or(documents.len())..];
                let how = format!("trust document {} of fleet {} is given", document.version, document.fleet);
                (head, rest, how)
            }
            TrustAnchor::RootKey(key) => {
                let slots = Slots::of(*key);
                let signed_by = |signed: &Signed| signed::verify::<TrustDocument>(signed, &slots).is_ok();
                let at = documents.iter().position(signed_by);
                let at = at.ok_or_else(|| ProvenanceError::OtherRoot(key.id()))?;
                let head = ChainHead::read(&documents[at]);
                let head = head.map_err(|_| ProvenanceError::OtherRoot(key.id()))?;
                let (version, fleet) = (head.document.version, &head.document.fleet);
                let how = format!("root key {} signed trust document {version} of fleet {fleet}", key.id());
                (head, &documents[at + 1..], how)
            }
        };
        let mut before = Vec::new();
        for link in rest {
            let next = head.follow(link)?;
            before.push(std::mem::replace(&mut head, next).document);
        }
        let document = head.document;
        let led = if before.is_empty() {
            String::new()
        } else {
            format!(
                "; {} links lead on to document {}, each signed by a root key of the one before",
                before.len(),
                document.version
            )
        };
        let evidence = ProofEvidence { step: ProofStep::Trust, shows: format!("{how}{led}") };
        Ok(AnchoredTrust { document, before, evidence })
    }

    /// How it was come to.
    pub fn evidence(&self) -> &ProofEvidence {
        &self.evidence
    }

    /// Verifies a release's header.
    ///
    /// # Errors
    /// When no release key signed it that counts, or it is of another fleet.
    pub fn header(&self, signed: &Signed) -> Result<Header, ProvenanceError> {
        let header = self.document.header(signed).map_err(|error| {
            let mut before = self.before.iter().rev();
            let by = before.find(|older| older.header(signed).is_ok());
            ProvenanceError::Header { error, counted: by.map(|older| older.version) }
        })?;
        if let Some(missing) = feature::missing(&header.requires, FEATURES) {
            return Err(ProvenanceError::Requires(missing));
        }
        if header.fleet != self.document.fleet {
            let (theirs, ours) = (header.fleet, self.document.fleet.clone());
            return Err(ProvenanceError::OtherFleet { theirs, ours });
        }
        Ok(header)
    }

    fn release_evidence(&self, signed: &Signed, header: &Header) -> ProofEvidence {
        let keys = self.document.header_signatures(signed, &header.channel);
        let keys: Vec<String> = keys.into_iter().map(PublicKey::id).collect();
        let asked = match self.document.header_signers(&header.channel) {
            HeaderSigners::Release(_) => String::new(),
            HeaderSigners::Threshold(threshold) => {
                format!(
                    ", of which the channel asks for {} of {}",
                    threshold.signatures,
                    threshold.signers.len()
                )
            }
        };
        let noun = if keys.len() == 1 { "key" } else { "keys" };
        let label = header.label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
        let shows = format!(
            "release {}{label} of channel {}, signed at {} with release {noun} {}{asked}",
            header.seq,
            header.channel,
            header.created,
            keys.join(" and ")
        );
        ProofEvidence { step: ProofStep::Release, shows }
    }
}

impl EntryProof {
    /// Verifies that a release gives this entry to the node: fleet, signature, channel, proof.
    ///
    /// # Errors
    /// [`ProvenanceError`] says which does not hold.
    pub fn verify(
        &self,
        hostname: &Hostname,
        trust: &AnchoredTrust,
        matches: Matches<'_>,
    ) -> Result<Header, ProvenanceError> {
        let header = self.signed_header(trust)?;
        self.proof.verify(&header.selection, hostname, &self.entry, matches)?;
        Ok(header)
    }

    fn signed_header(&self, trust: &AnchoredTrust) -> Result<Header, ProvenanceError> {
        let header = trust.header(&self.header)?;
        if header.channel != self.entry.channel {
            let entry = self.entry.channel.clone();
            return Err(ProvenanceError::OtherChannel { header: header.channel, entry });
        }
        Ok(header)
    }
}

impl Provenance {
    /// Verifies every step down to the objects, and tells each that holds as it is come to.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn verify(
        &self,
        anchor: &TrustAnchor,
        matches: Matches<'_>,
        tell: &mut dyn FnMut(ProofEvidence),
    ) -> Result<Header, ProvenanceError> {
        if self.format != FORMAT {
            return Err(ProvenanceError::Format(self.format.into()));
        }
        if self.chunks.len() > MAX_PARTS || self.objects.len() > MAX_PARTS {
            return Err(ProvenanceError::TooMany);
        }
        let trust = AnchoredTrust::reach(anchor, &self.trust)?;
        tell(trust.evidence.clone());
        let header = self.entry.signed_header(&trust)?;
        tell(trust.release_evidence(&self.entry.header, &header));
        self.entry.verify(&self.hostname, &trust, matches)?;
        let root = self.entry.entry.root;
        let shows = format!("its selection {} gives set {} to {}", header.selection, root, self.hostname);
        tell(ProofEvidence { step: ProofStep::Selection, shows });
        self.verify_objects()?;
        let named = self.objects.iter().map(|object| {
            format!("{} (sha256:{})", object.key, Digest::of(object.content.as_bytes()).short())
        });
        let shows = format!("that set holds {}", named.collect::<Vec<_>>().join(", "));
        tell(ProofEvidence { step: ProofStep::Set, shows });
        Ok(header)
    }

    fn verify_objects(&self) -> Result<(), ProvenanceError> {
        let mut chunks = std::collections::BTreeMap::new();
        for chunk in &self.chunks {
            chunks.insert(chunk.hash().map_err(DescentError::from)?, chunk);
        }
        let chunks = |digest: &Digest| chunks.get(digest).map(|chunk| (*chunk).clone());
        for ProvenObject { key, content } in &self.objects {
            let stub = find_object(&self.entry.entry.root, key, &chunks)?;
            let stub = stub.ok_or_else(|| ProvenanceError::NotInSet(key.clone()))?;
            let got = Digest::of(content.as_bytes());
            if got != stub.digest {
                return Err(ProvenanceError::OtherContent { key: key.clone(), got, want: stub.digest });
            }
        }
        Ok(())
    }
}
