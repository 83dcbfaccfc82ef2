//! Why hosts could not join, as they say themselves (ENR-4): under a token that was not used, bound to host and key.
//!
//! Everything else is refused with 400. What is taken is bounded: by address, by token and in all.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use hyper::body::Incoming;
use model::Timestamp;
use model::text::beginning;
use net::accept::Connection;
use net::admission::AddressPrefix;
use net::issue::CertificateRequest;
use store::{FailedJoin, FailedJoinRecord, JoinFailureKind, ReportJoinError, ReportingToken};
use trust::token;
use wire::body::{self, JSON};
use wire::enroll::{BootstrapFailure, BootstrapReport, MAX_REPORT, MAX_REPORT_CODE, MAX_REPORT_MESSAGE};
use wire::{Code, Problem};

use crate::answer::{PortReply, reply, store_problem};
use crate::api::lists::FailedJoinsAsked;
use crate::intake::{read, unpacked};
use crate::operator_port::OperatorCall;
use crate::prefix_limits::PrefixLimits;
use crate::state::{ControlPlane, now};

/// How long a report may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// For how long after its end a token is good to tell with: that it ended is what many joins fail for.
const TOLD_AFTER_END: Duration = Duration::from_secs(24 * 3600);
/// Reports of one address prefix in a second, after a burst.
const PREFIX_PER_SEC: u32 = 1;
/// Reports of one address prefix at once after a rest.
const PREFIX_AT_ONCE: u32 = 20;
/// How many reports may come from where.
pub(crate) fn limits() -> PrefixLimits {
    PrefixLimits::new(PREFIX_PER_SEC, PREFIX_AT_ONCE)
}

/// Takes a report in: 204, as often as it is told.
pub(crate) async fn report(
    plane: &ControlPlane,
    connection: &Connection,
    parts: &Parts,
    body: Incoming,
) -> Result<PortReply, Problem> {
    let now = now();
    plane.reports.take(AddressPrefix::of(connection.address.ip()), now)?;
    let body = read(parts, body, MAX_REPORT, BODY_WITHIN).await?;
    let Ok(_slot) = plane.enrollments.try_acquire() else { return Err(Code::Busy.into()) };
    let report: BootstrapReport = body::decode(&unpacked(parts, body, MAX_REPORT)?)?;
    let (token, join) = judged(plane, &report, now)?;
    tracing::warn!(
        hostname = %join.hostname,
        failure = ?join.failure,
        code = join.code,
        why = join.message,
        "a host says that it could not join"
    );
    plane.store.report_failed_join(token, join, now).await.map_err(problem)?;
    Ok(reply(StatusCode::NO_CONTENT, JSON, None, Bytes::new()))
}

/// Who tells, and what: the key at hand is the one that the token is for, if it names one.
fn judged(
    plane: &ControlPlane,
    report: &BootstrapReport,
    now: Timestamp,
) -> Result<(ReportingToken, FailedJoin), Problem> {
    let refused = |why: &dyn std::fmt::Display| Problem::new(Code::ReportRefused, why.to_string());
    let csr = CertificateRequest::read(&report.csr_pem).map_err(|error| refused(&error))?;
    let key = *csr.key();
    let documents = plane.trust.documents();
    let (root, ended_after) = (&documents.newest().document.root, now.minus(TOLD_AFTER_END));
    let claims = token::verify_for_report(&report.token, root, &report.hostname, &key, ended_after);
    let claims = claims.map_err(|error| refused(&error))?;
    if claims.fleet != plane.trust.fleet {
        return Err(refused(&"the token is of another fleet"));
    }
    // What a stranger says is shown on operators' terminals: neither colour nor movement is kept of it.
    let shown = |c: char| if c.is_control() && c != '\n' { ' ' } else { c };
    let kept = |text: &str, limit| beginning(&text.chars().map(shown).collect::<String>(), limit).to_owned();
    let join = FailedJoin {
        hostname: claims.hostname,
        fingerprint: key.fingerprint(),
        failure: match report.failure {
            BootstrapFailure::TrustError => JoinFailureKind::TrustError,
            BootstrapFailure::EnrollmentFailed => JoinFailureKind::EnrollmentFailed,
        },
        code: report.code.as_deref().map(|code| kept(code, MAX_REPORT_CODE)),
        message: kept(&report.message, MAX_REPORT_MESSAGE),
        agent: report.agent.as_deref().map(|agent| kept(agent, MAX_REPORT_CODE)),
    };
    Ok((ReportingToken { nonce: claims.nonce, node: key.node_id() }, join))
}

fn problem(error: ReportJoinError) -> Problem {
    match error {
        ReportJoinError::TokenUsed => Problem::new(Code::ReportRefused, error.to_string()),
        ReportJoinError::TooMany => Problem::new(Code::Busy, error.to_string()),
        ReportJoinError::Store(error) => store_problem(error),
    }
}

/// Failed joins, the newest first.
pub(crate) async fn list(
    call: OperatorCall,
    asked: FailedJoinsAsked,
) -> Result<Vec<FailedJoinRecord>, Problem> {
    call.plane.store.failed_joins(asked.limit.get(), asked.before).await.map_err(store_problem)
}
