//! Every test file of this crate in one program, which builds much faster than one each.
//! `cargo xtask tidy` finds a file that is missing here. One file: `cargo test -p agent --test all FILE::`.

mod a_check_in_follows_each_stream;
mod a_corrected_post_is_made_again_at_once;
mod a_lost_folder_is_not_in_sync;
mod a_missing_folder_is_named;
mod a_slow_content_delays_nothing_else;
mod a_slow_disk_delays_no_check_in;
mod a_status_is_of_its_object_s_uid;
mod actions_run_at_most_once;
mod agents_work_behind_a_proxy;
mod an_autonomous_folder_goes_up;
mod duplicate_agents_are_refused;
mod durable_formats_are_kept;
mod earlier_state_is_set_aside;
mod killed_at_every_point;
mod malicious_control_plane;
mod managed_folder_follows_the_control_plane;
mod no_accepted_event_is_lost;
mod no_answer_to_a_post_is_lost;
mod objects_and_work_come_over_each_transport;
mod operations_reach_autonomous_objects;
mod own_objects_survive_a_new_incarnation;
mod pushed_frames_are_bounded;
mod restarts_when_nothing_runs;
mod rooted_hosts_confine_commands;
mod runs_by_tag_are_partial;
mod runs_keep_what_a_change_needs;
mod session_signs_with_the_server_s_time;
mod shutdown_delivers_pending_facts;
mod stops_in_order;
mod the_server_is_verified_first;
mod transports_fall_back;
