//! [`split`]: the nodes of one classifying pattern, distinguished by what holds for them.
//!
//! A release gives one set to all nodes of a pattern. Where an entry of `sync:` or
//! `delegations:` is for some of them only, the pattern becomes several, in an order in which
//! the first match gives each node its own: each excepts the nodes of those that come later.
//! Which combinations occur is found by walking all names at once, so that patterns which
//! cannot meet cost nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use lang::Pattern;
use lang::glob::{Glob, GlobToken};

use super::grants::Holding;
use crate::classify::Rule;
use crate::decl::fleet::FleetDecl;
use crate::decl::whom::Whom;

/// The most states that are walked for one pattern, and the most combinations of it.
const MAX_STATES: usize = 5_000;

/// Some nodes of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PatternShare {
    /// What holds for them.
    pub(crate) holding: Holding,
    /// Names that this part does not take; the pattern's own exceptions among them.
    pub(crate) except: Arc<[Pattern]>,
}

/// The nodes of the pattern cannot be distinguished within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// The parts of a rule's nodes, in order; one where the same holds for all of them.
pub(crate) fn split(fleet: &FleetDecl, rule: &Rule) -> Result<Vec<PatternShare>, TooMany> {
    let whoms =
        || fleet.sync.iter().map(|decl| &decl.nodes).chain(fleet.delegations.iter().map(|d| &d.nodes));
    if whoms().all(Whom::is_all) {
        let holding = Holding::by(fleet, |_| true);
        return Ok(vec![PatternShare { holding, except: rule.except.clone() }]);
    }
    let names: BTreeSet<&str> = whoms().flat_map(Whom::patterns).map(Pattern::as_str).collect();
    let combinations = NameSearch::new(&rule.pattern, &rule.except, &names).run()?;
    let mut holdings: BTreeSet<Holding> = BTreeSet::new();
    for has in &combinations {
        let takes =
            |whom: &Whom| whom.is_all() || whom.patterns().any(|pattern| has.contains(pattern.as_str()));
        holdings.insert(Holding::by(fleet, takes));
    }
    if holdings.is_empty() {
        // The pattern takes no name at all; it stays in its place all the same.
        return Ok(vec![PatternShare { holding: Holding::default(), except: rule.except.clone() }]);
    }
    let met: BTreeSet<&str> = combinations.iter().flatten().copied().collect();
    let mut order: Vec<Holding> = holdings.into_iter().collect();
    // Fewer delegations first, then later entries of sync: what a part must leave to those
    // after it is then always something that holds for them and not for it.
    let last = fleet.sync.len();
    order.sort_by_key(|holding| (holding.delegations.len(), last - holding.sync.unwrap_or(last)));
    let part = |(index, holding): (usize, &Holding)| PatternShare {
        holding: holding.clone(),
        except: except(fleet, rule, holding, &order[index + 1..], &met).into(),
    };
    Ok(order.iter().enumerate().map(part).collect())
}

/// Which of these patterns take a name that another one takes, its exceptions aside. A regular expression is taken
/// for one that does.
pub(crate) fn meeting<'w>(
    pattern: &'w Pattern,
    except: &[Pattern],
    names: &BTreeSet<&'w str>,
) -> Result<BTreeSet<&'w str>, TooMany> {
    Ok(NameSearch::new(pattern, except, names).run()?.into_iter().flatten().collect())
}

/// What a part excepts so that the nodes of later parts pass it by.
fn except(
    fleet: &FleetDecl,
    rule: &Rule,
    own: &Holding,
    later: &[Holding],
    met: &BTreeSet<&str>,
) -> Vec<Pattern> {
    let mut whoms: Vec<&Whom> = Vec::new();
    let others: BTreeSet<usize> = later.iter().flat_map(|other| &other.delegations).copied().collect();
    let others = others.into_iter().filter(|index| !own.delegations.contains(index));
    whoms.extend(others.filter_map(|index| fleet.delegations.get(index)).map(|decl| &decl.nodes));
    let alike = later.iter().filter(|other| other.delegations == own.delegations);
    let earlier: BTreeSet<usize> = alike.filter_map(|other| other.sync).collect();
    whoms.extend(earlier.into_iter().filter_map(|index| fleet.sync.get(index)).map(|decl| &decl.nodes));
    let mut all: Vec<Pattern> = rule.except.to_vec();
    for pattern in whoms.into_iter().flat_map(Whom::patterns) {
        if met.contains(pattern.as_str()) && !all.contains(pattern) {
            all.push(pattern.clone());
        }
    }
    all
}

/// A walk over all names that a rule takes: at every step, the positions in each glob at which
/// a name with the same beginning may stand.
struct NameSearch<'w> {
    /// The rule's pattern, its exceptions, then those that distinguish nodes.
    globs: Vec<Glob>,
    /// How many of the globs are the rule's exceptions.
    excepts: usize,
    names: Vec<&'w str>,
    /// Regular expressions: any name may match, or not.
    free: Vec<&'w str>,
    /// The rule's pattern: it matches all of its names.
    own: &'w str,
}

