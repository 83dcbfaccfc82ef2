//! Who is let in: a token, a group token, the fleet repo's word, an operator's approval (ENR-9, CFG-8).
//!
//! ```text
//! POST /v1/enroll --> JoinClaim::read: CSR, token, hostname --paced, admission--> JoinGrant -> enroll::certify
//!                                                  plane::joining::judge \-> join-pending, kept in the store first
//! operator: approve, deny, forget --> store, then JoinRequests; the host learns of it when it asks again
//! ```
//!
//! Invariants: a host that waits has no certificate, so nothing but this route answers it; what is decided is durable
//! before it counts; [`JoinRequests`] holds what the store holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{Hostname, JoinState, KeyConfirmation, NodeId, PendingJoin, ReleaseVersion, Timestamp};
use net::accept::Connection;
use net::admission::AddressPrefix;
use plane::joining::{
    DeclaredKey, HeardJoin, JoinGround, JoinPacer, JoinVerdict, PendingJoins, TokenBinding, judge,
    poll_again_in,
};
use plane::lists::JoinCredential;
use store::{GroupUse, JoinAdmission, Store, StoreError};
use trust::group_token::{self, GroupClaims};
use trust::token::{self, Claims, TlsTermination};
use trust::{PublicKey, TrustDocument};
use wire::enroll::EnrollRequest;
use wire::{Code, Problem};

use crate::answer::{chain, store_problem};
use crate::enroll::enroll_problem;
use crate::state::{ControlPlane, now, run_to_completion};

/// The most versions of agents that are logged as newer.
const MAX_NOTED_VERSIONS: usize = 32;

/// Hosts that ask to join, and how fast they are looked at.
#[derive(Default)]
pub(crate) struct JoinRequests {
    /// Of hosts that a token vouches for.
    vouched: Mutex<JoinPacer>,
    /// Of all others, so that strangers keep nobody out who has a token.
    strangers: Mutex<JoinPacer>,
    pending: Mutex<PendingJoins>,
    /// Versions of agents newer than the control plane's that were logged, at most [`MAX_NOTED_VERSIONS`].
    newer: Mutex<BTreeSet<ReleaseVersion>>,
    /// One change of what is kept at a time: bounds are looked at and kept together.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

impl JoinRequests {
    /// Takes up what the store has, at a start.
    pub(crate) async fn load(&self, store: &Store) -> Result<(), StoreError> {
        *self.pending() = PendingJoins::restored(store.pending_joins().await?, now());
        Ok(())
    }

    /// The keys that asked and are no nodes; locked for moments only.
    pub(crate) fn pending(&self) -> MutexGuard<'_, PendingJoins> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An agent is newer than the control plane; `true` where none of this version was before.
    pub(crate) fn note_newer(&self, version: ReleaseVersion) -> bool {
        let mut newer = self.newer.lock().unwrap_or_else(PoisonError::into_inner);
        newer.len() < MAX_NOTED_VERSIONS && newer.insert(version)
    }

    /// A key is a node now.
    pub(crate) fn forget(&self, id: &NodeId) {
        self.pending().forget(id);
    }
}

/// Takes one of the joins that are looked at now; a storm of them comes back as a line.
pub(crate) fn paced(plane: &ControlPlane, join: &JoinClaim) -> Result<(), Problem> {
    let pacer = match join.proof {
        JoinProof::Token(_) | JoinProof::Group(_) => &plane.joins.vouched,
        JoinProof::Nothing => &plane.joins.strangers,
    };
    let taken = pacer.lock().unwrap_or_else(PoisonError::into_inner).take(join.now);
    taken.map_err(|wait| {
        let mut problem = Problem::new(Code::Busy, "more hosts join than are looked at in a second");
        problem.retry_after_secs = Some(wait.as_secs().saturating_add(1));
        problem
    })
}

/// By what a host asks to be let in, verified.
enum JoinProof {
    Token(Claims),
    Group(GroupClaims),
    Nothing,
}

/// A request to join whose key is proven.
pub(crate) struct JoinClaim {
    pub(crate) id: NodeId,
    pub(crate) hostname: Hostname,
    pub(crate) key: PublicKey,
    /// Who ends the TLS sessions that the host will open.
    pub(crate) tls_termination: TlsTermination,
    /// The trust document that it is answered with.
    pub(crate) trust: TrustDocument,
    /// What its group token says of it.
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) now: Timestamp,
    proof: JoinProof,
    address: String,
    prefix: String,
}

