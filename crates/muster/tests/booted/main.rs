//! Tests on booted hosts in one program: `cargo xtask booted`, or one file with
//! `cargo xtask booted FILE::`. `test_support::booted` says how such a test is written.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod a_clock_may_be_wrong;
mod a_full_disk_loses_nothing;
mod a_kill_in_mid_package;
mod a_reboot_waits_for_its_window;
mod a_small_company;
mod an_agent_keeps_its_host;
mod another_tool_is_at_work;
mod bad_input_is_named;
mod bad_releases_meet_power_cuts;
mod bad_releases_stop_and_are_undone;
mod drift_is_healed_by_events;
mod examples_run;
mod failures_read_well;
mod guarded_runs_undo_themselves;
mod held;
mod hosts_are_real_machines;
mod hosts_return_by_themselves;
mod packages_go_up_and_down;
mod purge_leaves_nothing;
mod services_are_kept;
mod trees_switch_whole;
mod waves;
