//! Tests on booted hosts in one program: `cargo xtask booted`, or one file with
//! `cargo xtask booted FILE::`. `test_support::booted` says how such a test is written.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod hosts_are_real_machines;
