//! Renewal and recovery: the next certificate of a node that proves its key (IDN-2).
//!
//! ```text
//! renew    the certificate + a signed request --+
//! recover  a signed request alone, by policy ---+--> CSR of the same key and name --> NodeCertificates::issue
//!                                                    --> durable --> answered
//! ```
//!
//! Invariant: a certificate that was answered is recorded. The same request again gives another certificate, so a
//! lost reply costs nothing but one of the node's allowance.

use std::sync::Arc;

use model::time::SLACK;
use model::{CertificateValidity, Hostname, NodeId, Timestamp};
use net::CertifiedData;
use net::issue::CertificateRequest;
use plane::renewal::{CertificateIssuer, RecoveryError};
use store::RenewedCertificate;
use tokio::sync::Semaphore;
use trust::PublicKey;
use wire::enroll::{RenewAnswer, RenewRequest};
use wire::{Code, Problem};

use crate::answer::store_problem;
use crate::authority::NodeAuthorities;
use crate::declared;
use crate::node_port::CallingNode;
use crate::posture::{FoundError, random};
use crate::settings::CertificateSettings;
use crate::state::{ControlPlane, now, run_to_completion};

/// The longest request, in bytes.
pub(crate) const MAX_BODY: usize = 32 * 1024;
/// Renewals that wait for the signer or the store; more are refused as busy, and check-ins go on.
const RENEWALS: usize = 256;

/// Issues nodes' certificates, on threads that answer nobody.
pub(crate) struct NodeCertificates {
    authorities: Arc<NodeAuthorities>,
    pub(crate) settings: CertificateSettings,
    /// Certificates signed at once: half of the processors at the most, the others answer.
    signers: Semaphore,
    renewals: Semaphore,
}

/// A certificate as it was issued.
pub(crate) struct IssuedCertificate {
    pub(crate) cert_pem: String,
    pub(crate) validity: CertificateValidity,
    /// In hex.
    pub(crate) serial: String,
    /// The key of the CA.
    pub(crate) issuer: PublicKey,
}

impl NodeCertificates {
    pub(crate) fn new(authorities: Arc<NodeAuthorities>, settings: CertificateSettings) -> NodeCertificates {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let (signers, renewals) = (Semaphore::new((processors / 2).max(1)), Semaphore::new(RENEWALS));
        NodeCertificates { authorities, settings, signers, renewals }
    }

    /// Whether a certificate is to be renewed now, as it counts longer than one that would be made now: what its
    /// holder may do was made to end sooner.
    pub(crate) fn wants_renewal(&self, certificate: Option<CertificateValidity>, now: Timestamp) -> bool {
        let longest = now.plus(self.settings.node_validity + SLACK);
        certificate.is_some_and(|certificate| certificate.until > longest)
    }

    /// Issues a certificate that counts from now on, and says this of its node. `believed`: the keys of the CAs whose
    /// certificates the node takes, where its trust document names them.
    pub(crate) async fn issue(
        &self,
        csr: CertificateRequest,
        id: &NodeId,
        hostname: &Hostname,
        says: CertifiedData,
        believed: &[String],
        now: Timestamp,
    ) -> Result<IssuedCertificate, Problem> {
        let validity = CertificateValidity::starting(now, self.settings.node_validity);
        let serial: [u8; 16] = random().map_err(|_: FoundError| Code::Internal)?;
        let _signer = self.signers.acquire().await.map_err(|_| Code::Internal)?;
        let ca = self.authorities.set().issuer_for(believed).clone();
        let (issuer, id, hostname) = (*ca.key(), id.clone(), hostname.clone());
        let sign = move || ca.issue_node_saying(&csr, &id, &hostname, &says, serial, validity);
        let signed = tokio::task::spawn_blocking(sign).await.map_err(|_| Code::Internal)?;
        let cert_pem = signed.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        Ok(IssuedCertificate { cert_pem, validity, serial: data_encoding::HEXLOWER.encode(&serial), issuer })
    }
}

/// Gives a node that called with its certificate the next one.
pub(crate) async fn renew(
    plane: &Arc<ControlPlane>,
    caller: &CallingNode,
    request: RenewRequest,
) -> Result<RenewAnswer, Problem> {
    certify(plane, caller, request).await
}

