//! What the daemon does for guarded runs: a contact over a connection of its own, and its own new start (CNV-11).

use std::sync::Arc;

use model::Digest;
use net::tasks;
use node::NodeInput;

use super::Daemon;
use crate::contact::answer_of_error;
use crate::events::{DaemonEvent, DaemonHandle};
use crate::guard::{GuardDaemon, GuardNumber, RunGuard};
use crate::render::chain;
use crate::session::NodeSession;

/// Contacts that are to follow a guarded run.
pub(super) struct ContactGuard {
    pub(super) session: Arc<NodeSession>,
    pub(super) handle: DaemonHandle,
    pub(super) runtime: tokio::runtime::Handle,
}

impl GuardDaemon for ContactGuard {
    /// A connection that was open before the change may outlive a firewall that refuses any other: this one is dialled
    /// after the change, with the name resolved and TLS verified anew.
    fn try_contact(&self, guard: Arc<RunGuard>, number: GuardNumber) {
        let session = self.session.beside();
        self.runtime.spawn(async move {
            // A content that nobody has: the answer is small.
            let asked = session.get_range(&format!("/v1/blobs/{}", Digest::ZERO), 0).await;
            let tls = session.signer().tls_termination;
            let outcome = match asked {
                Ok(_) => Ok(()),
                Err(error) if answer_of_error(&error, tls).is_contact() => Ok(()),
                Err(error) => Err(chain(&error)),
            };
            // It waits for the disk.
            let told = tasks::spawn_blocking(move || guard.confirm_tried(number, outcome)).await;
            if let Err(error) = told {
                tracing::error!(error = %chain(&error), "a contact that followed a guarded run was not noted");
            }
        });
    }

    fn restart(&self) {
        let handle = self.handle.clone();
        self.runtime.spawn(async move { handle.send(DaemonEvent::AgentReplaced).await });
    }

    fn guard_changed(&self) {
        let handle = self.handle.clone();
        self.runtime.spawn(async move { handle.send(DaemonEvent::GuardChanged).await });
    }
}

impl Daemon {
    /// The node knows whether a contact is to follow a guarded change before it decides anything: the run that made the
    /// change is told of after it.
    pub(super) fn follow_guard(&mut self) {
        let is_up = self.runner.guard().is_some_and(|guard| guard.is_up());
        if self.node.awaits_contact() != is_up {
            self.take(NodeInput::AwaitsContact(is_up));
        }
    }
}
