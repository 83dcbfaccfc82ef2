//! SYN-10, OPS-1: every state of synchronization that is not green names a cause and a next
//! step, and what needs somebody is an exit code.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use cli::object::{counted, is_wrong, judge, one, table_of};
use cli::screen::{Mark, Screen};
use cli::status::sync_text;
use model::replication::Mode;
use server::api::objects::SyncView;

fn view(state: &str, reach: &str) -> SyncView {
    SyncView {
        node: "web-1.test".parse().unwrap(),
        mode: Mode::Managed,
        state: state.to_owned(),
        behind: 4,
        why: None,
        link: Some("grpc".to_owned()),
        since: None,
        reach: reach.to_owned(),
        down: 12,
        up: 3,
        duplicate: false,
    }
}

#[test]
fn what_is_not_green_names_a_cause_and_a_next_step() {
    for state in ["in-sync", "behind", "resyncing", "diverged", "unknown", "off", "a-new-word"] {
        for reach in ["online", "promotable", "offline"] {
            for duplicate in [false, true] {
                let view = SyncView { duplicate, ..view(state, reach) };
                let judged = judge(&view);
                let green = judged.mark == Mark::Good;
                assert_eq!(green, state == "in-sync" && reach != "offline" && !duplicate, "{view:?}");
                assert_eq!(judged.cause.is_some(), !green, "{view:?}");
                assert_eq!(judged.next.is_some(), !green, "{view:?}");
                assert_eq!(is_wrong(&view), duplicate || state == "diverged", "{view:?}");
            }
        }
    }
}

#[test]
fn causes_that_the_control_plane_tells_are_shown() {
    let gone = "30 of 40 objects are gone at the source; an operator must confirm their removal";
    let refused = "the node would not take App//shop: no such field (and 2 more)";
    for (why, next) in [
        (gone, "if they may go: muster object resync web-1.test --approve-deletions"),
        (refused, "put those objects right and apply them again; `muster object list` names them"),
        ("resyncs do not make the sets equal", "muster object resync web-1.test"),
    ] {
        let diverged = SyncView { why: Some(why.to_owned()), ..view("diverged", "online") };
        let judged = judge(&diverged);
        assert_eq!((judged.cause.as_deref(), judged.next.as_deref()), (Some(why), Some(next)));
    }
}

#[test]
fn the_table_and_the_lines_of_a_node() {
    let screen = Screen::of_process(false);
    let want = "\
NODE        MODE     STATE        LINK  SINCE  DOWN  UP  CAUSE                             NEXT
web-1.test  managed  in sync      grpc         12    3
web-1.test  managed  behind by 4  grpc         12    3   it takes them at its next contact  wait, or `muster node push web-1.test`
";
    let text = table_of(&[view("in-sync", "online"), view("behind", "promotable")], screen);
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(squeezed(&text), squeezed(want), "{text}");
    let rows = one(&view("behind", "online"), screen);
    assert_eq!(
        rows,
        [
            ("sync", "managed: behind by 4 over grpc; 12 down, 3 up".to_owned()),
            ("", "because changes are on their way".to_owned()),
            ("", "next: it catches up by itself".to_owned()),
        ]
    );
    let off = SyncView { mode: Mode::Off, link: None, ..view("off", "promotable") };
    assert_eq!(one(&off, screen).len(), 1);
}

#[test]
fn the_fleets_line_counts_states_the_worst_first() {
    let screen = Screen::of_process(false);
    let states = [("in-sync", 800), ("behind", 9), ("diverged", 3), ("later", 1), ("resyncing", 0)];
    let states = states.map(|(state, count)| (state.to_owned(), count)).into();
    assert_eq!(counted(&states, screen).unwrap(), "3 diverged, 9 behind, 800 in sync, 1 later");
    assert!(sync_text(&states, screen).ends_with("1 later  (muster object status --wrong)\n"));
    let well = [("in-sync".to_owned(), 5)].into();
    assert_eq!(sync_text(&well, screen), "\nsynchronization: 5 in sync\n");
    assert_eq!(sync_text(&[].into(), screen), "");
}
