//! Enrollment: a token and a signed request against a certificate (ENR-2).

use std::time::Duration;

use http::request::Parts;
use hyper::body::Incoming;
use model::{Hostname, Timestamp};
use net::issue::CertificateRequest;
use plane::NodeState;
use store::{EnrollError, Enrolled, NewNode, TokenUse};
use trust::token::{self, Claims};
use wire::enroll::{EnrollAnswer, EnrollRequest};
use wire::{Code, Problem, body};

use crate::answer::{PortReply, json, store_problem};
use crate::intake::{read, unpacked};
use crate::node_port::PortListener;
use crate::renew::IssuedCertificate;
use crate::state::{ControlPlane, now};

/// The longest enrollment body, in bytes.
const MAX_BODY: usize = 32 * 1024;
/// How often a token is judged anew because other lists were published meanwhile.
const JUDGED_AGAIN: usize = 4;
/// How long one may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// Reads the request and carries it out. Behind a proxy strangers share a connection, and what they
/// keep of it is bounded before they are read; at the node port each has a connection of his own.
pub(crate) async fn enroll(
    plane: &ControlPlane,
    listener: PortListener,
    parts: &Parts,
    body: Incoming,
) -> Result<PortReply, Problem> {
    let permit = (listener == PortListener::Proxies).then(|| plane.proxied_enrollments.try_acquire());
    let Ok(_permit) = permit.transpose() else { return Err(Code::Busy.into()) };
    let body = read(parts, body, MAX_BODY, BODY_WITHIN).await?;
    let Ok(_slot) = plane.enrollments.try_acquire() else { return Err(Code::Busy.into()) };
    let request: EnrollRequest = body::decode(&unpacked(parts, body, MAX_BODY)?)?;
    let bad_csr = |error: &dyn std::fmt::Display| Problem::new(Code::BadCsr, error.to_string());
    let csr = CertificateRequest::read(&request.csr_pem).map_err(|error| bad_csr(&error))?;
    let key = *csr.key();
    let now = now();
    let documents = plane.trust.documents();
    let newest = &documents.newest().document;
    let claims = token::verify(&request.token, &newest.root, &request.hostname, &key, now)?;
    if claims.fleet != plane.trust.fleet {
        return Err(Problem::new(Code::TokenForged, "the token is of another fleet"));
    }
    // Whatever it says of its way: the proxy read it, and could have put a key of its own in.
    if listener == PortListener::Proxies && claims.expected_pubkey_fingerprint.is_none() {
        return Err(Code::TokenUnbound.into());
    }
    plane.lists.ready()?.judge(&claims, plane.posture(), now)?;
    // The one that the token vouches for; the node's first check-ins lead it on from there (IDN-8).
    let trust = documents.named(&claims.trust).unwrap_or(newest).clone();
    let hostname: Hostname = claims.hostname.clone();
    let id = key.node_id();
    // The certificate first: should it fail, the token is not burned.
    let issued = plane.certificates.issue(csr, &id, &hostname, now).await?;
    let IssuedCertificate { cert_pem, validity, serial } = issued;
    let certificate = claims.tls_termination.is_control_plane().then_some(validity);
    let node = NewNode {
        node_id: id.clone(),
        hostname: hostname.clone(),
        public_key: key.to_string(),
        cert_not_before: now,
        cert_not_after: certificate.map(|validity| validity.until),
        cert_serial: serial,
        key_confirmed: claims.expected_pubkey_fingerprint.is_some(),
        declared: serde_json::json!({}),
    };
    let enrolled = recorded(plane, &claims, node, now).await?;
    if let (Enrolled::Replacing, Some(predecessor)) = (enrolled, &claims.replaces) {
        tracing::info!(node = %id, %predecessor, "a node took the place of another");
        plane.forget(predecessor);
    }
    tracing::info!(node = %id, %hostname, "a node enrolled");
    let mut state = NodeState::new(id.clone(), hostname, key, now);
    state.certificate = certificate;
    remember(plane, state);
    let answer = EnrollAnswer { node_id: id, cert_pem, ca_pem: plane.node_ca.cert_pem().to_owned(), trust };
    json(&answer, false)
}

/// Records the node, judged by the lists that count when it is.
async fn recorded(
    plane: &ControlPlane,
    claims: &Claims,
    node: NewNode,
    now: Timestamp,
) -> Result<Enrolled, Problem> {
    for _ in 0..JUDGED_AGAIN {
        let lists = plane.lists.ready()?;
        lists.judge(claims, plane.posture(), now)?;
        let token = TokenUse {
            nonce: claims.nonce.clone(),
            expires_at: claims.expires_at,
            replaces: claims.replaces.clone(),
            lists: lists.versions(),
        };
        match plane.store.enroll(node.clone(), token, now).await {
            Err(EnrollError::ListsMoved) => plane.lists.settled().await,
            recorded => return recorded.map_err(enroll_problem),
        }
    }
    Err(Code::Busy.into())
}

/// Adds the node to the index; one that enrolls again keeps what is known of it. Then it is judged by the revocations:
/// whoever publishes a set judges the nodes that are there by then.
fn remember(plane: &ControlPlane, node: NodeState) {
    let id = node.id.clone();
    match plane.index.get(&id) {
        Some(slot) => {
            let mut entry = slot.lock();
            entry.node.enrolled_at = node.enrolled_at;
            entry.node.certificate = node.certificate;
            entry.node.change_exceptions(|it| it.conditions.renewal_failure = None);
            entry.node.certificate_used = false;
            plane.index.mark_entry(&slot, &mut entry);
        }
        None => plane.index.insert(node),
    }
    if let (Some(slot), Ok(loaded)) = (plane.index.get(&id), plane.lists.ready()) {
        let mut entry = slot.lock();
        entry.node.judge_revocation(&loaded.lists);
        plane.index.mark_entry(&slot, &mut entry);
    }
}

fn enroll_problem(error: EnrollError) -> Problem {
    match error {
        EnrollError::NonceUsed => Code::TokenUsed.into(),
        EnrollError::HostnameTaken { by } => {
            Problem::new(Code::HostnameTaken, format!("the hostname is taken by node {by}"))
        }
        EnrollError::KeyTaken { by } => {
            Problem::new(Code::KeyTaken, format!("the key belongs to the active node {by}"))
        }
        EnrollError::ListsMoved => Code::Busy.into(),
        EnrollError::Store(error) => store_problem(error),
    }
}
