//! IDN-4: each request number counts once, in whatever order requests arrive.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use plane::Window;
use plane::replay::WIDTH;
use proptest::prelude::*;

/// What the window is meant to be: all numbers seen, and a line below which none is new.
#[derive(Default)]
struct Seen(BTreeSet<u64>);

impl Seen {
    fn accept(&mut self, number: u64) -> bool {
        let highest = self.0.last().copied().unwrap_or(0);
        let too_old = number.saturating_add(WIDTH) <= highest;
        !too_old && self.0.insert(number)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn as_a_set_of_all_numbers_would(
        base in prop_oneof![1..100_u64, Just(u64::MAX - 400)],
        steps in prop::collection::vec(prop_oneof![4 => 0..40_u64, 2 => 0..150_u64, 1 => 0..400_u64], 1..200),
    ) {
        let (mut window, mut seen) = (Window::default(), Seen::default());
        for step in steps {
            let number = base + step;
            prop_assert_eq!(window.accept(number), seen.accept(number), "number {}", number);
        }
    }
}

#[test]
fn the_edges() {
    let mut window = Window::default();
    assert!(window.accept(100));
    assert!(!window.accept(100), "the highest again");
    assert!(window.accept(100 - WIDTH + 1), "the oldest that may still come");
    assert!(!window.accept(100 - WIDTH), "one older");
    assert!(window.accept(100 + WIDTH), "a jump of the whole width");
    assert!(!window.accept(100), "too old after the jump");
    assert!(window.accept(101), "not seen, and still within");
    assert!(window.accept(u64::MAX));
    assert!(!window.accept(u64::MAX) && !window.accept(0));
}

#[test]
fn a_node_s_window_is_sixteen_bytes() {
    assert_eq!(size_of::<Window>(), 16);
}
