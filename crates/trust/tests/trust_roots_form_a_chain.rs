//! IDN-8: trust documents form one chain, each version signed by a root key of the one before. Whoever holds any
//! version comes to the newest, however the links are cut into answers; a link that is forged, removed, repeated or
//! out of order is never followed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{CREATED, key, trust};
use model::Timestamp;
use model::exchange::Signed;
use proptest::prelude::*;
use trust::chain::{
    self, ChainError, ChainHead, MAX_LINKS, MAX_VERSION, NextVersionError, SlotChange, SlotName,
    next_version, walk,
};
use trust::{KeyAlgorithm, SigningKey, Slots, TrustDocument};

/// A chain as its operators know it: the links, and the root key that signs what follows.
#[derive(Debug)]
struct Chain {
    heads: Vec<ChainHead>,
    links: Vec<Signed>,
    root: SigningKey,
    keys: u8,
}

impl Chain {
    fn new() -> Chain {
        Chain { heads: vec![ChainHead::of(trust())], links: Vec::new(), root: key(2), keys: 10 }
    }

    fn newest(&self) -> &ChainHead {
        self.heads.last().unwrap()
    }

    fn fresh_key(&mut self) -> SigningKey {
        self.keys += 1;
        let algorithm = KeyAlgorithm::ALL[usize::from(self.keys % 2)];
        SigningKey::from_secret(algorithm, &[self.keys; 32]).unwrap()
    }

    fn at(&self) -> Timestamp {
        CREATED.plus(std::time::Duration::from_secs(self.links.len() as u64))
    }

    fn add(&mut self, next: &TrustDocument) {
        let link = chain::sign(next, &self.root).unwrap();
        self.heads.push(self.newest().follow(&link).unwrap());
        self.links.push(link);
    }

    fn rotate(&mut self, slot: SlotName, drop_previous: bool) {
        let new = self.fresh_key();
        let change = match drop_previous {
            true => SlotChange::Replace(new.public()),
            false => SlotChange::Rotate(new.public()),
        };
        let next = next_version(self.newest(), slot, change, None, self.at()).unwrap();
        self.add(&next);
        if slot == SlotName::Root {
            self.root = new;
        }
    }
}

fn rotations() -> impl Strategy<Value = Chain> {
    let step = (any::<bool>(), any::<bool>());
    proptest::collection::vec(step, 1..12).prop_map(|steps| {
        let mut chain = Chain::new();
        for (is_root, drop_previous) in steps {
            chain.rotate(if is_root { SlotName::Root } else { SlotName::Release }, drop_previous);
        }
        chain
    })
}

/// Where somebody who holds a version comes to by answers of these sizes.
fn walked(held: &ChainHead, mut links: &[Signed], sizes: &[usize]) -> (ChainHead, Option<ChainError>) {
    let (mut head, mut stopped, mut sizes) = (held.clone(), None, sizes.iter().cycle());
    while !links.is_empty() {
        let (answer, rest) = links.split_at((*sizes.next().unwrap()).min(links.len()));
        let walk = walk(&head, answer);
        head = walk.head;
        stopped = stopped.or(walk.stopped);
        links = rest;
    }
    (head, stopped)
}

