//! Cycles in a directed graph, named by their members.

use std::collections::{BTreeMap, BTreeSet};

/// Edges by node; an edge `a -> b` says that `a` comes after `b`.
pub(crate) type ModuleEdges = BTreeMap<String, Vec<String>>;

/// Whether `after` leads from one name to another, at any distance.
pub(crate) fn leads<'n, I>(from: &'n str, to: &str, after: impl Fn(&'n str) -> I) -> bool
where
    I: IntoIterator<Item = &'n str>,
{
    let (mut seen, mut todo) = (BTreeSet::new(), vec![from]);
    while let Some(next) = todo.pop() {
        for name in after(next) {
            if name == to {
                return true;
            }
            if seen.insert(name) {
                todo.push(name);
            }
        }
    }
    false
}

/// One cycle for each part of the graph that has one, each beginning with its first member.
pub(crate) fn cycles(edges: &ModuleEdges) -> Vec<Vec<String>> {
    let mut search = CycleSearch { edges, state: BTreeMap::new(), found: Vec::new() };
    for start in edges.keys() {
        search.from(start);
    }
    search.found.sort();
    search.found.dedup();
    search.found
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum VisitState {
    OnPath,
    Done,
}

struct CycleSearch<'e> {
    edges: &'e ModuleEdges,
    state: BTreeMap<&'e str, VisitState>,
    found: Vec<Vec<String>>,
}

impl<'e> CycleSearch<'e> {
    /// Depth first with a stack of its own: a chain may be as long as the fleet has modules.
    fn from(&mut self, start: &'e str) {
        if self.state.contains_key(start) {
            return;
        }
        let mut path: Vec<(&'e str, usize)> = vec![(start, 0)];
        self.state.insert(start, VisitState::OnPath);
        while let Some((node, next)) = path.last_mut() {
            let node = *node;
            let target = self.edges.get(node).and_then(|targets| targets.get(*next));
            *next += 1;
            match target {
                None => {
                    self.state.insert(node, VisitState::Done);
                    path.pop();
                }
                Some(target) => match self.state.get(target.as_str()) {
                    None => {
                        self.state.insert(target, VisitState::OnPath);
                        path.push((target, 0));
                    }
                    Some(VisitState::OnPath) => self.close(&path, target),
                    Some(VisitState::Done) => {}
                },
            }
        }
    }

    fn close(&mut self, path: &[(&'e str, usize)], target: &str) {
        let members: Vec<&str> =
            path.iter().map(|(node, _)| *node).skip_while(|node| *node != target).collect();
        let first = members.iter().enumerate().min_by_key(|(_, name)| **name).map_or(0, |(i, _)| i);
        let ordered = members[first..].iter().chain(&members[..first]).map(|name| (*name).to_owned());
        self.found.push(ordered.collect());
    }
}
