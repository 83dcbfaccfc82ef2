//! `muster prove NODE PATH`: what leads from the bytes at a path to the fleet's root, shown and exported.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::module::{Module, Params};
use clap::Args;
use converge::declared_path::{DeclaredBy, DeclaredBytes, DeclaredPath, DeclaredPathError, declared_path};
use lang::Value;
use model::canonical::{self, CanonicalError};
use model::chunk::TreeChunk;
use model::exchange::Signed;
use model::log::Cursor;
use model::lookup::{find_object, nodes_to};
use model::selection::{SelectionEntry, prove_by_nodes};
use model::{DescentError, Digest, Kind, ObjectKey, Selection, Trie, TrieNode};
use serde::Serialize;
use server::api::operation::Empty;
use server::api::{self, History, NodeView};
use server::posture::ROOT_KEY;
use trust::adopt::takes;
use trust::provenance::{
    EntryProof, FORMAT, NodeHistory, ProofEvidence, ProofStep, ProvenObject, Provenance, ProvenanceError,
    TrustAnchor,
};
use trust::{Header, PublicKey, TrustDocument};

use crate::clock::now;
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::key::FleetKeyError;
use crate::observed;
use crate::operator::{Operator, OperatorCallError};
use crate::release;
use crate::remote::{self, RemoteError};
use crate::screen::{Mark, Screen, aside};
use crate::signer::{self, FleetSigner, SignError};

const AFTER: &str = "\
Shows which bytes the release that NODE holds declares at PATH, by which resource and module, in
which set, by which header and keys. --out writes one file with all of it, which `muster verify`
checks on any machine with the fleet's root alone. Where the content depends on the node, the file
holds its modules, params and traits: treat it as you treat those.

Examples:
  muster prove web-1.example.com /etc/motd
  muster prove web-1.example.com /etc/motd --out motd.json
  muster verify motd.json --trust trust.json --bytes /etc/motd";

/// Arguments of `muster prove`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct ProveArgs {
    #[command(flatten)]
    connect: Connect,
    /// Its hostname or id
    node: String,
    /// An absolute path on it
    path: String,
    /// Write the proof to this file (0600)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The root key, to sign the first trust document with, so that its public half alone verifies the
    /// file [default: root.key beside the operator's credentials, where it is there]
    #[arg(long, value_name = "FILE")]
    root_key: Option<PathBuf>,
}