/// Gives a node one that proved its key alone, if that is enough here.
pub(crate) async fn recover(
    plane: &Arc<ControlPlane>,
    caller: &CallingNode,
    request: RenewRequest,
) -> Result<RenewAnswer, Problem> {
    // One that joined through a proxy opens no sessions of its own.
    let (certificate, is_replaced) = {
        let entry = caller.slot.lock();
        let certificate = entry.node.certificate.ok_or(Code::BehindProxy)?;
        let is_replaced = now() < certificate.until && plane.authorities.set().issued_before(&entry.node);
        (certificate, is_replaced)
    };
    let judged = match is_replaced {
        // It could show one if its CA still counted: the key in it is all that it would prove (IDN-8).
        true => Ok(()),
        false => plane.certificate_recovery().judge(certificate, now()),
    };
    judged.map_err(|error| {
        let code = match error {
            RecoveryError::Off => Code::RecoveryOff,
            RecoveryError::Late { .. } => Code::RecoveryLate,
        };
        Problem::new(code, error.to_string())
    })?;
    let answer = certify(plane, caller, request).await?;
    tracing::info!(node = %caller.id, ended = %certificate.until, "a node recovered its certificate by its key");
    Ok(answer)
}

async fn certify(
    plane: &Arc<ControlPlane>,
    caller: &CallingNode,
    request: RenewRequest,
) -> Result<RenewAnswer, Problem> {
    let csr = CertificateRequest::read(&request.csr_pem)
        .map_err(|error| Problem::new(Code::BadCsr, error.to_string()))?;
    let now = now();
    let hostname = allow(plane, caller, &csr, now)?;
    let Ok(_renewal) = plane.certificates.renewals.try_acquire() else { return Err(Code::Busy.into()) };
    let says = declared_data(plane, &hostname).await;
    let (ca, id) = (&plane.certificates, &caller.id);
    let issued = ca.issue(csr, id, &hostname, says, &request.authorities, now).await?;
    let IssuedCertificate { cert_pem, validity, serial, issuer } = issued;
    let (keeper, caller) = (plane.clone(), caller.clone());
    run_to_completion(async move {
        let certificate = RenewedCertificate { validity, serial, authority: issuer.id() };
        keeper.store.renew_certificate(&caller.id, certificate).await.map_err(store_problem)?;
        let mut entry = caller.slot.lock();
        entry.node.certified(validity, CertificateIssuer::of(&issuer));
        keeper.index.mark_entry(&caller.slot, &mut entry);
        Ok::<_, Problem>(())
    })
    .await?;
    let authorities = plane.authorities.set();
    // Of the CA that it joined with every node knows already.
    let ca_pem = authorities.was_replaced().then(|| authorities.bundle_from_current());
    Ok(RenewAnswer { cert_pem, ca_pem })
}

/// What the release that a hostname is pointed to declares of it, for its certificate (IDN-2). Nothing where that cannot
/// be read: nothing is allowed by it, and so no certificate waits for it.
pub(crate) async fn declared_data(plane: &ControlPlane, hostname: &Hostname) -> CertifiedData {
    let Some((_, entry)) = plane.heads().pointed(hostname) else { return CertifiedData::default() };
    let declared = plane.grants.declared(&entry.root).await.unwrap_or_else(|error| {
        tracing::warn!(%hostname, %error, "a certificate says nothing of labels: what is declared cannot be read");
        None
    });
    let labels = declared.as_ref().map(declared::labels).unwrap_or_default();
    CertifiedData { channel: Some(entry.channel), labels }
}

/// Judges a request: the node's own key and name, and within its allowance. Gives the name.
fn allow(
    plane: &ControlPlane,
    caller: &CallingNode,
    csr: &CertificateRequest,
    now: Timestamp,
) -> Result<Hostname, Problem> {
    let mut entry = caller.slot.lock();
    let node = &mut entry.node;
    if *csr.key() != *node.key {
        return Err(Code::CsrKey.into());
    }
    if csr.common_name() != Some(node.hostname.as_str()) {
        return Err(Code::CsrHostname.into());
    }
    if !node.renewals.take(plane.certificates.settings.node_validity, now) {
        return Err(Problem::new(Code::Busy, "the node asks for more certificates than it may have"));
    }
    Ok(node.hostname.clone())
}
