//! Every test file of this crate in one program, which builds much faster than one each.
//! `cargo xtask tidy` finds a file that is missing here. One file: `cargo test -p server --test all FILE::`.

mod actions_are_not_behind;
mod autonomous_mirror_is_read_only;
mod bad_peers_cost_only_themselves;
mod delta_on_the_wire;
mod enrollment;
mod files_are_private;
mod links_carry_both_ways;
mod mapping_finds_the_node;
mod metrics_are_bounded;
mod no_acknowledged_fact_is_lost;
mod objects_are_durable_before_accepted;
mod one_uid_is_one_object;
mod openings_are_judged;
mod readiness;
mod releases_are_verified;
mod requests_are_signed;
mod routes;
mod stop_is_prompt;
mod store_unavailable;
mod sync_status_is_honest;
mod tasks_do_what_is_delegated;
mod tasks_survive_a_restart;
mod tls_is_1_3_mutual;
mod what_releases_require_is_shown;
mod work_fits_on_a_full_node;
mod work_waits_asks_for_a_stream;
mod workflows_pass_gates;
