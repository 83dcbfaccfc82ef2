//! The tests of this crate, as one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::disallowed_methods)]

mod bad_input_is_named;
mod fleet;
mod rehearsals_are_replayed;
mod rehearsals_keep_what_rollouts_promise;
mod reports_are_golden;
