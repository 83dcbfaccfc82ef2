//! Every test file of this crate in one program, which builds much faster than one each.
//! `cargo xtask tidy` finds a file that is missing here. One file: `cargo test -p server --test all FILE::`.

mod a_proxy_opens_nothing_of_its_own;
mod actions_are_not_behind;
mod autonomous_mirror_is_read_only;
mod bad_peers_cost_only_themselves;
mod delta_on_the_wire;
mod durable_formats_are_kept;
mod enrollment;
mod files_are_private;
mod full_nodes_accept_work;
mod links_carry_both_ways;
mod mapping_finds_the_node;
mod metrics_are_bounded;
mod no_acknowledged_fact_is_lost;
mod objects_are_durable_before_accepted;
mod one_uid_is_one_object;
mod operator_port_schema_is_current;
mod polls_keep_no_session;
mod readiness;
mod refusals_name_their_reason;
mod releases_are_verified;
mod requests_are_signed;
mod routes;
mod stop_is_prompt;
mod store_unavailable;
mod stream_admission_is_bounded;
mod streams_belong_to_their_tls_session;
mod sync_status_is_honest;
mod tasks_do_what_is_delegated;
mod tasks_survive_a_restart;
mod tls_is_1_3_mutual;
mod waiting_work_requests_a_stream;
mod what_nodes_have_seen_is_kept;
mod what_releases_require_is_shown;
mod workflows_pass_gates;
