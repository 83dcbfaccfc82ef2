//! Operators: who there is, added, revoked; and the audit log.

use model::Timestamp;
use net::issue::{CertificateRequest, IssueError, OWN_LIFE};
use store::audit::{AuditFilter, AuditSubject};
use store::{CredentialKind, OperatorCredential, OperatorRecord, OperatorRole};
use wire::{Code, Problem};

use super::OperatorCall;
use crate::answer::store_problem;
use crate::api::operation::Empty;
use crate::api::operators::{
    AddOperator, AddedOperator, AuditPage, AuditQuery, CallerView, CredentialRequest, CredentialView,
    IssuedCredential, MAX_CREDENTIALS, MAX_OPERATOR_NAME, MAX_OPERATOR_TOKEN_SECS, MAX_OPERATORS,
    OperatorName, OperatorView,
};
use crate::index::clip;
use crate::operators::scope::OperatorScope;
use crate::operators::token::OperatorToken;
use crate::operators::{CREDENTIAL_MARK, FOUNDER, Operators};
use crate::posture::random;
use crate::state::{now, run_to_completion};

/// How much of a credential's id is shown.
const SHOWN_ID: usize = 12;

pub(super) fn whoami(call: &OperatorCall) -> CallerView {
    let scope = &call.caller.scope;
    let nodes = (!scope.is_fleet()).then(|| scope.as_str().to_owned());
    CallerView { name: call.by.clone(), role: call.caller.role, nodes }
}

pub(super) async fn list(call: OperatorCall, _: Empty) -> Result<Vec<OperatorView>, Problem> {
    Ok(call.plane.operators.table().all().map(view).collect())
}

/// Whole, also when who asked hangs up: what the store has is what counts.
pub(super) async fn add(call: OperatorCall, asked: AddOperator) -> Result<AddedOperator, Problem> {
    run_to_completion(async move {
        let operators = &call.plane.operators;
        let _one = operators.changing.lock().await;
        let now = now();
        let before = operators.table().get(&asked.name).cloned();
        let mut record = joined(before, &asked, &call.by, operators.table().all().count(), now)?;
        record.credentials.retain(|credential| now < credential.expires);
        if record.credentials.len() >= MAX_CREDENTIALS {
            let detail = format!("{} has {MAX_CREDENTIALS} credentials, which is the most", record.name);
            return Err(Problem::new(Code::BadBody, detail));
        }
        let (credential, issued) = issue(operators, &asked.name, &asked.credential, now)?;
        let expires = credential.expires;
        let of = record.nodes.as_deref().unwrap_or("the whole fleet");
        let what = format!("{} {} of {of}: {}", record.role, record.name, credential.kind.as_str());
        record.credentials.push(credential);
        let operator = view(&record);
        call.recording(AuditSubject::of(what)).put_operator(record).await.map_err(store_problem)?;
        operators.load(&call.plane.store).await.map_err(store_problem)?;
        tracing::info!(by = call.by, operator = operator.name, role = %operator.role, "an operator was added");
        Ok(AddedOperator { operator, issued, expires })
    })
    .await
}

/// The operator as he is to be, but for the new credential.
fn joined(
    before: Option<OperatorRecord>,
    asked: &AddOperator,
    by: &str,
    count: usize,
    now: Timestamp,
) -> Result<OperatorRecord, Problem> {
    let bad = |detail: String| Problem::new(Code::BadBody, detail);
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-_@".contains(c);
    if asked.name.is_empty() || asked.name.len() > MAX_OPERATOR_NAME || !asked.name.chars().all(good) {
        let detail = format!(
            "{:?} names no operator: 1 to {MAX_OPERATOR_NAME} of a-z, 0-9 and .-_@",
            clip(&asked.name)
        );
        return Err(bad(detail));
    }
    OperatorScope::read(asked.nodes.as_deref())?;
    match before {
        Some(known) if known.revoked.is_none() => {
            if (known.role, &known.nodes) != (asked.role, &asked.nodes) {
                let of = known.nodes.as_deref().unwrap_or("the whole fleet");
                let detail = format!("{} is {} of {of}", known.name, known.role);
                return Err(Problem::new(Code::OperatorTaken, detail));
            }
            Ok(known)
        }
        None if count >= MAX_OPERATORS => {
            Err(bad(format!("there are {MAX_OPERATORS} operators, which is the most")))
        }
        _ => Ok(OperatorRecord {
            name: asked.name.clone(),
            role: asked.role,
            nodes: asked.nodes.clone(),
            // 0 is the founding of the fleet.
            created: now.max(Timestamp(1)),
            created_by: by.to_owned(),
            revoked: None,
            credentials: Vec::new(),
        }),
    }
}

