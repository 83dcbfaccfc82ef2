//! The tests of this crate, as one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::disallowed_methods)]

mod a_node_is_on_its_way_in_one_rollout;
mod confirmed_nodes_stay_once_it_was_through;
mod contacts_are_spread;
mod events_go_with_the_state_of_their_node;
mod events_take_effect_once;
mod first_releases_go_nowhere_back;
mod model;
mod nodes_are_placed_by_the_terms;
mod operators_turn_rollouts;
mod probes_are_of_the_declared_nodes;
mod rollouts_end;
mod rollouts_follow_the_heads;
mod rollouts_keep_their_promises;
mod slots_are_counted_where_nodes_are;
mod stored_forms_are_kept;
mod superseded_rollouts_are_bounded;
mod superseded_rollouts_go_after_their_time;
mod time_is_kept_to_the_second;
mod transitions_are_those_of_the_table;
mod waiting_has_a_cause;
mod what_waits_to_begin_waits_on;
mod who_acknowledged_and_waits_says_why;
mod who_goes_back_by_itself_counts_as_failed;
