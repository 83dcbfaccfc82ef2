//! SYN-5: managed, the source decides and users' own objects are left alone; autonomous, what
//! is found goes up, and a mass that vanishes is held.

use std::collections::BTreeMap;

use backends::reconcile::{self, Correction, Guard, HoldReason, LastApplied};
use backends::{FoundObject, Listing, ListingProblem};
use bytes::Bytes;
use model::{ObjectKey, Stub};

fn key(name: &str) -> ObjectKey {
    ObjectKey::of("App", name)
}

fn stub(uid: &str, content: &str) -> Stub {
    Stub { uid: uid.into(), ..Stub::of(content.as_bytes()) }
}

fn found(name: &str, version: &str, source: Option<&str>) -> FoundObject {
    FoundObject {
        key: key(name),
        uid: None,
        version: version.into(),
        spec: Bytes::copy_from_slice(version.as_bytes()),
        status: None,
        source_uid: source.map(str::to_owned),
        deleting: false,
    }
}

/// Wanted digest and uid; what was applied last as digest, uid and version; what is found.
struct Case {
    says: &'static str,
    wanted: Option<(&'static str, &'static str)>,
    applied: Option<(&'static str, &'static str, &'static str)>,
    found: Option<FoundObject>,
    complete: bool,
    same: bool,
    expect: Option<Correction>,
}

fn case(says: &'static str) -> Case {
    Case { says, wanted: None, applied: None, found: None, complete: true, same: false, expect: None }
}

#[test]
fn managed() {
    let wanted = Some(("d1", "u1"));
    let applied = Some(("d1", "u1", "v1"));
    let ours = |version| Some(found("a", version, Some("u1")));
    let going = |source| Some(FoundObject { deleting: true, ..found("a", "v1", source) });
    for case in [
        Case { wanted, expect: Some(Correction::Apply), ..case("never put") },
        Case { wanted, complete: false, ..case("never put, and perhaps there") },
        Case { wanted, applied, found: ours("v1"), ..case("as it was put") },
        Case { wanted, applied, found: ours("v2"), expect: Some(Correction::Revert), ..case("edited") },
        Case {
            wanted,
            applied,
            found: ours("v2"),
            same: true,
            expect: Some(Correction::Record),
            ..case("defaulted")
        },
        Case { wanted, applied, expect: Some(Correction::Recreate), ..case("deleted") },
        Case { wanted, applied, complete: false, ..case("not seen") },
        Case {
            wanted: Some(("d2", "u1")),
            applied,
            found: ours("v1"),
            expect: Some(Correction::Apply),
            ..case("changed at the source")
        },
        Case {
            wanted,
            found: ours("v1"),
            same: true,
            expect: Some(Correction::Record),
            ..case("put, but the record was lost")
        },
        Case {
            wanted,
            found: ours("v9"),
            expect: Some(Correction::Apply),
            ..case("put and edited, the record lost")
        },
        Case {
            wanted: Some(("d1", "u2")),
            applied,
            found: ours("v1"),
            expect: Some(Correction::OtherUid),
            ..case("another life at the source")
        },
        Case {
            wanted,
            found: Some(found("a", "v1", None)),
            expect: Some(Correction::Adopt),
            ..case("a user's own under the name")
        },
        Case {
            wanted,
            applied,
            found: Some(found("a", "v2", None)),
            expect: Some(Correction::Revert),
            ..case("the mark edited away")
        },
        Case { found: ours("v1"), expect: Some(Correction::Remove), ..case("gone at the source") },
        Case {
            applied,
            found: ours("v2"),
            expect: Some(Correction::Remove),
            ..case("gone at the source and edited")
        },
        Case {
            found: ours("v1"),
            complete: false,
            expect: Some(Correction::Remove),
            ..case("gone, the rest not seen")
        },
        Case { found: Some(found("a", "v1", None)), ..case("a user's own") },
        Case { applied, ..case("gone on both sides") },
        Case { wanted, applied, found: going(Some("u1")), ..case("going, wanted again") },
        Case { found: going(Some("u1")), ..case("going, and meant to") },
    ] {
        let wanted = case.wanted.map(|(content, uid)| (key("a"), stub(uid, content)));
        let applied = case.applied.map(|(content, uid, version)| {
            (key("a"), LastApplied { stub: stub(uid, content), version: version.into() })
        });
        let listing = Listing {
            objects: case.found.into_iter().collect(),
            problems: Vec::new(),
            complete: case.complete,
        };
        let got = reconcile::managed(
            &wanted.into_iter().collect(),
            &applied.into_iter().collect(),
            &listing,
            |_| case.same,
        );
        let expected: BTreeMap<_, _> =
            case.expect.map(|correction| (key("a"), correction)).into_iter().collect();
        assert_eq!(got, expected, "{}", case.says);
    }
}

#[test]
fn a_damaged_manifest_of_the_source_is_put_again() {
    let wanted = BTreeMap::from([(key("a"), stub("u1", "d1"))]);
    let last = LastApplied { stub: stub("u1", "d1"), version: "v1".into() };
    let problem = ListingProblem {
        path: "a.yaml".into(),
        line: None,
        code: "not-yaml",
        message: String::new(),
        kept: vec![key("a"), key("mine")],
    };
    let objects = vec![found("a", "v1", Some("u1")), found("mine", "v1", None)];
    let listing = Listing { objects, problems: vec![problem], complete: true };
    let got = reconcile::managed(&wanted, &BTreeMap::from([(key("a"), last)]), &listing, |_| true);
    assert_eq!(got, BTreeMap::from([(key("a"), Correction::Revert)]));
}

fn feed(count: usize) -> BTreeMap<ObjectKey, Stub> {
    let fed = |n: usize| (key(&format!("n{n:03}")), stub("u", "v"));
    (0..count).map(fed).collect()
}

fn there(feed: &BTreeMap<ObjectKey, Stub>, skip: usize, complete: bool) -> Listing {
    let objects = feed.keys().skip(skip).map(|key| found(&key.name, "v", None)).collect();
    Listing { objects, problems: Vec::new(), complete }
}

const GUARD: Guard = Guard { max_delete_percent: 25, confirmed: false, unseen: false };

#[test]
fn autonomous_takes_what_is_found() {
    let feed = feed(4);
    let mut listing = there(&feed, 0, true);
    assert_eq!(reconcile::autonomous(&feed, &listing, GUARD), Default::default());
    listing.objects[0] = found("n000", "edited", None);
    listing.objects[1].uid = Some("another".into());
    listing.objects[2].uid = Some("u".into());
    listing.objects.push(found("new", "v", None));
    let changes = reconcile::autonomous(&feed, &listing, GUARD);
    assert_eq!(changes.put, [key("n000"), key("n001"), key("new")].into());
    assert!(changes.remove.is_empty() && changes.held.is_none());
}

#[test]
fn a_mass_that_vanishes_is_held() {
    for (of, vanished, held) in [
        (4, 1, false),
        (2, 2, false),
        (4, 3, true),
        (3, 3, true),
        (12, 3, false),
        (11, 3, true),
        (100, 25, false),
        (100, 26, true),
        (100, 100, true),
    ] {
        let feed = feed(of);
        let listing = there(&feed, vanished, true);
        let changes = reconcile::autonomous(&feed, &listing, GUARD);
        assert_eq!(changes.held.is_some(), held, "{vanished} of {of}");
        assert_eq!(changes.remove.len(), if held { 0 } else { vanished });
        if let Some(held) = changes.held {
            assert_eq!((held.keys.len(), held.why), (vanished, HoldReason::TooMany { of }));
        }
        let confirmed = Guard { confirmed: true, ..GUARD };
        assert_eq!(reconcile::autonomous(&feed, &listing, confirmed).remove.len(), vanished);
    }
    // An empty place that was never seen otherwise may be another one, however little was there.
    let unseen = Guard { unseen: true, ..GUARD };
    for (vanished, held) in [(1, false), (2, true)] {
        let feed = feed(2);
        let changes = reconcile::autonomous(&feed, &there(&feed, vanished, true), unseen);
        assert_eq!(changes.held.is_some(), held, "{vanished} of 2");
    }
    let feed = feed(10);
    let listing = there(&feed, 1, false);
    let held = reconcile::autonomous(&feed, &listing, Guard { confirmed: true, ..GUARD }).held.unwrap();
    assert_eq!(
        (held.keys.len(), held.why),
        (1, HoldReason::Incomplete),
        "no word of an operator makes it seen"
    );
}
