//! A fleet to measure with: a control plane's directory filled with enrolled nodes and a
//! release, made with real keys and without a network.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use model::object::ObjectKey;
use model::selection::Entry;
use model::{Channel, Hostname, Kind, NodeId, ObjectSet, Selection, Stub, Timestamp, chunk};
use net::issue::NodeRequest;
use rustls::ClientConfig;
use server::api::Summary;
use server::posture;
use store::{FleetMeta, NewNode, NewRelease, SqliteStore, Store, TokenUse};
use trust::{Header, SigningKey, signed};

use super::BenchError;

/// Contact intervals: one at which connections are kept, one at which they are closed.
pub(super) const NEAR_SECS: u64 = 30;
const FAR_SECS: u64 = 300;
/// Nodes in the channel whose connections are kept.
const CHANNELS: [(&str, u64); 2] = [("near", NEAR_SECS), ("far", FAR_SECS)];

/// A node with its key and certificate.
#[derive(Clone)]
pub(super) struct BenchNode {
    pub(super) id: NodeId,
    pub(super) key: Arc<SigningKey>,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) held: model::exchange::Held,
}

/// What time it is.
pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(0))
}

/// Fills `dir`: `count` nodes, the first `near` of them in the channel that calls often.
pub(super) async fn fill(dir: &Path, count: usize, near: usize) -> Result<Vec<BenchNode>, BenchError> {
    let founded = posture::open(dir, "bench", now())?;
    let store = SqliteStore::open(dir.join("muster.db"))?;
    store.found_fleet(FleetMeta { fleet: founded.trust.fleet.clone(), created: now() }).await?;
    let ca_pem = founded.node_ca.cert_pem().to_owned();
    let mut keys = Vec::with_capacity(count);
    let mut enrollments = Vec::new();
    for number in 0..count {
        let key = SigningKey::from_seed(&posture::random()?);
        let hostname = hostname(number)?;
        let id = NodeId::of_key(key.public().as_bytes());
        let csr = NodeRequest::read(&net::issue::node_request(&key.seed(), &hostname)?)?;
        let cert = founded.node_ca.issue_node(&csr, &id, &hostname, posture::random()?, now())?;
        let node = NewNode {
            node_id: id.clone(),
            hostname: hostname.clone(),
            public_key: *key.public().as_bytes(),
            cert_not_before: now(),
            cert_serial: format!("{number:032x}"),
            key_confirmed: true,
            declared: serde_json::json!({}),
        };
        let token = TokenUse { nonce: format!("bench-{number}"), expires_at: now() };
        enrollments.push((node, token));
        keys.push((id, key, cert));
    }
    // Side by side, so that the store may commit them in groups.
    let store = Arc::new(store);
    for group in enrollments.chunks(256) {
        let mut tasks = tokio::task::JoinSet::new();
        for (node, token) in group.iter().cloned() {
            let store = store.clone();
            tasks.spawn(async move { store.enroll(node, token, now()).await });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
    }
    let release_key = founded.release_key.as_ref().ok_or("no release key")?;
    let held = release(&*store, &founded.trust.fleet, release_key, count, near).await?;
    let mut nodes = Vec::with_capacity(count);
    for (number, (id, key, cert)) in keys.into_iter().enumerate() {
        let seed = key.seed();
        let tls = net::tls::client(&ca_pem, &cert, net::tls::ClientKey::Seed(&seed))?;
        let held = held[usize::from(number >= near)].clone();
        nodes.push(BenchNode { id, key: Arc::new(key), tls, held });
    }
    Ok(nodes)
}

fn hostname(number: usize) -> Result<Hostname, BenchError> {
    Ok(format!("node-{number:06}.bench.example").parse()?)
}

/// Commits a release in which every node has an entry; gives what a node of each channel holds.
async fn release(
    store: &dyn Store,
    fleet: &model::FleetId,
    key: &SigningKey,
    count: usize,
    near: usize,
) -> Result<Vec<model::exchange::Held>, BenchError> {
    let content = br#"{"node":{"channel":"near"}}"#.to_vec();
    let set = ObjectSet::of([(ObjectKey::of(Kind::PARAMS, "node"), Stub::of(&content))]);
    let mut leaves = Vec::with_capacity(count);
    for number in 0..count {
        let channel: Channel = CHANNELS[usize::from(number >= near)].0.parse()?;
        leaves.push(Selection::leaf(&hostname(number)?, &Entry { channel, root: set.root() }));
    }
    let selection = Selection::new(model::trie::Trie::build(leaves), Vec::new());
    store.put_contents(vec![content.into()], now()).await?;
    let mut chunks = vec![chunk::of_set(&set)];
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
            seq: 1,
            label: None,
            created: now(),
            selection: root,
            freshness_secs: 7 * 24 * 3600,
            fallbacks: Vec::new(),
        };
        let signed = signed::sign(&header, &[key])?;
        let header = signed::digest(&signed);
        held.push(model::exchange::Held { channel: channel.clone(), seq: 1, header, root: set.root() });
        headers.insert(channel, signed);
    }
    let contact_secs = CHANNELS.iter().map(|(name, secs)| Ok((name.parse()?, *secs)));
    let contact_secs: BTreeMap<Channel, u64> = contact_secs.collect::<Result<_, BenchError>>()?;
    let summary = serde_json::to_value(Summary { contact_secs, nodes: count, ..Summary::default() })?;
    let release = NewRelease {
        seq: 1,
        ref_label: "bench".to_owned(),
        created: now(),
        selection: root,
        headers,
        summary,
        expected_head: None,
    };
    store.commit_release(release).await?;
    Ok(held)
}

/// The chunks of a trie, each after those below it.
fn collect(trie: &model::trie::Trie, out: &mut Vec<chunk::Chunk>) {
    if let model::trie::Top::Branch(children) = trie.top() {
        for child in children {
            collect(child, out);
        }
    }
    out.extend(chunk::of_trie(&Selection::section(), trie));
}