/// Why nothing is proven.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    /// The control plane did not do what it was asked.
    #[error("the control plane could not be asked")]
    Call(#[from] OperatorCallError),
    /// What is published cannot be read.
    #[error("what is published cannot be read")]
    Remote(#[from] RemoteError),
    /// The node holds no release, and is pointed to none.
    #[error("{0} holds no release, and nothing published names it")]
    NothingHeld(String),
    /// The release names another channel's header than the node's.
    #[error("release {seq} has no header for channel {channel}")]
    NoHeader {
        /// The release.
        seq: u64,
        /// The channel.
        channel: model::Channel,
    },
    /// The release gives the node nothing.
    #[error("release {seq} gives nothing to {node}")]
    NoEntry {
        /// The release.
        seq: u64,
        /// The node.
        node: String,
    },
    /// The set has no such object, or it is not what it should be.
    #[error("{0} of the node's set cannot be read")]
    Object(ObjectKey),
    /// Nothing declares the path, or it is not known what.
    #[error(transparent)]
    Declared(#[from] DeclaredPathError),
    /// The content is nobody's to see.
    #[error("{0} is sensitive: what it holds is proven to nobody")]
    Sensitive(String),
    /// A step does not hold.
    #[error("what the control plane gives does not hold: {step}: {0}", step = .0.step().as_str())]
    Step(#[from] ProvenanceError),
    /// A document has no canonical form.
    #[error("a document has no canonical form")]
    Canonical(#[from] CanonicalError),
    /// The root key does not sign.
    #[error("the first trust document cannot be signed")]
    Sign(#[from] SignError),
    /// It cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// Where to.
        path: PathBuf,
        /// Why not.
        #[source]
        source: spool::SpoolError,
    },
    /// It has no JSON form.
    #[error("the proof has no JSON form")]
    Encode(#[from] serde_json::Error),
}

impl UserError for ProveError {
    fn hint(&self) -> Option<String> {
        match self {
            ProveError::Declared(DeclaredPathError::NotDeclared(_)) => {
                Some("`muster render NODE` shows every resource that a node gets".to_owned())
            }
            ProveError::Sign(error) => error.hint(),
            ProveError::NothingHeld(_) | ProveError::NoEntry { .. } => Some(
                "publish a release that names it; `muster node show NODE` shows what it holds".to_owned(),
            ),
            _ => None,
        }
    }
}

/// What is shown.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProvenPath<'a> {
    node: &'a str,
    path: &'a str,
    /// From the bytes to the root.
    evidence: Vec<ProofEvidence>,
    /// What the node says, which no signature here covers.
    reported: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<&'a Path>,
}

/// Does the verb.
///
/// # Errors
/// When the control plane cannot be asked, nothing declares the path, or a step does not hold.
pub async fn run(args: &ProveArgs, screen: Screen) -> Result<Exit, Failure> {
    let (credentials, _) = args.connect.credentials()?;
    let root_key = root_key(args, &credentials)?;
    let operator = args.connect.dial().await?;
    let node = operator.call(&api::NODE, args.node.as_str()).await?;
    let documents = trust_documents(&operator, root_key.as_ref()).await?;
    let (provenance, declared) = prove(&operator, &node, &args.path, documents.signed).await?;
    let anchor = TrustAnchor::Document(Box::new(documents.newest));
    let mut evidence = Vec::new();
    let verified = provenance.verify(&anchor, &takes, &mut |step| evidence.push(step));
    verified.map_err(ProveError::Step)?;
    evidence.push(ProofEvidence { step: ProofStep::Resource, shows: declared_text(&declared, &args.path) });
    evidence.reverse();
    if let Some(out) = &args.out {
        write(&provenance, out)?;
    }
    let shown = ProvenPath {
        node: node.hostname.as_str(),
        path: &args.path,
        evidence,
        reported: reported(&node, &provenance),
        written: args.out.as_deref(),
    };
    Ok(screen.result(&shown, || text(&shown, screen))?)
}

fn root_key(args: &ProveArgs, credentials: &Path) -> Result<Option<FleetSigner>, Failure> {
    if let Some(path) = &args.root_key {
        let key = FleetSigner::open(path)?;
        return Ok(Some(key.ok_or_else(|| FleetKeyError::NotAKey(path.clone()))?));
    }
    // Not there, or not for this user: the document goes unsigned.
    Ok(FleetSigner::open(&credentials.with_file_name(ROOT_KEY)).ok().flatten())
}

struct TrustDocuments {
    /// From the first on.
    signed: Vec<Signed>,
    newest: TrustDocument,
}

async fn trust_documents(
    operator: &Operator,
    root: Option<&FleetSigner>,
) -> Result<TrustDocuments, ProveError> {
    let view = operator.call(&api::TRUST, Empty {}).await?;
    let newest = view.versions.last().map(|version| version.document.clone());
    let newest = newest.ok_or_else(|| ProveError::NothingHeld("the control plane".to_owned()))?;
    let mut signed = Vec::new();
    for version in view.versions {
        let counts = |key: &PublicKey| version.document.root.keys().any(|known| known == key);
        signed.push(match (version.link, root) {
            (Some(link), _) => link,
            (None, Some(key)) if counts(&key.public()) => signer::sign(&version.document, &[key])?,
            (None, _) => {
                let payload = canonical::to_bytes(&version.document)?;
                // Canonical JSON is UTF-8.
                Signed { payload: String::from_utf8_lossy(&payload).into_owned(), signatures: Vec::new() }
            }
        });
    }
    Ok(TrustDocuments { signed, newest })
}

async fn prove(
    operator: &Operator,
    node: &NodeView,
    path: &str,
    trust: Vec<Signed>,
) -> Result<(Provenance, DeclaredPath), Failure> {
    let hostname = &node.hostname;
    let nothing = || ProveError::NothingHeld(hostname.to_string());
    let held = node.held.as_ref().map(|held| (held.seq, &held.channel));
    let (seq, channel) = held.or(node.pointed_seq.zip(node.channel.as_ref())).ok_or_else(nothing)?;
    let published = release::find(operator, Some(seq)).await?;
    let signed = published.headers.get(channel).cloned();
    let signed = signed.ok_or_else(|| ProveError::NoHeader { seq, channel: channel.clone() })?;
    let header: Header =
        canonical::parse_canonical(signed.payload.as_bytes()).map_err(ProveError::Canonical)?;
    let mut pieces = Pieces { operator, chunks: BTreeMap::new() };
    let entry = pieces.entry(&header, signed, hostname.as_str()).await?;
    // Those are of the selection, which the node's own proof stands for.
    pieces.chunks.clear();
    let traits = observed::recorded(operator, hostname.as_str()).await.map(|observed| observed.traits);
    let objects = NodeObjects::read(&mut pieces, &entry.entry.root, hostname.as_str()).await?;
    let declared = objects.declared(path, traits.as_ref())?;
    if declared.sensitive {
        return Err(ProveError::Sensitive(declared.resource.to_string()).into());
    }
    let (proven, traits) = objects.enough_for(&declared, path, traits);
    let mut way = Pieces { operator, chunks: BTreeMap::new() };
    for object in &proven {
        way.find(&entry.entry.root, &object.key).await.map_err(ProveError::Remote)?;
    }
    let traits = traits.map(serde_json::to_value).transpose().map_err(ProveError::Encode)?;
    let provenance = Provenance {
        format: FORMAT,
        made: now(),
        hostname: hostname.clone(),
        path: path.to_owned(),
        trust,
        entry,
        chunks: way.chunks.into_values().collect(),
        objects: proven,
        traits,
        history: history(operator, node).await?,
    };
    Ok((provenance, declared))
}

async fn history(operator: &Operator, node: &NodeView) -> Result<Option<NodeHistory>, ProveError> {
    let request = History { node: Some(node.id.to_string()), before: None, limit: 1.into() };
    let newest = operator.call(&api::FACTS, request).await?.into_iter().next();
    Ok(newest.map(|record| NodeHistory {
        node: node.id.clone(),
        newest: Cursor { incarnation: record.incarnation, seq: record.fact.seq },
    }))
}

/// Pieces of stored trees, fetched as they are asked for; each is verified by its hash.
struct Pieces<'a> {
    operator: &'a Operator,
    chunks: BTreeMap<Digest, TreeChunk>,
}

impl Pieces<'_> {
    /// Repeats a walk until it lacks nothing.
    async fn walk<T>(
        &mut self,
        walk: impl Fn(&dyn Fn(&Digest) -> Option<TreeChunk>) -> Result<T, DescentError>,
    ) -> Result<T, RemoteError> {
        loop {
            let missing = match walk(&|digest| self.chunks.get(digest).cloned()) {
                Ok(done) => return Ok(done),
                Err(DescentError::Missing(digest)) => digest,
                Err(error) => return Err(error.into()),
            };
            self.chunks.extend(remote::fetch(self.operator, &[missing]).await?);
        }
    }

    async fn find(&mut self, root: &Digest, key: &ObjectKey) -> Result<Option<model::Stub>, RemoteError> {
        self.walk(|chunks| find_object(root, key, &chunks)).await
    }

    async fn entry(
        &mut self,
        header: &Header,
        signed: Signed,
        hostname: &str,
    ) -> Result<EntryProof, ProveError> {
        let top = remote::top(self.operator, &header.selection).await?;
        let section = Selection::section();
        let nodes = self.walk(|chunks| nodes_to(&top.exact, &section, hostname, &chunks)).await?;
        let exact = match nodes.last() {
            Some(TrieNode::Bucket(leaves)) => leaves.iter().find(|leaf| *leaf.name == *hostname),
            _ => None,
        };
        let patterns = Selection::new(Trie::default(), top.patterns.clone());
        let first = patterns.first(hostname, &takes);
        let entry: Option<SelectionEntry> = match (exact, first) {
            (Some(leaf), _) => {
                leaf.stub.uid.parse().ok().map(|channel| SelectionEntry { channel, root: leaf.stub.digest })
            }
            (None, first) => first.and_then(|at| Some(top.patterns.get(at)?.entry.clone())),
        };
        let none = || ProveError::NoEntry { seq: header.seq, node: hostname.to_owned() };
        let proof = prove_by_nodes(&nodes, &top.patterns, hostname, first)?;
        Ok(EntryProof { header: signed, entry: entry.ok_or_else(none)?, proof })
    }
}

/// The objects of a node that say what its paths hold.
struct NodeObjects {
    hostname: String,
    params: (ObjectKey, String, Params),
    modules: BTreeMap<String, (ObjectKey, String, Arc<Module>)>,
}

impl NodeObjects {
    async fn read(pieces: &mut Pieces<'_>, root: &Digest, hostname: &str) -> Result<NodeObjects, ProveError> {
        let key = ObjectKey::of(Kind::PARAMS, PARAMS);
        let (text, params): (_, Params) = object(pieces, root, &key).await?;
        let mut modules = BTreeMap::new();
        for name in &params.modules {
            let key = ObjectKey::of(Kind::MODULE, name);
            let (text, module): (_, Module) = object(pieces, root, &key).await?;
            modules.insert(name.clone(), (key, text, Arc::new(module)));
        }
        Ok(NodeObjects { hostname: hostname.to_owned(), params: (key, text, params), modules })
    }

    fn bound(&self) -> BTreeMap<String, Arc<Module>> {
        self.modules.iter().map(|(name, (_, _, module))| (name.clone(), module.clone())).collect()
    }

    fn declared(&self, path: &str, traits: Option<&Value>) -> Result<DeclaredPath, ProveError> {
        let (modules, params) = (self.bound(), Some(&self.params.2));
        Ok(declared_path(DeclaredBy { hostname: &self.hostname, modules: &modules, params, traits }, path)?)
    }

    /// The module alone where it declares the same on every node; else all that the node's set is bound from.
    fn enough_for(
        &self,
        declared: &DeclaredPath,
        path: &str,
        traits: Option<Value>,
    ) -> (Vec<ProvenObject>, Option<Value>) {
        let of = |(key, content, _): &(ObjectKey, String, Arc<Module>)| ProvenObject {
            key: key.clone(),
            content: content.clone(),
        };
        if let Some(alone) = self.modules.get(&declared.module) {
            let modules = BTreeMap::from([(declared.module.clone(), alone.2.clone())]);
            let by = DeclaredBy { hostname: &self.hostname, modules: &modules, params: None, traits: None };
            if declared_path(by, path).as_ref() == Ok(declared) {
                return (vec![of(alone)], None);
            }
        }
        let params = ProvenObject { key: self.params.0.clone(), content: self.params.1.clone() };
        (std::iter::once(params).chain(self.modules.values().map(of)).collect(), traits)
    }
}

/// The name of the only object of kind `Params`.
pub(crate) const PARAMS: &str = "node";

async fn object<T: serde::de::DeserializeOwned>(
    pieces: &mut Pieces<'_>,
    root: &Digest,
    key: &ObjectKey,
) -> Result<(String, T), ProveError> {
    let unread = || ProveError::Object(key.clone());
    let stub = pieces.find(root, key).await?.ok_or_else(unread)?;
    let bytes = pieces.operator.content(&stub.digest).await?;
    let text = String::from_utf8(bytes.to_vec()).map_err(|_| unread())?;
    let read = canonical::parse(text.as_bytes()).map_err(|_| unread())?;
    Ok((text, read))
}

/// What a resource declares of a path, in words.
pub(crate) fn declared_text(declared: &DeclaredPath, path: &str) -> String {
    let DeclaredPath { module, resource, asked, .. } = declared;
    let bytes = match declared.bytes {
        DeclaredBytes::Digest(digest) => format!("{path} is to hold the bytes sha256:{digest}"),
        DeclaredBytes::Absent => format!("nothing is to be at {path}"),
        DeclaredBytes::NotWhole => {
            format!("of {path} a part is declared, or its owner and mode; all of its bytes are not")
        }
    };
    let asked = if *asked { ", where its condition holds, which is asked on the node" } else { "" };
    format!("{bytes}: {resource} of module {module} declares it{asked}")
}

/// What the node says of what it holds, by the control plane.
fn reported(node: &NodeView, provenance: &Provenance) -> String {
    let Some(held) = &node.held else { return "the node said nothing of what it holds yet".to_owned() };
    let same = trust::signed::digest(&provenance.entry.header) == held.header
        && held.root == provenance.entry.entry.root;
    let held = if same {
        format!("the node says that it holds this set, of release {}", held.seq)
    } else {
        format!("THE NODE SAYS THAT IT HOLDS ANOTHER SET OR HEADER of release {}", held.seq)
    };
    let run = match node.successful_run {
        Some(at) => format!("; its last full run in which nothing failed ended at {at}"),
        None => "; no full run is known in which nothing failed".to_owned(),
    };
    format!("{held}{run}; it is {}", crate::screen::name_of(node.state))
}

fn text(shown: &ProvenPath<'_>, screen: Screen) -> String {
    let mut out = format!("{} on {}\n", screen.mark(Mark::Bold, shown.path), shown.node);
    for ProofEvidence { step, shows } in &shown.evidence {
        out.push_str(&format!("{:<10} {shows}\n", step.as_str()));
    }
    out.push_str(&format!("{:<10} {}\n", "reported", shown.reported));
    if let Some(path) = shown.written {
        out.push_str(&format!("written to {}; `muster verify` checks it offline\n", path.display()));
    }
    out
}

fn write(provenance: &Provenance, path: &Path) -> Result<(), ProveError> {
    let mut text = serde_json::to_vec(provenance)?;
    text.push(b'\n');
    let written = spool::atomic::write_file(&spool::Disk::new(), path, &text, 0o600);
    written.map_err(|source| ProveError::Write { path: path.to_owned(), source })?;
    if provenance.objects.iter().any(|object| object.key.section.kind.as_str() == Kind::PARAMS) {
        aside(&format!(
            "note: {} holds the modules, params and traits of {}, as the content depends on them",
            path.display(),
            provenance.hostname
        ));
    }
    Ok(())
}
