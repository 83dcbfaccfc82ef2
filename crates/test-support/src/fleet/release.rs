//! Releases made by hand: sets, selection, headers, and the pieces to upload.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::chunk::{self, TreeChunk};
use model::exchange::{HeldRelease, Signed};
use model::object::ObjectKey;
use model::selection::{PatternEntry, SelectionEntry};
use model::trie::{Top, Trie};
use model::{Channel, Digest, FleetId, Kind, ObjectSet, SectionKey, Selection, Stub, Timestamp};
use server::api::{Commit, ReleaseSummary, TreeChunks, pack_contents};
use trust::feature::ROLLOUT_FEATURE;
use trust::{Header, RolloutTerms, SigningKey, signed};
use wire::Problem;

use super::{Operator, now};

/// The channel of every node, where a plan names no other.
pub const CHANNEL: &str = "stable";

/// Objects with their contents.
pub type Objects = Vec<(ObjectKey, Vec<u8>)>;

/// What a release is made from.
#[derive(Clone)]
pub struct Plan {
    pub fleet: FleetId,
    /// The channel of all of its nodes.
    pub channel: Channel,
    pub seq: u64,
    pub expected_head: Option<u64>,
    pub created: Timestamp,
    pub freshness: Duration,
    pub contact_secs: u64,
    /// Objects by hostname.
    pub nodes: BTreeMap<String, Objects>,
    /// Objects by pattern, in order.
    pub patterns: Vec<(String, Objects)>,
    /// Contents that objects name as blobs.
    pub blobs: Vec<Vec<u8>>,
    /// How it reaches the nodes; at once where it says nothing.
    pub rollout: Option<Arc<RolloutTerms>>,
    pub label: Option<String>,
}

impl Plan {
    pub fn new(fleet: &FleetId, seq: u64) -> Plan {
        Plan {
            fleet: fleet.clone(),
            channel: CHANNEL.parse().unwrap(),
            seq,
            expected_head: seq.checked_sub(1).filter(|head| *head > 0),
            created: now(),
            freshness: Duration::from_secs(24 * 3600),
            contact_secs: 300,
            nodes: BTreeMap::new(),
            patterns: Vec::new(),
            blobs: Vec::new(),
            rollout: None,
            label: None,
        }
    }

    /// Gives a node these objects.
    pub fn node(mut self, hostname: &str, objects: &[(ObjectKey, Vec<u8>)]) -> Plan {
        self.nodes.insert(hostname.to_owned(), objects.to_vec());
        self
    }
}

/// An object of kind `Params`.
pub fn params(text: &str) -> (ObjectKey, Vec<u8>) {
    (ObjectKey::of(Kind::PARAMS, "node"), format!(r#"{{"text":"{text}"}}"#).into_bytes())
}

/// An object of kind `Module` that names these blobs.
pub fn module(name: &str, text: &str, blobs: &[&[u8]]) -> (ObjectKey, Vec<u8>) {
    let blobs: Vec<Digest> = blobs.iter().map(|blob| Digest::of(blob)).collect();
    let content = serde_json::json!({ "blobs": blobs, "name": name, "text": text });
    (ObjectKey::of(Kind::MODULE, name), content.to_string().into_bytes())
}

/// A release, signed, with everything to upload.
#[derive(Clone)]
pub struct Made {
    pub sets: BTreeMap<String, ObjectSet>,
    pub selection: Selection,
    pub header: Signed,
    pub contents: Vec<Vec<u8>>,
    pub chunks: Vec<TreeChunk>,
    pub commit: Commit,
}

impl Made {
    /// What a node that adopted this release holds.
    pub fn held(&self, hostname: &str) -> HeldRelease {
        let header: Header = serde_json::from_str(&self.header.payload).unwrap();
        HeldRelease {
            channel: header.channel,
            seq: header.seq,
            header: signed::digest(&self.header),
            root: self.sets[hostname].root(),
        }
    }
}

/// Makes and signs a release.
pub fn make(plan: &Plan, key: &SigningKey) -> Made {
    let channel = &plan.channel;
    let (mut contents, mut chunks) = (plan.blobs.clone(), Vec::new());
    let mut set_of = |objects: &[(ObjectKey, Vec<u8>)]| {
        let set = ObjectSet::of(objects.iter().map(|(key, bytes)| (key.clone(), Stub::of(bytes))));
        contents.extend(objects.iter().map(|(_, bytes)| bytes.clone()));
        // A section of one object is named in the set's own chunk.
        for (section, trie) in set.sections().filter(|(_, trie)| trie.len() > 1) {
            collect(section, trie, &mut chunks);
        }
        chunks.push(chunk::of_set(&set));
        set
    };
    let sets: BTreeMap<String, ObjectSet> =
        plan.nodes.iter().map(|(name, objects)| (name.clone(), set_of(objects))).collect();
    let patterns = plan.patterns.iter().map(|(pattern, objects)| PatternEntry {
        pattern: pattern.clone(),
        except: Vec::new(),
        entry: SelectionEntry { channel: channel.clone(), root: set_of(objects).root() },
    });
    let patterns = patterns.collect();
    let leaves = sets.iter().map(|(name, set)| {
        let entry = SelectionEntry { channel: channel.clone(), root: set.root() };
        Selection::leaf(&name.parse().unwrap(), &entry)
    });
    let selection = Selection::new(Trie::build(leaves), patterns);
    collect(&Selection::section(), selection.exact(), &mut chunks);
    chunks.push(chunk::of_selection(&selection));
    let header = Header {
        fleet: plan.fleet.clone(),
        channel: channel.clone(),
        seq: plan.seq,
        label: plan.label.clone(),
        created: plan.created,
        selection: selection.root().unwrap(),
        freshness_secs: plan.freshness.as_secs(),
        fallbacks: Vec::new(),
        requires: plan.rollout.iter().map(|_| ROLLOUT_FEATURE.to_owned()).collect(),
        rollout: plan.rollout.clone(),
    };
    let header = signed::sign(&header, &[key]).unwrap();
    let summary = ReleaseSummary {
        contact_secs: BTreeMap::from([(channel.clone(), plan.contact_secs)]),
        nodes: sets.len(),
        ..ReleaseSummary::default()
    };
    let headers = BTreeMap::from([(channel.clone(), header.clone())]);
    let commit = Commit { headers, expected_head: plan.expected_head, summary };
    Made { sets, selection, header, contents, chunks, commit }
}

/// The chunks of a trie, each after those below it.
fn collect(section: &SectionKey, trie: &Trie, out: &mut Vec<TreeChunk>) {
    if let Top::Branch(children) = trie.top() {
        for child in children {
            collect(section, child, out);
        }
    }
    out.extend(chunk::of_trie(section, trie));
}

impl Operator {
    /// Uploads contents and chunks, and commits.
    pub async fn publish(&mut self, made: &Made) -> Result<u64, Problem> {
        self.upload(made).await?;
        self.commit(&made.commit).await
    }

    pub async fn upload(&mut self, made: &Made) -> Result<(), Problem> {
        let packed = pack_contents(made.contents.iter().map(Vec::as_slice));
        let _: usize = self.ask(http::Method::POST, "/v1/contents", packed).await?;
        let _: usize = self.post("/v1/chunks", &TreeChunks { chunks: made.chunks.clone() }).await?;
        Ok(())
    }

    pub async fn commit(&mut self, commit: &Commit) -> Result<u64, Problem> {
        self.post("/v1/releases", commit).await
    }
}