pub(super) fn issue(
    operators: &Operators,
    name: &str,
    asked: &CredentialRequest,
    now: Timestamp,
) -> Result<(OperatorCredential, IssuedCredential), Problem> {
    let internal = |_| Problem::from(Code::Internal);
    match asked {
        CredentialRequest::Certificate { csr_pem } => {
            let bad_csr = |error: IssueError| Problem::new(Code::BadCsr, error.to_string());
            let request = CertificateRequest::read(csr_pem).map_err(bad_csr)?;
            let id = data_encoding::HEXLOWER.encode(&random::<16>().map_err(internal)?);
            let name = format!("{name}{CREDENTIAL_MARK}{id}");
            let serial = random().map_err(internal)?;
            let issued = operators.authority.set().current().issue_operator_for(&request, &name, serial, now);
            let cert_pem = issued.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
            let (kind, expires) = (CredentialKind::Certificate, now.plus(OWN_LIFE));
            Ok((
                OperatorCredential { id, kind, created: now, expires },
                IssuedCredential::Certificate { cert_pem },
            ))
        }
        CredentialRequest::Token { valid_secs } => {
            if !(1..=MAX_OPERATOR_TOKEN_SECS).contains(valid_secs) {
                let days = MAX_OPERATOR_TOKEN_SECS / (24 * 3600);
                return Err(Problem::new(Code::BadBody, format!("a token counts for 1 s to {days} days")));
            }
            let token = OperatorToken::random().map_err(internal)?;
            let expires = now.plus(std::time::Duration::from_secs(*valid_secs));
            let credential =
                OperatorCredential { id: token.id(), kind: CredentialKind::Token, created: now, expires };
            Ok((credential, IssuedCredential::Token { token: token.text() }))
        }
    }
}

/// Whole, also when who asked hangs up: who is revoked in the store is so in memory.
pub(super) async fn revoke(call: OperatorCall, asked: OperatorName) -> Result<OperatorView, Problem> {
    run_to_completion(async move {
        let operators = &call.plane.operators;
        let _one = operators.changing.lock().await;
        let table = operators.table();
        let none = || Problem::new(Code::NotFound, format!("there is no operator {:?}", clip(&asked.name)));
        let known =
            table.get(&asked.name).filter(|known| known.revoked.is_none()).cloned().ok_or_else(none)?;
        let now = now();
        if is_admin(&known, now) && !table.all().any(|other| other.name != known.name && is_admin(other, now))
        {
            let detail =
                format!("{} is the last admin of the whole fleet whose credentials count", known.name);
            return Err(Problem::new(Code::LastAdmin, detail));
        }
        let record =
            OperatorRecord { revoked: Some((now, call.by.clone())), credentials: Vec::new(), ..known };
        let revoked = view(&record);
        let subject = AuditSubject::of(format!("{} {}", record.role, record.name));
        call.recording(subject).put_operator(record).await.map_err(store_problem)?;
        operators.load(&call.plane.store).await.map_err(store_problem)?;
        tracing::info!(by = call.by, operator = revoked.name, "an operator was revoked");
        Ok(revoked)
    })
    .await
}

/// He can add others.
pub(super) fn is_admin(operator: &OperatorRecord, now: Timestamp) -> bool {
    let counts = |credential: &OperatorCredential| now < credential.expires;
    let is_founder = operator.name == FOUNDER && operator.created == Timestamp(0);
    operator.revoked.is_none()
        && operator.role == OperatorRole::Admin
        && operator.nodes.is_none()
        && (is_founder || operator.credentials.iter().any(counts))
}

fn view(operator: &OperatorRecord) -> OperatorView {
    let OperatorRecord { name, role, nodes, created, created_by, revoked, credentials } = operator.clone();
    let shown = |credential: OperatorCredential| {
        let OperatorCredential { mut id, kind, created, expires } = credential;
        id.truncate(id.floor_char_boundary(SHOWN_ID));
        CredentialView { id, kind, created, expires }
    };
    let (revoked, revoked_by) = revoked.unzip();
    OperatorView {
        name,
        role,
        nodes,
        created: Some(created).filter(|at| at.0 > 0),
        created_by,
        revoked,
        revoked_by,
        credentials: credentials.into_iter().map(shown).collect(),
    }
}

pub(super) async fn audit(call: OperatorCall, asked: AuditQuery) -> Result<AuditPage, Problem> {
    let (store, AuditQuery { since, author, node, before, after, limit }) = (&call.plane.store, asked);
    // Before the entries: all that it names are there.
    let head = store.audit_head().await.map_err(store_problem)?;
    let entries = match after {
        Some(after) => store.audit_after(after, limit.get()).await,
        None => store.audit(AuditFilter { since, author, node, before, limit: limit.get() }).await,
    };
    Ok(AuditPage { entries: entries.map_err(store_problem)?, head })
}
