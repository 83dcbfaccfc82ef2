//! SYN-9: what every backend keeps, checked on the folder and on the embedded store.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use backends::{ApplyRequest, Backend, Embedded, Expect};
use model::ObjectKey;

use crate::support::Stage;
use crate::support::conformance::{self, CHECKS, Subject, WATCH_CHECKS};

/// Nobody else changes what it holds: what a user would do comes through the backend.
#[derive(Default)]
struct Store(Embedded);

impl Subject for Store {
    fn backend(&mut self) -> &mut dyn Backend {
        &mut self.0
    }

    fn edit(&mut self, key: &ObjectKey, spec: &[u8]) {
        let apply = ApplyRequest { key, spec, source_uid: None, expect: Expect::Anything };
        self.0.apply(apply).unwrap();
    }

    fn erase(&mut self, key: &ObjectKey) {
        self.0.delete(key, &Expect::Anything).unwrap();
    }

    fn settle(&mut self) {}
}

#[test]
fn the_embedded_store() {
    for (name, check) in CHECKS {
        check(&mut Store::default()).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
    }
}

#[test]
fn the_folder() {
    for (name, check) in CHECKS.iter().chain(WATCH_CHECKS) {
        check(&mut Stage::new()).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
    }
}

#[test]
fn the_embedded_store_begins_with_what_was_kept() {
    let (key, spec) = (conformance::key("a"), conformance::spec("a", 1));
    let mut store = Embedded::default();
    store.restore(&key, Some("here-1".into()), Some("u-1"), spec.clone()).unwrap();
    let found = store.get(&key).unwrap().unwrap();
    assert_eq!((found.uid.as_deref(), found.source_uid.as_deref()), (Some("here-1"), Some("u-1")));
    assert_eq!(found.spec, spec);
    let apply = ApplyRequest { key: &key, spec: &spec, source_uid: Some("u-1"), expect: Expect::Anything };
    assert_eq!(store.apply(apply).unwrap().version, found.version, "versions outlive the process");
}
