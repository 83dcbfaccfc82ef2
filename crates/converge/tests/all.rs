//! Every test file of this crate in one program, which builds much faster than one each.
//! `cargo xtask tidy` finds a file that is missing here. One file: `cargo test -p converge --test all FILE::`.

mod common;
mod failed_dependency_skips;
mod failed_generations_are_taken_back;
mod failures_are_tried_again;
mod guards_hold_a_resource_back;
mod loops_make_one_resource_per_item;
mod module_order;
mod muster_keeps_its_own;
mod notifications;
mod observe_touches_nothing;
mod on_remove;
mod one_file_has_one_writer;
mod own_things_change_their_kind;
mod partial_runs_leave_the_rest;
mod parts_keep_the_rest;
mod pending_survives_a_crash;
mod plan_predicts;
mod predicates_are_asked_on_the_node;
mod run_follows_the_model;
mod second_run_changes_nothing;
mod together_is_as_one_by_one;
mod verify_restores;
mod what_holds_a_secret_stays_secret;
mod what_is_managed_is_watched;
