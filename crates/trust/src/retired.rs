//! [`verify_retired`]: headers that a release key signed which newer trust documents dropped (ROL-4, IDN-8).
//!
//! Their content is to be signed anew with a key of today; so more is asked of them than of what the newest trust
//! document believes: the key signed while a trust document named it. So it is of a header from before its channel had
//! a threshold, or a higher one.

use model::Timestamp;
use model::exchange::Signed;
use model::time::SLACK;

use crate::document::TrustDocument;
use crate::key::PublicKey;
use crate::release::Header;
use crate::signed::{Document, VerifyError};

/// A header that a retired key signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetiredHeader {
    /// The header.
    pub header: Header,
    /// The id of the key, or those of the keys where the channel had a threshold.
    pub key: String,
    /// The last trust document by which its signatures are enough.
    pub version: u64,
}

/// Why a header of a retired key is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetiredHeaderError {
    /// No trust document of the line names a key that signed it.
    #[error("no trust document names the key that signed it")]
    NeverBelieved,
    /// The newest trust document rejects it by its time: its key was perhaps stolen.
    #[error("it was signed before {0}, from when on signatures count")]
    RejectedBefore(Timestamp),
    /// It is dated later than the trust document that dropped its key.
    #[error("it is dated {created}, and trust document {version} of {dropped} dropped its key")]
    SignedAfterDropped {
        /// When it was made, as it says.
        created: Timestamp,
        /// The version that dropped the key.
        version: u64,
        /// When that was signed.
        dropped: Timestamp,
    },
}

/// Verifies a header by the release keys of these trust documents, the newest first. They are one line, the oldest
/// first: of a chain that was begun anew, what comes after that. The caller answers for the documents.
///
/// # Errors
/// [`RetiredHeaderError`].
pub fn verify_retired(signed: &Signed, line: &[&TrustDocument]) -> Result<RetiredHeader, RetiredHeaderError> {
    let newest = line.last().and_then(|newest| newest.release.reject_before);
    let mut after: Option<&TrustDocument> = None;
    for document in line.iter().rev() {
        let header: Header = match document.header(signed) {
            Ok(header) => header,
            Err(VerifyError::RejectedBefore(limit)) => return Err(RetiredHeaderError::RejectedBefore(limit)),
            Err(_) => {
                after = Some(document);
                continue;
            }
        };
        if let Some(limit) = newest.filter(|limit| header.created < *limit) {
            return Err(RetiredHeaderError::RejectedBefore(limit));
        }
        if let Some(next) = after.filter(|next| header.created > next.signed_at().plus(SLACK)) {
            let (created, version, dropped) = (header.created, next.version, next.signed_at());
            return Err(RetiredHeaderError::SignedAfterDropped { created, version, dropped });
        }
        let keys = document.header_signatures(signed, &header.channel).into_iter().map(PublicKey::id);
        let key = keys.collect::<Vec<_>>().join(" and ");
        return Ok(RetiredHeader { header, key, version: document.version });
    }
    Err(RetiredHeaderError::NeverBelieved)
}
