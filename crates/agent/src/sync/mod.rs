//! Synchronization on the node: the users' objects, the sets of both sides, and the link between
//! them and the control plane.
//!
//! ```text
//!             +---------------------- Synchronization ----------------------+
//! backend <-> | ObjectReconciler <--> AgentSets <--> Link <--> transport    | <-> control plane
//!             |   (a thread)          (memory,       (a task of the         |
//!             +------|----------------object log)----daemon's runtime)------+
//!                    v ActionSink, ^ OperationQueue      |  DaemonHandle
//!                  work                                  v daemon
//! ```
//!
//! Invariants: the reconciler alone writes the object log and the backend; what it wrote is in the log
//! before it is in the sets in memory, and there before the link is answered, which puts the same again;
//! links and reconciler observe the release that is held ([`ReleaseTerms`]) and have no part in its
//! adoption.

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
pub mod transport;
pub mod transports;
pub mod view;

use std::path::PathBuf;
use std::sync::Arc;

use model::AgentInstance;
use net::tasks;
use tokio::sync::watch;
use trust::FeedVerifier;
use trust::token::TlsTermination;

use crate::delegated::DelegationGate;
use crate::dialing::TransportDialer;
use crate::events::DaemonHandle;
use crate::release::ReleaseTerms;
use crate::state::{Durable, StateError};
use operations::OperationQueue;
use reconciler::{ActionSink, ObjectReconciler};
use sets::AgentSets;
use transport::Links;
use view::SharedStatus;

/// What all parts of synchronization work with.
pub struct SyncContext {
    /// The state directory.
    pub durable: Arc<Durable>,
    /// Both sets.
    pub sets: Arc<AgentSets>,
    /// What is shown.
    pub view: Arc<SharedStatus>,
    /// The host's root, which folders are under.
    pub root: PathBuf,
    /// Takes actions.
    pub actions: Arc<dyn ActionSink>,
    /// Where operations on objects come from.
    pub operations: OperationQueue,
    /// Until when changes of the control plane are taken.
    pub delegations: Arc<DelegationGate>,
    /// Verifies what the control plane proves of its feed, where the fleet's trust document names a key for that.
    pub control_plane: watch::Receiver<Option<Arc<FeedVerifier>>>,
    /// Who ends the TLS sessions of links.
    pub tls_termination: TlsTermination,
    /// The way to the daemon.
    pub daemon: DaemonHandle,
}

/// Synchronization of one node, as the daemon has it.
pub struct Synchronization {
    /// The link with the control plane.
    pub links: Links,
    context: Arc<SyncContext>,
}

impl Synchronization {
    /// Starts the thread and the tasks, on what is held. `terms` is what the release that is held
    /// says; `seed` spreads waits.
    ///
    /// # Errors
    /// When the state cannot be used.
    pub fn start(
        context: SyncContext,
        mut terms: watch::Receiver<ReleaseTerms>,
        dialer: TransportDialer,
        instance: &AgentInstance,
        seed: u64,
    ) -> Result<Synchronization, StateError> {
        let context = Arc::new(context);
        let policy = {
            let terms = terms.borrow_and_update();
            context.show_problems(&terms);
            terms.sync.clone()
        };
        let reconciler = ObjectReconciler::start(&context, policy)?;
        // The same as in check-ins: the control plane tells two holders of one key apart by it.
        let instance = instance.id.clone();
        let links = Links::start(context.clone(), reconciler.clone(), terms.clone(), dialer, instance, seed);
        tasks::spawn(observe(terms, reconciler, context.clone()));
        tasks::spawn(write_view(context.clone()));
        Ok(Synchronization { context, links })
    }

    /// Ends the link in order (SYN-14).
    pub async fn stop(&self) {
        self.links.stop().await;
        self.context.write_view();
    }
}

impl SyncContext {
    /// Shows what of the held release cannot be read.
    fn show_problems(&self, terms: &ReleaseTerms) {
        self.view.problem("release, sync", terms.sync_problem.clone());
        self.view.problem("release, delegations", terms.delegations_problem.clone());
    }

    fn write_view(&self) {
        if let Err(error) = self.view.write(self.durable.path()) {
            tracing::debug!(%error, "the status cannot be written");
        }
    }
}

/// Goes by each release that is adopted.
async fn observe(
    mut terms: watch::Receiver<ReleaseTerms>,
    reconciler: ObjectReconciler,
    context: Arc<SyncContext>,
) {
    while terms.changed().await.is_ok() {
        let terms = terms.borrow_and_update();
        context.show_problems(&terms);
        reconciler.held(terms.sync.clone());
    }
}

/// Writes the status beside the state when it changed, off the runtime's thread: that may wait for the
/// disk.
async fn write_view(context: Arc<SyncContext>) {
    let (mut changed, mut written) = (context.view.watch(), None);
    loop {
        // Most of what is set is what was set before.
        let shown = context.view.shown();
        if written.as_ref() != Some(&shown) {
            let writing = context.clone();
            let _ = tasks::spawn_blocking(move || writing.write_view()).await;
            written = Some(shown);
        }
        tokio::time::sleep(view::EVERY).await;
        if changed.changed().await.is_err() {
            return;
        }
    }
}