proptest! {
    #[test]
    fn any_version_leads_to_the_newest(
        chain in rotations(),
        from in any::<prop::sample::Index>(),
        sizes in proptest::collection::vec(1..5usize, 1..6),
    ) {
        let from = from.index(chain.heads.len());
        let (head, stopped) = walked(&chain.heads[from], &chain.links[from..], &sizes);
        prop_assert_eq!((&head, stopped), (chain.newest(), None));
    }

    #[test]
    fn no_damaged_link_is_followed(
        chain in rotations(),
        at in any::<prop::sample::Index>(),
        damage in 0..5u8,
        sizes in proptest::collection::vec(1..5usize, 1..6),
    ) {
        let at = at.index(chain.links.len());
        let mut links = chain.links.clone();
        match damage {
            // Signed by somebody else.
            0 => {
                let stranger = key(99);
                links[at] = chain::sign(&chain.heads[at + 1].document, &stranger).unwrap();
            }
            // Changed after it was signed.
            1 => links[at].payload = links[at].payload.replace("acme-1", "acme-2"),
            2 => drop(links.remove(at)),
            3 => links.insert(at, links[at].clone()),
            _ => links.swap(at, chain.links.len() - 1),
        }
        let (head, stopped) = walked(&chain.heads[0], &links, &sizes);
        prop_assert!(chain.heads.contains(&head), "it is of the one chain: {head:?}");
        match damage {
            0..=1 => prop_assert_eq!(&head, &chain.heads[at], "nothing behind it counts"),
            2 => prop_assert_eq!(&head, &chain.heads[at]),
            // What comes twice is refused, and what follows leads on from there in the next answer.
            3 => prop_assert!(stopped.is_some()),
            _ => prop_assert!(stopped.is_some() || at == chain.links.len() - 1),
        }
    }
}

fn signed_by(document: &TrustDocument, root: &SigningKey) -> Signed {
    chain::sign(document, root).unwrap()
}

/// Each mistake has its own code.
#[test]
fn each_refusal_has_a_code() {
    let mut chain = Chain::new();
    chain.rotate(SlotName::Release, false);
    let held = chain.newest().clone();
    let root = &chain.root;
    let next = next_version(
        &held,
        SlotName::Release,
        SlotChange::Rotate(key(40).public()),
        None,
        CREATED.plus(std::time::Duration::from_secs(9)),
    )
    .unwrap();
    let of = |change: fn(&mut TrustDocument)| {
        let mut document = next.clone();
        change(&mut document);
        signed_by(&document, root)
    };
    let far = |document: &mut TrustDocument| document.version = MAX_VERSION + 1;
    let cases: [(&str, Signed); 9] = [
        ("trust-forged", signed_by(&next, &key(99))),
        ("trust-forged", Signed { signatures: vec![], ..signed_by(&next, root) }),
        ("trust-gap", of(|document| document.version += 1)),
        ("trust-older", of(|document| document.version = 2)),
        ("trust-forked", of(|document| document.previous = Some(model::Digest::of(b"another")))),
        ("trust-other-fleet", of(|document| document.fleet = "acme-2".parse().unwrap())),
        ("trust-too-long", of(far)),
        ("trust-malformed", of(|document| document.release.previous = Some(document.release.current))),
        ("trust-malformed", of(|document| document.created = None)),
    ];
    for (code, link) in cases {
        let walk = walk(&held, std::slice::from_ref(&link));
        assert_eq!(walk.stopped.as_ref().map(ChainError::code), Some(code));
        assert_eq!((walk.head, walk.followed), (held.clone(), 0), "{code}");
    }
    let good = signed_by(&next, root);
    assert_eq!(walk(&held, std::slice::from_ref(&good)).stopped, None);
    let many = vec![good.clone(); MAX_LINKS + 1];
    assert_eq!(walk(&held, &many).stopped, Some(ChainError::TooLong));
    assert_eq!(walk(&held, &many).followed, 0);
    // As many as there may be are walked, and the last version there may be is followed.
    assert_eq!(walk(&held, &many[1..]).followed, 1);
    let mut before_last = held.clone();
    before_last.document.version = MAX_VERSION - 1;
    let last = of(|document| document.version = MAX_VERSION);
    assert_eq!(walk(&before_last, &[last]).stopped, None);
    // A signed document of another sort is none.
    let header = common::signed(&common::header(1));
    assert_eq!(walk(&held, &[header]).stopped.map(|error| error.code()), Some("trust-forged"));
}

