//! [`MembershipFile`]: what `join` and renewals write, while the daemon runs (ENR-7, IDN-2).
//!
//! `join` in the same fleet gives a member a new certificate, and maybe other addresses of the control plane or a newer
//! trust document. A daemon takes them up before its next check-in, whether the control plane before answers or not. A
//! certificate that was renewed is durable before a session is opened with it.
//!
//! Invariants: what is used is read without waiting for the disk. Who reads or writes the file has its turn first, and
//! replaces what is used afterwards. Sessions are opened by one snapshot of what is used, the membership with the CAs that
//! are believed; each has a number, and none replaces a later one.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{CertificateValidity, Hostname, NodeId, Timestamp};
use net::BelievedAuthority;
use net::identity::PeerRole;
use net::issue::IssueError;
use net::tls::{self, ClientKey, TlsError};
use trust::token::{KeySource, TlsTermination};
use trust::{PublicKey, SigningKey, Slots, TrustDocument};
use wire::enroll::{RenewAnswer, RenewRequest};

use crate::identity::{self, KeyError, Membership};
use crate::invocation::restart_daemon;
use crate::machine::{Machine, OpenMachineError};
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
    /// `join` wrote other control planes, another CA or another trust document than are used, or `proxy` another proxy:
    /// they are taken up first.
    #[error("this host was joined anew or given another proxy meanwhile: what that wrote is taken up first")]
    JoinedAnew,
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

/// What `join` wrote that the node did not use yet, and uses from now on.
pub struct MembershipChange {
    /// What sessions are opened with, where that changed.
    pub session: Option<TakenUp>,
    /// The control planes, the proxy or the CA are others: what is open leads the way before.
    pub moved: bool,
    /// The trust document of the token, where it is another one (IDN-8).
    pub pinned: Option<TrustDocument>,
}

/// Tells two versions of the file apart: each is renamed into its place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct MembershipStamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
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

/// By what sessions are opened: one snapshot.
#[derive(Clone)]
struct UsedMembership {
    member: Arc<Membership>,
    /// The CAs that the trust document names which is held.
    authorities: Option<Slots>,
    /// Rises with each change of the others.
    number: u64,
}

impl UsedMembership {
    fn authority(&self) -> BelievedAuthority {
        believed_authority(&self.member, self.authorities.as_ref())
    }
}

/// The membership on the disk, and what of it is used.
pub struct MembershipFile {
    dir: StateDir,
    key: Arc<SigningKey>,
    /// Locked for moments only. Its membership is replaced only by who has the turn at the file.
    used: Mutex<UsedMembership>,
    /// The turn at the file, held while the disk is waited for; of the file that was looked at last.
    looked_at: Mutex<Option<MembershipStamp>>,
}

impl MembershipFile {
    /// The file of a machine that was opened.
    ///
    /// # Errors
    /// When the trust document that is held cannot be read.
    pub fn new(machine: &Machine, key: Arc<SigningKey>) -> Result<MembershipFile, OpenMachineError> {
        let file = MembershipFile::of(machine.state(), machine.membership.clone(), key);
        let authorities = machine.trusted()?.certificate_authority;
        file.replace(|used| used.authorities = authorities);
        Ok(file)
    }

    /// The node's own key.
    pub(crate) fn key(&self) -> &Arc<SigningKey> {
        &self.key
    }

    /// The file in a state directory, of which this is used.
    pub fn of(state: &Path, used: Membership, key: Arc<SigningKey>) -> MembershipFile {
        let dir = StateDir::at(state, spool::Disk::new());
        let authorities = used.trust.certificate_authority.clone();
        let used = UsedMembership { member: Arc::new(used), authorities, number: 0 };
        MembershipFile { dir, key, used: Mutex::new(used), looked_at: Mutex::default() }
    }

    /// Believes the CAs that the trust document names which is held from now on; what sessions are opened with then, where
    /// that is something else than before.
    ///
    /// # Errors
    /// When the certificate cannot be used.
    pub fn believe(&self, authorities: Option<&Slots>) -> Result<Option<BelievedAnew>, TlsError> {
        let used = self.used();
        let before = &used.authorities;
        if before.as_ref() == authorities {
            return Ok(None);
        }
        let goes_on = match (before, authorities) {
            (Some(before), Some(now)) => {
                before.reject_before == now.reject_before
                    && before.keys().all(|key| now.keys().any(|on| on == key))
            }
            (None, Some(now)) => {
                now.reject_before.is_none()
                    && BelievedAuthority::Keys(Box::new(now.clone())).has_certificate(&used.member.ca_pem)
            }
            (_, None) => false,
        };
        let taken_up = self.taken_up(&self.replace(|used| used.authorities = authorities.cloned()))?;
        Ok(Some(if goes_on { BelievedAnew::More(taken_up) } else { BelievedAnew::Less(taken_up) }))
    }

