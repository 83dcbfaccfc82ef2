//! A fleet to measure with: a control plane's directory filled with enrolled nodes and a
//! release, made with real keys and without a network.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use model::exchange::HeldRelease;
use model::object::ObjectKey;
use model::replication::{Mismatch, Mode, SyncPolicy};
use model::selection::SelectionEntry;
use model::{Channel, FleetId, Hostname, Kind, NodeId, ObjectSet, Selection, Stub, Timestamp, chunk};
use net::issue::CertificateRequest;
use rustls::ClientConfig;
use server::api::ReleaseSummary;
use server::posture;
use store::{FleetMeta, NewNode, Release, Store, TokenUse};
use trust::feature::ROLLOUT_FEATURE;
use trust::{Header, RolloutTerms, SigningKey, signed};

use crate::{BenchError, wait_for};

/// Contact intervals: one at which connections are kept, one at which they are closed.
pub(super) const NEAR_SECS: u64 = 30;
const FAR_SECS: u64 = 300;
/// Nodes in the channel whose connections are kept.
const CHANNELS: [(&str, u64); 2] = [("near", NEAR_SECS), ("far", FAR_SECS)];

/// A node with its key and certificate.
#[derive(Clone)]
pub(super) struct BenchNode {
    pub(super) fleet: FleetId,
    pub(super) id: NodeId,
    pub(super) hostname: Hostname,
    pub(super) key: Arc<SigningKey>,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) held: HeldRelease,
    /// What the second release gives it, where there is one.
    pub(super) next: Option<HeldRelease>,
}

/// What time it is.
pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(0))
}

/// Fills `dir`: `count` nodes, the first `near` of them in the channel that calls often.
pub(super) async fn fill(dir: &Path, count: usize, near: usize) -> Result<Vec<BenchNode>, BenchError> {
    fill_synced(dir, count, near, &[Mode::Off]).await
}

/// As [`fill`]; the release gives the nodes these modes, one after the other.
pub(super) async fn fill_synced(
    dir: &Path,
    count: usize,
    near: usize,
    modes: &[Mode],
) -> Result<Vec<BenchNode>, BenchError> {
    let sets = modes.iter().map(|mode| objects_of(*mode)).collect::<Result<_, _>>()?;
    Ok(fill_with(dir, FleetPlan { count, near, certified: count, sets, rollout: None }).await?.nodes)
}

/// The objects of a set with their contents.
pub(super) type SetObjects = Vec<(ObjectKey, Vec<u8>)>;

/// Which fleet to make.
pub(super) struct FleetPlan {
    /// Nodes.
    pub(super) count: usize,
    /// So many of them, the first, are in the channel that calls often.
    pub(super) near: usize,
    /// So many of them, the first, have certificates to call with.
    pub(super) certified: usize,
    /// The sets that they get, one after the other.
    pub(super) sets: Vec<SetObjects>,
    /// With these terms a second release of the same sets goes to them.
    pub(super) rollout: Option<Arc<RolloutTerms>>,
}

/// A fleet that was made.
pub(super) struct FilledFleet {
    /// The nodes that can call.
    pub(super) nodes: Vec<BenchNode>,
    /// All nodes, and what the release gives them.
    pub(super) all: Vec<(NodeId, HeldRelease)>,
    pub(super) store: Arc<Store>,
}

