//! Issue 2, DLT-3: a module is one object, shared by digest, however many nodes use it;
//! what a node adds is small.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use crate::common::{fleet_with, right, with};
use model::{Digest, canonical};

#[test]
fn one_copy_for_all_nodes() {
    let entries: String = (0..500)
        .map(|n| format!("  - match: [n{n}.t]\n    roles: [app]\n    vars: {{app.x: v{n}}}\n"))
        .collect();
    let body = "long\n".repeat(2000);
    let tree = with(
        fleet_with("  x: y\n"),
        [
            ("nodes.yaml", &*format!("nodes:\n{entries}")),
            ("modules/app/templates/big.j2", &*body),
            ("modules/app/files/data.bin", "bytes"),
        ],
    );
    let fleet = right(&tree);
    let all = fleet.specialize();
    let app = &all.modules["app"];
    assert_eq!(app.digest, Digest::of(&app.bytes));
    let read: catalog::module::Module = canonical::parse_canonical(&app.bytes).unwrap();
    assert_eq!(read, app.module);
    assert_eq!(read.files["files/data.bin"].digest, Digest::of(b"bytes"));
    assert_eq!(&*all.blobs[&Digest::of(b"bytes")], b"bytes");
    assert_eq!(all.exact.size(), 500);
    let first = all.exact.values().next().unwrap();
    for spec in all.exact.values() {
        assert!(Arc::ptr_eq(&spec.modules, &first.modules), "the list of modules is shared");
        assert!(Arc::ptr_eq(&spec.channel, &first.channel));
        assert!(spec.params.len() < 200, "{} bytes", spec.params.len());
        assert_eq!(canonical::to_bytes(&spec.read_params().unwrap()).unwrap(), *spec.params);
    }
}

#[test]
fn a_digest_follows_the_content_and_nothing_else() {
    let plain = fleet_with("  x: y\n");
    let digest = |files: &[(&str, &str)]| {
        right(&with(plain.clone(), files.iter().copied())).specialize().modules["app"].digest
    };
    let base = digest(&[]);
    assert_eq!(base, digest(&[("modules/app/module.yaml", "# a comment\nparams: {x: \"y\"}\n")]));
    assert_eq!(base, digest(&[("modules/app/README.md", "text")]));
    assert_ne!(base, digest(&[("modules/app/files/a", "text")]));
    assert_ne!(base, digest(&[("modules/app/templates/a", "text")]));
    assert_ne!(digest(&[("modules/app/files/a", "text")]), digest(&[("modules/app/files/a", "other")]));
}
