//! Every test file of this crate in one program, which builds much faster than one each.
//! `cargo xtask tidy` finds a file that is missing here. One file: `cargo test -p resolve --test all FILE::`.

mod broken_tree_is_refused;
mod classification;
mod common;
mod declared_is_judged;
mod diagnostics;
mod documented_fleets_are_right;
mod each_node_gets_its_own_grants;
mod example_fleet;
mod explanations_name_every_layer;
mod idle_groups_are_named;
mod idle_patterns_are_named;
mod incremental_equals_full;
mod module_shared_by_digest;
mod no_input_panics;
mod notify_means_what_acts;
mod observed_traits_choose_no_role;
mod precedence;
mod recipients_follow_declared_keys;
mod release_holds_what_nodes_get;
mod release_is_incremental;
mod resource_type_examples;
mod rollouts_are_planned;
mod secrets_are_sealed_for_recipients;
mod words_of_other_tools;
