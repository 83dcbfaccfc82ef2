//! The CA of operators' certificates: shown, replaced, and followed by each operator (OPS-5).

use model::Timestamp;
use net::issue::{CertificateRequest, IssueError, OWN_LIFE};
use store::audit::AuditSubject;
use store::{CredentialKind, OperatorRecord};
use wire::{Code, Problem};

use super::OperatorCall;
use super::operators::{is_admin, issue};
use crate::answer::{chain, store_problem};
use crate::api::operation::Empty;
use crate::api::operators::{
    CredentialRequest, IssuedCredential, MAX_CREDENTIALS, OperatorAuthorityView, RenewOperator,
    RenewedOperator,
};
use crate::operators::{CallerCredential, FOUNDER};
use crate::posture::{FoundError, random};
use crate::state::{ControlPlane, now, run_to_completion};

pub(super) async fn view(call: OperatorCall, _: Empty) -> Result<OperatorAuthorityView, Problem> {
    Ok(shown(&call.plane, now()))
}

fn shown(plane: &ControlPlane, now: Timestamp) -> OperatorAuthorityView {
    let set = plane.operators.authority.set();
    let is_changing = set.previous().is_some();
    let table = plane.operators.table();
    let of_before = table.all().filter(|operator| is_changing && set.shuts_out(operator, now));
    OperatorAuthorityView {
        current: *set.current().key(),
        previous: set.previous().map(|ca| *ca.key()),
        of_before: of_before.map(|operator| operator.name.clone()).collect(),
    }
}

/// Whole, also when who asked hangs up. A certificate of two CAs before counts no more, with its record.
pub(super) async fn rotate(call: OperatorCall, _: Empty) -> Result<OperatorAuthorityView, Problem> {
    run_to_completion(async move {
        let plane = &call.plane;
        let _one = plane.operators.changing.lock().await;
        call.audit.record(AuditSubject::of("another certificate authority of operators".to_owned())).await?;
        if plane.operators.authority.set().previous().is_some() {
            drop_of_before(&call, now()).await?;
        }
        let (authority, fleet) = (plane.operators.authority.clone(), plane.trust.fleet.to_string());
        on_disk(move || authority.rotate(&fleet, now())).await?;
        plane.operators.authority.taken_up().await;
        tracing::info!(by = call.by, "another CA certifies operators");
        Ok(shown(plane, now()))
    })
    .await
}

/// Whole, also when who asked hangs up.
pub(super) async fn retire(call: OperatorCall, _: Empty) -> Result<OperatorAuthorityView, Problem> {
    run_to_completion(async move {
        let (plane, now) = (&call.plane, now());
        let _one = plane.operators.changing.lock().await;
        if plane.operators.authority.set().previous().is_none() {
            return Err(Problem::new(
                Code::NotFound,
                "no certificate authority of operators is to be retired",
            ));
        }
        call.audit
            .record(AuditSubject::of("the certificate authority of operators before".to_owned()))
            .await?;
        drop_of_before(&call, now).await?;
        let authority = plane.operators.authority.clone();
        on_disk(move || authority.retire()).await?;
        plane.operators.authority.taken_up().await;
        tracing::info!(by = call.by, "the CA of operators before counts no more");
        Ok(shown(plane, now))
    })
    .await
}

async fn on_disk(change: impl FnOnce() -> Result<(), FoundError> + Send + 'static) -> Result<(), Problem> {
    let changed = tokio::task::spawn_blocking(change).await.map_err(|_| Code::Internal)?;
    changed.map_err(|error| Problem::new(Code::StoreUnavailable, chain(&error)))
}

/// Takes the certificates of the CA before from the operators' records. Somebody must be left who can add others: the first
/// admin by the credentials in the control plane's directory, which have a certificate of the new CA, or another admin.
async fn drop_of_before(call: &OperatorCall, now: Timestamp) -> Result<(), Problem> {
    let operators = &call.plane.operators;
    let (set, table) = (operators.authority.set(), operators.table());
    let without = |record: &OperatorRecord| {
        let mut record = record.clone();
        record.credentials.retain(|credential| !set.is_of_before(credential));
        record
    };
    let goes_on = |record: &OperatorRecord| {
        let is_founder = record.name == FOUNDER && record.created == Timestamp(0);
        is_admin(&without(record), now) && (!is_founder || operators.authority.founder_is_here())
    };
    if !table.all().any(goes_on) {
        let detail =
            "no admin of the whole fleet has a certificate of the new CA, or a token: renew one first";
        return Err(Problem::new(Code::LastAdmin, detail));
    }
    for record in table.all() {
        let kept = without(record);
        if kept.credentials.len() < record.credentials.len() {
            call.plane.store.put_operator(kept).await.map_err(store_problem)?;
        }
    }
    operators.load(&call.plane.store).await.map_err(store_problem)
}

/// Whole, also when who asked hangs up. The certificate before counts on: the answer may be lost.
pub(super) async fn renew(call: OperatorCall, asked: RenewOperator) -> Result<RenewedOperator, Problem> {
    run_to_completion(async move {
        let (operators, now) = (&call.plane.operators, now());
        let _one = operators.changing.lock().await;
        let id = match &call.caller.credential {
            CallerCredential::Founder => return renew_founder(&call, &asked, now).await,
            CallerCredential::Issued(id) => id,
        };
        let gone = || Problem::from(Code::OperatorRefused);
        let mut record = operators.table().get(&call.by).cloned().ok_or_else(gone)?;
        let held = record.credentials.iter().find(|credential| credential.id == *id).cloned();
        let held = held.ok_or_else(gone)?;
        if held.kind != CredentialKind::Certificate {
            return Err(Problem::new(
                Code::BadBody,
                "a token is of no certificate authority: it goes on as it is",
            ));
        }
        record.credentials.retain(|credential| now < credential.expires);
        if record.credentials.len() >= MAX_CREDENTIALS {
            let detail = format!("{} has {MAX_CREDENTIALS} credentials, which is the most", record.name);
            return Err(Problem::new(Code::BadBody, detail));
        }
        let request = CredentialRequest::Certificate { csr_pem: asked.csr_pem };
        let (mut credential, issued) = issue(operators, &record.name, &request, now)?;
        // Nobody makes his own credentials last longer.
        credential.expires = held.expires;
        let IssuedCredential::Certificate { cert_pem } = issued else { return Err(Code::Internal.into()) };
        record.credentials.push(credential);
        let subject = AuditSubject::of(format!("another certificate of {}", record.name));
        call.recording(subject).put_operator(record).await.map_err(store_problem)?;
        operators.load(&call.plane.store).await.map_err(store_problem)?;
        Ok(RenewedOperator { cert_pem, expires: held.expires })
    })
    .await
}

/// The first admin's certificates name no credential.
async fn renew_founder(
    call: &OperatorCall,
    asked: &RenewOperator,
    now: Timestamp,
) -> Result<RenewedOperator, Problem> {
    let bad_csr = |error: IssueError| Problem::new(Code::BadCsr, error.to_string());
    let request = CertificateRequest::read(&asked.csr_pem).map_err(bad_csr)?;
    call.audit.record(AuditSubject::of(format!("another certificate of {FOUNDER}"))).await?;
    let serial = random().map_err(|_: FoundError| Code::Internal)?;
    let set = call.plane.operators.authority.set();
    let issued = set.current().issue_operator_for(&request, FOUNDER, serial, now);
    let cert_pem = issued.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    Ok(RenewedOperator { cert_pem, expires: now.plus(OWN_LIFE) })
}
