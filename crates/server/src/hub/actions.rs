//! [`Actions`]: which changes of a node's feed are of actions. They travel like objects, and are
//! no objects to those who ask how synchronization fares (SYN-6).

use std::ops::RangeInclusive;

use model::Kind;
use sync::Feed;

/// The most stretches of changes that are remembered; of older ones it is not known whether they
/// are of actions, so they count as objects'. A node that is offline while tasks alone come
/// and go needs one.
const MAX_RANGES: usize = 32;

/// The changes of actions in a node's feed, and how many actions there are in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Actions {
    live: u64,
    /// Numbers of changes, rising.
    changes: Vec<RangeInclusive<u64>>,
}

impl Actions {
    /// As far as the actions that wait tell: the numbers of their last changes, in any order.
    pub(crate) fn waiting(mut changes: Vec<u64>) -> Actions {
        let mut actions = Actions { live: changes.len() as u64, changes: Vec::new() };
        changes.sort_unstable();
        changes.into_iter().for_each(|rev| actions.note(rev..=rev));
        actions
    }

    /// Those of a feed that the node has up to `rev`. A number that no change has any more is no
    /// object's either, unless the feed may have forgotten what was deleted with it.
    pub(crate) fn of(feed: &Feed, rev: u64) -> Actions {
        let (mut live, mut objects) = (0, Vec::new());
        for (kind, is_live) in feed.kinds().flat_map(|kind| [(kind, true), (kind, false)]) {
            let is_action = kind.as_str() == Kind::ACTION;
            let mut at = if is_action { 0 } else { rev };
            while let Some((next, _)) = feed.by_kind_after(kind, is_live, at, feed.head()) {
                at = next;
                match is_action {
                    true => live += u64::from(is_live),
                    false => objects.push(next),
                }
            }
        }
        let mut actions = Actions { live, changes: Vec::new() };
        objects.sort_unstable();
        let mut at = rev.max(feed.compacted()) + 1;
        for object in objects.into_iter().chain([feed.head() + 1]) {
            actions.note(at..=object - 1);
            at = object + 1;
        }
        actions
    }

    /// Changes of these numbers, after all others, are of actions.
    pub(crate) fn note(&mut self, revs: RangeInclusive<u64>) {
        if revs.is_empty() {
            return;
        }
        match self.changes.last_mut() {
            Some(last) if *revs.start() <= last.end() + 1 => {
                *last = *last.start()..=*revs.end().max(last.end());
            }
            _ => {
                if self.changes.len() == MAX_RANGES {
                    self.changes.remove(0);
                }
                self.changes.push(revs);
            }
        }
    }

    /// So many came into being, or went.
    pub(crate) fn count(&mut self, more: u64, fewer: u64) {
        self.live = self.live.saturating_add(more).saturating_sub(fewer);
    }

    /// How many actions there are in the feed.
    pub(crate) fn live(&self) -> u64 {
        self.live
    }

    /// How many changes after `rev` are of actions.
    pub(crate) fn after(&self, rev: u64) -> u64 {
        let later = |stretch: &RangeInclusive<u64>| {
            (stretch.end() + 1).saturating_sub((rev + 1).max(*stretch.start()))
        };
        self.changes.iter().map(later).sum()
    }

    /// The node has the feed up to here: what came before is not asked for any more.
    pub(crate) fn forget(&mut self, rev: u64) {
        self.changes.retain(|stretch| *stretch.end() > rev);
    }
}

#[cfg(test)]
mod tests {
    use model::{Digest, Kind, ObjectKey, Stub};
    use sync::Feed;

    use super::{Actions, MAX_RANGES};

    fn after(actions: &Actions) -> [u64; 5] {
        [0, 3, 5, 8, 9].map(|rev| actions.after(rev))
    }

    #[test]
    fn changes_after_a_number_are_counted() {
        let mut actions = Actions::waiting(vec![9, 3, 4, 5]);
        assert_eq!(actions.live(), 4);
        assert_eq!(after(&actions), [4, 3, 1, 1, 0]);
        actions.note(10..=10);
        actions.forget(4);
        assert_eq!(after(&actions), [5, 4, 2, 2, 1]);
        actions.forget(5);
        assert_eq!(after(&actions), [2, 2, 2, 2, 1]);
    }

    #[test]
    fn a_feed_tells_which_changes_are_of_no_object() {
        let key = |kind: &str, name: &str| ObjectKey::of(kind, name);
        let stub = |text: &str| Stub { uid: "u".into(), digest: Digest::of(text.as_bytes()), size: 1 };
        let mut feed = Feed::new("s1".parse().unwrap());
        for (kind, name, text) in [
            ("Item", "a", Some("1")),
            (Kind::ACTION, "x", Some("1")),
            (Kind::ACTION, "x", None),
            ("Item", "a", Some("2")),
            (Kind::ACTION, "y", Some("1")),
            ("Item", "b", Some("1")),
            (Kind::ACTION, "z", Some("1")),
        ] {
            let key = key(kind, name);
            let change = match text {
                Some(text) => feed.plan_put(&key, &stub(text)),
                None => feed.plan_remove(&key),
            };
            feed.commit(change.unwrap()).unwrap();
        }
        let actions = Actions::of(&feed, 0);
        assert_eq!(actions.live(), 2);
        // Numbers 1 and 2 are nobody's any more, 3, 5 and 7 are actions'.
        assert_eq!([0, 3, 4, 5, 6, 7].map(|rev| actions.after(rev)), [5, 2, 2, 1, 1, 0]);
        assert_eq!(Actions::of(&feed, 4).after(4), 2);
        assert_eq!(Actions::of(&feed, 7).after(7), 0);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_newest() {
        let many = MAX_RANGES as u64 + 10;
        let actions = Actions::waiting((1..=many).map(|number| number * 2).collect());
        assert_eq!(actions.after(0), MAX_RANGES as u64);
        assert_eq!(actions.after(many * 2 - 1), 1);
    }
}