/// What the root keys signed before a time is refused from the version on that says so.
#[test]
fn what_is_rejected_leads_nowhere() {
    let mut chain = Chain::new();
    let (old_root, at) = (key(2), chain.at());
    let new = chain.fresh_key();
    let rotate = SlotChange::Rotate(new.public());
    let next = next_version(chain.newest(), SlotName::Root, rotate, Some(at), at).unwrap();
    chain.add(&next);
    let held = chain.newest().clone();
    let mut stolen =
        next_version(&held, SlotName::Release, SlotChange::Rotate(key(41).public()), None, at).unwrap();
    stolen.created = Some(at.minus(std::time::Duration::from_secs(1)));
    let walk = walk(&held, &[signed_by(&stolen, &old_root)]);
    assert_eq!(walk.stopped.map(|error| error.code()), Some("trust-rejected"));
    // It stays so in what follows.
    let later = next_version(&held, SlotName::Root, SlotChange::Replace(key(42).public()), None, at).unwrap();
    assert_eq!(later.root.reject_before, Some(at));
    let future = Some(at.plus(std::time::Duration::from_secs(1)));
    let refused = next_version(&held, SlotName::Root, SlotChange::Retire, future, at).unwrap_err();
    assert!(matches!(refused, NextVersionError::RejectsFuture(_)), "{refused}");
}

/// A chain that begins anew is followed by who has other cause to believe it, and by nobody else.
#[test]
fn a_root_of_its_own_word_is_not_followed() {
    let mut chain = Chain::new();
    chain.rotate(SlotName::Root, false);
    let held = chain.newest().clone();
    let new = key(50);
    let replace = SlotChange::Replace(new.public());
    let next = next_version(&held, SlotName::Root, replace, None, chain.at()).unwrap();
    let link = signed_by(&next, &new);
    assert!(matches!(held.follow(&link), Err(ChainError::Forged { held: 2 })));
    assert_eq!(held.begin_anew(&link).unwrap().document, next);
    assert!(held.begin_anew(&signed_by(&next, &key(51))).is_err(), "not even its own root signed it");
    let other = TrustDocument { version: 9, ..next };
    assert!(matches!(held.begin_anew(&signed_by(&other, &new)), Err(ChainError::Gap { .. })));
}

#[test]
fn mistakes_of_operators_make_no_version() {
    let mut chain = Chain::new();
    let first = chain.newest().clone();
    let next = |head: &ChainHead, slot, change| next_version(head, slot, change, None, CREATED);
    let (release, root) = (first.document.release.current, first.document.root.current);
    let same = next(&first, SlotName::Release, SlotChange::Rotate(release)).unwrap_err();
    assert!(matches!(same, NextVersionError::SameKey(_)), "{same}");
    let other = next(&first, SlotName::Release, SlotChange::Rotate(root)).unwrap_err();
    assert!(matches!(other, NextVersionError::OtherUse { of: "root", .. }), "{other}");
    let none = next(&first, SlotName::Root, SlotChange::Retire).unwrap_err();
    assert!(matches!(none, NextVersionError::NoPrevious("root")), "{none}");
    chain.rotate(SlotName::Root, false);
    let retired = next(chain.newest(), SlotName::Root, SlotChange::Retire).unwrap();
    assert_eq!(retired.root, Slots::of(chain.root.public()));
    // Back to the key before is a change as any other.
    let back = next(chain.newest(), SlotName::Root, SlotChange::Rotate(root)).unwrap();
    assert_eq!((back.root.current, back.root.previous), (root, Some(chain.root.public())));
    let mut longest = first;
    longest.document.version = MAX_VERSION;
    assert!(matches!(
        next(&longest, SlotName::Root, SlotChange::Rotate(key(60).public())),
        Err(NextVersionError::TooLong)
    ));
}

