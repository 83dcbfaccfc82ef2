//! Every test file of this crate in one program, which builds much faster than one each.
//! `cargo xtask tidy` finds a file that is missing here. One file: `cargo test -p agent --test all FILE::`.

mod a_missing_folder_is_named;
mod a_stop_says_what_is_left;
mod actions_run_at_most_once;
mod an_autonomous_folder_goes_up;
mod killed_at_every_point;
mod malicious_control_plane;
mod no_accepted_event_is_lost;
mod objects_and_work_come_over_each_transport;
mod rooted;
mod session_signs_with_the_server_s_time;
mod stops_in_order;
mod the_folder_is_as_the_control_plane_wants;
mod the_server_is_verified_first;
mod transports_fall_back;
mod two_agents_are_told_apart;
