//! [`NodeAuthorities`]: the CAs that certify nodes, proxies and the control plane, and how one takes the place of another
//! (IDN-8).
//!
//! ```text
//! stage:   node-ca.next           made here, so that the key never leaves; nobody believes it
//! version of the trust document that names it
//!          node-ca.next --> node-ca.key, node-ca.pem --> node-ca.previous
//! while the previous one counts   it certifies this server, which everybody believes so, also who has not heard of the
//!                                 new one; nodes that say that they believe the new one get its certificates
//! once it counts no more          the new one certifies all
//! ```
//!
//! Invariants: a CA certifies only while the trust document names it; a file that cannot be used changes nothing while the
//! control plane runs; what is cut off is gone on with, as `node-ca.next` is there until the rest is in its place.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::Timestamp;
use net::issue::{Ca, issued_at};
use net::revoked::{BelievedIssuers, share};
use net::tls::TlsError;
use plane::NodeState;
use plane::renewal::CertificateIssuer;
use tokio::sync::watch;
use trust::{PublicKey, Slots, TrustDocument};

use crate::authority_files::AuthorityFiles;
use crate::posture::{self, FoundError, NEXT_CA, NODE_CA, PREVIOUS_CA};
use crate::trust_chain::ChainDocuments;

/// The files of the CA that certifies nodes, proxies and the control plane.
const NODE_AUTHORITY: AuthorityFiles = AuthorityFiles { name: NODE_CA, next: NEXT_CA, previous: PREVIOUS_CA };

/// How many nodes a second are asked to renew after a CA was replaced: what two processors sign beside all else.
const RENEWALS_A_SECOND: usize = 100;

/// Within what time of its join a node renews its certificate by itself, where that is of the CA before.
const RENEWS_AFTER_JOIN: Duration = Duration::from_secs(600);

/// How long a CA that was made is found again by the next attempt to name it.
const STAGED_FOR: Duration = Duration::from_secs(3600);

/// The key of the CA in a control plane's directory that is to count next; `None` where there is none.
///
/// # Errors
/// When the file cannot be read.
pub fn staged_key(dir: &Path) -> Result<Option<PublicKey>, FoundError> {
    Ok(NODE_AUTHORITY.next(dir)?.map(|ca| *ca.key()))
}

/// The CAs that count.
pub struct AuthoritySet {
    current: Arc<Ca>,
    previous: Option<Arc<Ca>>,
    /// What trust documents say of them; `None` in a fleet with the CA that it was founded with.
    slots: Option<Slots>,
    /// Since when the current one is that; `None` where it always was.
    since: Option<Timestamp>,
}

impl AuthoritySet {
    /// The CAs in a directory, as the chain's newest document names them. Where the current one is not here, that of
    /// `node-ca.key` certifies on: without a control plane nobody could name another one.
    ///
    /// # Errors
    /// [`FoundError`] names the file.
    pub(crate) fn open(dir: &Path, chain: &ChainDocuments) -> Result<AuthoritySet, FoundError> {
        let slots = chain.newest().document.certificate_authority.clone();
        if slots.is_some()
            && let Ok(set) = AuthoritySet::read(dir, chain)
        {
            return Ok(set);
        }
        let current = Arc::new(NODE_AUTHORITY.current(dir)?);
        Ok(AuthoritySet { current, previous: None, slots: None, since: None })
    }

    fn read(dir: &Path, chain: &ChainDocuments) -> Result<AuthoritySet, FoundError> {
        let Some(slots) = chain.newest().document.certificate_authority.clone() else {
            return AuthoritySet::open(dir, chain);
        };
        let (mut here, mut damaged) = (Vec::new(), None);
        let (files, own) = (NODE_AUTHORITY, NODE_AUTHORITY.current(dir).map(Some));
        for found in [files.next(dir), own, files.previous(dir)] {
            match found {
                Ok(ca) => here.extend(ca.map(Arc::new)),
                Err(error) => damaged = damaged.or(Some(error)),
            }
        }
        let with = |key: &PublicKey| here.iter().find(|ca| ca.key() == key).cloned();
        let missing = FoundError::AuthorityKey { dir: dir.to_owned(), believed: slots.current.id() };
        let current = with(&slots.current).ok_or(damaged.unwrap_or(missing))?;
        let previous = slots.previous.as_ref().and_then(with);
        Ok(AuthoritySet { current, previous, since: since(chain, &slots.current), slots: Some(slots) })
    }

    /// The one that counts.
    pub fn current(&self) -> &Arc<Ca> {
        &self.current
    }

    /// The one that certifies this server: while the one before counts, that, as everybody believes it.
    pub fn presenting(&self) -> &Arc<Ca> {
        self.previous.as_ref().unwrap_or(&self.current)
    }

    /// The certificates of all of them in PEM, that of [`AuthoritySet::presenting`] first.
    pub fn bundle(&self) -> String {
        let others = self.previous.iter().map(|_| self.current.cert_pem());
        std::iter::once(self.presenting().cert_pem()).chain(others).collect()
    }

