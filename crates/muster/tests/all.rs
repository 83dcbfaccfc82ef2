//! Every test file of this crate in one program, which builds much faster than one each.
//! `cargo xtask tidy` finds a file that is missing here. One file: `cargo test -p muster --test all FILE::`.

mod a_failed_start_founds_no_fleet;
mod a_fleet_survives_a_restore;
mod a_removed_node_joins_again;
mod a_restored_control_plane_recovers;
mod a_stock_python_client_works;
mod beacons_keep_nodes_acting;
mod cli_errors;
mod diff_groups;
mod end_to_end;
mod exit_codes;
mod explain_names_who_won;
mod help_explains_every_code;
mod hosts_with_p256_keys_join;
mod logs_are_json_when_asked;
mod network_namespaces;
mod next_steps_act_on_the_same_host;
mod next_steps_name_the_credentials;
mod objects_are_applied_one_by_one;
mod objects_survive_outages;
mod operators_are_added_and_revoked;
mod pages_name_commands_that_exist;
mod publish_names_whom_it_leaves;
mod publish_uploads_only_the_change;
mod real_agents_meet_a_restored_control_plane;
mod reference_is_current;
mod releases_are_rolled_back;
mod runs_by_tag_are_requested;
mod task_arguments_are_exact;
mod tasks_run_once_for_real;
mod the_tutorial_works;
mod tokens_are_minted_offline;
mod trust_roots_rotate;
mod verbs_ask_a_control_plane;
mod work_follows_a_publish;