/// The beacon key rotates as the others do; a fleet without one gets it so, and one key has one use.
#[test]
fn a_beacon_key_comes_changes_and_is_no_other_key() {
    let mut chain = Chain::new();
    let next = |head: &ChainHead, slot, change| next_version(head, slot, change, None, CREATED);
    assert_eq!(chain.newest().document.beacon, None);
    let none = next(chain.newest(), SlotName::Beacon, SlotChange::Retire).unwrap_err();
    assert!(matches!(none, NextVersionError::NoPrevious("beacon")), "{none}");
    chain.rotate(SlotName::Beacon, false);
    let first = chain.newest().document.beacon.clone().unwrap();
    assert_eq!(first.previous, None);
    chain.rotate(SlotName::Beacon, false);
    let second = chain.newest().document.beacon.clone().unwrap();
    assert_eq!(second.previous, Some(first.current));
    chain.rotate(SlotName::Beacon, true);
    assert_eq!(chain.newest().document.beacon.as_ref().unwrap().previous, None, "a stolen one is dropped");
    let beacon = chain.newest().document.beacon.as_ref().unwrap().current;
    for slot in [SlotName::Release, SlotName::Root] {
        let other = next(chain.newest(), slot, SlotChange::Rotate(beacon)).unwrap_err();
        assert!(matches!(other, NextVersionError::OtherUse { of: "beacon", .. }), "{other}");
    }
    // Whoever signs such a version by other means finds nobody who follows it.
    let held = chain.newest().clone();
    let mut both = next(&held, SlotName::Release, SlotChange::Rotate(key(90).public())).unwrap();
    both.release.previous = Some(beacon);
    let stopped = held.follow(&chain::sign(&both, &chain.root).unwrap()).unwrap_err();
    assert!(matches!(stopped, ChainError::Malformed { .. }), "{stopped:?}");
}

/// Fields that a reader does not know belong to the bytes that were signed: its digest is that of the bytes.
#[test]
fn fields_of_later_versions_break_no_chain() {
    let chain = Chain::new();
    let next =
        next_version(chain.newest(), SlotName::Release, SlotChange::Rotate(key(70).public()), None, CREATED)
            .unwrap();
    let mut value = serde_json::to_value(&next).unwrap();
    value["beforeUnknown"] = "x".into();
    let payload = String::from_utf8(model::canonical::to_bytes(&value).unwrap()).unwrap();
    let message = trust::signed::message("trust-document", payload.as_bytes());
    let sig = data_encoding::BASE64.encode(&chain.root.sign(&message));
    let link = Signed {
        payload,
        signatures: vec![model::exchange::Signature { key: chain.root.public().id(), sig }],
    };
    let head = chain.newest().follow(&link).unwrap();
    let after = next_version(&head, SlotName::Release, SlotChange::Retire, None, CREATED).unwrap();
    assert_eq!(after.previous, Some(trust::signed::digest(&link)));
    assert_eq!(ChainHead::read(&link).unwrap(), head);
    head.follow(&signed_by(&after, &chain.root)).unwrap();
}

/// IDN-8: once a version names CAs, every later one does: who takes the slot away would have nodes believe the CA again that
/// they joined with.
#[test]
fn a_version_does_not_take_the_certificate_authority_away() {
    let mut chain = Chain::new();
    assert_eq!(chain.newest().held().authority, None);
    // The first that names them names the one of before too.
    let (before, next) = (chain.fresh_key().public(), chain.fresh_key().public());
    let mut head = chain.newest().clone();
    head.document.certificate_authority = Some(Slots::of(before));
    let slot = SlotName::CertificateAuthority;
    let version = next_version(&head, slot, SlotChange::Rotate(next), None, CREATED).unwrap();
    assert_eq!(version.certificate_authority.as_ref().unwrap().keys().collect::<Vec<_>>(), [&next, &before]);
    chain.add(&version);
    assert_eq!(chain.newest().held().authority, Some(next.id()));
    // A program of before that makes the next version.
    let release = chain.fresh_key().public();
    let change = SlotChange::Rotate(release);
    let mut without = next_version(chain.newest(), SlotName::Release, change, None, CREATED).unwrap();
    without.certificate_authority = None;
    let link = chain::sign(&without, &chain.root).unwrap();
    assert!(matches!(chain.newest().follow(&link), Err(ChainError::Malformed { held: 2, .. })));
    chain.rotate(SlotName::Release, false);
    let retired = next_version(chain.newest(), slot, SlotChange::Retire, None, CREATED).unwrap();
    chain.add(&retired);
    assert_eq!(chain.newest().document.certificate_authority, Some(Slots::of(next)));
    let other = next_version(chain.newest(), SlotName::Beacon, SlotChange::Rotate(next), None, CREATED);
    assert!(matches!(other, Err(NextVersionError::OtherUse { of: "certificate-authority", .. })));
}
