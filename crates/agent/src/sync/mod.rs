//! Synchronization on the node: the sets and their place, links and what carries them.
//!
//! Three threads of control: the *reconciler* owns the place of the users' objects and writes both
//! sets; *work* runs actions; the *links* are a task of the daemon's runtime. They meet in
//! [`sets::Sets`] and by messages.

mod autonomous;
pub mod handler;
mod managed;
mod place;
pub mod posts;
pub mod reconciler;
pub mod sets;
mod signals;
pub mod transport;
pub mod transports;
pub mod view;
mod watched;

use std::path::PathBuf;
use std::sync::Arc;

use host::Host;
use model::Timestamp;
use model::exchange::{Answer, CheckIn};
use model::policy::Policy;
use model::replication::SyncPolicy;
use model::work::Delegation;
use node::Adoption;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::delegated::Delegated;
use crate::events::DaemonHandle;
use crate::opening::Opener;
use crate::render::chain;
use crate::session::Signer;
use crate::state::{Durable, StateError, fresh_incarnation};
use crate::work::{self, StartWorkError, WorkHandle};
use reconciler::ObjectReconciler;
use sets::{Sets, SetsError};
use transport::Links;
use view::View;

/// Why synchronization cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The sets.
    #[error(transparent)]
    Sets(#[from] SetsError),
    /// Work.
    #[error(transparent)]
    Work(#[from] StartWorkError),
    /// The release held.
    #[error("the release held cannot be read")]
    State(#[from] StateError),
    /// The operating system.
    #[error("no thread could be started")]
    Thread(#[from] std::io::Error),
}

/// What it needs.
pub struct Parts {
    /// The state directory.
    pub durable: Arc<Durable>,
    /// Where commands run, and whose root the folder is under.
    pub host: Arc<Host>,
    /// Signs.
    pub signer: Arc<Signer>,
    /// Opens transports.
    pub opener: Opener,
    /// The way to the daemon.
    pub daemon: DaemonHandle,
    /// Spreads waits.
    pub seed: u64,
}

/// Synchronization and work of one node, as the daemon has them.
pub struct Synchronization {
    durable: Arc<Durable>,
    delegated: Arc<Delegated>,
    reconciler: ObjectReconciler,
    work: WorkHandle,
    links: Links,
    policy: watch::Sender<Policy>,
    view: Arc<View>,
    writer: JoinHandle<()>,
}

impl Synchronization {
    /// Starts the threads and the task, on what is held.
    ///
    /// # Errors
    /// When the state cannot be used.
    pub fn start(parts: Parts) -> Result<Synchronization, StartError> {
        let Parts { durable, host, signer, opener, daemon, seed } = parts;
        let sets = Arc::new(Sets::open(durable.clone())?);
        let view = Arc::new(View::default());
        let adoption = durable.adoption()?;
        let policy = adoption.as_ref().map(|adoption| durable.policy(adoption)).transpose()?;
        let policy = watch::Sender::new(policy.unwrap_or_default());
        let says =
            |adoption| (sync_policy(&durable, &view, adoption), delegations(&durable, &view, adoption));
        let (sync, delegations) = adoption.as_ref().map(says).unwrap_or_default();
        let delegated = Arc::new(Delegated::new(delegations, newest(adoption.as_ref())));
        let root: PathBuf = host.root().canonicalize().unwrap_or_else(|_| host.root().to_owned());
        let work = work::start(work::Parts {
            durable: durable.clone(),
            sets: sets.clone(),
            host,
            signer,
            view: view.clone(),
            daemon: daemon.clone(),
            delegated: delegated.clone(),
        })?;
        let reconciler = ObjectReconciler::start(reconciler::Parts {
            durable: durable.clone(),
            sets: sets.clone(),
            work: work.clone(),
            view: view.clone(),
            root,
            policy: sync,
        })?;
        let instance = fresh_incarnation()?.to_string();
        let links = Links::start(transport::Parts {
            opener,
            sets,
            reconciler: reconciler.clone(),
            view: view.clone(),
            daemon,
            policy: policy.subscribe(),
            instance,
            seed,
        });
        let writer = tokio::spawn(write_view(view.clone(), durable.clone()));
        Ok(Synchronization { durable, delegated, reconciler, work, links, policy, view, writer })
    }

    /// Adopts a release: from then on its leave to synchronize, its delegations and its
    /// settings count, and none of the one before.
    ///
    /// # Errors
    /// When it cannot be made durable; the one before counts still.
    pub fn adopt(&self, adoption: &Adoption) -> Result<Policy, StateError> {
        let says = || (delegations(&self.durable, &self.view, adoption), newest(Some(adoption)));
        let policy = self.delegated.adopt(|| self.durable.adopt(adoption), says)?;
        self.reconciler.held(sync_policy(&self.durable, &self.view, adoption));
        self.work.held();
        self.policy.send_replace(policy.clone());
        Ok(policy)
    }

    /// The control plane wants a stream.
    pub fn requested(&self) {
        self.links.requested();
    }

    /// The control plane answered a call: it is there again, if it was not.
    pub fn reached(&self) {
        self.links.reached();
    }

    /// Whether check-ins can go over an open stream.
    pub fn is_open(&self) -> bool {
        self.links.is_open()
    }

    /// Checks in over the open stream; `None`: there is none, or no answer came.
    pub async fn check_in(&self, message: CheckIn) -> Option<Answer> {
        let answer = self.links.check_in(message).await;
        self.view.set(|view| view.counts.check_ins += u64::from(answer.is_some()));
        answer
    }

    /// Begins no more work, and waits for what runs, within its bound.
    pub async fn drain(&self) {
        self.work.drain().await;
    }

    /// Ends the link in order (SYN-14).
    pub async fn stop(&self) {
        self.links.stop().await;
        self.writer.abort();
        self.show();
    }

    fn show(&self) {
        if let Err(error) = self.view.write(self.durable.path()) {
            tracing::debug!(%error, "the status cannot be written");
        }
    }
}

/// A release's leave to synchronize. One that cannot be read gives none.
fn sync_policy(durable: &Durable, view: &View, adoption: &Adoption) -> Option<SyncPolicy> {
    let read = durable.sync_policy(adoption);
    let problem = read.as_ref().err().map(|error| format!("{}; nothing is synchronized", chain(error)));
    said(view, "release, sync", problem);
    read.unwrap_or_default()
}

/// A release's delegations. What cannot be read allows nothing.
fn delegations(durable: &Durable, view: &View, adoption: &Adoption) -> Vec<Delegation> {
    let read = durable.delegations(adoption);
    let problem = read.as_ref().err().map(|error| format!("{}; nothing is delegated", chain(error)));
    said(view, "release, delegations", problem);
    read.unwrap_or_default()
}

fn said(view: &View, place: &str, problem: Option<String>) {
    if let Some(problem) = &problem {
        tracing::error!(place, problem, "the release held cannot be read");
    }
    view.problem(place, problem);
}

/// The newest signature that was verified.
fn newest(adoption: Option<&Adoption>) -> Timestamp {
    adoption.map_or(Timestamp::default(), |adoption| adoption.floor.newest_signature)
}

async fn write_view(view: Arc<View>, durable: Arc<Durable>) {
    loop {
        if let Err(error) = view.write(durable.path()) {
            tracing::debug!(%error, "the status cannot be written");
        }
        tokio::time::sleep(view::EVERY).await;
    }
}
