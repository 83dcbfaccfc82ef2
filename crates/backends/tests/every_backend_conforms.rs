//! SYN-9: what every backend keeps, checked on the folder and on the embedded store.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use backends::conformance::{CHECKS, Subject};
use backends::{Apply, Backend, Embedded, Expect, Precondition};
use model::ObjectKey;

struct Store(Embedded);

impl Subject for Store {
    fn backend(&mut self) -> &mut dyn Backend {
        &mut self.0
    }

    fn edit(&mut self, key: &ObjectKey, spec: &[u8]) {
        let apply = Apply { key, spec, source_uid: None, expect: Expect::Anything };
        self.0.local().apply(apply).unwrap();
    }

    fn erase(&mut self, key: &ObjectKey) {
        self.0.local().delete(key, &Precondition::default()).unwrap();
    }

    fn settle(&mut self) {}
}

#[test]
fn the_embedded_store() {
    for (name, check) in CHECKS {
        let mut subject = Store(Embedded::new([]).unwrap());
        check(&mut subject).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
    }
}

#[test]
fn the_folder() {
    for (name, check) in CHECKS {
        let mut subject = crate::support::Stage::new();
        check(&mut subject).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
    }
}

#[test]
fn the_embedded_store_begins_with_what_was_kept() {
    let key = backends::conformance::key("a");
    let kept = backends::StoredObject {
        key: key.clone(),
        uid: Some("here-1".into()),
        source_uid: Some("u-1".into()),
        spec: backends::conformance::spec("a", 1),
        status: None,
    };
    let mut store = Embedded::new([kept.clone()]).unwrap();
    let found = store.get(&key).unwrap().unwrap();
    assert_eq!((found.uid, found.source_uid, found.spec), (kept.uid, kept.source_uid, kept.spec.clone()));
    let apply = Apply { key: &key, spec: &kept.spec, source_uid: Some("u-1"), expect: Expect::Anything };
    assert_eq!(store.apply(apply).unwrap().version, found.version, "versions outlive the process");
}
