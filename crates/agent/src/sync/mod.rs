//! Synchronization on the node: the users' objects, the sets of both sides, and the link between
//! them and the control plane.
//!
//! ```text
//!             +------------------ Synchronization -------------------+
//! backend <-> | ObjectReconciler <--> Sets <--> Link <--> transport  | <-> control plane
//!             |   (a thread)        (memory,     (a task of the      |
//!             +------|---------------object log)--daemon's runtime)--+
//!                    v ActionSink, ^ OperationQueue      |  DaemonHandle
//!                  work                                  v daemon
//! ```
//!
//! Invariants: the reconciler alone writes the sets and the backend; what it answers is durable;
//! links and reconciler observe the release that is held ([`ReleaseTerms`]) and have no part in
//! its adoption.

mod autonomous;
mod backend;
pub mod handler;
mod mailbox;
mod managed;
mod node_status;
pub mod operations;
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

use model::exchange::{Answer, CheckIn};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use trust::token::TlsTermination;

use crate::dialing::TransportDialer;
use crate::events::DaemonHandle;
use crate::release::ReleaseTerms;
use crate::state::{Durable, StateError, fresh_incarnation};
use operations::OperationQueue;
use reconciler::{ActionSink, ObjectReconciler, ReconcilerSetup};
use sets::Sets;
use transport::{Links, LinksSetup};
use view::View;

/// Why synchronization cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The operating system gives no randomness.
    #[error("the process cannot be given a name")]
    Name(#[from] StateError),
    /// The operating system.
    #[error("no thread could be started")]
    Thread(#[from] std::io::Error),
}

/// What it needs.
pub struct SyncSetup {
    /// The state directory.
    pub durable: Arc<Durable>,
    /// Both sets.
    pub sets: Arc<Sets>,
    /// What is shown.
    pub view: Arc<View>,
    /// The host's root, which folders are under.
    pub root: PathBuf,
    /// Takes actions.
    pub actions: Arc<dyn ActionSink>,
    /// Where operations on objects come from.
    pub operations: OperationQueue,
    /// What the release that is held says.
    pub terms: watch::Receiver<ReleaseTerms>,
    /// Opens transports.
    pub dialer: TransportDialer,
    /// Who ends their TLS sessions.
    pub tls_termination: TlsTermination,
    /// The way to the daemon.
    pub daemon: DaemonHandle,
    /// Spreads waits.
    pub seed: u64,
}

/// Synchronization of one node, as the daemon has it.
pub struct Synchronization {
    durable: Arc<Durable>,
    links: Links,
    view: Arc<View>,
    tasks: [JoinHandle<()>; 2],
}

impl Synchronization {
    /// Starts the thread and the tasks, on what is held.
    ///
    /// # Errors
    /// When the state cannot be used.
    pub fn start(setup: SyncSetup) -> Result<Synchronization, StartError> {
        let SyncSetup { durable, sets, view, root, actions, operations, mut terms, .. } = setup;
        let SyncSetup { dialer, tls_termination, daemon, seed, .. } = setup;
        let policy = {
            let terms = terms.borrow_and_update();
            show_problems(&view, &terms);
            terms.sync.clone()
        };
        let reconciler = ObjectReconciler::start(ReconcilerSetup {
            durable: durable.clone(),
            sets: sets.clone(),
            actions,
            view: view.clone(),
            root,
            policy,
            operations,
        })?;
        let instance = fresh_incarnation()?.to_string();
        let links = Links::start(LinksSetup {
            dialer,
            tls_termination,
            sets,
            reconciler: reconciler.clone(),
            view: view.clone(),
            daemon,
            terms: terms.clone(),
            instance,
            seed,
        });
        let observer = tokio::spawn(observe(terms, reconciler, view.clone()));
        let writer = tokio::spawn(write_view(view.clone(), durable.clone()));
        Ok(Synchronization { durable, links, view, tasks: [observer, writer] })
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

    /// Ends the link in order (SYN-14).
    pub async fn stop(&self) {
        self.links.stop().await;
        self.tasks.iter().for_each(JoinHandle::abort);
        self.show();
    }

    fn show(&self) {
        if let Err(error) = self.view.write(self.durable.path()) {
            tracing::debug!(%error, "the status cannot be written");
        }
    }
}

/// Goes by each release that is adopted.
async fn observe(mut terms: watch::Receiver<ReleaseTerms>, reconciler: ObjectReconciler, view: Arc<View>) {
    while terms.changed().await.is_ok() {
        let terms = terms.borrow_and_update();
        show_problems(&view, &terms);
        reconciler.held(terms.sync.clone());
    }
}

/// Shows what of the held release cannot be read.
fn show_problems(view: &View, terms: &ReleaseTerms) {
    view.problem("release, sync", terms.sync_problem.clone());
    view.problem("release, delegations", terms.delegations_problem.clone());
}

/// Writes the status beside the state, off the runtime's thread: that may wait for the disk.
async fn write_view(view: Arc<View>, durable: Arc<Durable>) {
    loop {
        let (shown, state) = (view.clone(), durable.clone());
        let written = tokio::task::spawn_blocking(move || shown.write(state.path())).await;
        if let Ok(Err(error)) = written {
            tracing::debug!(%error, "the status cannot be written");
        }
        tokio::time::sleep(view::EVERY).await;
    }
}
