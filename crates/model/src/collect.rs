//! [`CollectInserting`]: ordered collections that are filled one by one.
//!
//! `BTreeMap::from_iter` and `BTreeSet::from_iter` sort a list first. That compiles a stable sort for each
//! type of key and value, several kilobytes each, and the agent is to stay small. For the few
//! entries of a declaration, inserting them one by one is as fast.

use std::collections::{BTreeMap, BTreeSet};

/// A collection that takes entries one by one; of two with one key the last counts.
pub trait Inserting<T>: Default {
    /// Takes one entry.
    fn insert_entry(&mut self, entry: T);
}

impl<K: Ord, V> Inserting<(K, V)> for BTreeMap<K, V> {
    fn insert_entry(&mut self, (key, value): (K, V)) {
        self.insert(key, value);
    }
}

impl<T: Ord> Inserting<T> for BTreeSet<T> {
    fn insert_entry(&mut self, entry: T) {
        // As `BTreeMap`: the last one counts.
        self.replace(entry);
    }
}

/// Collects into ordered collections without sorting first.
pub trait CollectInserting: Iterator + Sized {
    /// As [`Iterator::collect`], entry by entry.
    fn collect_inserting<C: Inserting<Self::Item>>(self) -> C {
        let mut all = C::default();
        self.for_each(|entry| all.insert_entry(entry));
        all
    }

    /// As [`CollectInserting::collect_inserting`], up to the first error.
    ///
    /// # Errors
    /// The first error that the iterator yields.
    fn try_collect_inserting<T, E, C>(mut self) -> Result<C, E>
    where
        Self: Iterator<Item = Result<T, E>>,
        C: Inserting<T>,
    {
        self.try_fold(C::default(), |mut all, entry| {
            all.insert_entry(entry?);
            Ok(all)
        })
    }
}

impl<I: Iterator> CollectInserting for I {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_last_entry_of_a_key_counts_as_in_collect() {
        let pairs = [(2, "b"), (1, "a"), (2, "c")];
        let map: BTreeMap<i32, &str> = pairs.into_iter().collect_inserting();
        assert_eq!(map, pairs.into_iter().collect());
        let set: BTreeSet<i32> = [3, 1, 3].into_iter().collect_inserting();
        assert_eq!(set, BTreeSet::from([1, 3]));
    }

    #[test]
    fn the_first_error_ends_it() {
        let good: Result<BTreeSet<i32>, &str> = [Ok(1), Ok(0)].into_iter().try_collect_inserting();
        assert_eq!(good.unwrap(), BTreeSet::from([0, 1]));
        let bad: Result<BTreeSet<i32>, &str> =
            [Ok(1), Err("two"), Err("three")].into_iter().try_collect_inserting();
        assert_eq!(bad.unwrap_err(), "two");
    }
}
