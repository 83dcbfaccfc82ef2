//! IDN-8: how long a CA that was made is found again, and by which certificates a key alone is enough.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::time::Duration;

use model::CertificateValidity;
use trust::SigningKey;

use super::*;

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn ca(name: &str) -> Arc<Ca> {
    Arc::new(Ca::generate(name, START).unwrap().0)
}

fn set(current: &Arc<Ca>, previous: Option<&Arc<Ca>>, reject_before: Option<Timestamp>) -> AuthoritySet {
    let slots = Slots { current: *current.key(), previous: previous.map(|ca| *ca.key()), reject_before };
    let (current, previous) = (current.clone(), previous.cloned());
    AuthoritySet { current, previous, slots: Some(slots), since: Some(START) }
}

fn trust(authority: Option<Slots>) -> TrustDocument {
    let slots = Slots::of(SigningKey::from_seed(&[1; 32]).public());
    let first = TrustDocument::first("test-1".parse().unwrap(), slots.clone(), slots);
    TrustDocument { certificate_authority: authority, ..first }
}

/// A node with a certificate that this CA issued then; by no CA that is recorded, where there is none.
fn node(issuer: Option<&Arc<Ca>>, issued: Timestamp) -> NodeState {
    let key = SigningKey::from_seed(&[2; 32]).public();
    let mut node = NodeState::new(key.node_id(), "web-1".parse().unwrap(), key, START);
    node.certificate = Some(CertificateValidity::starting(issued, 30 * DAY));
    node.issuer = issuer.map(|ca| CertificateIssuer::of(ca.key()));
    node
}

/// Of an older one there may be copies, with whoever saw the directory then.
#[test]
fn a_ca_that_was_made_is_found_again_for_an_hour() {
    let temp = tempfile::tempdir().unwrap();
    let (current, trust) = (ca("first"), trust(None));
    let authorities = NodeAuthorities::new(temp.path(), set(&current, None, None));
    let stage = |at: Timestamp| authorities.stage(&trust, at).unwrap();
    let made = stage(START);
    let path = temp.path().join(NEXT_CA);
    assert_eq!(staged_key(temp.path()).unwrap(), Some(made));
    let bundle = fs::read(&path).unwrap();
    let last = START.plus(STAGED_FOR).minus(Duration::from_secs(1));
    assert_eq!(stage(last), made, "the attempt before was cut off, say");
    assert_eq!(fs::read(&path).unwrap(), bundle);
    let anew = stage(START.plus(STAGED_FOR));
    assert_ne!(anew, made);
    assert_eq!(staged_key(temp.path()).unwrap(), Some(anew));
    // A clock that was set back keeps the one that is there.
    assert_eq!(stage(START), anew);
}

/// The key that nodes believe would be lost.
#[test]
fn one_that_is_believed_already_is_not_written_over() {
    let temp = tempfile::tempdir().unwrap();
    let current = ca("first");
    let authorities = NodeAuthorities::new(temp.path(), set(&current, None, None));
    let next = authorities.stage(&trust(None), START).unwrap();
    let believed = trust(Some(Slots { previous: Some(*current.key()), ..Slots::of(next) }));
    let bundle = fs::read(temp.path().join(NEXT_CA)).unwrap();
    let refused = authorities.stage(&believed, START.plus(30 * DAY));
    assert!(matches!(refused, Err(FoundError::AuthorityNotInPlace { .. })), "{refused:?}");
    assert_eq!(fs::read(temp.path().join(NEXT_CA)).unwrap(), bundle);
}

#[test]
fn a_key_is_enough_where_no_ca_that_counts_issued_the_certificate_or_too_early() {
    let (first, second, other) = (ca("first"), ca("second"), ca("other"));
    let (changing, alone) = (set(&second, Some(&first), None), set(&second, None, None));
    let at = |issuer| node(issuer, START.plus(DAY));
    // While both count.
    assert!(!changing.issued_before(&at(Some(&second))));
    assert!(!changing.issued_before(&at(Some(&first))));
    assert!(!changing.issued_before(&at(None)), "by the one that the fleet was founded with");
    assert!(changing.issued_before(&at(Some(&other))));
    // Once the one before counts no more.
    assert!(!alone.issued_before(&at(Some(&second))));
    assert!(alone.issued_before(&at(Some(&first))));
    assert!(alone.issued_before(&at(None)));
    // What was issued before a time counts no more, whichever CA issued it: by whole seconds.
    for issuer in [&first, &second] {
        let judged = |issued: Timestamp| {
            set(&second, Some(&first), Some(START.plus(DAY))).issued_before(&node(Some(issuer), issued))
        };
        assert!(judged(START.plus(DAY).minus(Duration::from_secs(1))));
        assert!(!judged(START.plus(DAY)));
        assert!(!judged(START.plus(2 * DAY)));
    }
    // Who joined through a proxy opens no session with a certificate.
    let mut behind_proxy = at(None);
    behind_proxy.certificate = None;
    assert!(!set(&second, None, Some(START.plus(DAY))).issued_before(&behind_proxy));
}