    /// The same, that of [`AuthoritySet::current`] first.
    pub(crate) fn bundle_from_current(&self) -> String {
        let others = self.previous.iter().map(|previous| previous.cert_pem());
        std::iter::once(self.current.cert_pem()).chain(others).collect()
    }

    /// Certificates that were issued before count no more.
    pub(crate) fn reject_before(&self) -> Option<Timestamp> {
        self.slots.as_ref().and_then(|slots| slots.reject_before)
    }

    /// The one that issues a certificate for a node which takes those of CAs with these keys, and else that of the CA that
    /// it joined with.
    pub(crate) fn issuer_for(&self, believed: &[String]) -> &Arc<Ca> {
        let current = self.current.key().to_string();
        if believed.contains(&current) { &self.current } else { self.presenting() }
    }

    /// Whether a node is to have its certificate renewed now, as another CA issued it: `authority` is the id of the CA key
    /// that it says it goes by. The nodes of a fleet are asked one after the other.
    pub(crate) fn wants_renewal(
        &self,
        node: &NodeState,
        authority: Option<&str>,
        nodes: usize,
        now: Timestamp,
    ) -> bool {
        let Some(since) = self.since else { return false };
        let knows_it = authority == Some(self.current.key().id().as_str());
        knows_it && !self.issued(node) && now >= since.plus(share(&node.hostname, renewed_within(nodes)))
    }

    /// Whose certificates count on connections that are open, in a fleet of so many nodes.
    pub(crate) fn issuers(&self, nodes: usize) -> Result<BelievedIssuers, TlsError> {
        BelievedIssuers::of(&self.bundle(), self.reject_before(), renewed_within(nodes))
    }

    /// Whose certificates count, as it is kept of nodes.
    pub(crate) fn counting(&self) -> CountingIssuers {
        CountingIssuers {
            current: CertificateIssuer::of(self.current.key()),
            previous: self.previous.as_ref().map(|ca| CertificateIssuer::of(ca.key())),
            was_replaced: self.was_replaced(),
            reject_before: self.reject_before(),
        }
    }

    /// The current one issued a node's certificate; a node behind a proxy opens no session with one.
    pub(crate) fn issued(&self, node: &NodeState) -> bool {
        self.counting().issued(node)
    }

    /// A node has a certificate of a CA of before, and is not about to have another one: a host that joins while the CA changes
    /// gets one that everybody believes, and renews it after its first check-ins.
    pub(crate) fn keeps_certificate_of_before(&self, node: &NodeState, now: Timestamp) -> bool {
        let joined_just_now = self.is_changing() && now < node.enrolled_at.plus(RENEWS_AFTER_JOIN);
        let joined_since = self.since.is_some_and(|since| node.enrolled_at >= since);
        let has_another_soon = joined_just_now && joined_since;
        !self.issued(node) && !has_another_soon
    }

    /// A CA issued a node's certificate that counts no more, or one that counts issued it too early.
    pub(crate) fn issued_before(&self, node: &NodeState) -> bool {
        self.counting().rejects(node)
    }

    /// They are those that a trust document names.
    pub(crate) fn is_named_by(&self, trust: &TrustDocument) -> bool {
        self.slots == trust.certificate_authority
    }

    /// The one before goes on certifying.
    pub(crate) fn is_changing(&self) -> bool {
        self.previous.is_some()
    }

    /// A CA of before counted and was replaced.
    pub(crate) fn was_replaced(&self) -> bool {
        self.since.is_some()
    }
}

/// Whose certificates count, as it is kept of nodes. One that nothing was recorded of is of the CA that the fleet was
/// founded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountingIssuers {
    pub(crate) current: CertificateIssuer,
    pub(crate) previous: Option<CertificateIssuer>,
    /// The current one is not that which the fleet was founded with.
    pub(crate) was_replaced: bool,
    /// Certificates that were issued before count no more.
    pub(crate) reject_before: Option<Timestamp>,
}

impl CountingIssuers {
    fn issued(self, node: &NodeState) -> bool {
        let first = (!self.was_replaced).then_some(self.current);
        node.certificate.is_none() || node.issuer.or(first) == Some(self.current)
    }

    /// A node has a certificate that counts no more, though it has not ended.
    pub(crate) fn rejects(self, node: &NodeState) -> bool {
        // What is recorded begins when it was issued: it is not dated back, as the certificate itself is.
        let is_early = |limit: Timestamp| {
            node.certificate.is_some_and(|certificate| certificate.from.secs() < limit.secs())
        };
        let is_of_previous =
            self.previous.is_some() && (node.issuer.is_none() || node.issuer == self.previous);
        self.reject_before.is_some_and(is_early) || !self.issued(node) && !is_of_previous
    }
}

/// How long the renewals of so many nodes take.
fn renewed_within(nodes: usize) -> Duration {
    Duration::from_secs((nodes / RENEWALS_A_SECOND) as u64)
}

/// When a CA was made; the beginning of time where its certificate does not say so.
fn made(ca: &Ca) -> Timestamp {
    net::identity::validity(ca.cert_pem().as_bytes()).map_or(Timestamp(0), issued_at)
}

