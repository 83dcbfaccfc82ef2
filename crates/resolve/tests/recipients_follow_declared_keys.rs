//! SEC-1, CFG-8: whose recipient key its own signature says: a host whose key the fleet repo declares, and that the repo
//! neither names a recipient key of nor revokes. What a control plane relays otherwise makes nobody a recipient.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::{FleetId, Hostname, Timestamp};
use resolve::Fleet;
use resolve::secrets::{AwaitedStatements, SecretNeeds, StatedRecipients};
use trust::sealing::{RelayedStatement, SealingStatement, SealingStatementError};
use trust::{RecipientKey, SealingKey, SigningKey};

use super::common::{fleet_with, right, with};

const USES: &str = "  key: {type: secret, default: \"secret:a/b\"}\nresources:\n  - file: /etc/key\n    content: ${{ params.key }}\n";
const SOURCES: &str = "format: 1\nname: t\nchannels: {stable: {freshness: 24h}}\ndefaults: {channel: stable}\n\
                       secrets: {sources: {files: {age: secrets/}}}\n";

fn id() -> FleetId {
    "t-1".parse().unwrap()
}

fn host(name: &str) -> Hostname {
    name.parse().unwrap()
}

fn identity(of: u8) -> SigningKey {
    SigningKey::from_seed(&[of; 32])
}

fn sealing(of: u8) -> RecipientKey {
    SealingKey::from_secret(&[of; 32]).unwrap().public()
}

/// What the identity `of` signs for the sealing key of the same number, relayed as that of a host.
fn relayed(hostname: &str, of: u8) -> RelayedStatement {
    let identity = identity(of);
    let (recipient, at) = (sealing(of), Timestamp::from_secs(1_800_000_000));
    let stated = SealingStatement { fleet: id(), hostname: host(hostname), recipient, at };
    RelayedStatement {
        hostname: host(hostname),
        identity: identity.public(),
        statement: stated.sign(&identity).unwrap(),
    }
}

/// A fleet whose nodes.yaml has these entries, beside other files.
fn fleet(nodes: &[(&str, Option<u8>)], files: &[(&str, &str)]) -> Fleet {
    let entry = |(name, key): &(&str, Option<u8>)| {
        let key = key.map(|of| format!("    key: {}\n", identity(of).public().fingerprint()));
        format!("  - match: [\"{name}\"]\n    roles: [app]\n{}", key.unwrap_or_default())
    };
    let nodes = format!("nodes:\n{}", nodes.iter().map(entry).collect::<String>());
    let tree = with(fleet_with(USES), [("nodes.yaml", &*nodes), ("fleet.yaml", SOURCES)]);
    right(&with(tree, files.iter().copied()))
}

fn awaited(fleet: &Fleet) -> AwaitedStatements {
    AwaitedStatements::needing(fleet, &SecretNeeds::of(fleet.specialize()))
}

fn names(awaited: &AwaitedStatements) -> Vec<&str> {
    awaited.nodes().map(Hostname::as_str).collect()
}

#[test]
fn hosts_with_a_declared_key_and_nothing_else_are_awaited() {
    let fleet = fleet(
        &[
            ("a.t", Some(1)),
            ("b.t", Some(2)),
            ("c.t", Some(3)),
            ("d.t", None),
            ("e.t", Some(5)),
            ("h.*", None),
        ],
        &[
            ("recipients.yaml", &format!("recipients:\n  b.t: {}\n", sealing(9))),
            (
                "revocations.yaml",
                "revocations:\n  - {host: c.t, not_before: 2026-01-01T00:00:00Z, why: stolen}\n",
            ),
            ("hosts/h.t.yaml", &format!("roles: [app]\nkey: {}\n", identity(6).public().fingerprint())),
            // It needs no secret.
            ("hosts/e.t.yaml", "roles: []\n"),
        ],
    );
    assert_eq!(names(&awaited(&fleet)), ["a.t", "h.t"]);
    assert_eq!(names(&AwaitedStatements::all(&fleet)), ["a.t", "e.t", "h.t"]);
    let none = SecretNeeds::default();
    assert!(AwaitedStatements::needing(&fleet, &none).is_empty(), "nobody is asked where nothing is sealed");
}

#[test]
fn what_is_signed_by_the_declared_key_is_taken_and_nothing_else() {
    let fleet = fleet(&[("a.t", Some(1)), ("b.t", Some(2)), ("d.t", None)], &[]);
    let awaited = awaited(&fleet);
    let own = awaited.take(&id(), &[relayed("a.t", 1), relayed("b.t", 2)]);
    let keys = [("a.t".into(), sealing(1)), ("b.t".into(), sealing(2))].into();
    assert_eq!(own, StatedRecipients { keys, refused: Default::default() });

    // Of a host without a declared key nothing is taken, whatever it signed.
    assert_eq!(awaited.take(&id(), &[relayed("d.t", 4)]), StatedRecipients::default());
    // A key of the control plane's own, and another host's statement under this name.
    let moved = RelayedStatement { hostname: host("a.t"), ..relayed("b.t", 2) };
    for lie in [relayed("a.t", 7), moved] {
        let taken = awaited.take(&id(), &[lie]);
        assert!(taken.keys.is_empty(), "{taken:?}");
        assert!(matches!(taken.refused[&host("a.t")], SealingStatementError::OtherIdentity(_)), "{taken:?}");
    }
}

/// The host of a name was replaced: what the one before signed is a good statement, and counts no more.
#[test]
fn a_statement_of_the_host_before_is_refused() {
    let before = relayed("a.t", 1);
    let first = fleet(&[("a.t", Some(1))], &[]);
    assert_eq!(awaited(&first).take(&id(), [&before]).keys.len(), 1);
    let replaced = fleet(&[("a.t", Some(2))], &[]);
    let taken = awaited(&replaced).take(&id(), [&before]);
    assert!(taken.keys.is_empty() && taken.refused.len() == 1, "{taken:?}");
    let revocation = "revocations:\n  - {host: a.t, not_before: 2020-01-01T00:00:00Z}\n";
    let revoked = fleet(&[("a.t", Some(1))], &[("revocations.yaml", revocation)]);
    assert_eq!(awaited(&revoked).take(&id(), [&before]), StatedRecipients::default());
}
