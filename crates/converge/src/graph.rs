//! Topological sort: stable, and a cycle names its members (CFG-2).

use std::collections::BTreeSet;

use model::collect::CollectInserting;

/// Sorts `0..count` so that `a` stands before `b` for every edge `(a, b)`. Where the edges
/// leave a choice the smaller number comes first, so declared order is kept.
///
/// # Errors
/// The members of one cycle, each waiting for the next, the smallest first.
pub fn sort(count: usize, edges: &BTreeSet<(usize, usize)>) -> Result<Vec<usize>, Vec<usize>> {
    let mut after = vec![Vec::new(); count];
    let mut blockers = vec![0usize; count];
    for (a, b) in edges.iter().filter(|(a, b)| *a < count && *b < count) {
        after[*a].push(*b);
        blockers[*b] += 1;
    }
    let mut free: BTreeSet<usize> = (0..count).filter(|i| blockers[*i] == 0).collect_inserting();
    let mut order = Vec::with_capacity(count);
    while let Some(next) = free.pop_first() {
        order.push(next);
        for later in &after[next] {
            blockers[*later] -= 1;
            if blockers[*later] == 0 {
                free.insert(*later);
            }
        }
    }
    if order.len() == count { Ok(order) } else { Err(cycle(&after, &blockers)) }
}

/// A cycle among what is still blocked. Everything blocked has a blocked predecessor, so
/// walking backwards from any of them must come round.
fn cycle(after: &[Vec<usize>], blockers: &[usize]) -> Vec<usize> {
    let blocked = |i: usize| blockers[i] > 0;
    let before = |i: usize| (0..after.len()).find(|p| blocked(*p) && after[*p].contains(&i));
    let mut path: Vec<usize> = Vec::new();
    let mut at = (0..after.len()).find(|i| blocked(*i));
    while let Some(here) = at {
        if let Some(start) = path.iter().position(|seen| *seen == here) {
            path.drain(..start);
            break;
        }
        path.push(here);
        at = before(here);
    }
    let smallest = path.iter().enumerate().min_by_key(|(_, member)| **member).map_or(0, |(i, _)| i);
    path.rotate_left(smallest);
    path
}

/// `a -> b -> a`: a waits for b, and b for a.
pub fn describe<'a>(members: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = members.into_iter().collect();
    names.extend(names.first().copied());
    names.join(" -> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_declared_order_where_it_is_free() {
        assert_eq!(sort(4, &BTreeSet::from([(3, 0)])), Ok(vec![1, 2, 3, 0]));
        assert_eq!(sort(3, &BTreeSet::new()), Ok(vec![0, 1, 2]));
    }

    #[test]
    fn a_cycle_names_its_members_and_nobody_else() {
        // 4 waits for the cycle 1 -> 2 -> 3 -> 1 and is no member.
        let edges = BTreeSet::from([(1, 2), (2, 3), (3, 1), (3, 4), (0, 1)]);
        assert_eq!(sort(5, &edges), Err(vec![1, 3, 2]));
        assert_eq!(sort(1, &BTreeSet::from([(0, 0)])), Err(vec![0]));
        assert_eq!(describe(["a", "b"]), "a -> b -> a");
    }
}