impl JoinClaim {
    /// Verifies what a request shows: its token, where it has one, for its hostname and key.
    pub(crate) fn read(
        plane: &ControlPlane,
        connection: &Connection,
        request: &EnrollRequest,
        key: PublicKey,
        now: Timestamp,
    ) -> Result<JoinClaim, Problem> {
        let documents = plane.trust.documents();
        let newest = &documents.newest().document;
        let proof = match request.token.as_deref() {
            None => JoinProof::Nothing,
            Some(token) if group_token::is_group_token(token) => {
                JoinProof::Group(group_token::verify(token, &newest.root, &request.hostname, now)?)
            }
            Some(token) => {
                JoinProof::Token(token::verify(token, &newest.root, &request.hostname, &key, now)?)
            }
        };
        let (fleet, pinned) = match &proof {
            JoinProof::Token(claims) => (Some(&claims.fleet), Some(claims.trust)),
            JoinProof::Group(claims) => (Some(&claims.fleet), Some(claims.trust)),
            JoinProof::Nothing => (None, None),
        };
        if fleet.is_some_and(|fleet| *fleet != plane.trust.fleet) {
            return Err(Problem::new(Code::TokenForged, "the token is of another fleet"));
        }
        // Whatever it says of its way: the proxy read it, and could have put a key of its own in.
        let names_key =
            matches!(&proof, JoinProof::Token(claims) if claims.expected_pubkey_fingerprint.is_some());
        if connection.is_proxy() && !names_key {
            return Err(Code::TokenUnbound.into());
        }
        // The one that the token vouches for; the node's first check-ins lead it on from there (IDN-8).
        let trust = pinned.and_then(|pinned| documents.named(&pinned)).unwrap_or(newest).clone();
        let unnamed = |error: model::id::ParseIdError| Problem::new(Code::BadBody, error.to_string());
        let ip = connection.address.ip().to_canonical();
        Ok(JoinClaim {
            id: key.node_id(),
            hostname: request.hostname.parse().map_err(unnamed)?,
            key,
            tls_termination: match &proof {
                JoinProof::Token(claims) => claims.tls_termination,
                JoinProof::Group(_) | JoinProof::Nothing => TlsTermination::ControlPlane,
            },
            trust,
            labels: match &proof {
                JoinProof::Group(claims) => claims.labels.clone(),
                JoinProof::Token(_) | JoinProof::Nothing => BTreeMap::new(),
            },
            now,
            proof,
            address: ip.to_string(),
            prefix: AddressPrefix::of(ip).to_string(),
        })
    }

    /// The node whose name the token gives to this host.
    pub(crate) fn predecessor(&self) -> Option<&NodeId> {
        match &self.proof {
            JoinProof::Token(claims) => claims.replaces.as_ref(),
            JoinProof::Group(_) | JoinProof::Nothing => None,
        }
    }

    /// Its token, as the lists judge it.
    fn token(&self) -> Option<JoinCredential<'_>> {
        let (nonce, issued_at) = match &self.proof {
            JoinProof::Token(claims) => (&claims.nonce, claims.issued_at),
            JoinProof::Group(claims) => (&claims.nonce, claims.issued_at),
            JoinProof::Nothing => return None,
        };
        Some(JoinCredential::Token { nonce, issued_at })
    }

    /// By what it is let in, as the lists judge it.
    pub(crate) fn credential(&self, plane: &ControlPlane, by: &AdmittedBy) -> JoinCredential<'_> {
        if let Some(token) = self.token() {
            return token;
        }
        let at = match by {
            AdmittedBy::Join(JoinAdmission::Declared) => return JoinCredential::DeclaredKey,
            // It was judged when it was let in.
            AdmittedBy::Join(JoinAdmission::Retry) => {
                plane.index.get(&self.id).map(|slot| slot.lock().node.enrolled_at)
            }
            AdmittedBy::Token(_) | AdmittedBy::Join(JoinAdmission::Group(_) | JoinAdmission::Approved) => {
                let pending = plane.joins.pending();
                pending.get(&self.id).and_then(|kept| kept.join.decided.as_ref()).map(|decided| decided.at)
            }
        };
        JoinCredential::Approval { at: at.unwrap_or(Timestamp(i64::MIN)) }
    }

    fn ground(&self) -> JoinGround {
        match &self.proof {
            JoinProof::Token(claims) => JoinGround::Token(match &claims.expected_pubkey_fingerprint {
                Some(_) => TokenBinding::NamesKey,
                None => TokenBinding::NamesNoKey,
            }),
            JoinProof::Group(claims) => JoinGround::Group(claims.admission),
            JoinProof::Nothing => JoinGround::Nothing,
        }
    }

    fn group(&self) -> Option<GroupUse> {
        let JoinProof::Group(claims) = &self.proof else { return None };
        let (nonce, uses, expires_at) = (claims.nonce.clone(), claims.uses, claims.expires_at);
        Some(GroupUse { nonce, uses, expires_at })
    }

    fn waiting(&self, since: Timestamp) -> PendingJoin {
        PendingJoin {
            node_id: self.id.clone(),
            hostname: self.hostname.clone(),
            public_key: self.key.to_string(),
            address: self.address.clone(),
            prefix: self.prefix.clone(),
            group: self.group().map(|group| group.nonce),
            since,
            state: JoinState::Waiting,
            decided: None,
        }
    }
}