    /// A CA that is believed issued the certificate that sessions are opened with.
    pub fn is_certified(&self) -> bool {
        let used = self.used();
        is_certified(&used.member, &used.authority())
    }

    fn taken_up(&self, used: &UsedMembership) -> Result<TakenUp, TlsError> {
        let UsedMembership { member, number, .. } = used;
        let made = credentials_believing(member, &self.key, used.authority())?;
        let credentials = SessionCredentials { number: *number, ..made };
        Ok(TakenUp { credentials, validity: validity(member) })
    }

    /// Sessions are opened with a certificate that has ended at this time.
    pub fn certificate_has_ended(&self, now: Timestamp) -> bool {
        validity(&self.used().member).is_some_and(|validity| validity.until < now)
    }

    /// The request for the next certificate.
    ///
    /// # Errors
    /// When the library refuses.
    pub fn request(&self) -> Result<RenewRequest, IssueError> {
        let used = self.used();
        let csr_pem = net::issue::node_request(&self.key, &used.member.hostname)?;
        let authorities = used.authority().keys().map(ToString::to_string).collect();
        Ok(RenewRequest { csr_pem, authorities })
    }

    /// What a session is opened with that shows no certificate.
    ///
    /// # Errors
    /// When the CA cannot be read.
    pub fn without_certificate(&self) -> Result<SessionCredentials, TlsError> {
        let used = self.used();
        let tls = tls::client_without_certificate(used.authority(), TlsTermination::ControlPlane)?;
        let UsedMembership { member, number, .. } = used;
        Ok(SessionCredentials { urls: member.servers.clone(), proxy: member.proxy.clone(), tls, number })
    }

    /// Makes a certificate durable that was renewed, in place of the one before. From the storage thread.
    ///
    /// # Errors
    /// When it is not this node's, or cannot be written: the one before stays. [`TakeUpError::JoinedAnew`]: what `join`
    /// wrote meanwhile stays too, and is to be taken up first.
    pub fn keep(&self, answer: RenewAnswer) -> Result<TakenUp, TakeUpError> {
        let _turn = self.turn();
        let UsedMembership { member: used, authorities, .. } = self.used();
        let authority = believed_authority(&used, authorities.as_ref());
        check_holder(&answer.cert_pem, &self.key.public(), &used.hostname)
            .map_err(TakeUpError::NotAsAsked)?;
        // Whom the node takes for its control plane is said by tokens and trust documents alone.
        if !authority.certifies(&answer.cert_pem)? {
            return Err(TakeUpError::NotAsAsked("a certificate of another CA"));
        }
        // An agent of before trust documents named CAs goes by the certificates here, should one take this one's place.
        let ca_pem = answer.ca_pem.filter(|ca_pem| authority.names_all_of(ca_pem));
        let written = self.dir.membership_turn()?;
        match written.membership()? {
            Some(found) if found.node_id != used.node_id => return Err(TakeUpError::Other),
            Some(found) if has_moved(&found, &used) || found.trust != used.trust => {
                return Err(TakeUpError::JoinedAnew);
            }
            _ => {}
        }
        let ca_pem = ca_pem.unwrap_or_else(|| used.ca_pem.clone());
        let member = Membership { cert_pem: answer.cert_pem, ca_pem, ..Membership::clone(&used) };
        credentials_believing(&member, &self.key, authority)?;
        written.save(&member)?;
        // Other CAs may be believed by now: those are gone by.
        Ok(self.taken_up(&self.replace(|used| used.member = Arc::new(member)))?)
    }

    /// Writes membership and key back where they are gone or damaged. Those of another node stay (IDN-1).
    ///
    /// # Errors
    /// [`PutBackIdentityError`] says whose identity lies there, or what the disk refuses.
    pub fn put_back(&self) -> Result<(), PutBackIdentityError> {
        let _turn = self.turn();
        let used = self.used().member;
        let written = self.dir.membership_turn()?;
        match written.membership()? {
            Some(found) if found.node_id == used.node_id => {}
            Some(found) => {
                let (path, used) = (self.dir.path().to_owned(), used.node_id.clone());
                return Err(PutBackIdentityError::OtherNode { path, found: found.node_id, used });
            }
            None => written.save(&used)?,
        }
        if used.key == KeySource::Own {
            identity::put_back(&self.key, self.dir.path())?;
        }
        Ok(())
    }

    fn used(&self) -> UsedMembership {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what is used; what it is then.
    fn replace(&self, change: impl FnOnce(&mut UsedMembership)) -> UsedMembership {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut used);
        used.number += 1;
        used.clone()
    }