/// When the documents began to name a key as the current CA's.
fn since(chain: &ChainDocuments, key: &PublicKey) -> Option<Timestamp> {
    let names = |document: &TrustDocument| {
        document.certificate_authority.as_ref().is_some_and(|slots| slots.current == *key)
    };
    let mut documents = chain.versions.iter().rev().map(|version| &version.head.document);
    let mut first = documents.next().filter(|document| names(document))?;
    first = documents.take_while(|document| names(document)).last().unwrap_or(first);
    first.created
}

/// The CAs of a control plane that runs.
pub(crate) struct NodeAuthorities {
    dir: PathBuf,
    set: watch::Sender<Arc<AuthoritySet>>,
    /// Why the CA that is believed does not certify, while it does not.
    problem: Mutex<Option<String>>,
    /// One change at a time. From threads that may wait for the disk.
    changing: Mutex<()>,
}

impl NodeAuthorities {
    pub(crate) fn new(dir: &Path, set: AuthoritySet) -> NodeAuthorities {
        let (dir, set) = (dir.to_owned(), watch::Sender::new(Arc::new(set)));
        NodeAuthorities { dir, set, problem: Mutex::default(), changing: Mutex::default() }
    }

    /// Goes on with what was cut off before the control plane's start, and follows what was put into its directory since.
    pub(crate) fn settle(&self, chain: &ChainDocuments) {
        let settled = {
            let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
            put_in_place(&self.dir, &self.set())
        };
        match settled {
            Ok(()) => self.follow(chain),
            Err(error) => self.note(Some(crate::answer::chain(&error))),
        }
    }

    /// Those that count now.
    pub(crate) fn set(&self) -> Arc<AuthoritySet> {
        self.set.borrow().clone()
    }

    /// Says when other ones count.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<AuthoritySet>> {
        self.set.subscribe()
    }

    /// Why the CA that nodes believe does not certify, while it does not.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes the CA that is to count next, or finds the one that an earlier attempt made.
    pub(crate) fn stage(&self, trust: &TrustDocument, now: Timestamp) -> Result<PublicKey, FoundError> {
        let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new =
            |ca: &Ca| trust.certificate_authority.iter().all(|slots| slots.keys().all(|key| key != ca.key()));
        match NODE_AUTHORITY.next(&self.dir)? {
            // Written over, the key that nodes believe would be lost.
            Some(ca) if !is_new(&ca) => {
                let (dir, believed) = (self.dir.clone(), ca.key().id());
                return Err(FoundError::AuthorityNotInPlace { dir, believed });
            }
            // Of an older attempt there may be copies: in backups, with whoever saw the directory then.
            Some(ca) if now < made(&ca).plus(STAGED_FOR) => return Ok(*ca.key()),
            _ => {}
        }
        // Each has a name of its own: TLS libraries find a certificate's CA by that.
        let name = format!("{} {NODE_CA} {}", trust.fleet, now.secs());
        let (ca, files) = Ca::generate(&name, now).map_err(posture::authority(&self.dir))?;
        NODE_AUTHORITY.stage(&self.dir, &files)?;
        tracing::info!(key = ca.key().id(), "the CA that is to count next was made");
        Ok(*ca.key())
    }

    /// Whether this control plane could certify with the CA that a document names.
    pub(crate) fn holds(&self, trust: &TrustDocument) -> bool {
        let Some(slots) = &trust.certificate_authority else { return true };
        let staged = NODE_AUTHORITY.next(&self.dir).ok().flatten();
        let set = self.set();
        let here = staged.iter().chain(std::iter::once(&*set.current)).chain(set.previous.as_deref());
        here.map(Ca::key).any(|key| *key == slots.current)
    }

    /// Goes by the newest trust document: puts the CA that it names in its place. What is wrong is logged once, and the CA
    /// before certifies on.
    pub(crate) fn follow(&self, chain: &ChainDocuments) {
        let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = &chain.newest().document;
        if self.set().slots == newest.certificate_authority {
            return self.note(None);
        }
        match self.take_up(chain) {
            Ok(()) => self.note(None),
            Err(error) => self.note(Some(crate::answer::chain(&error))),
        }
    }

    fn note(&self, why: Option<String>) {
        let mut problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        if *problem != why
            && let Some(error) = &why
        {
            tracing::error!(
                error,
                "the CA that nodes and operators believe does not certify here: they do not believe \
                this control plane"
            );
        }
        *problem = why;
    }

    fn take_up(&self, chain: &ChainDocuments) -> Result<(), FoundError> {
        let set = AuthoritySet::read(&self.dir, chain)?;
        put_in_place(&self.dir, &set)?;
        posture::rewrite_client_files(&self.dir, &set, &chain.newest().document)?;
        tracing::info!(current = set.current.key().id(), "another CA, or fewer of them, counts");
        self.set.send_replace(Arc::new(set));
        Ok(())
    }
}

/// Puts a staged CA that counts now in the place of the one before.
fn put_in_place(dir: &Path, set: &AuthoritySet) -> Result<(), FoundError> {
    NODE_AUTHORITY.put_in_place(dir, |staged| staged.key() == set.current.key())
}

#[cfg(test)]
mod tests;
