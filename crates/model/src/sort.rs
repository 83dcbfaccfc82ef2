//! [`SortCompactly`]: slices that are sorted by one piece of machine code, whatever their items are.
//!
//! `sort` and `sort_unstable` of the standard library are compiled anew for each type of item, several kilobytes
//! each, and the agent is to stay small. Here the places of the items are sorted, in one way, and each
//! type has only the few instructions that compare two of its items and move them.

use std::cmp::Ordering;

/// Sorting for lists that are short, or sorted rarely. Equal items keep their order.
pub trait SortCompactly<T> {
    /// As `sort_by`.
    fn sort_compactly_by(&mut self, compare: impl Fn(&T, &T) -> Ordering);

    /// As `sort`.
    fn sort_compactly(&mut self)
    where
        T: Ord,
    {
        self.sort_compactly_by(T::cmp);
    }

    /// As `sort_by_key`.
    fn sort_compactly_by_key<K: Ord>(&mut self, key: impl Fn(&T) -> K) {
        self.sort_compactly_by(|a, b| key(a).cmp(&key(b)));
    }
}

impl<T> SortCompactly<T> for [T] {
    fn sort_compactly_by(&mut self, compare: impl Fn(&T, &T) -> Ordering) {
        let mut places = sorted_places(self.len(), &|a, b| compare(&self[a], &self[b]));
        // Each cycle of the permutation once: a place that is done points at itself.
        for start in 0..self.len() {
            let mut at = start;
            loop {
                let from = std::mem::replace(&mut places[at], at);
                if from == start {
                    break;
                }
                self.swap(at, from);
                at = from;
            }
        }
    }
}

/// The places `0..len` in the order of what is there.
fn sorted_places(len: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..len).collect();
    places.sort_by(|a, b| compare(*a, *b));
    places
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_sorts_as_the_standard_library_does(items in proptest::collection::vec((0u8..8, 0u8..8), 0..40)) {
            let (mut by_key, mut whole) = (items.clone(), items.clone());
            by_key.sort_compactly_by_key(|item| item.0);
            whole.sort_compactly();
            let (mut expected_by_key, mut expected) = (items.clone(), items);
            expected_by_key.sort_by_key(|item| item.0);
            expected.sort();
            prop_assert_eq!((by_key, whole), (expected_by_key, expected));
        }
    }
}
