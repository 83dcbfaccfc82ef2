//! [`RejoinFollower`]: takes up what `join` and `proxy` write beside a daemon that runs (ENR-7, IDN-8, WIR-7).
//!
//! ```text
//! before a check-in, after a renewal that met it --> MembershipFile::written
//!   certificate, servers, proxy, CA -> sessions;  servers, proxy, CA -> the open link ends;  trust document -> node
//! ```
//!
//! Invariant: a disk that does not answer holds up one look, and no check-in for longer than [`LOOK_WITHIN`].

use std::sync::Arc;
use std::time::Duration;

use net::tasks;
use node::NodeInput;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::events::{DaemonEvent, DaemonHandle};
use crate::membership::{MembershipChange, MembershipFile, TakenUp};
use crate::render::chain;
use crate::session::NodeSession;
use crate::sync::Synchronization;

/// How long a check-in waits for a look at the file.
const LOOK_WITHIN: Duration = Duration::from_secs(2);

/// Where sessions lead after a look at the membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionPlace {
    /// Where they led before.
    Same,
    /// To other control planes, through another proxy, or under another CA.
    Moved,
}

/// What is told of a membership that was written anew. Cheap to clone.
#[derive(Clone)]
pub struct RejoinFollower {
    session: Arc<NodeSession>,
    member: Arc<MembershipFile>,
    sync: Arc<Synchronization>,
    daemon: DaemonHandle,
    /// One looks at a time.
    turn: Arc<Mutex<()>>,
}

impl RejoinFollower {
    /// Follows this file with these sessions and links.
    pub fn new(
        session: Arc<NodeSession>,
        member: Arc<MembershipFile>,
        sync: Arc<Synchronization>,
        daemon: DaemonHandle,
    ) -> RejoinFollower {
        RejoinFollower { session, member, sync, daemon, turn: Arc::default() }
    }

    /// Takes up what was written since the last look, for a check-in that does not wait for the disk.
    pub async fn look(&self) -> SessionPlace {
        let Ok(turn) = self.turn.clone().try_lock_owned() else { return SessionPlace::Same };
        let follower = self.clone();
        // What is found late is taken up all the same.
        let looking = tasks::spawn(async move {
            let _turn = turn;
            follower.take_up().await
        });
        timeout(LOOK_WITHIN, looking).await.ok().and_then(Result::ok).unwrap_or(SessionPlace::Same)
    }

    /// The same, however long it takes.
    pub async fn follow(&self) {
        let _turn = self.turn.lock().await;
        self.take_up().await;
    }

    async fn take_up(&self) -> SessionPlace {
        let member = self.member.clone();
        let change = match tasks::spawn_blocking(move || member.written()).await {
            Ok(Ok(Some(change))) => change,
            Ok(Ok(None)) | Err(_) => return SessionPlace::Same,
            Ok(Err(error)) => {
                tracing::warn!(error = %chain(&error), "what `join` wrote is not taken up");
                return SessionPlace::Same;
            }
        };
        let MembershipChange { session, moved, pinned } = change;
        if let Some(document) = pinned {
            tracing::info!(version = document.version, "the trust document of a new token is taken up");
            self.daemon.send(DaemonEvent::Input(NodeInput::TrustPinned(Box::new(document)))).await;
        }
        if let Some(TakenUp { credentials, validity }) = session {
            let proxy = &credentials.proxy;
            match *proxy == self.session.destination().proxy {
                true => tracing::info!(moved, "a new certificate is taken up"),
                false => {
                    let proxy = proxy.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
                    tracing::info!(proxy, "connections go out another way from now on");
                }
            }
            self.session.renew(credentials);
            if let Some(validity) = validity {
                self.daemon.send(DaemonEvent::Input(NodeInput::Renewed(validity))).await;
            }
        }
        if !moved {
            return SessionPlace::Same;
        }
        // Under another CA whoever is there may be believed no more, also at the same place.
        self.session.give_up();
        self.sync.links.moved();
        SessionPlace::Moved
    }
}
