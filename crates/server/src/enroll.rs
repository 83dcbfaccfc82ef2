//! Enrollment: a signed request, and what lets its key in, against a certificate (ENR-2). Who is let in is judged in
//! [`joins`].

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use hyper::body::Incoming;
use net::accept::Connection;
use net::issue::CertificateRequest;
use plane::NodeState;
use plane::renewal::CertificateIssuer;
use store::{EnrollError, Enrolled, NewNode, TokenUse};
use wire::enroll::{EnrollAnswer, EnrollRequest};
use wire::{Code, Problem, body};

use crate::answer::{PortReply, json, store_problem};
use crate::intake::{read, unpacked};
use crate::joins::{self, AdmittedBy, JoinClaim, JoinGrant};
use crate::renew::{IssuedCertificate, declared_data};
use crate::state::{ControlPlane, now, run_to_completion};

/// The longest enrollment body, in bytes.
const MAX_BODY: usize = 32 * 1024;
/// How often a token is judged anew because other lists were published meanwhile.
const JUDGED_AGAIN: usize = 4;
/// How long one may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// Reads the request and carries it out. Behind a proxy strangers share a connection, and what they
/// keep of it is bounded before they are read; at the node port each has a connection of his own.
pub(crate) async fn enroll(
    plane: &Arc<ControlPlane>,
    connection: &Connection,
    parts: &Parts,
    body: Incoming,
) -> Result<PortReply, Problem> {
    let permit = connection.is_proxy().then(|| plane.proxied_enrollments.try_acquire());
    let Ok(_permit) = permit.transpose() else { return Err(Code::Busy.into()) };
    let body = read(parts, body, MAX_BODY, BODY_WITHIN).await?;
    let request: EnrollRequest = body::decode(&unpacked(parts, body, MAX_BODY)?)?;
    let Ok(_slot) = plane.enrollments.try_acquire() else { return Err(Code::Busy.into()) };
    let bad_csr = |error: &dyn std::fmt::Display| Problem::new(Code::BadCsr, error.to_string());
    let csr = CertificateRequest::read(&request.csr_pem).map_err(|error| bad_csr(&error))?;
    let join = JoinClaim::read(plane, connection, &request, *csr.key(), now())?;
    joins::paced(plane, &join)?;
    let admission = joins::admission(plane, &join).await?;
    let plane = plane.clone();
    // Whole, also when the host hangs up: what is recorded is in the index.
    run_to_completion(async move { certify(&plane, csr, &join, admission).await }).await
}

/// Certifies a host that is let in, and records it in one transaction with what lets it in.
async fn certify(
    plane: &ControlPlane,
    csr: CertificateRequest,
    join: &JoinClaim,
    admission: JoinGrant,
) -> Result<PortReply, Problem> {
    let JoinClaim { id, hostname, key, tls_termination, trust, labels, now, .. } = join;
    let now = *now;
    // The certificate first: should it fail, the token is not burned.
    let mut says = declared_data(plane, hostname).await;
    if says.channel.is_none() {
        // Those of a group token, until a release says something of the host.
        says.labels.clone_from(labels);
    }
    // Everybody takes that of the CA that certifies this server; who believes another one asks for it afterwards.
    let issued = plane.certificates.issue(csr, id, hostname, says, &[], now).await?;
    let IssuedCertificate { cert_pem, validity, serial, issuer } = issued;
    let certificate = tls_termination.is_control_plane().then_some(validity);
    let node = NewNode {
        node_id: id.clone(),
        hostname: hostname.clone(),
        public_key: key.to_string(),
        cert_not_before: now,
        cert_not_after: certificate.map(|validity| validity.until),
        cert_serial: serial,
        cert_authority: issuer.id(),
        key_confirmation: admission.confirmation,
        declared: match labels.is_empty() {
            true => serde_json::json!({}),
            false => serde_json::json!({ "labels": labels }),
        },
    };
    let enrolled = recorded(plane, join, &admission.by, node).await?;
    if let (Enrolled::Replacing, Some(predecessor)) = (enrolled, join.predecessor()) {
        tracing::info!(node = %id, %predecessor, "a node took the place of another");
        plane.forget(predecessor);
    }
    plane.joins.forget(id);
    tracing::info!(node = %id, %hostname, key = admission.confirmation.as_str(), "a node enrolled");
    let mut state = NodeState::new(id.clone(), hostname.clone(), *key, now);
    (state.certificate, state.issuer) = (certificate, Some(CertificateIssuer::of(&issuer)));
    state.key_confirmation = admission.confirmation;
    remember(plane, state);
    let (ca_pem, trust) = (plane.authorities.set().bundle(), trust.clone());
    let answer = EnrollAnswer { node_id: id.clone(), cert_pem, ca_pem, trust };
    json(&answer, false)
}

/// Records the node, judged by the lists that count when it is.
async fn recorded(
    plane: &ControlPlane,
    join: &JoinClaim,
    by: &AdmittedBy,
    node: NewNode,
) -> Result<Enrolled, Problem> {
    for _ in 0..JUDGED_AGAIN {
        let lists = plane.lists.ready()?;
        lists.judge(&join.hostname, join.credential(plane, by), plane.posture(), join.now)?;
        let recorded = match by {
            AdmittedBy::Token(claims) => {
                let token = TokenUse {
                    nonce: claims.nonce.clone(),
                    expires_at: claims.expires_at,
                    replaces: claims.replaces.clone(),
                    lists: lists.versions(),
                };
                plane.store.enroll(node.clone(), token, join.now).await
            }
            AdmittedBy::Join(admission) => {
                plane.store.admit(node.clone(), admission.clone(), lists.versions(), join.now).await
            }
        };
        match recorded {
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
            (entry.node.certificate, entry.node.issuer) = (node.certificate, node.issuer);
            entry.node.key_confirmation = entry.node.key_confirmation.max(node.key_confirmation);
            entry.node.change_open_items(|it| it.conditions.renewal_failure = None);
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
    plane.rollouts.membership(&id);
}

pub(crate) fn enroll_problem(error: EnrollError) -> Problem {
    match error {
        EnrollError::NonceUsed => Code::TokenUsed.into(),
        EnrollError::HostnameTaken { by } => {
            Problem::new(Code::HostnameTaken, format!("the hostname is taken by node {by}"))
        }
        EnrollError::KeyTaken { by } => {
            Problem::new(Code::KeyTaken, format!("the key belongs to the active node {by}"))
        }
        EnrollError::ListsMoved => Code::Busy.into(),
        EnrollError::GroupSpent { .. } => Problem::new(Code::GroupTokenSpent, error.to_string()),
        EnrollError::NotApproved => Code::JoinPending.into(),
        EnrollError::Store(error) => store_problem(error),
    }
}
