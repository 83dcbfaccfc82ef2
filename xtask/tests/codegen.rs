//! WIR-5: the committed code is what the protobuf files say.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use xtask::{codegen, root};

#[test]
fn generated_code_is_current() {
    let made = codegen::generate(&root()).unwrap();
    assert!(made.len() >= 4, "{:?}", made.keys());
    for (path, bytes) in made {
        let found = std::fs::read(root().join(&path)).unwrap_or_default();
        assert!(found == bytes, "{} is not current: run `cargo xtask codegen`", path.display());
    }
}
