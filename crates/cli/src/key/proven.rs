//! [`newest`]: the newest trust document that a control plane shows, as it was signed.
//!
//! What a root key signs next copies every slot of the document before. So nothing of it is taken by the control plane's
//! word: it is read from the links that root keys signed, named by the digest of those bytes, and is the one that the
//! operator's credentials lead to. What nodes would not follow is not signed after.

use server::api::{TrustVersionView, TrustView};
use trust::TrustDocument;
use trust::chain::ChainHead;

use super::FleetKeyError;

/// The newest version; `None` where there is none. `held` is the document of the operator's credentials.
///
/// # Errors
/// [`FleetKeyError::OtherTrust`] names the version that is not what was signed, or not what the credentials hold.
pub(crate) fn newest(
    view: &TrustView,
    held: Option<&TrustDocument>,
) -> Result<Option<ChainHead>, FleetKeyError> {
    let mut before: Option<ChainHead> = None;
    let mut held = held.cloned().map(ChainHead::of);
    for shown in &view.versions {
        let other = || FleetKeyError::OtherTrust { version: shown.document.version };
        let head = follow(before.as_ref(), shown).ok_or_else(other)?;
        match &held {
            Some(known) if known.document.version == head.document.version => {
                if known.digest != head.digest {
                    return Err(other());
                }
                held = None;
            }
            _ => {}
        }
        before = Some(head);
    }
    match held {
        Some(known) => Err(FleetKeyError::OtherTrust { version: known.document.version }),
        None => Ok(before),
    }
}

/// A version after the one before it.
fn follow(before: Option<&ChainHead>, shown: &TrustVersionView) -> Option<ChainHead> {
    let head = match (&shown.link, before) {
        (None, _) => ChainHead::of(shown.document.clone()),
        (Some(link), None) => ChainHead::read(link).ok()?,
        // Where a root key was lost, the next one signs for itself: nodes follow that by a token alone.
        (Some(link), Some(before)) => before.follow(link).or_else(|_| before.begin_anew(link)).ok()?,
    };
    let leads_on = before.is_none_or(|before| head.document.previous == Some(before.digest));
    (leads_on && head.digest == shown.digest && head.document == shown.document).then_some(head)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use model::Timestamp;
    use server::trust_chain::VersionOrigin;
    use trust::chain::{self, SlotChange, SlotName};
    use trust::{SigningKey, Slots};

    use super::*;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed(&[seed; 32])
    }

    /// Two versions as an honest control plane shows them: founded with root key 1, then with another release key.
    fn honest() -> TrustView {
        let slots = |seed| Slots::of(key(seed).public());
        let first = ChainHead::of(TrustDocument::first("acme-1".parse().unwrap(), slots(2), slots(1)));
        let (at, to) = (Timestamp::from_secs(1_800_000_000), SlotChange::Rotate(key(3).public()));
        let document = chain::next_version(&first, SlotName::Release, to, None, at).unwrap();
        let link = chain::sign(&document, &key(1)).unwrap();
        let digest = trust::signed::digest(&link);
        let versions = vec![
            TrustVersionView {
                document: first.document,
                digest: first.digest,
                origin: VersionOrigin::Founded,
                link: None,
            },
            TrustVersionView { document, digest, origin: VersionOrigin::Followed, link: Some(link) },
        ];
        TrustView { versions, holding: Vec::new(), unheard: 0, certificates: None }
    }

    fn is_refused(view: &TrustView, held: Option<&TrustDocument>) -> bool {
        matches!(newest(view, held), Err(FleetKeyError::OtherTrust { .. }))
    }

    /// IDN-8: what the control plane says beside what was signed is not copied into what the root key signs next.
    #[test]
    fn nothing_but_what_was_signed_is_signed_after() {
        let view = honest();
        let head = newest(&view, None).unwrap().unwrap();
        assert_eq!((head.document.version, head.digest), (2, view.versions[1].digest));

        let thief = Slots::of(key(9).public());
        for at in [0, 1] {
            let mut forged = honest();
            forged.versions[at].document.release = thief.clone();
            assert!(is_refused(&forged, None), "the true digest beside another document {at}");
        }
        let mut forged = honest();
        forged.versions[1].document.root.previous = Some(key(9).public());
        assert!(is_refused(&forged, None), "another root key beside the link");
        let mut forged = honest();
        let document = TrustDocument { release: thief, ..forged.versions[1].document.clone() };
        let link = chain::sign(&document, &key(9)).unwrap();
        (forged.versions[1].digest, forged.versions[1].document) = (trust::signed::digest(&link), document);
        forged.versions[1].link = Some(link);
        assert!(is_refused(&forged, None), "a link that another key signed");
    }

    /// IDN-8: the documents are those that the operator's credentials lead to.
    #[test]
    fn the_chain_is_the_one_of_the_credentials() {
        let view = honest();
        for version in &view.versions {
            assert!(newest(&view, Some(&version.document)).is_ok(), "{}", version.document.version);
        }
        let other = |version: u64| TrustDocument { version, ..view.versions[0].document.clone() };
        assert!(is_refused(&view, Some(&other(2))), "another second version");
        assert!(is_refused(&view, Some(&other(3))), "an older chain than was seen before");
        let mut founded_anew = honest();
        founded_anew.versions.truncate(1);
        founded_anew.versions[0].document.release = Slots::of(key(9).public());
        founded_anew.versions[0].digest = ChainHead::of(founded_anew.versions[0].document.clone()).digest;
        assert!(newest(&founded_anew, None).is_ok());
        assert!(is_refused(&founded_anew, Some(&view.versions[0].document)), "another first version");
    }
}
