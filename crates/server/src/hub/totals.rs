//! [`SyncTotals`]: how synchronization of the fleet stands in numbers, kept as nodes change: what it costs to ask is
//! independent of the number of nodes (SCL-1).

use std::collections::BTreeMap;

use model::replication::TransportKind;

use super::summary::SyncSummary;

/// The fleet as it stands with synchronization, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FleetSyncTotals {
    /// Links by transport.
    pub(crate) links: BTreeMap<TransportKind, u64>,
    /// Nodes whose objects are behind.
    pub(crate) nodes_behind: u64,
    /// Changes that wait for their nodes, actions included.
    pub(crate) behind: u64,
    /// Of the node that is furthest behind.
    pub(crate) most_behind: u64,
    /// Nodes whose sets differ, and stay so without help.
    pub(crate) out_of_sync: u64,
    /// Objects that go down.
    pub(crate) down: u64,
    /// Objects that came up.
    pub(crate) up: u64,
}

/// A node's share in the totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SyncShare {
    link: Option<TransportKind>,
    is_behind: bool,
    behind: u64,
    is_out_of_sync: bool,
    down: u64,
    up: u64,
}

impl SyncShare {
    pub(super) fn of(summary: &SyncSummary) -> SyncShare {
        SyncShare {
            link: summary.link.as_ref().map(|link| link.transport),
            is_behind: summary.objects_behind() > 0,
            behind: summary.behind(),
            is_out_of_sync: summary.is_out_of_sync(),
            down: summary.objects_down(),
            up: summary.up,
        }
    }
}

/// The sum of all shares.
#[derive(Default)]
pub(super) struct SyncTotals {
    sum: FleetSyncTotals,
    /// How many nodes are behind by so many changes.
    by_distance: BTreeMap<u64, u64>,
}

impl SyncTotals {
    pub(super) fn view(&self) -> FleetSyncTotals {
        let most_behind = self.by_distance.last_key_value().map_or(0, |(behind, _)| *behind);
        FleetSyncTotals { most_behind, ..self.sum.clone() }
    }

    /// A node has this share instead of that one; that of a node that is not there is the default.
    pub(super) fn replace(&mut self, before: SyncShare, now: SyncShare) {
        if before == now {
            return;
        }
        let sum = &mut self.sum;
        for (total, before, now) in [
            (&mut sum.nodes_behind, u64::from(before.is_behind), u64::from(now.is_behind)),
            (&mut sum.behind, before.behind, now.behind),
            (&mut sum.out_of_sync, u64::from(before.is_out_of_sync), u64::from(now.is_out_of_sync)),
            (&mut sum.down, before.down, now.down),
            (&mut sum.up, before.up, now.up),
        ] {
            // What is taken out was put in.
            *total = total.saturating_sub(before).saturating_add(now);
        }
        count(&mut sum.links, before.link, now.link);
        let distance = |behind: u64| (behind > 0).then_some(behind);
        count(&mut self.by_distance, distance(before.behind), distance(now.behind));
    }
}

/// One less of the one, one more of the other.
fn count<K: Ord>(counts: &mut BTreeMap<K, u64>, before: Option<K>, now: Option<K>) {
    if let Some(before) = before
        && let Some(count) = counts.get_mut(&before)
    {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(&before);
        }
    }
    if let Some(now) = now {
        *counts.entry(now).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(link: Option<TransportKind>, behind: u64) -> SyncShare {
        SyncShare { link, is_behind: behind > 0, behind, is_out_of_sync: behind > 5, down: 3, up: 2 }
    }

    #[test]
    fn totals_are_the_sum_of_the_shares_that_are_there() {
        use TransportKind::{Grpc, Sse};
        let (a, b, c) = (share(Some(Grpc), 7), share(Some(Grpc), 2), share(Some(Sse), 0));
        let mut totals = SyncTotals::default();
        for share in [a, b, c] {
            totals.replace(SyncShare::default(), share);
        }
        let all = FleetSyncTotals {
            links: BTreeMap::from([(Grpc, 2), (Sse, 1)]),
            nodes_behind: 2,
            behind: 9,
            most_behind: 7,
            out_of_sync: 1,
            down: 9,
            up: 6,
        };
        assert_eq!(totals.view(), all);
        totals.replace(a, share(None, 1));
        let less = FleetSyncTotals {
            links: BTreeMap::from([(Grpc, 1), (Sse, 1)]),
            behind: 3,
            most_behind: 2,
            out_of_sync: 0,
            ..all
        };
        assert_eq!(totals.view(), less);
        for share in [share(None, 1), b, c] {
            totals.replace(share, SyncShare::default());
        }
        assert_eq!(totals.view(), FleetSyncTotals::default());
        assert!(totals.by_distance.is_empty());
    }
}
