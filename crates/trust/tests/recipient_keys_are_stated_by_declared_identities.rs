//! SEC-1, CFG-8: what a node signs makes its sealing key a recipient where the fleet repo declares the identity that
//! signed, and a control plane that relays something else makes nobody one.
#![allow(clippy::unwrap_used)]

use model::exchange::Signed;
use model::{FleetId, Hostname, Timestamp};
use trust::sealing::{RelayedStatement, SealingStatement, SealingStatementError};
use trust::signed::VerifyError;
use trust::{KeyAlgorithm, PublicKey, RecipientKey, SealingKey, SigningKey};

/// A point of small order, as a recipient.
const WEAK: &str = "age1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq5cu47z";
const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

fn fleet(name: &str) -> FleetId {
    name.parse().unwrap()
}

fn host(name: &str) -> Hostname {
    name.parse().unwrap()
}

fn identities(of: u8) -> [SigningKey; 2] {
    [SigningKey::from_seed(&[of; 32]), SigningKey::from_secret(KeyAlgorithm::EcdsaP256, &[of; 32]).unwrap()]
}

fn sealing(of: u8) -> RecipientKey {
    SealingKey::from_secret(&[of; 32]).unwrap().public()
}

fn stated(identity: &SigningKey, hostname: &str, recipient: RecipientKey) -> Signed {
    let (fleet, hostname) = (fleet("acme-1"), host(hostname));
    SealingStatement { fleet, hostname, recipient, at: AT }.sign(identity).unwrap()
}

/// What a control plane relays of web-1 comes to, where the fleet repo declares the key `declared` for it.
fn taken(
    identity: PublicKey,
    statement: Signed,
    declared: &PublicKey,
) -> Result<RecipientKey, SealingStatementError> {
    let relayed = RelayedStatement { hostname: host("web-1"), identity, statement };
    relayed.recipient(&fleet("acme-1"), &host("web-1"), &declared.fingerprint())
}

#[test]
fn the_declared_identity_says_its_sealing_key() {
    for identity in identities(1) {
        let public = identity.public();
        assert_eq!(
            taken(public, stated(&identity, "web-1", sealing(5)), &public),
            Ok(sealing(5)),
            "{public}"
        );
    }
}

/// The control plane holds every statement that was ever made, and keys of its own.
#[test]
fn what_a_control_plane_relays_instead_makes_nobody_a_recipient() {
    for (own, other) in identities(1).into_iter().zip(identities(2)) {
        let (declared, statement) = (own.public(), stated(&own, "web-1", sealing(5)));
        let other_identity = || Err(SealingStatementError::OtherIdentity(other.public().fingerprint()));
        // One of its own, under its own identity, and under the one that is declared.
        let forged = stated(&other, "web-1", sealing(9));
        assert_eq!(taken(other.public(), forged.clone(), &declared), other_identity());
        assert_eq!(taken(declared, forged, &declared), Err(VerifyError::Untrusted.into()));
        // The host that had the name before, as long as nodes.yaml declares another key since.
        let before = Err(SealingStatementError::OtherIdentity(declared.fingerprint()));
        assert_eq!(taken(declared, statement.clone(), &other.public()), before);
        // Another host's, whose identity is declared of both by mistake: wraps are bound to the name.
        let elsewhere = stated(&own, "web-2", sealing(5));
        assert_eq!(
            taken(declared, elsewhere, &declared),
            Err(SealingStatementError::OtherHost(host("web-2")))
        );
        // One byte of it is another.
        let payload = statement.payload.replace("web-1", "web-l");
        let changed = Signed { payload, ..statement.clone() };
        assert_eq!(taken(declared, changed, &declared), Err(VerifyError::Untrusted.into()));
        // Another fleet's.
        let relayed = RelayedStatement { hostname: host("web-1"), identity: declared, statement };
        let of_other_fleet = relayed.recipient(&fleet("acme-2"), &host("web-1"), &declared.fingerprint());
        assert_eq!(of_other_fleet, Err(SealingStatementError::OtherFleet(fleet("acme-1"))));
    }
}

/// A document of another type under the same key is no statement.
#[test]
fn what_the_identity_signed_for_something_else_is_no_statement() {
    let [identity, _] = identities(1);
    let seen = trust::seen::Seen {
        node: identity.public().node_id(),
        header: model::Digest::ZERO,
        seq: 1,
        log_head: model::log::Cursor { incarnation: "n1".parse().unwrap(), seq: 0 },
        at: AT,
        acked: None,
    };
    let statement = seen.sign(&identity).unwrap();
    assert_eq!(taken(identity.public(), statement, &identity.public()), Err(VerifyError::Untrusted.into()));
}

/// A broken node must not end everybody's publish: nothing can be sealed for a point of small order.
#[test]
fn a_key_that_nothing_can_be_sealed_for_is_refused() {
    let [identity, _] = identities(1);
    let weak: RecipientKey = WEAK.parse().unwrap();
    let refused = taken(identity.public(), stated(&identity, "web-1", weak), &identity.public());
    assert_eq!(refused, Err(SealingStatementError::WeakKey(weak)));
    assert!(sealing(5).is_usable());
}
