//! SYN-5, SYN-6: which side may say what in which mode, and the inventory checksum
//! of the source document.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use model::{Digest, Kind, ObjectKey};
use sync::interop::inventory_checksum;
use sync::refusal::{KIND, WRONG_SIDE, of_kind};
use sync::{Mode, Role};

/// SYN-5
#[test]
fn who_may_say_what_in_which_mode() {
    use Mode::{Autonomous, Managed, Off};
    use Role::{Agent, Principal};
    let cases = [
        ("Application", Principal, Managed, None),
        ("Application", Agent, Managed, Some(WRONG_SIDE)),
        ("Application", Agent, Autonomous, None),
        ("Application", Principal, Autonomous, Some(WRONG_SIDE)),
        ("Application", Principal, Off, Some(WRONG_SIDE)),
        ("Application:status", Agent, Managed, None),
        ("Application:status", Agent, Autonomous, None),
        ("Application:status", Agent, Off, Some(WRONG_SIDE)),
        ("Application:status", Principal, Managed, Some(WRONG_SIDE)),
        ("Action", Principal, Off, None),
        ("Action", Principal, Autonomous, None),
        ("Action", Agent, Autonomous, Some(WRONG_SIDE)),
        ("Site", Principal, Managed, Some(KIND)),
    ];
    for (kind, from, mode, expected) in cases {
        let refusal = of_kind(&Kind::new(kind), from, mode, &[Kind::new("Application")]);
        assert_eq!(refusal.map(|(code, _)| code), expected, "{kind} {from:?} {mode:?}");
    }
}

#[test]
fn the_inventory_checksum_is_over_sorted_kind_name_uid() {
    let keys = [ObjectKey::of("B", "b"), "A/somewhere/a".parse().unwrap()];
    let checksum = inventory_checksum(keys.iter().zip(["2", "1"]));
    assert_eq!(checksum, Digest::of(b"A/a/1B/b/2"), "sorted, joined, without the namespace");
    assert_eq!(inventory_checksum(std::iter::empty()), Digest::of(b""));
}
