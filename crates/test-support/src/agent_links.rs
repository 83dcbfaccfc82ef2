//! The node's end of links in one process with a control plane's end in memory, over channels;
//! and the same in a child that ends itself at a point of its disk.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::memory::MemoryLinkHandler;
use agent::delegated::{DelegationGate, Delegations};
use agent::dialing::TransportDialer;
use agent::events::{self, DaemonInbox};
use agent::release::ReleaseTerms;
use agent::session::{NodeSession, SessionCredentials, Signer};
use agent::state::{Durable, StateDir};
use agent::storage::Storage;
use agent::sync::SyncContext;
use agent::sync::handler::AgentLinkHandler;
use agent::sync::operations::OperationQueue;
use agent::sync::reconciler::ObjectReconciler;
use agent::sync::sets::AgentSets;
use agent::sync::transport::Links;
use agent::sync::view::SharedStatus;
use agent::work::{self, WorkSetup};
use async_trait::async_trait;
use bytes::Bytes;
use model::Timestamp;
use model::policy::Policy;
use model::replication::{Mode, SyncPolicy, TransportKind, TransportPolicy};
use model::work::Delegation;
use model::{FleetId, Kind, ObjectKey};
use net::tls::ClientKey;
use spool::Disk;
use streams::task::{LinkCommand, LinkHandle, LinkTransport, commands, run_link};
use streams::{FrameReader, FrameWriter, TransportError};
use sync::link::LinkConfig;
use sync::{Frame, Role};
use tokio::sync::{mpsc, watch};
use trust::SigningKey;

use crate::scripted::{ScriptedControl, key};
use crate::wait::eventually;

/// What fails is tried again so soon, and shown when it fails again.
const RETRY: Duration = Duration::from_millis(50);

/// A node without a daemon.
pub struct Node {
    pub context: Arc<SyncContext>,
    pub durable: Arc<Durable>,
    pub storage: Storage,
    pub sets: Arc<AgentSets>,
    pub reconciler: ObjectReconciler,
    pub work: work::WorkHandle,
    pub view: Arc<SharedStatus>,
    pub inbox: DaemonInbox,
    pub delegations: Arc<DelegationGate>,
    policy: SyncPolicy,
}

pub fn policy(mode: Mode, folder: Option<&str>) -> SyncPolicy {
    SyncPolicy {
        mode,
        kinds: vec!["Item".to_owned()],
        folder: folder.map(str::to_owned),
        mismatch: Default::default(),
        max_delete_percent: 100,
        operations: Vec::new(),
    }
}

pub fn open(dir: &Path, disk: Disk) -> Arc<Durable> {
    StateDir::create(&dir.join("state")).unwrap();
    Arc::new(StateDir::at(&dir.join("state"), disk).open().unwrap())
}

impl Node {
    pub fn start(dir: &Path, disk: Disk, policy: SyncPolicy, delegations: Vec<Delegation>) -> Node {
        let durable = open(dir, disk);
        std::fs::create_dir_all(dir.join("root")).unwrap();
        let root = dir.join("root").canonicalize().unwrap();
        let options = host::HostOptions { allow_exec: true, ..host::HostOptions::default() };
        let host = Arc::new(host::Host::open(&root, options).unwrap());
        let key = Arc::new(SigningKey::from_seed(&[7; 32]));
        let signer = Arc::new(Signer::new(fleet(), key.public().node_id(), key, Default::default()));
        let sets = Arc::new(AgentSets::open(&durable).unwrap());
        let view = Arc::new(SharedStatus::default());
        let (daemon, inbox) = events::channel();
        let (delegations, sync) = (delegations.into(), Some(Arc::new(policy.clone())));
        let fresh_until = Timestamp(i64::MAX);
        let held = Delegations { delegations, sync, fresh_until, ..Delegations::default() };
        let operations = OperationQueue::default();
        let delegations = Arc::new(DelegationGate::new(held));
        let storage = Storage::start(durable.clone()).unwrap();
        let work = work::start(WorkSetup {
            storage: storage.clone(),
            sets: sets.clone(),
            host,
            signer,
            view: view.clone(),
            daemon: daemon.clone(),
            delegations: delegations.clone(),
            operations: operations.clone(),
        })
        .unwrap();
        let context = Arc::new(SyncContext {
            durable: durable.clone(),
            sets: sets.clone(),
            view: view.clone(),
            root,
            actions: Arc::new(work.clone()),
            operations,
            delegations: delegations.clone(),
            control_plane: watch::channel(None).1,
            tls_termination: Default::default(),
            daemon,
        });
        let reconciler = ObjectReconciler::start(&context, Some(policy.clone())).unwrap();
        Node { context, durable, storage, sets, reconciler, work, view, inbox, delegations, policy }
    }

    /// The node's end of a link under rules of this number.
    pub fn handler(&self, transport: TransportKind, rules: u64) -> AgentLinkHandler {
        AgentLinkHandler::new(self.context.clone(), self.reconciler.clone(), transport, rules)
    }

