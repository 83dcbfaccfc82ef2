//! [`cycles`]: edges that lead back to where they began.

use std::collections::{BTreeMap, BTreeSet};

/// The most cycles that are named at a time.
const MAX_CYCLES: usize = 64;

/// The cycles of these edges, each by the index of the edge that closes it, with what lies on it in its order and the
/// first one at the end again. Without the edges that are named there is none, as long as they are fewer than 64.
pub fn cycles<'a>(edges: &[(&'a str, &'a str)]) -> Vec<(usize, Vec<&'a str>)> {
    let mut leads: BTreeMap<&str, Vec<(usize, &'a str)>> = BTreeMap::new();
    for (index, (from, to)) in edges.iter().enumerate() {
        leads.entry(*from).or_default().push((index, *to));
    }
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for (start, _) in edges {
        // Depth first with a stack of its own, each name with how many of its edges were followed: a chain may be long.
        let mut path: Vec<(&'a str, usize)> = Vec::new();
        if seen.insert(*start) {
            path.push((*start, 0));
        }
        while let Some((name, followed)) = path.last_mut() {
            let Some((index, next)) = leads.get(*name).and_then(|leads| leads.get(*followed)) else {
                path.pop();
                continue;
            };
            *followed += 1;
            if seen.insert(*next) {
                path.push((*next, 0));
            } else if let Some(from) = path.iter().position(|(name, _)| name == next)
                && found.len() < MAX_CYCLES
            {
                let on_it = path.iter().skip(from).map(|(name, _)| *name);
                found.push((*index, on_it.chain([*next]).collect()));
            }
        }
    }
    found.sort_by_key(|(index, _)| *index);
    found
}