/// What lets a host in.
pub(crate) struct JoinGrant {
    pub(crate) confirmation: KeyConfirmation,
    pub(crate) by: AdmittedBy,
}

/// What is used up, or looked at again, in the transaction that records the node.
pub(crate) enum AdmittedBy {
    Token(Box<Claims>),
    Join(JoinAdmission),
}

/// Judges a request: what lets the host in.
///
/// # Errors
/// Why it is not let in. A host that is to wait is kept before it is told so.
pub(crate) async fn admission(plane: &Arc<ControlPlane>, join: &JoinClaim) -> Result<JoinGrant, Problem> {
    let lists = plane.lists.ready()?;
    if let Some(token) = join.token() {
        lists.judge(&join.hostname, token, plane.posture(), join.now)?;
    }
    let declared = declared_key(plane, &join.hostname, &join.key).await?;
    let kept = plane.joins.pending().asks(&join.id, &join.hostname, join.now);
    match judge(join.ground(), declared, kept) {
        JoinVerdict::OtherKeyDeclared => {
            let detail = format!(
                "nodes.yaml declares another key for {} than {}",
                join.hostname,
                join.key.fingerprint()
            );
            Err(Problem::new(Code::KeyNotDeclared, detail))
        }
        JoinVerdict::Denied => Err(Code::JoinDenied.into()),
        JoinVerdict::Admit(confirmation) => {
            Ok(JoinGrant { confirmation, by: admitted_by(join, confirmation) })
        }
        JoinVerdict::Wait if is_retry(plane, join) => {
            let confirmation = KeyConfirmation::None;
            Ok(JoinGrant { confirmation, by: AdmittedBy::Join(JoinAdmission::Retry) })
        }
        JoinVerdict::Wait => {
            let since = wait_for_approval(plane, join, kept).await?;
            let detail = format!("{} waits for approval with key {}", join.hostname, join.key.fingerprint());
            let mut problem = Problem::new(Code::JoinPending, detail);
            problem.retry_after_secs = Some(poll_again_in(since, join.now).as_secs());
            Err(problem)
        }
    }
}

fn admitted_by(join: &JoinClaim, confirmation: KeyConfirmation) -> AdmittedBy {
    match (&join.proof, join.group()) {
        (JoinProof::Token(claims), _) => AdmittedBy::Token(Box::new(claims.clone())),
        (_, Some(group)) => AdmittedBy::Join(JoinAdmission::Group(group)),
        (_, None) if confirmation == KeyConfirmation::Declared => AdmittedBy::Join(JoinAdmission::Declared),
        (_, None) => AdmittedBy::Join(JoinAdmission::Approved),
    }
}

/// It was let in already, and its certificate was not used since: the reply was lost (ENR-7).
fn is_retry(plane: &ControlPlane, join: &JoinClaim) -> bool {
    plane.index.get(&join.id).is_some_and(|slot| {
        let entry = slot.lock();
        entry.node.hostname == join.hostname && !entry.node.certificate_used
    })
}

/// What the release that the hostname is pointed to declares of its key.
pub(crate) async fn declared_key(
    plane: &ControlPlane,
    hostname: &Hostname,
    key: &PublicKey,
) -> Result<DeclaredKey, Problem> {
    if let Some(why) = plane.not_ready() {
        // Which keys are declared is not known (WIR-4).
        return Err(Problem::new(Code::NotReady, why));
    }
    let Some((_, entry)) = plane.heads().pointed(hostname) else { return Ok(DeclaredKey::None) };
    let declared = plane.grants.declared_key(&entry.root).await.map_err(store_problem)?;
    Ok(match declared {
        None => DeclaredKey::None,
        Some(declared) if declared == key.fingerprint() => DeclaredKey::Same,
        Some(_) => DeclaredKey::Other,
    })
}