/// For each glob the positions that are reached, each once and in order.
type GlobStates = Vec<Vec<u16>>;

/// The patterns that a name matches.
type Combination<'w> = BTreeSet<&'w str>;

impl<'w> NameSearch<'w> {
    fn new(pattern: &'w Pattern, except: &[Pattern], names: &BTreeSet<&'w str>) -> NameSearch<'w> {
        let is_regex = |name: &&str| name.starts_with('/');
        // Of a regular expression nothing is known: its names may be any.
        let own = Glob::parse(if is_regex(&pattern.as_str()) { "**" } else { pattern.as_str() });
        let excepts = except.iter().map(Pattern::as_str).filter(|name| !is_regex(name));
        let excepts: Vec<Glob> = excepts.map(Glob::parse).collect();
        let (free, names): (Vec<&str>, Vec<&str>) = names.iter().copied().partition(is_regex);
        let (count, named) = (excepts.len(), names.iter().map(|name| Glob::parse(name)));
        let globs = std::iter::once(own).chain(excepts).chain(named).collect();
        NameSearch { globs, excepts: count, names, free, own: pattern.as_str() }
    }

    fn run(&self) -> Result<BTreeSet<Combination<'w>>, TooMany> {
        let mut found: BTreeSet<Combination<'w>> = BTreeSet::new();
        let start: GlobStates = self.globs.iter().map(|glob| closed(glob, vec![0])).collect();
        let mut seen = BTreeSet::from([start.clone()]);
        let mut todo = vec![start];
        while let Some(state) = todo.pop() {
            if self.accepts(&state, 0) && !(1..=self.excepts).any(|glob| self.accepts(&state, glob)) {
                let names = self.names.iter().enumerate();
                let own = names.filter(|(index, _)| self.accepts(&state, 1 + self.excepts + index));
                found.insert(own.map(|(_, name)| *name).collect());
            }
            for c in self.characters(&state) {
                let next = self.step(&state, c);
                if next.first().is_some_and(|own| !own.is_empty()) && !seen.contains(&next) {
                    if seen.len() == MAX_STATES {
                        return Err(TooMany);
                    }
                    seen.insert(next.clone());
                    todo.push(next);
                }
            }
        }
        self.with_free(found)
    }

    fn accepts(&self, state: &GlobStates, glob: usize) -> bool {
        let end = self.globs.get(glob).map_or(0, |glob| glob.tokens().len());
        state.get(glob).and_then(|positions| positions.last()).is_some_and(|last| usize::from(*last) == end)
    }

    /// One of each sort of character that leads on: those that some glob waits for, the dot,
    /// and any other.
    fn characters(&self, state: &GlobStates) -> Vec<Option<char>> {
        let mut waited: BTreeSet<char> = BTreeSet::from(['.']);
        for (glob, positions) in self.globs.iter().zip(state) {
            waited.extend(positions.iter().filter_map(|position| {
                match glob.tokens().get(usize::from(*position)) {
                    Some(GlobToken::Char(c)) => Some(*c),
                    _ => None,
                }
            }));
        }
        waited.into_iter().map(Some).chain([None]).collect()
    }

    /// The state after a character; `None` is any that no glob waits for.
    fn step(&self, state: &GlobStates, c: Option<char>) -> GlobStates {
        let dot = c == Some('.');
        let one = |(glob, positions): (&Glob, &Vec<u16>)| {
            let mut next = Vec::new();
            for position in positions {
                match glob.tokens().get(usize::from(*position)) {
                    Some(GlobToken::Char(wanted)) if c == Some(*wanted) => next.push(position + 1),
                    Some(GlobToken::One) if !dot => next.push(position + 1),
                    Some(GlobToken::Run) if !dot => next.push(*position),
                    Some(GlobToken::Deep) => next.push(*position),
                    _ => {}
                }
            }
            closed(glob, next)
        };
        self.globs.iter().zip(state).map(one).collect()
    }

    /// Every combination with and without each regular expression.
    fn with_free(&self, mut found: BTreeSet<Combination<'w>>) -> Result<BTreeSet<Combination<'w>>, TooMany> {
        for name in &self.free {
            if found.len() > MAX_STATES / 2 {
                return Err(TooMany);
            }
            let with: Vec<Combination<'w>> = found
                .iter()
                .map(|combination| combination.iter().copied().chain([*name]).collect())
                .collect();
            if *name == self.own {
                found.clear();
            }
            found.extend(with);
        }
        Ok(found)
    }
}

/// With the positions after runs, which may be empty.
fn closed(glob: &Glob, mut positions: Vec<u16>) -> Vec<u16> {
    let mut at = 0;
    while let Some(position) = positions.get(at).copied() {
        if matches!(glob.tokens().get(usize::from(position)), Some(token) if token.may_be_empty()) {
            positions.push(position + 1);
        }
        at += 1;
    }
    positions.sort_unstable();
    positions.dedup();
    positions
}
