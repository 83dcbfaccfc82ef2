//! Headers that the control plane gives, verified here before anything is signed after them.

use model::Channel;
use model::exchange::Signed;
use server::api::TrustView;
use trust::signed::{self, VerifyError};
use trust::{Header, Slots};

/// A header of the control plane is not believed.
#[derive(Debug, thiserror::Error)]
#[error("the control plane's header for channel {channel} is not believed")]
pub struct HeaderError {
    /// The channel.
    pub channel: Channel,
    /// Why.
    #[source]
    pub source: VerifyError,
}

/// Verifies the header of a channel by these keys.
///
/// # Errors
/// [`HeaderError`].
pub(crate) fn verify(channel: &Channel, header: &Signed, keys: &Slots) -> Result<Header, HeaderError> {
    signed::verify(header, keys).map_err(|source| HeaderError { channel: channel.clone(), source })
}

/// A header that a retired key signed.
#[derive(Debug)]
pub(crate) struct RetiredHeader {
    pub(crate) header: Header,
    /// The key's id.
    pub(crate) key: String,
    /// The last trust document that believes the key.
    pub(crate) version: u64,
}

/// Verifies the header of a channel by the release keys of earlier trust documents, the newest first: its content is
/// to be signed anew. What the newest document rejects by its time stays rejected, as its key was perhaps stolen
/// (IDN-8).
///
/// # Errors
/// As [`verify`], by the newest document.
pub(crate) fn verify_retired(
    channel: &Channel,
    header: &Signed,
    chain: &TrustView,
) -> Result<RetiredHeader, HeaderError> {
    let failed = |source| HeaderError { channel: channel.clone(), source };
    let newest = chain.versions.last().and_then(|newest| newest.document.release.reject_before);
    let earlier = chain.versions.iter().rev().map(|version| &version.document);
    for document in earlier {
        let Ok(verified) = signed::verify::<Header>(header, &document.release) else { continue };
        if let Some(limit) = newest.filter(|limit| verified.created < *limit) {
            return Err(failed(VerifyError::RejectedBefore(limit)));
        }
        let key = signer(header, &document.release).unwrap_or_default();
        return Ok(RetiredHeader { header: verified, key, version: document.version });
    }
    Err(failed(VerifyError::Untrusted))
}

/// The key of these that signed, by the signatures that it is named in.
fn signer(header: &Signed, keys: &Slots) -> Option<String> {
    let mut ids = keys.keys().map(trust::PublicKey::id);
    ids.find(|id| header.signatures.iter().any(|signature| signature.key == *id))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use model::{Digest, Timestamp};
    use server::api::TrustVersionView;
    use server::trust_chain::VersionOrigin;
    use trust::{SigningKey, TrustDocument};

    use super::*;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed(&[seed; 32])
    }

    /// A chain whose versions have these release keys; the newest rejects what was signed before this.
    fn chain(keys: &[u8], reject_before: Option<i64>) -> TrustView {
        let document = |(at, seed): (usize, &u8)| {
            let mut slots = Slots::of(key(*seed).public());
            slots.reject_before = reject_before.filter(|_| at + 1 == keys.len()).map(Timestamp);
            let first = TrustDocument::first("acme-1".parse().unwrap(), slots, Slots::of(key(99).public()));
            let document = TrustDocument { version: at as u64 + 1, ..first };
            TrustVersionView { document, digest: Digest::ZERO, origin: VersionOrigin::Followed, link: None }
        };
        let versions = keys.iter().enumerate().map(document).collect();
        TrustView { versions, holding: Vec::new(), unheard: 0 }
    }

    /// ROL-4, IDN-8: by a key of any trust document that there was, and by no other; not where its time is rejected.
    #[test]
    fn a_retired_key_is_believed_for_what_it_signed() {
        let channel: Channel = "stable".parse().unwrap();
        let header = Header {
            fleet: "acme-1".parse().unwrap(),
            channel: channel.clone(),
            seq: 3,
            label: None,
            created: Timestamp(50),
            freshness_secs: 1,
            selection: Digest::ZERO,
            fallbacks: Vec::new(),
            requires: Vec::new(),
        };
        let signed = signed::sign(&header, &[&key(1)]).unwrap();
        let by = |keys: &[u8], limit| verify_retired(&channel, &signed, &chain(keys, limit));
        let found = by(&[1, 2, 3], None).unwrap();
        assert_eq!((found.key, found.version, found.header.seq), (key(1).public().id(), 1, 3));
        assert_eq!(by(&[1, 1, 2], None).unwrap().version, 2, "the last that believes it");
        assert!(by(&[1, 2], Some(50)).is_ok());
        let error = |keys: &[u8], limit| by(keys, limit).unwrap_err().source;
        assert_eq!(error(&[1, 2], Some(51)), VerifyError::RejectedBefore(Timestamp(51)));
        assert_eq!(error(&[2, 3], None), VerifyError::Untrusted);
    }
}
