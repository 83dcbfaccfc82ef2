//! `muster-agent`.
fn main() {}
