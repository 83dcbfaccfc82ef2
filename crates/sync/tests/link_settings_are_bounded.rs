//! SYN-3: what a channel or a control plane sets of a link counts within its bounds, and no setting
//! of one end makes the other give up a link that lives.

use std::time::Duration;

use model::replication::LinkSettings;
use sync::link::Limits;

fn all(value: u32) -> LinkSettings {
    LinkSettings { window: value, pending_retries: value, keepalive_secs: value, timeout_secs: value }
}

#[test]
fn settings_count_within_their_bounds() {
    let set = LinkSettings { window: 100, pending_retries: 50, keepalive_secs: 20, timeout_secs: 300 };
    let limits = Limits::default().with(set);
    assert_eq!((limits.window_events, limits.pending_retries), (100, 50));
    assert_eq!((limits.ping_every, limits.dead_after), (Duration::from_secs(20), Duration::from_secs(300)));
    let (least, most) = (Limits::default().with(all(0)), Limits::default().with(all(u32::MAX)));
    assert_eq!((least.window_events, most.window_events), (16, 65_536));
    assert_eq!((least.pending_retries, most.pending_retries), (16, 65_536));
}

#[test]
fn a_link_that_pings_in_time_is_never_given_up() {
    let (least, most) = (Limits::default().with(all(0)), Limits::default().with(all(u32::MAX)));
    assert!(most.ping_every < least.dead_after, "whatever each end sets");
    assert!(least.ping_every >= Duration::from_secs(5) && most.dead_after <= Duration::from_secs(3600));
}

#[test]
fn the_defaults_are_those_of_a_link() {
    let (usual, set) = (Limits::default(), Limits::default().with(LinkSettings::default()));
    assert_eq!((usual.window_events, usual.pending_retries), (set.window_events, set.pending_retries));
    assert_eq!((usual.ping_every, usual.dead_after), (set.ping_every, set.dead_after));
}
