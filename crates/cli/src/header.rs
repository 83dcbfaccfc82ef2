//! Headers that the control plane gives, verified here before anything is signed after them.

use model::Channel;
use model::exchange::Signed;
use server::api::{TrustVersionView, TrustView};
use server::trust_chain::VersionOrigin;
use trust::signed::VerifyError;
use trust::{Header, TrustDocument};

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

/// Verifies the header of a channel by a trust document.
///
/// # Errors
/// [`HeaderError`].
pub(crate) fn verify(
    channel: &Channel,
    header: &Signed,
    trust: &TrustDocument,
) -> Result<Header, HeaderError> {
    trust.header(header).map_err(|source| HeaderError { channel: channel.clone(), source })
}

/// The trust documents of the line that counts, the oldest first: what came before the chain was begun anew is no part
/// of it.
pub(crate) fn line_that_counts(chain: &TrustView) -> Vec<&TrustDocument> {
    let begins = |version: &TrustVersionView| version.origin == VersionOrigin::BegunAnew;
    let start = chain.versions.iter().rposition(begins).unwrap_or(0);
    chain.versions.iter().skip(start).map(|version| &version.document).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use model::Digest;
    use trust::{SigningKey, Slots};

    use super::*;

    /// IDN-8: keys of before count no more where the chain was begun anew.
    #[test]
    fn the_line_begins_where_the_chain_was_begun_anew() {
        let key = |seed| Slots::of(SigningKey::from_seed(&[seed; 32]).public());
        let first = TrustDocument::first("acme-1".parse().unwrap(), key(1), key(2));
        let chain = |origins: &[VersionOrigin]| {
            let version = |(at, origin): (usize, &VersionOrigin)| {
                let document = TrustDocument { version: at as u64 + 1, ..first.clone() };
                TrustVersionView { document, digest: Digest::ZERO, origin: *origin, link: None }
            };
            let versions = origins.iter().enumerate().map(version).collect();
            TrustView { versions, holding: Vec::new(), unheard: 0, certificates: None }
        };
        let line = |origins: &[VersionOrigin]| -> Vec<u64> {
            let chain = chain(origins);
            line_that_counts(&chain).iter().map(|document| document.version).collect()
        };
        use VersionOrigin::{BegunAnew, Followed, Founded};
        assert_eq!(line(&[Founded, Followed]), [1, 2]);
        assert_eq!(line(&[Founded, BegunAnew, Followed]), [2, 3]);
        assert_eq!(line(&[Founded, BegunAnew, Followed, BegunAnew]), [4]);
    }
}
