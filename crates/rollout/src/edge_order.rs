//! [`EdgeOrder`]: which edges of a rollout wait for one another in a circle.

use std::collections::BTreeMap;

use crate::placement::{Placement, bits};

/// Which edges have members in common such that one waits for the other, kept as members come and go.
///
/// A node that waits by edge i and goes first by edge j makes j wait for i. The nodes wait for one another in
/// a circle exactly where the edges do; the edges of such a circle are *void*: they hold nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EdgeOrder {
    counts: BTreeMap<(u8, u8), usize>,
    void: u32,
}

impl EdgeOrder {
    /// A member comes.
    pub(crate) fn add(&mut self, placement: &Placement) {
        let mut is_new = false;
        for pair in pairs(placement) {
            let count = self.counts.entry(pair).or_insert(0);
            *count += 1;
            is_new |= *count == 1;
        }
        if is_new {
            self.recompute();
        }
    }

    /// A member goes.
    pub(crate) fn remove(&mut self, placement: &Placement) {
        let mut is_over = false;
        for pair in pairs(placement) {
            if let Some(count) = self.counts.get_mut(&pair) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&pair);
                    is_over = true;
                }
            }
        }
        if is_over {
            self.recompute();
        }
    }

    /// A bit for each edge on a circle.
    pub(crate) fn void(&self) -> u32 {
        self.void
    }

    fn recompute(&mut self) {
        // Which edges an edge leads to, over any number of steps.
        let mut reach = [0u32; 32];
        for (i, j) in self.counts.keys() {
            reach[usize::from(*i)] |= 1 << j;
        }
        for middle in 0..32 {
            for from in 0..32 {
                if reach[from] & (1 << middle) != 0 {
                    reach[from] |= reach[middle];
                }
            }
        }
        self.void =
            (0..32).filter(|edge| reach[*edge] & (1 << edge) != 0).fold(0, |mask, edge| mask | 1 << edge);
    }
}

fn pairs(placement: &Placement) -> impl Iterator<Item = (u8, u8)> {
    let before = placement.before;
    let narrow = |bit: usize| u8::try_from(bit).unwrap_or(0);
    bits(placement.after).flat_map(move |i| bits(before).map(move |j| (narrow(i), narrow(j))))
}
