//! Who a request is from: certificate, signature, time, replay (IDN-4, IDN-5).
//!
//! ```text
//! connection of a node   its certificate's key --> CallingNode (by_session): streams, calls
//!                          + signature ----------> SignedRequest: requests
//! connection of a proxy  signature alone --------> SignedRequest
//! certificate has ended  signature alone --------> SignedRequest, to recover one
//! ```
//!
//! Invariants: a signed request is verified, with the key that is stored now, before its body is read;
//! what a proxy's connection carries counts by nothing but that signature.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use model::NodeId;
use net::accept::Connection;
use net::identity::PeerRole;
use net::peers::PeerPermit;
use wire::route::Access;
use wire::signature::{self, ParsedSignature, SignatureError, SignedBody};
use wire::{Code, Problem};

use super::Matched;
use crate::index::NodeSlot;
use crate::state::{ControlPlane, now};

/// How far a request's number may be ahead of the clock: twice the skew that is forgiven.
const MAX_NUMBER_AHEAD: Duration = Duration::from_secs(120);
/// Requests of one node at once through proxies: as many as on connections of its own.
const PROXIED_AT_ONCE: usize = 64;

/// The node behind a request.
#[derive(Clone)]
pub(crate) struct CallingNode {
    pub(crate) id: NodeId,
    pub(crate) slot: Arc<NodeSlot>,
}

impl CallingNode {
    /// The node whose key the connection's certificate carries, by the key that is stored now:
    /// asked anew for each request, so that a node that was removed, or that has another key by
    /// now, gets nothing more on a connection that is still open (IDN-4).
    pub(super) fn by_session(plane: &ControlPlane, connection: &Connection) -> Result<CallingNode, Problem> {
        let (id, key) = match connection.peer.as_deref().map(|peer| &peer.role) {
            Some(PeerRole::Node { id, key, .. }) => (id, key),
            Some(PeerRole::Proxy(_)) => return Err(Code::BehindProxy.into()),
            Some(PeerRole::Operator(_)) | None => return Err(Code::CertificateRequired.into()),
        };
        let caller = CallingNode::enrolled(plane, id)?;
        if *caller.slot.lock().node.key != **key {
            return Err(Code::UnknownNode.into());
        }
        caller.counts(plane)?;
        Ok(caller)
    }

    fn enrolled(plane: &ControlPlane, id: &NodeId) -> Result<CallingNode, Problem> {
        let slot = plane.index.get(id).ok_or(Code::UnknownNode)?;
        Ok(CallingNode { id: id.clone(), slot })
    }

    /// The node, which was authenticated, is known not to be revoked (WIR-4).
    fn counts(&self, plane: &ControlPlane) -> Result<(), Problem> {
        match plane.lists.not_ready() {
            Some(why) => Err(Problem::new(Code::NotReady, why)),
            None => self.is_not_revoked(),
        }
    }

    /// What was issued for the node counts (IDN-6): asked anew wherever something was waited for.
    pub(crate) fn is_not_revoked(&self) -> Result<(), Problem> {
        match &self.slot.lock().node.revoked {
            None => Ok(()),
            Some(revocation) => {
                let why = revocation.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                let detail = format!("what was issued before {} counts no more{why}", revocation.not_before);
                Err(Problem::new(Code::Revoked, detail))
            }
        }
    }

    /// One host alone holds the node's key, as far as is known (IDN-10).
    pub(crate) fn is_alone(&self) -> Result<(), Problem> {
        match self.slot.lock().node.open_items().copied {
            Some(since) => Err(Problem::new(
                Code::DuplicateIdentity,
                format!("since {since} two hosts hold this node's key"),
            )),
            None => Ok(()),
        }
    }

    /// Takes bytes out of the node's share of what the control plane takes in (SCL-3).
    pub(crate) fn charge(&self, bytes: usize) -> Result<(), Problem> {
        match self.slot.lock().node.budget.take(bytes as u64, now()) {
            true => Ok(()),
            false => Err(CallingNode::beyond_its_share()),
        }
    }

    /// What is left of the node's share, in bytes.
    pub(super) fn share_left(&self) -> usize {
        usize::try_from(self.slot.lock().node.budget.left(now())).unwrap_or(usize::MAX)
    }

    pub(super) fn beyond_its_share() -> Problem {
        Problem::new(Code::Busy, "the node sends more than its share")
    }