/// Fills a directory with a fleet.
pub(super) async fn fill_with(dir: &Path, plan: FleetPlan) -> Result<FilledFleet, BenchError> {
    let FleetPlan { count, near, certified, sets, rollout } = plan;
    let founded = posture::open(dir, None, now())?;
    let store = Store::open(dir.join("muster.db"))?;
    store.found_fleet(FleetMeta { fleet: founded.trust.fleet.clone(), created: now() }).await?;
    let ca_pem = founded.node_ca.current().cert_pem().to_owned();
    let mut keys = Vec::with_capacity(count);
    let mut enrollments = Vec::new();
    for number in 0..count {
        let key = SigningKey::from_seed(&posture::random()?);
        let hostname = hostname(number)?;
        let id = key.public().node_id();
        let node = NewNode {
            node_id: id.clone(),
            hostname: hostname.clone(),
            public_key: key.public().to_string(),
            cert_not_before: now(),
            cert_not_after: Some(now().plus(net::issue::NODE_LIFE)),
            cert_serial: format!("{number:032x}"),
            cert_authority: founded.node_ca.current().key().id(),
            key_confirmation: model::KeyConfirmation::Token,
            declared: serde_json::json!({}),
        };
        let token = TokenUse {
            nonce: format!("bench-{number}"),
            expires_at: now(),
            replaces: None,
            lists: Default::default(),
        };
        enrollments.push((node, token));
        keys.push((id, hostname, key));
    }
    // Side by side, so that the store may commit them in groups.
    let store = Arc::new(store);
    for group in enrollments.chunks(256) {
        let mut tasks = tokio::task::JoinSet::new();
        for (node, token) in group.iter().cloned() {
            let store = store.clone();
            tasks.spawn(async move { store.enroll(node, token, now()).await });
        }
        wait_for(&mut tasks, 0).await?;
    }
    let release_key = founded.release_key.as_ref().ok_or("no release key")?;
    let first = ReleasePlan { seq: 1, count, near, sets: &sets, rollout: None };
    let held = release(&store, &founded.trust.fleet, release_key, first.clone()).await?;
    let next = match rollout {
        Some(_) => {
            let second = ReleasePlan { seq: 2, rollout, ..first };
            release(&store, &founded.trust.fleet, release_key, second).await?
        }
        None => Vec::new(),
    };
    let held = |number: usize| held[usize::from(number >= near)][number % sets.len()].clone();
    let next = |number: usize| Some(next.get(usize::from(number >= near))?[number % sets.len()].clone());
    let all = keys.iter().enumerate().map(|(number, (id, ..))| (id.clone(), held(number))).collect();
    let mut nodes = Vec::with_capacity(certified);
    for (number, (id, hostname, key)) in keys.into_iter().enumerate().take(certified) {
        let csr = CertificateRequest::read(&net::issue::node_request(&key, &hostname)?)?;
        let cert = founded.node_ca.current().issue_node(
            &csr,
            &id,
            &hostname,
            posture::random()?,
            net::issue::node_validity(now()),
        )?;
        let tls = net::tls::client(&ca_pem, &cert, net::tls::ClientKey::Node(&key))?;
        let fleet = founded.trust.fleet.clone();
        nodes.push(BenchNode {
            fleet,
            id,
            hostname,
            key: Arc::new(key),
            tls,
            held: held(number),
            next: next(number),
        });
    }
    Ok(FilledFleet { nodes, all, store })
}

fn hostname(number: usize) -> Result<Hostname, BenchError> {
    Ok(format!("node-{number:06}.bench.example").parse()?)
}

/// The kind that nodes synchronize.
pub(super) const ITEM: &str = "Item";

