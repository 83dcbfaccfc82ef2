//! [`MembershipFile`]: what `join` and renewals write, while the daemon runs (ENR-7, IDN-2).
//!
//! `join` in the same fleet gives a member a new certificate, and maybe other addresses of the control plane. A
//! daemon takes both up when a check-in fails, before it says so. A certificate that was renewed is durable before
//! a session is opened with it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{CertificateValidity, Digest, NodeId, Timestamp};
use net::identity::PeerRole;
use net::issue::IssueError;
use net::tls::{self, ClientKey, TlsError};
use trust::token::{KeySource, TlsTermination};
use trust::{PublicKey, SigningKey, TrustDocument};
use wire::enroll::RenewAnswer;

use crate::identity::{self, KeyError, Membership};
use crate::invocation::restart_daemon;
use crate::machine::Machine;
use crate::session::SessionCredentials;
use crate::state::{StateDir, StateError};

/// Why a certificate that `join` wrote, or that was renewed, is not taken up.
#[derive(Debug, thiserror::Error)]
pub enum TakeUpError {
    /// It cannot be read or written.
    #[error("the membership cannot be read or written")]
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
    /// The control plane's answer is not what was asked for.
    #[error("the control plane's answer is not what was asked for: {0}")]
    NotAsAsked(&'static str),
}

/// Another certificate of the node, that sessions are opened with from now on.
pub struct TakenUp {
    /// What sessions are opened with.
    pub credentials: SessionCredentials,
    /// The certificate; `None` where a proxy ends TLS.
    pub validity: Option<CertificateValidity>,
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
        MembershipFile::of(machine.state(), machine.membership.clone(), key)
    }

    /// The file in a state directory, of which this is used.
    pub fn of(state: &Path, used: Membership, key: Arc<SigningKey>) -> MembershipFile {
        let dir = StateDir::at(state, spool::Disk::new());
        let pinned = Mutex::new(used.trust.digest().ok());
        MembershipFile { dir, key, used: Mutex::new(used), pinned }
    }

    /// Sessions are opened with a certificate that has ended at this time.
    pub fn certificate_has_ended(&self, now: Timestamp) -> bool {
        validity(&self.used()).is_some_and(|validity| validity.until < now)
    }

    /// The request for the next certificate.
    ///
    /// # Errors
    /// When the library refuses.
    pub fn request(&self) -> Result<String, IssueError> {
        net::issue::node_request(&self.key, &self.used().hostname)
    }

    /// What a session is opened with that shows no certificate.
    ///
    /// # Errors
    /// When the CA cannot be read.
    pub fn without_certificate(&self) -> Result<SessionCredentials, TlsError> {
        let used = self.used();
        let tls = tls::client_pinned(tls::digest(&used.ca_pem)?, TlsTermination::ControlPlane)?;
        Ok(SessionCredentials { urls: used.servers.clone(), tls })
    }

    /// Makes a certificate durable that was renewed, in place of the one before. From a thread that may wait for the
    /// disk.
    ///
    /// # Errors
    /// When it is not this node's, or cannot be written: the one before stays.
    pub fn keep(&self, answer: RenewAnswer) -> Result<TakenUp, TakeUpError> {
        let mut used = self.used();
        if !is_of_key(&answer.cert_pem, &self.key.public()) {
            return Err(TakeUpError::NotAsAsked("a certificate that is not this key's"));
        }
        // Whom the node takes for its control plane is said by tokens alone: a renewal names no other CA.
        if tls::certificates(&answer.ca_pem)? != tls::certificates(&used.ca_pem)? {
            return Err(TakeUpError::NotAsAsked("another CA"));
        }
        if !tls::is_of_ca(&answer.cert_pem, &used.ca_pem)? {
            return Err(TakeUpError::NotAsAsked("a certificate of another CA"));
        }
        // What `join` may have written meanwhile stays but for the certificate.
        let member = self.dir.membership()?.filter(|found| found.node_id == used.node_id);
        let member = member.unwrap_or_else(|| used.clone());
        let member = Membership { cert_pem: answer.cert_pem, ..member };
        let taken_up = taken_up(&member, &self.key)?;
        self.dir.save_membership(&member)?;
        *used = member;
        Ok(taken_up)
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
    pub fn pinned_anew(&self) -> Result<Option<TrustDocument>, TakeUpError> {
        let Some(found) = self.dir.membership()? else { return Ok(None) };
        if found.node_id != self.used().node_id {
            return Err(TakeUpError::Other);
        }
        let digest = found.trust.digest().ok();
        let mut pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        let differs = std::mem::replace(&mut *pinned, digest) != digest;
        Ok(differs.then_some(found.trust))
    }

    /// What it says now, when that is something else than is used. From a thread that may wait for the disk.
    ///
    /// # Errors
    /// [`TakeUpError`] says why it is not taken up.
    pub fn written(&self) -> Result<Option<TakenUp>, TakeUpError> {
        let Some(found) = self.dir.membership()? else { return Ok(None) };
        let mut used = self.used();
        let same = found.cert_pem == used.cert_pem && found.ca_pem == used.ca_pem;
        if same && found.servers == used.servers {
            return Ok(None);
        }
        if found.node_id != used.node_id || found.tls_termination != used.tls_termination {
            return Err(TakeUpError::Other);
        }
        let taken_up = taken_up(&found, &self.key)?;
        *used = found;
        Ok(Some(taken_up))
    }
}

fn taken_up(member: &Membership, key: &Arc<SigningKey>) -> Result<TakenUp, TlsError> {
    Ok(TakenUp { credentials: credentials(member, key)?, validity: validity(member) })
}

/// From when until when a member's sessions are opened with its certificate; `None` where a proxy ends TLS.
pub fn validity(member: &Membership) -> Option<CertificateValidity> {
    let opens_sessions = member.tls_termination == TlsTermination::ControlPlane;
    net::identity::validity(member.cert_pem.as_bytes()).filter(|_| opens_sessions)
}

/// Whether a certificate is a node's with this key.
pub(crate) fn is_of_key(cert_pem: &str, key: &PublicKey) -> bool {
    let certificate = tls::certificates(cert_pem).ok().and_then(|all| all.into_iter().next());
    let peer = certificate.and_then(|der| net::identity::read(&der).ok());
    matches!(peer.map(|peer| peer.role), Some(PeerRole::Node { key: certified, .. }) if *certified == *key)
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
