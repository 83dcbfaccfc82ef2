//! Renewing the node's certificate: the request, the disk, the sessions (IDN-2). [`node::Node`] says when.

use std::sync::Arc;

use net::issue::IssueError;
use net::tls::TlsError;
use node::{NodeInput, RenewalProof};
use wire::enroll::RenewAnswer;
use wire::route;

use crate::membership::{MembershipFile, TakeUpError, TakenUp};
use crate::rejoin::RejoinFollower;
use crate::render::chain;
use crate::session::{CallError, NodeSession};
use crate::state::StateError;
use crate::storage::Storage;

/// Why a certificate was not renewed. The one before stays in use.
#[derive(Debug, thiserror::Error)]
enum RenewalError {
    #[error("the certificate request cannot be made")]
    Request(#[from] IssueError),
    #[error("no session can be opened without a certificate")]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the new certificate cannot be used")]
    TakeUp(#[from] TakeUpError),
    #[error("the new certificate cannot be kept")]
    Storage(#[from] StateError),
}

/// Renews the certificate; what came of it. New sessions are opened with the new one, which is durable by then;
/// streams that are open go on. Where the host was joined anew meanwhile, that is taken up, and the certificate is asked
/// for there.
pub async fn renew(
    session: &NodeSession,
    member: &Arc<MembershipFile>,
    storage: &Storage,
    rejoin: &RejoinFollower,
    proof: RenewalProof,
) -> NodeInput {
    let mut renewed = request(session, member, storage, proof).await;
    if matches!(renewed, Err(RenewalError::TakeUp(TakeUpError::JoinedAnew))) {
        rejoin.follow().await;
        renewed = request(session, member, storage, proof).await;
    }
    match renewed {
        Ok(TakenUp { credentials, validity: Some(validity) }) => {
            session.renew(credentials);
            tracing::info!(until = %validity.until, "the certificate was renewed");
            NodeInput::Renewed(validity)
        }
        Ok(TakenUp { validity: None, .. }) => NodeInput::RenewalFailed("it cannot be read".to_owned()),
        Err(error) => NodeInput::RenewalFailed(chain(&error)),
    }
}

async fn request(
    session: &NodeSession,
    member: &Arc<MembershipFile>,
    storage: &Storage,
    proof: RenewalProof,
) -> Result<TakenUp, RenewalError> {
    let message = member.request()?;
    let answer: RenewAnswer = match proof {
        RenewalProof::Certificate => session.post(route::RENEW, &message).await?,
        RenewalProof::Key => {
            session.with(member.without_certificate()?).post(route::RECOVER, &message).await?
        }
    };
    let member = member.clone();
    Ok(storage.run(move |_| Ok(member.keep(answer))).await??)
}