/// What a node of a mode has: its parameters, and the leave to synchronize.
pub(super) fn objects_of(mode: Mode) -> Result<SetObjects, BenchError> {
    let mut objects = vec![(ObjectKey::of(Kind::PARAMS, "node"), br#"{"node":{"channel":"near"}}"#.to_vec())];
    if mode != Mode::Off {
        let policy = SyncPolicy {
            mode,
            kinds: vec![ITEM.to_owned()],
            folder: None,
            mismatch: Mismatch::default(),
            max_delete_percent: SyncPolicy::MAX_DELETE_PERCENT,
            operations: Vec::new(),
        };
        objects.push((ObjectKey::of(Kind::SYNC, "sync"), model::canonical::to_bytes(&policy)?));
    }
    Ok(objects)
}

/// A release in which every node has an entry.
#[derive(Clone)]
struct ReleasePlan<'a> {
    seq: u64,
    /// Nodes, and how many of them are in the channel that calls often.
    count: usize,
    near: usize,
    sets: &'a [SetObjects],
    rollout: Option<Arc<RolloutTerms>>,
}

/// Commits a release; gives what a node of each channel and mode holds.
async fn release(
    store: &Store,
    fleet: &model::FleetId,
    key: &SigningKey,
    plan: ReleasePlan<'_>,
) -> Result<Vec<Vec<HeldRelease>>, BenchError> {
    let ReleasePlan { seq, count, near, sets: objects, rollout } = plan;
    let (mut sets, mut contents) = (Vec::new(), BTreeMap::new());
    for objects in objects {
        sets.push(ObjectSet::of(objects.iter().map(|(key, content)| (key.clone(), Stub::of(content)))));
        contents.extend(objects.iter().map(|(_, content)| (content.clone(), ())));
    }
    let mut leaves = Vec::with_capacity(count);
    for number in 0..count {
        let channel: Channel = CHANNELS[usize::from(number >= near)].0.parse()?;
        let root = sets[number % sets.len()].root();
        leaves.push(Selection::leaf(&hostname(number)?, &SelectionEntry { channel, root }));
    }
    let selection = Selection::new(model::trie::Trie::build(leaves), Vec::new());
    let contents: Vec<bytes::Bytes> = contents.into_keys().map(Into::into).collect();
    for part in contents.chunks(10_000) {
        store.put_contents(part.to_vec(), now()).await?;
    }
    // Sections of one object are in the chunk of their set.
    let mut chunks: Vec<chunk::TreeChunk> = sets.iter().map(chunk::of_set).collect();
    collect(selection.exact(), &mut chunks);
    chunks.push(chunk::of_selection(&selection));
    for part in chunks.chunks(10_000) {
        store.put_chunks(part.to_vec(), now()).await?;
    }
    let root = selection.root()?;
    let mut headers = BTreeMap::new();
    let mut held = Vec::new();
    for (name, _) in CHANNELS {
        let channel: Channel = name.parse()?;
        let header = Header {
            fleet: fleet.clone(),
            channel: channel.clone(),
            seq,
            label: None,
            created: now(),
            selection: root,
            freshness_secs: 7 * 24 * 3600,
            fallbacks: Vec::new(),
            requires: rollout.iter().map(|_| ROLLOUT_FEATURE.to_owned()).collect(),
            rollout: rollout.clone(),
        };
        let signed = signed::sign(&header, &[key])?;
        let header = signed::digest(&signed);
        let of_set =
            |set: &ObjectSet| HeldRelease { channel: channel.clone(), seq, header, root: set.root() };
        held.push(sets.iter().map(of_set).collect::<Vec<_>>());
        headers.insert(channel, signed);
    }
    let contact_secs = CHANNELS.iter().map(|(name, secs)| Ok((name.parse()?, *secs)));
    let contact_secs: BTreeMap<Channel, u64> = contact_secs.collect::<Result<_, BenchError>>()?;
    let summary =
        serde_json::to_value(ReleaseSummary { contact_secs, nodes: count, ..ReleaseSummary::default() })?;
    let release =
        Release { seq, ref_label: "bench".to_owned(), created: now(), selection: root, headers, summary };
    store.commit_release(release, (seq > 1).then_some(seq - 1)).await?;
    Ok(held)
}

/// The chunks of a trie, each after those below it.
fn collect(trie: &model::trie::Trie, out: &mut Vec<chunk::TreeChunk>) {
    if let model::trie::Top::Branch(children) = trie.top() {
        for child in children {
            collect(child, out);
        }
    }
    out.extend(chunk::of_trie(&Selection::section(), trie));
}

/// A control plane in this process, over a directory that was filled.
#[cfg(test)]
pub(super) async fn served(dir: &Path) -> Result<server::RunningServer, BenchError> {
    let config = server::Config { fleet: None, ..test_support::fleet::config(dir, 0, 0) };
    Ok(server::start(config).await?)
}
