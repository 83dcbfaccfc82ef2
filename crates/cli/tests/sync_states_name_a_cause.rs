//! SYN-10, OPS-1: the CLI shows the cause and the next step that the control plane names, decides by
//! typed fields alone, and what needs somebody is an exit code.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use cli::object::{counted, is_wrong, mark, one, table_of};
use cli::screen::{Mark, Screen};
use cli::status::sync_text;
use model::Timestamp;
use model::condition::{
    Attention, Delivery, Difference, Direction, Evidence, SyncCause, SyncCondition, SyncState,
};
use model::replication::{Mode, TransportKind};
use server::api::objects::{ConditionView, SyncView};

fn view(cause: SyncCause) -> SyncView {
    SyncView {
        node: "web-1.test".parse().unwrap(),
        mode: Mode::Managed,
        condition: ConditionView::new(&SyncCondition::new(cause, None), "web-1.test"),
        behind: 4,
        link: Some(TransportKind::Grpc),
        linked_since: None,
        reach: "online".to_owned(),
        down: 12,
        up: 3,
    }
}

fn in_sync() -> SyncCause {
    SyncCause::InSync(Evidence { at: Timestamp(0), instance: "i1".to_owned(), down: None, up: None })
}

fn behind() -> SyncCause {
    SyncCause::Behind { down: 4, up: 0, delivery: Delivery::NextContact }
}

fn out_of_sync() -> SyncCause {
    let difference = Difference::DeletionsUnconfirmed { kept: 30, of: 40 };
    SyncCause::OutOfSync { direction: Direction::Up, difference }
}

#[test]
fn what_needs_somebody_is_marked_and_is_an_exit_code() {
    for (cause, wanted, wrong) in [
        (in_sync(), Mark::Good, false),
        (SyncCause::Off, Mark::Dim, false),
        (behind(), Mark::Warn, false),
        (SyncCause::NeverCompared, Mark::Warn, false),
        (SyncCause::DuplicateIdentity, Mark::Bad, true),
        (out_of_sync(), Mark::Bad, true),
    ] {
        let view = view(cause);
        assert_eq!((mark(&view.condition), is_wrong(&view)), (wanted, wrong), "{view:?}");
    }
    // What a newer control plane says is shown as it says it.
    let mut newer = view(SyncCause::NeverCompared);
    newer.condition.state = SyncState::Other;
    newer.condition.message = "contains the word removal".to_owned();
    newer.condition.attention = Attention::Act;
    assert!(is_wrong(&newer));
    assert!(table_of(&[newer], Screen::of_process(false)).contains("of a newer version"));
}

#[test]
fn the_table_and_the_lines_of_a_node() {
    let screen = Screen::of_process(false);
    let want = "\
NODE        MODE     STATE        SINCE LINK  DOWN  UP  CAUSE  NEXT
web-1.test  managed  in sync            grpc  12    3
web-1.test  managed  behind by 4        grpc  12    3   4 changes of the control plane: for the node's next contact  wait, or `muster node run web-1.test`
";
    let text = table_of(&[view(in_sync()), view(behind())], screen);
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(squeezed(&text), squeezed(want), "{text}");
    let rows = one(&view(out_of_sync()), screen);
    let because = "because 30 of 40 objects are gone at the node, and their deletion is not confirmed (deletions-unconfirmed)";
    let next = "next: if they may go: `muster object resync web-1.test --approve-deletions`";
    assert_eq!(
        rows,
        [
            ("sync", "managed: out of sync over grpc; 12 down, 3 up".to_owned()),
            ("", because.to_owned()),
            ("", next.to_owned()),
        ]
    );
    let green = one(&view(in_sync()), screen);
    assert!(green[1].1.starts_with("compared at "), "green says what it rests on: {green:?}");
    assert_eq!(one(&view(SyncCause::Off), screen).len(), 1);
}

#[test]
fn the_fleets_line_counts_states_the_worst_first() {
    let screen = Screen::of_process(false);
    let states = [
        (SyncState::InSync, 800),
        (SyncState::Behind, 9),
        (SyncState::OutOfSync, 3),
        (SyncState::Unknown, 2),
        (SyncState::Other, 1),
        (SyncState::Comparing, 0),
    ];
    let states = states.into();
    assert_eq!(
        counted(&states, screen).unwrap(),
        "3 out of sync, 9 behind, 2 unknown, 800 in sync, 1 of a newer version"
    );
    assert!(sync_text(&states, screen).ends_with("  (muster object status --wrong)\n"));
    let well = [(SyncState::InSync, 5)].into();
    assert_eq!(sync_text(&well, screen), "\nsynchronization: 5 in sync\n");
    assert_eq!(sync_text(&[].into(), screen), "");
}
