//! By what an operator's client believes the control plane, and how that follows when the fleet's CA is replaced (IDN-8).
//!
//! Credentials hold a trust document of the fleet. Where a server shows a certificate of another CA, the documents after it
//! are asked for: each is signed by a root key of the one before, so that it does not matter who hands them on. Credentials
//! of before hold none; they get one with `muster operator trust`, by a digest that somebody compared.

use net::{BelievedAuthority, trust_links};
use server::Credentials;
use server::posture;
use trust::chain::ChainHead;

use crate::next_step::muster;
use crate::screen::aside;

/// The CAs that credentials believe.
pub(crate) fn believed(credentials: &Credentials) -> BelievedAuthority {
    let named = credentials.trust.as_ref().and_then(|trust| trust.certificate_authority.as_ref());
    BelievedAuthority::of(named, &credentials.ca_pem)
}

/// The credentials by the newest trust document that whoever answers leads to; `None` where that is no newer one.
pub(crate) async fn followed(credentials: &Credentials) -> Option<Credentials> {
    let first = ChainHead::of(credentials.trust.clone()?);
    let head = trust_links::follow(&credentials.url, first.clone()).await;
    (head != first).then(|| Credentials { trust: Some(head.document), ..credentials.clone() })
}

/// Writes credentials back to the file that they were read from.
pub(crate) fn keep(credentials: &Credentials) {
    let Some(file) = &credentials.file else { return };
    match posture::write_credentials(file, credentials) {
        Ok(()) => tracing::info!(file = %file.display(), "the credentials follow a newer trust document"),
        // It is followed anew the next time.
        Err(error) => {
            tracing::warn!(error = %model::text::chain(&error), "the credentials cannot follow a newer trust document");
        }
    }
}

/// Says of credentials of before that they hold no trust document: once the fleet's CA is replaced they reach nobody. None is
/// taken by the connection alone, as whoever stole that CA could answer.
pub(crate) fn tell_untrusting(credentials: &Credentials) {
    if credentials.trust.is_none() && credentials.file.is_some() {
        aside(&format!(
            "note: these credentials hold no trust document, and reach nobody once the fleet's CA is replaced; they get one \
             with: {}",
            muster("operator trust")
        ));
    }
}
