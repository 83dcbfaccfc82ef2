//! `muster operator renew` and `trust`: credentials that follow what counts at the control plane.

use std::path::Path;

use clap::Args;
use model::{Digest, Timestamp};
use net::issue;
use serde::Serialize;
use server::Credentials;
use server::api::TRUST;
use server::api::operation::Empty;
use server::api::operators::{RENEW_OPERATOR, RenewOperator};
use server::posture::{self, FoundError};

use super::files::OperatorFileError;
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::key::proven;
use crate::next_step::muster;
use crate::operator::Operator;
use crate::screen::Screen;

#[derive(Args, Debug)]
pub(super) struct OperatorTrustArgs {
    /// The digest of the newest trust document, as `muster key show` prints it on the control plane's host [default: show
    /// the one that the control plane names]
    digest: Option<Digest>,
}

/// Why credentials do not follow.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FollowCredentialsError {
    #[error("these credentials hold a token, which no certificate authority issued")]
    Token,
    #[error("the credentials cannot be written")]
    Write(#[source] FoundError),
    #[error("the newest trust document that the control plane shows is {shown}, and not {named}")]
    OtherDocument { shown: Digest, named: Digest },
    #[error("the control plane shows no trust document")]
    NoDocument,
}

impl UserError for FollowCredentialsError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            FollowCredentialsError::Token => "it counts on until it ends: there is nothing to renew".to_owned(),
            FollowCredentialsError::OtherDocument { .. } => {
                "nothing was changed; somebody may answer in the control plane's place: look on its host, with `muster key \
                 show` there"
                    .to_owned()
            }
            FollowCredentialsError::Write(_) | FollowCredentialsError::NoDocument => return None,
        })
    }
}

/// Gives the credentials of a file a certificate of the CA that certifies now, with a new key; until when it counts. `None`
/// where they hold a token, which goes on as it is.
pub(crate) async fn renew(
    operator: &Operator,
    file: &Path,
    credentials: &Credentials,
) -> Result<Option<Timestamp>, Failure> {
    if credentials.token.is_some() {
        return Ok(None);
    }
    let key = issue::new_key().map_err(OperatorFileError::Key)?;
    // Only the key of a request counts.
    let csr_pem = issue::proxy_request(&key, "operator").map_err(OperatorFileError::Key)?;
    let renewed = operator.call(&RENEW_OPERATOR, RenewOperator { csr_pem }).await?;
    let (cert_pem, key_pem) = (renewed.cert_pem, key.to_string());
    let written = posture::write_credentials(file, &Credentials { cert_pem, key_pem, ..credentials.clone() });
    written.map_err(FollowCredentialsError::Write)?;
    Ok(Some(renewed.expires))
}

#[derive(Serialize)]
struct RenewedView {
    expires: Timestamp,
}

pub(super) async fn run(connect: &Connect, screen: Screen) -> Result<Exit, Failure> {
    let (file, credentials) = connect.credentials()?;
    let operator = Operator::dial(&credentials).await?;
    let expires = renew(&operator, &file, &credentials).await?.ok_or(FollowCredentialsError::Token)?;
    let view = RenewedView { expires };
    Ok(screen.result(&view, || format!("the credentials have another certificate, until {expires}\n"))?)
}

#[derive(Serialize)]
struct TrustedView {
    version: u64,
    digest: Digest,
    /// The credentials hold it now.
    held: bool,
}

/// Gives credentials of before a trust document. Whoever answers may be somebody with a stolen CA, whose documents the
/// credentials would go by for ever: so it is the one alone whose digest somebody read on the control plane's host.
pub(super) async fn trust(
    args: &OperatorTrustArgs,
    connect: &Connect,
    screen: Screen,
) -> Result<Exit, Failure> {
    let (file, credentials) = connect.credentials()?;
    let operator = Operator::dial(&credentials).await?;
    let view = operator.call(&TRUST, Empty {}).await?;
    let newest = proven::newest(&view, credentials.trust.as_ref())?;
    let head = newest.ok_or(FollowCredentialsError::NoDocument)?;
    if let Some(named) = args.digest.filter(|named| *named != head.digest) {
        return Err(FollowCredentialsError::OtherDocument { shown: head.digest, named }.into());
    }
    let shown = TrustedView {
        version: head.document.version,
        digest: head.digest,
        held: args.digest.is_some() || credentials.trust.as_ref() == Some(&head.document),
    };
    if args.digest.is_some() {
        let kept = Credentials { trust: Some(head.document), ..credentials };
        posture::write_credentials(&file, &kept).map_err(FollowCredentialsError::Write)?;
    }
    Ok(screen.result(&shown, || {
        let TrustedView { version, digest, held } = &shown;
        match held {
            true => format!("the credentials hold trust document {version}, {digest}\n"),
            false => format!(
                "the control plane shows trust document {version}, {digest}\ncompare it with what `muster key show` prints on \
                 its host; then: {}\n",
                muster(&format!("operator trust {digest}"))
            ),
        }
    })?)
}