    fn turn(&self) -> MutexGuard<'_, Option<MembershipStamp>> {
        self.looked_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it says now, when that is something else than is used; nothing is read while the file is the one that was
    /// looked at before. From a thread that may wait for the disk.
    ///
    /// # Errors
    /// [`TakeUpError`] says why it is not taken up; once for each version of the file that can be read.
    pub fn written(&self) -> Result<Option<MembershipChange>, TakeUpError> {
        let mut looked_at = self.turn();
        // One that is gone or cannot be reached is the state guard's.
        let Some(stamp) = self.stamp().filter(|stamp| looked_at.as_ref() != Some(stamp)) else {
            return Ok(None);
        };
        let Some(found) = self.dir.membership()? else { return Ok(None) };
        *looked_at = Some(stamp);
        let UsedMembership { member: used, authorities, .. } = self.used();
        if found.node_id != used.node_id || found.tls_termination != used.tls_termination {
            return Err(TakeUpError::Other);
        }
        let moved = has_moved(&found, &used);
        let is_other = moved || found.cert_pem != used.cert_pem;
        if is_other {
            // What cannot be used is not.
            credentials_believing(&found, &self.key, believed_authority(&found, authorities.as_ref()))?;
        }
        let pinned = (found.trust != used.trust).then(|| found.trust.clone());
        let used = self.replace(|used| used.member = Arc::new(found));
        let session = if is_other { Some(self.taken_up(&used)?) } else { None };
        let changed = session.is_some() || pinned.is_some();
        Ok(changed.then_some(MembershipChange { session, moved, pinned }))
    }

    fn stamp(&self) -> Option<MembershipStamp> {
        let found = std::fs::metadata(self.dir.membership_slot().path()).ok()?;
        let modified = (found.mtime(), found.mtime_nsec());
        Some(MembershipStamp { inode: found.ino(), length: found.len(), modified })
    }
}

/// Sessions are opened elsewhere, by another way, or with another that certifies them.
fn has_moved(found: &Membership, used: &Membership) -> bool {
    found.servers != used.servers || found.proxy != used.proxy || found.ca_pem != used.ca_pem
}

/// The CAs that a member believes, where its trust document names these.
pub fn believed_authority(member: &Membership, named: Option<&Slots>) -> BelievedAuthority {
    BelievedAuthority::of(named, &member.ca_pem)
}

/// What sessions are opened with once other CAs are believed.
pub enum BelievedAnew {
    /// Whoever was believed is believed still.
    More(TakenUp),
    /// Who was believed may be so no more, and is perhaps spoken with now.
    Less(TakenUp),
}

/// A CA of these issued a member's certificate, or no session is opened with it. One that cannot be read is another
/// matter.
pub fn is_certified(member: &Membership, authority: &BelievedAuthority) -> bool {
    validity(member).is_none() || authority.certifies(&member.cert_pem).unwrap_or(true)
}

/// From when until when a member's sessions are opened with its certificate; `None` where a proxy ends TLS.
pub fn validity(member: &Membership) -> Option<CertificateValidity> {
    let opens_sessions = member.tls_termination == TlsTermination::ControlPlane;
    net::identity::validity(member.cert_pem.as_bytes()).filter(|_| opens_sessions)
}

/// Whether a certificate is a node's with this key and name; what it is instead. With another name no session would be
/// opened by whoever comes after a control plane that gave it.
pub(crate) fn check_holder(cert_pem: &str, key: &PublicKey, hostname: &Hostname) -> Result<(), &'static str> {
    let certificate = tls::certificates(cert_pem).ok().and_then(|all| all.into_iter().next());
    let peer = certificate.and_then(|der| net::identity::read(&der).ok());
    match peer.map(|peer| peer.role) {
        Some(PeerRole::Node { key: certified, .. }) if *certified != *key => {
            Err("a certificate that is not this key's")
        }
        Some(PeerRole::Node { hostname: certified, .. }) if certified != *hostname => {
            Err("a certificate of another hostname")
        }
        Some(PeerRole::Node { .. }) => Ok(()),
        _ => Err("a certificate that is not this key's"),
    }
}

/// What sessions of a member are opened with.
///
/// # Errors
/// When its certificate and this key do not go together.
pub fn credentials(member: &Membership, key: &Arc<SigningKey>) -> Result<SessionCredentials, TlsError> {
    let authority = believed_authority(member, member.trust.certificate_authority.as_ref());
    credentials_believing(member, key, authority)
}

/// The same for a member that believes these CAs.
///
/// # Errors
/// As [`credentials`].
pub fn credentials_believing(
    member: &Membership,
    key: &Arc<SigningKey>,
    authority: BelievedAuthority,
) -> Result<SessionCredentials, TlsError> {
    let tls = match member.tls_termination {
        TlsTermination::ControlPlane => {
            tls::client_believing(authority, &member.cert_pem, ClientKey::Node(key))?
        }
        TlsTermination::Proxy => tls::client_without_certificate(authority, TlsTermination::Proxy)?,
    };
    Ok(SessionCredentials { urls: member.servers.clone(), proxy: member.proxy.clone(), tls, number: 0 })
}
