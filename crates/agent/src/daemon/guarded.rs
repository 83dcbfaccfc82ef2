//! What the daemon does for guarded runs: a contact over a connection of its own, and its own new start (CNV-11).

use std::sync::Arc;

use model::Digest;
use net::tasks;

use crate::events::{DaemonEvent, DaemonHandle};
use crate::guard::{GuardDaemon, RunGuard};
use crate::render::chain;
use crate::session::{CallError, NodeSession};

/// Where the HTTP status of a server's own failures begins.
const SERVER_FAILS: u16 = 500;

/// Contacts that are to follow a guarded run.
pub(super) struct ContactGuard {
    pub(super) session: Arc<NodeSession>,
    pub(super) handle: DaemonHandle,
    pub(super) runtime: tokio::runtime::Handle,
}

impl GuardDaemon for ContactGuard {
    /// A connection that was open before the change may outlive a firewall that refuses any other: this one is dialled
    /// after the change, with the name resolved and TLS verified anew. Any answer of the control plane counts, also one
    /// that refuses: the way to it is there.
    fn try_contact(&self, guard: Arc<RunGuard>) {
        let session = self.session.beside();
        self.runtime.spawn(async move {
            // A content that nobody has: the answer is small.
            let asked = session.get_range(&format!("/v1/blobs/{}", Digest::ZERO), 0).await;
            let outcome = match asked {
                Ok(_) => Ok(()),
                Err(CallError::Refused(problem)) if problem.status < SERVER_FAILS => Ok(()),
                Err(error) => Err(chain(&error)),
            };
            // It waits for the disk.
            let told = tasks::spawn_blocking(move || guard.confirm_tried(outcome)).await;
            if let Err(error) = told {
                tracing::error!(%error, "a contact that followed a guarded run was not noted");
            }
        });
    }

    fn restart(&self) {
        let handle = self.handle.clone();
        self.runtime.spawn(async move { handle.send(DaemonEvent::AgentReplaced).await });
    }
}