    /// Links of the node over a transport to a control plane by hand.
    pub fn links(&self, control: &ScriptedControl, transport: TransportPolicy) -> Links {
        self.links_over(session(control), transport)
    }

    /// Links of the node, which is `web-1`, over a transport of this session.
    pub fn links_over(&self, session: Arc<NodeSession>, transport: TransportPolicy) -> Links {
        let policy = Policy { transport, ..Policy::default() };
        let terms = watch::channel(ReleaseTerms { policy, ..ReleaseTerms::default() }).1;
        let dialer = TransportDialer::new(session, "web-1".parse().unwrap());
        Links::start(self.context.clone(), self.reconciler.clone(), terms, dialer, "i1".to_owned(), 1)
    }

    /// Links the node with a control plane's end.
    pub async fn link(&self, principal: &Arc<MemoryLinkHandler>) -> Linked {
        let mut rules = self.reconciler.rules();
        let number = rules.wait_for(|rules| rules.number > 0).await.unwrap().number;
        let handler = self.handler(TransportKind::Grpc, number);
        let (up, from_node) = mpsc::channel(4);
        let (down, from_principal) = mpsc::channel(4);
        let (node_commands, taken) = commands();
        let link = |role: Role| {
            let kinds = self.policy.kinds.iter().map(|kind| Kind::new(kind)).collect();
            let mut config = LinkConfig::new(role, self.policy.mode, "one", kinds);
            config.max_delete_percent = 100;
            Arc::make_mut(&mut config.limits).retry_first = RETRY;
            Arc::make_mut(&mut config.limits).shown_after = 2;
            config
        };
        let node = run_link(
            link(Role::Agent),
            Arc::new(handler),
            ends(from_principal, up),
            Vec::new(),
            self.sets.changed(),
            taken,
        );
        let (principal_commands, taken) = commands();
        let (link, watch) = (link(Role::Principal), principal.head());
        let other = run_link(link, principal.clone(), ends(from_node, down), Vec::new(), watch, taken);
        let tasks = vec![tokio::spawn(async { drop(node.await) }), tokio::spawn(async { drop(other.await) })];
        Linked { node_commands, principal_commands, tasks }
    }
}

/// The fleet of these nodes.
pub fn fleet() -> FleetId {
    "demo".parse().unwrap()
}

/// A session of the node `web-1`, whose key is the first, with a control plane by hand.
pub fn session(control: &ScriptedControl) -> Arc<NodeSession> {
    let own = Arc::new(key(1));
    let certificate = control.certificate(&own, &"web-1".parse().unwrap());
    let tls = net::tls::client(control.ca().cert_pem(), &certificate, ClientKey::Node(&own)).unwrap();
    let id = own.public().node_id();
    let credentials = SessionCredentials { urls: vec![control.url()], proxy: None, tls, number: 0 };
    Arc::new(NodeSession::new(credentials, Signer::new(fleet(), id, own, Default::default())))
}

/// Both ends of a link under way.
pub struct Linked {
    pub node_commands: LinkHandle,
    pub principal_commands: LinkHandle,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Linked {
    pub async fn end(self) {
        let _ = self.node_commands.send(LinkCommand::Shutdown).await;
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

fn ends(reader: mpsc::Receiver<Vec<Frame>>, writer: mpsc::Sender<Vec<Frame>>) -> LinkTransport {
    LinkTransport { reader: Box::new(In(reader)), writer: Box::new(Out(Some(writer))) }
}

struct In(mpsc::Receiver<Vec<Frame>>);
struct Out(Option<mpsc::Sender<Vec<Frame>>>);

#[async_trait]
impl FrameReader for In {
    async fn next(&mut self) -> Result<Option<Vec<Frame>>, TransportError> {
        Ok(self.0.recv().await)
    }
}

#[async_trait]
impl FrameWriter for Out {
    async fn send(&mut self, frames: Vec<Frame>) -> Result<(), TransportError> {
        let gone = || TransportError::Broke("gone".to_owned());
        self.0.as_ref().unwrap().send(frames).await.map_err(|_| gone())
    }

    async fn finish(&mut self) {
        self.0 = None;
    }
}

/// A node whose state another one had, which has just ended.
pub async fn restarted(dir: &Path, start: impl FnOnce() -> Node) -> Node {
    let state = dir.join("state");
    eventually("the state is free", || spool::StateLock::acquire(&state).is_ok()).await;
    start()
}

pub fn item(name: &str) -> ObjectKey {
    format!("Item/web/{name}").parse().unwrap()
}

pub fn manifest(name: &str, text: &str) -> Bytes {
    let manifest = serde_json::json!({
        "apiVersion": "test/v1", "kind": "Item",
        "metadata": {"namespace": "web", "name": name}, "spec": {"text": text},
    });
    model::canonical::to_bytes(&manifest).unwrap().into()
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
