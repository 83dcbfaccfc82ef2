//! The layers and the rules of core crates, held by a test (ARCHITECTURE.md, "Invariants").

#[test]
fn the_house_is_tidy() {
    if let Err(wrong) = xtask::tidy::check(&xtask::root()) {
        panic!("\n{wrong}\n");
    }
}