/// Keeps a host that is to wait, unless it is kept already; since when it waits.
async fn wait_for_approval(
    plane: &Arc<ControlPlane>,
    join: &JoinClaim,
    kept: Option<JoinState>,
) -> Result<Timestamp, Problem> {
    let since = plane.joins.pending().get(&join.id).filter(|_| kept.is_some()).map(|kept| kept.join.since);
    if let Some(since) = since {
        return Ok(since);
    }
    let (plane, waiting, group) = (plane.clone(), join.waiting(join.now), join.group());
    run_to_completion(async move {
        let _one = plane.joins.changing.lock().await;
        // A request beside this one may have kept it, and an operator decided meanwhile.
        let beside = plane.joins.pending().get(&waiting.node_id).map(|kept| kept.join.clone());
        if let Some(beside) = beside.filter(|join| join.hostname == waiting.hostname) {
            return Ok(beside.since);
        }
        let room = plane.joins.pending().room(&waiting.node_id, &waiting.prefix);
        room.map_err(|bound| {
            let mut problem = Problem::new(Code::TooManyJoins, bound.to_string());
            problem.retry_after_secs = Some(plane::joining::MAX_PENDING_POLL.as_secs());
            problem
        })?;
        plane.store.keep_waiting(waiting.clone(), group).await.map_err(enroll_problem)?;
        let PendingJoin { node_id, hostname, address, since, .. } = &waiting;
        tracing::info!(node = %node_id, %hostname, address, "a host asks to join, and waits for approval");
        let since = *since;
        plane.joins.pending().keep(waiting, now());
        Ok(since)
    })
    .await
}

/// Forgets the hosts that waited and ask no more.
pub(crate) async fn forget_lapsed(plane: &ControlPlane) {
    let _one = plane.joins.changing.lock().await;
    let lapsed = plane.joins.pending().lapsed(now());
    if lapsed.is_empty() {
        return;
    }
    match plane.store.forget_joins(lapsed.clone()).await {
        Ok(()) => lapsed.iter().for_each(|id| plane.joins.forget(id)),
        Err(error) => tracing::warn!(error = %chain(&error), "hosts that ask to join no more are still kept"),
    }
}

/// The one key that is meant by a hostname, the id of the node that it would be, or its fingerprint.
///
/// # Errors
/// [`Code::NotFound`]; [`Code::AmbiguousJoin`] names the fingerprints.
pub(crate) fn named(plane: &ControlPlane, name: &str) -> Result<PendingJoin, Problem> {
    let pending = plane.joins.pending();
    let mut found = pending.named(name);
    if found.is_empty() {
        found = pending.all().into_iter().filter(|kept| fingerprint(&kept.join) == name).collect();
    }
    // Those that were denied are meant only where nothing else is.
    let is_open = |kept: &&HeardJoin| kept.join.state != JoinState::Denied;
    if found.iter().any(is_open) {
        found.retain(is_open);
    }
    match found.as_slice() {
        [one] => Ok(one.join.clone()),
        [] => {
            let detail = format!(
                "no host {:?} asks to join; `muster node list --pending` shows those that do",
                crate::index::clip(name)
            );
            Err(Problem::new(Code::NotFound, detail))
        }
        several => {
            let keys: Vec<String> = several
                .iter()
                .map(|kept| format!("{} from {}", fingerprint(&kept.join), kept.join.address))
                .collect();
            let detail = format!("{} keys ask to join as {name}: {}", keys.len(), keys.join(", "));
            Err(Problem::new(Code::AmbiguousJoin, detail))
        }
    }
}

/// The fingerprint of a key that asks to join; empty where the stored key cannot be read.
pub(crate) fn fingerprint(join: &PendingJoin) -> String {
    join.public_key.parse::<PublicKey>().map(|key| key.fingerprint()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// WIR-1: a thousand agents of one version are one line of the log, and so many versions are noted and no more.
    #[test]
    fn a_newer_version_is_noted_once() {
        let joins = JoinRequests::default();
        let version = |number: usize| ReleaseVersion(9, u32::try_from(number).unwrap(), 0);
        assert!(joins.note_newer(version(0)));
        assert!(!joins.note_newer(version(0)));
        for number in 1..MAX_NOTED_VERSIONS {
            assert!(joins.note_newer(version(number)), "{number}");
        }
        assert!(!joins.note_newer(version(MAX_NOTED_VERSIONS)), "somebody makes versions up");
    }
}
