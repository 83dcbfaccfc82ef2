//! [`MembershipFile`]: what `join` wrote, read again while the daemon runs (ENR-7).
//!
//! `join` in the same fleet gives a member a new certificate, and maybe other addresses of the control plane. A
//! daemon takes both up when a check-in fails, before it says so.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{Digest, NodeId, Timestamp};
use net::tls::{self, ClientKey, TlsError};
use trust::token::{KeySource, TlsTermination};
use trust::{SigningKey, TrustDocument};

use crate::identity::{self, KeyError, Membership};
use crate::invocation::restart_daemon;
use crate::machine::Machine;
use crate::session::SessionCredentials;
use crate::state::{StateDir, StateError};

/// Why what `join` wrote is not taken up.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// It cannot be read.
    #[error("the membership cannot be read")]
    State(#[from] StateError),
    /// Its certificate cannot be used.
    #[error("the node's certificate cannot be used")]
    Tls(#[from] TlsError),
    /// It is of another node, or its sessions end elsewhere.
    #[error(
        "this host joined as another node, or through another way: restart the agent: {}",
        restart_daemon()
    )]
    Other,
}

/// Why the identity on the disk is not the one that is used, and is left as it is.
#[derive(Debug, thiserror::Error)]
pub enum PutBackIdentityError {
    /// The membership cannot be read or written.
    #[error("the membership cannot be kept")]
    State(#[from] StateError),
    /// The key cannot be read or written.
    #[error("the key cannot be kept")]
    Key(#[from] KeyError),
    /// The directory is another node's.
    #[error(
        "{} holds the membership of node {found}, and this agent is node {used}: put this node's directory back, or \
         restart the agent to go on as the other node: {}",
        path.display(),
        restart_daemon()
    )]
    OtherNode {
        /// The state directory.
        path: PathBuf,
        /// Whose it is.
        found: NodeId,
        /// As which node the agent works.
        used: NodeId,
    },
}

/// The membership on the disk, and what of it is used.
pub struct MembershipFile {
    dir: StateDir,
    key: Arc<SigningKey>,
    used: Mutex<Membership>,
    /// The digest of the trust document that the node begins its chain at.
    pinned: Mutex<Option<Digest>>,
}

impl MembershipFile {
    /// The file of a machine that was opened.
    pub fn new(machine: &Machine, key: Arc<SigningKey>) -> MembershipFile {
        let dir = StateDir::at(machine.state(), spool::Disk::new());
        let pinned = Mutex::new(machine.membership.trust.digest().ok());
        MembershipFile { dir, key, used: Mutex::new(machine.membership.clone()), pinned }
    }

    /// Sessions are opened with a certificate that has ended at this time.
    pub fn certificate_has_ended(&self, now: Timestamp) -> bool {
        let used = self.used();
        let ends = net::identity::valid_until(used.cert_pem.as_bytes());
        used.tls_termination == TlsTermination::ControlPlane && ends.is_some_and(|ends| ends < now)
    }

    /// Writes membership and key back where they are gone or damaged. Those of another node stay (IDN-1).
    ///
    /// # Errors
    /// [`PutBackIdentityError`] says whose identity lies there, or what the disk refuses.
    pub fn put_back(&self) -> Result<(), PutBackIdentityError> {
        let used = self.used();
        match self.dir.membership()? {
            Some(found) if found.node_id == used.node_id => {}
            Some(found) => {
                let (path, used) = (self.dir.path().to_owned(), used.node_id.clone());
                return Err(PutBackIdentityError::OtherNode { path, found: found.node_id, used });
            }
            None => self.dir.save_membership(&used)?,
        }
        if used.key == KeySource::Own {
            identity::put_back(&self.key, self.dir.path())?;
        }
        Ok(())
    }

    fn used(&self) -> MutexGuard<'_, Membership> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The trust document that a token named since, when that is another one (IDN-8). From a thread that may wait
    /// for the disk.
    ///
    /// # Errors
    /// When the membership cannot be read, or is of another node.
    pub fn pinned_anew(&self) -> Result<Option<TrustDocument>, RenewError> {
        let Some(found) = self.dir.membership()? else { return Ok(None) };
        if found.node_id != self.used().node_id {
            return Err(RenewError::Other);
        }
        let digest = found.trust.digest().ok();
        let mut pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        let differs = std::mem::replace(&mut *pinned, digest) != digest;
        Ok(differs.then_some(found.trust))
    }

    /// What it says now, when that is something else than is used. From a thread that may wait for the disk.
    ///
    /// # Errors
    /// [`RenewError`] says why it is not taken up.
    pub fn renewed(&self) -> Result<Option<SessionCredentials>, RenewError> {
        let Some(found) = self.dir.membership()? else { return Ok(None) };
        let mut used = self.used();
        let same = found.cert_pem == used.cert_pem && found.ca_pem == used.ca_pem;
        if same && found.servers == used.servers {
            return Ok(None);
        }
        if found.node_id != used.node_id || found.tls_termination != used.tls_termination {
            return Err(RenewError::Other);
        }
        let credentials = credentials(&found, &self.key)?;
        *used = found;
        Ok(Some(credentials))
    }
}

/// What sessions of a member are opened with.
///
/// # Errors
/// When its certificate and this key do not go together.
pub fn credentials(member: &Membership, key: &Arc<SigningKey>) -> Result<SessionCredentials, TlsError> {
    let tls = match member.tls_termination {
        TlsTermination::ControlPlane => tls::client(&member.ca_pem, &member.cert_pem, ClientKey::Node(key))?,
        TlsTermination::Proxy => tls::client_pinned(tls::digest(&member.ca_pem)?, TlsTermination::Proxy)?,
    };
    Ok(SessionCredentials { urls: member.servers.clone(), tls })
}
