//! The chain of trust documents (IDN-8): shown, and led on.

use model::Timestamp;
use model::time::SLACK;
use net::accept::Connection;
use store::audit::AuditSubject;
use trust::chain::ChainError;
use trust::{TrustDocument, signed};
use wire::{Code, Problem};

use super::OperatorCall;
use crate::answer::{PortReply, chain};
use crate::api::authority::{AuthorityUse, MAX_OF_BEFORE, StagedAuthority};
use crate::api::operation::Empty;
use crate::api::{AddTrust, TrustHolders, TrustVersionView, TrustView};
use crate::posture::FoundError;
use crate::refresh::refresh;
use crate::releases;
use crate::state::{ControlPlane, now, run_to_completion};
use crate::trust_chain::AddLinkError;

pub(super) async fn view(call: OperatorCall, _: Empty) -> Result<TrustView, Problem> {
    refresh(&call.plane).await;
    let documents = call.plane.trust.documents();
    let links = documents.signed();
    let versions = documents.versions.iter().zip(links).map(|(version, link)| TrustVersionView {
        document: version.head.document.clone(),
        digest: version.head.digest,
        origin: version.origin,
        link: link.cloned(),
    });
    let counts = call.plane.index.totals(|totals| totals.trust().clone());
    let heard = counts.iter().filter(|(version, _)| **version > 0);
    Ok(TrustView {
        versions: versions.collect(),
        holding: heard.map(|(version, nodes)| TrustHolders { version: *version, nodes: *nodes }).collect(),
        unheard: counts.get(&0).copied().unwrap_or(0),
        certificates: Some(certificates(&call.plane)),
    })
}

/// Of which CA nodes have their certificates.
pub(super) fn certificates(plane: &ControlPlane) -> AuthorityUse {
    let (set, now) = (plane.authorities.set(), now());
    let mut others = Vec::new();
    if set.was_replaced() {
        let slots = plane.index.all();
        let of_before = slots.iter().filter(|slot| set.keeps_certificate_of_before(&slot.lock().node, now));
        others.extend(of_before.map(|slot| slot.names().1));
        others.sort_unstable();
    }
    let nodes = others.len();
    others.truncate(MAX_OF_BEFORE);
    AuthorityUse {
        current: *set.current().key(),
        of_before: nodes,
        nodes: others,
        unusable: plane.authorities.problem(),
    }
}

/// Makes the CA that is to count next. Its key stays here.
pub(super) async fn stage_authority(call: OperatorCall, _: Empty) -> Result<StagedAuthority, Problem> {
    let OperatorCall { plane, audit, .. } = call;
    audit.record(AuditSubject::of("the next certificate authority".to_owned())).await?;
    run_to_completion(async move {
        let (authorities, documents) = (plane.authorities.clone(), plane.trust.documents());
        let staging = tokio::task::spawn_blocking(move || {
            let next = authorities.stage(&documents.newest().document, now())?;
            Ok(StagedAuthority { current: *authorities.set().current().key(), next })
        });
        let staged: Result<StagedAuthority, FoundError> = staging.await.map_err(|_| Code::Internal)?;
        staged.map_err(|error| Problem::new(Code::StoreUnavailable, chain(&error)))
    })
    .await
}

/// What follows a trust document, for anybody who knows its digest.
pub(crate) fn links(
    plane: &ControlPlane,
    connection: &Connection,
    digest: &str,
    gzip: bool,
) -> Result<PortReply, Problem> {
    let (documents, address) = (plane.trust.documents(), connection.address.ip());
    Ok(plane.open_links.answer(&documents, digest, address, now())?.reply(gzip))
}

/// Whole, also when who asked hangs up: a version that is stored is one that nodes are given.
pub(super) async fn add(call: OperatorCall, sent: AddTrust) -> Result<u64, Problem> {
    run_to_completion(async move {
        let OperatorCall { plane, by, audit, .. } = call;
        let root = plane.trust.documents().newest().document.root.clone();
        // What cannot be verified is refused below, by its cause.
        if let Ok(next) = signed::verify::<TrustDocument>(&sent.link, &root) {
            check_times(&next, now())?;
        }
        // It is kept in a file: the entry comes before it.
        let digest = signed::digest(&sent.link);
        audit.record(AuditSubject::of(format!("trust document {digest}"))).await?;
        let version = plane.trust.add(sent.link, &plane.authorities).await.map_err(problem)?;
        tracing::info!(version, by, "a trust document was added");
        plane.follow_own_keys();
        releases::load(&plane).await?;
        Ok(version)
    })
    .await
}

/// A document of the future would count nowhere yet, and one by which certificates count from the future on would let this
/// control plane make none.
fn check_times(next: &TrustDocument, now: Timestamp) -> Result<(), Problem> {
    if let Some(at) = next.created.filter(|at| *at > now.plus(SLACK)) {
        let detail = format!(
            "the trust document is dated {at}, in the future: the clock of who signed it is {} the control \
             plane's ({now})",
            at.beside(now)
        );
        return Err(Problem::new(Code::TrustRefused, detail));
    }
    let limit = next.certificate_authority.as_ref().and_then(|slots| slots.reject_before);
    if let Some(limit) = limit.filter(|limit| *limit > now) {
        let detail = format!(
            "certificates would count from {limit} on alone, and this control plane, whose clock says {now}, can make \
             none yet: name a time that is past with --reject-before"
        );
        return Err(Problem::new(Code::TrustRefused, detail));
    }
    Ok(())
}

fn problem(error: AddLinkError) -> Problem {
    match &error {
        // Somebody else added one after the one that this follows.
        AddLinkError::Chain(ChainError::Older { .. } | ChainError::Forked { .. }) => {
            Problem::new(Code::TrustMoved, error.to_string())
        }
        AddLinkError::Chain(error) => Problem::new(Code::TrustRefused, error.to_string()),
        AddLinkError::AuthorityKey(_) => Problem::new(Code::TrustRefused, error.to_string()),
        AddLinkError::Write(_) => Problem::new(Code::StoreUnavailable, chain(&error)),
        AddLinkError::Read(_) => Problem::new(Code::TrustUnreadable, chain(&error)),
    }
}
