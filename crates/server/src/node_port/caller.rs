//! Who asks: certificate, signature, time, replay (IDN-4, IDN-5).

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Uri};
use model::NodeId;
use net::accept::Connection;
use net::identity::Role;
use wire::signature::{self, Parsed, SignatureError, Target};
use wire::{Code, Problem};

use super::Matched;
use crate::index::Slot;
use crate::state::{ControlPlane, now};

/// How far a request's number may be ahead of the clock: twice the skew that is forgiven.
const MAX_NUMBER_AHEAD: Duration = Duration::from_secs(120);

/// The node behind a request.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) id: NodeId,
    pub(crate) slot: Arc<Slot>,
}

impl Caller {
    /// The node whose key the connection's certificate carries, by the key that is stored now:
    /// asked anew for each request, so that a node that was removed, or that has another key by
    /// now, gets nothing more on a connection that is still open (IDN-4).
    pub(super) fn of(plane: &ControlPlane, connection: &Connection) -> Result<Caller, Problem> {
        let peer = connection.peer.as_deref().ok_or(Code::CertificateRequired)?;
        let Role::Node { id, key, .. } = &peer.role else {
            return Err(Code::CertificateRequired.into());
        };
        let slot = plane.index.get(id).ok_or(Code::UnknownNode)?;
        if slot.lock().node.key != **key {
            return Err(Code::UnknownNode.into());
        }
        Ok(Caller { id: id.clone(), slot })
    }

    /// Signature, digest, time, replay, and that the node asks for itself (IDN-4, IDN-5).
    pub(super) fn authenticate(
        &self,
        plane: &ControlPlane,
        parts: &http::request::Parts,
        matched: &Matched,
        body: &[u8],
    ) -> Result<(), Problem> {
        let signed = self.signed(&parts.headers, matched)?;
        let key = self.slot.lock().node.key;
        signed.verify(target(&parts.method, &parts.uri, body), &key, now()).map_err(signature_problem)?;
        self.first_time(plane, &signed)?;
        self.charge(body.len())
    }

    /// Takes bytes out of the node's share of what the control plane takes in (SCL-3).
    pub(super) fn charge(&self, bytes: usize) -> Result<(), Problem> {
        match self.slot.lock().node.budget.take(bytes as u64, now()) {
            true => Ok(()),
            false => Err(Problem::new(Code::Busy, "the node sends more than its share")),
        }
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

    fn signed<'a>(&self, headers: &'a HeaderMap, matched: &Matched) -> Result<Parsed<'a>, Problem> {
        self.is_meant(matched)?;
        let signed = signature::parse(headers).map_err(signature_problem)?;
        if signed.node != self.id.as_str() {
            return Err(Code::OtherNode.into());
        }
        Ok(signed)
    }

    /// Nothing counts twice.
    fn first_time(&self, plane: &ControlPlane, signed: &Parsed<'_>) -> Result<(), Problem> {
        // What was seen before this start is forgotten, so nothing from before it counts. The
        // number is the signer's clock in microseconds, or higher.
        let started = u64::try_from(plane.started.0).unwrap_or(0).saturating_mul(1000);
        // A number far ahead of the clock would shut out the node itself once its clock is right.
        let ahead = u64::try_from(now().plus(MAX_NUMBER_AHEAD).0).unwrap_or(0).saturating_mul(1000);
        if signed.nonce < started || signed.nonce > ahead {
            return Err(signature_problem(SignatureError::Skew { created: signed.created }));
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

fn target<'a>(method: &'a Method, uri: &'a Uri, body: &'a [u8]) -> Target<'a> {
    Target { method: method.as_str(), path: uri.path(), query: uri.query().unwrap_or(""), body }
}

fn signature_problem(error: SignatureError) -> Problem {
    let code = match error {
        SignatureError::Missing | SignatureError::Form | SignatureError::Coverage => Code::Unsigned,
        SignatureError::Digest => Code::BadDigest,
        SignatureError::Signature => Code::BadSignature,
        SignatureError::Skew { .. } => Code::Skewed,
    };
    let mut problem = Problem::new(code, error.to_string());
    if code == Code::Skewed {
        problem.server_time = Some(now());
    }
    problem
}
