//! EXE-1: docs/reference/resource-types.md is the schema table.
//!
//! `MUSTER_BLESS=1 cargo test -p catalog --test resource_types_reference` writes it anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::path::Path;

use catalog::schema;

#[test]
fn the_reference_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/resource-types.md");
    if std::env::var_os("MUSTER_BLESS").is_some() {
        std::fs::write(&path, schema::markdown()).unwrap();
    }
    let file = std::fs::read_to_string(&path).unwrap();
    assert!(file == schema::markdown(), "write it anew with MUSTER_BLESS=1");
}

#[test]
fn names_are_unique() {
    for kind in catalog::types::TYPES {
        let mut seen = std::collections::BTreeSet::new();
        for attribute in kind.attributes {
            assert!(seen.insert(attribute.name), "{}.{} stands twice", kind.name, attribute.name);
            let common = schema::COMMON.iter().any(|(name, _, _)| *name == attribute.name);
            assert!(!common, "{}.{} is a key of every resource", kind.name, attribute.name);
        }
        assert!(!schema::LATER_TYPES.contains(&kind.name));
        assert!(!kind.on_remove.is_empty());
    }
}