    /// A path that names a node names the caller (IDN-5).
    pub(super) fn is_meant(&self, matched: &Matched) -> Result<(), Problem> {
        let named = matched.node.as_deref();
        if named.is_some_and(|named| named != self.id.as_str()) {
            Err(Code::OtherNode.into())
        } else {
            Ok(())
        }
    }

    /// Nothing counts twice.
    fn first_time(&self, plane: &ControlPlane, signed: &ParsedSignature<'_>) -> Result<(), Problem> {
        // What was seen before this start is forgotten, so nothing from before it counts. The
        // number is the signer's clock in microseconds, or higher.
        let started = u64::try_from(plane.started.0).unwrap_or(0).saturating_mul(1000);
        // A number far ahead of the clock would shut out the node itself once its clock is right.
        let ahead = u64::try_from(now().plus(MAX_NUMBER_AHEAD).0).unwrap_or(0).saturating_mul(1000);
        if signed.nonce < started || signed.nonce > ahead {
            let detail =
                "the request's number is of a time before the control plane's start, or ahead of its clock";
            return Err(skewed(detail.to_owned()));
        }
        let mut entry = self.slot.lock();
        if !entry.node.window.accept(signed.nonce) {
            let mut problem = Problem::from(Code::Replayed);
            problem.next_number = Some(entry.node.window.highest() + 1);
            return Err(problem);
        }
        Ok(())
    }
}

/// A request that its node signed; what is left to be seen is its body.
pub(super) struct SignedRequest<'a> {
    pub(super) caller: CallingNode,
    body: SignedBody<'a>,
    _permit: PeerPermit,
}

impl<'a> SignedRequest<'a> {
    /// Verifies the head of a request: signature, time, replay, and that the node asks for itself
    /// (IDN-4, IDN-5). The key id names the node; where the connection is the node's own, its
    /// certificate does, and the key id must agree. A node whose certificate has ended has none to show
    /// ([`Access::Key`]).
    pub(super) fn verify(
        plane: &ControlPlane,
        connection: &Connection,
        head: &'a Parts,
        matched: &Matched,
    ) -> Result<SignedRequest<'a>, Problem> {
        let by_key = connection.is_proxy() || matched.route.access == Access::Key;
        let by_session = match by_key {
            true => None,
            false => Some(CallingNode::by_session(plane, connection)?),
        };
        let signed = signature::parse(&head.headers).map_err(signature_problem)?;
        let caller = match by_session {
            Some(caller) if signed.node == caller.id.as_str() => caller,
            Some(_) => return Err(Code::OtherNode.into()),
            None => CallingNode::enrolled(plane, &signed.node.parse().map_err(|_| Code::UnknownNode)?)?,
        };
        caller.is_meant(matched)?;
        let key = *caller.slot.lock().node.key;
        let body = signed
            .verify(&head.method, &head.uri, &plane.trust.fleet, &key, now())
            .map_err(signature_problem)?;
        caller.counts(plane)?;
        let counted = by_key.then_some(&caller.id);
        let permit = plane.proxied.clone().enter(counted, PROXIED_AT_ONCE);
        let permit =
            permit.ok_or_else(|| Problem::new(Code::Busy, "the node has too many requests at once"))?;
        caller.first_time(plane, &signed)?;
        Ok(SignedRequest { caller, body, _permit: permit })
    }

    /// The body, as sent, is the one that was signed, and within the node's share.
    pub(super) fn holds(&self, body: &[u8]) -> Result<(), Problem> {
        self.body.holds(body).map_err(signature_problem)?;
        self.caller.charge(body.len())
    }
}

fn signature_problem(error: SignatureError) -> Problem {
    let code = match error {
        SignatureError::Missing | SignatureError::Form | SignatureError::Coverage => Code::Unsigned,
        SignatureError::Digest => Code::BadDigest,
        SignatureError::Signature | SignatureError::Fleet => Code::BadSignature,
        SignatureError::Skew { .. } => Code::Skewed,
    };
    if code == Code::Skewed { skewed(error.to_string()) } else { Problem::new(code, error.to_string()) }
}

/// A refusal for time: it names the control plane's, with which the node signs again.
fn skewed(detail: String) -> Problem {
    let mut problem = Problem::new(Code::Skewed, detail);
    problem.server_time = Some(now());
    problem
}
