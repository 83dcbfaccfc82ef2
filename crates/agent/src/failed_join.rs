//! Telling the control plane why this host could not join (ENR-4): operators see it there, who cannot look at the host.
//!
//! It is told only to a server under the CA that the token names, with the same token. That it could not be told is no
//! failure of its own.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use model::text::beginning;
use net::Destination;
use net::client::Client;
use wire::body::{self, JSON};
use wire::enroll::{BootstrapFailure, BootstrapReport, EnrollRequest, MAX_REPORT_MESSAGE};
use wire::headers::{AGENT_VERSION_HEADER, PROTOCOL, PROTOCOL_HEADER};
use wire::route;

use crate::join::{JoinError, JoinTerms};
use crate::render::chain;

/// How long telling may take, whatever answers.
const TELL_WITHIN: Duration = Duration::from_secs(15);
/// The longest answer, in bytes.
const MAX_ANSWER: usize = 16 * 1024;

/// What a failure to join is to the control plane, and its code; `None` where it is none of its own, or passes by
/// itself.
fn failure_of(error: &JoinError) -> Option<(BootstrapFailure, Option<String>)> {
    match error {
        JoinError::NotAsPromised(_) => Some((BootstrapFailure::TrustError, None)),
        JoinError::Answer(_) => Some((BootstrapFailure::EnrollmentFailed, None)),
        JoinError::Refused(problem) if problem.status < 500 => {
            Some((BootstrapFailure::EnrollmentFailed, Some(problem.code.clone())))
        }
        _ => None,
    }
}

/// Tells one of the token's servers, if there is something to tell, and a token of this host alone to tell it under.
pub(crate) async fn tell(terms: &JoinTerms, tried: &EnrollRequest, error: &JoinError) {
    let Some((failure, code)) = failure_of(error) else { return };
    let (Some(token), Some(hostname)) = (&tried.token, &terms.hostname) else { return };
    let report = BootstrapReport {
        token: token.clone(),
        hostname: hostname.to_string(),
        csr_pem: tried.csr_pem.clone(),
        failure,
        code,
        message: beginning(&chain(error), MAX_REPORT_MESSAGE).to_owned(),
        agent: Some(env!("CARGO_PKG_VERSION").to_owned()),
    };
    let told = tokio::time::timeout(TELL_WITHIN, told_to_one(terms, &report)).await;
    if told != Ok(true) {
        tracing::debug!("the control plane could not be told why this host did not join");
    }
}

async fn told_to_one(terms: &JoinTerms, report: &BootstrapReport) -> bool {
    let Ok(tls) = net::tls::client_pinned(terms.ca, terms.tls_termination) else { return false };
    let Ok(bytes) = body::encode(report) else { return false };
    for url in &terms.servers {
        let to = Destination { url: url.clone(), proxy: terms.proxy.clone() };
        let Ok(mut client) = Client::dial(to, tls.clone()).await else { continue };
        let request = Request::post(format!("https://{}{}", url.authority(), route::BOOTSTRAP_REPORT))
            .header(PROTOCOL_HEADER, PROTOCOL)
            .header(AGENT_VERSION_HEADER, env!("CARGO_PKG_VERSION"))
            .header(header::CONTENT_TYPE, JSON)
            .body(Full::new(Bytes::from(bytes.clone())));
        let Ok(request) = request else { return false };
        if let Ok(response) = client.call(request, MAX_ANSWER, TELL_WITHIN).await {
            // One that refuses it would refuse it again.
            return response.status().is_success();
        }
    }
    false
}
