//! [`ReadyQueues`]: members that may begin as far as they go, by what they wait for beside that.
//!
//! Members that need slots of the same budgets and wait by the same edges are in one queue, so whether the
//! first of them can begin says it of all: what a freed slot costs is a look at each queue, not at each
//! member.

use std::collections::{BTreeMap, BTreeSet};

use crate::budget::{BudgetBook, BudgetIndex};
use crate::member::MemberGoal;
use crate::nodes::NodeIndex;

/// A member's position in one of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueuePosition {
    /// Who said why it does not begin yet comes last, so that it takes no slot before those who may begin.
    is_held_off: bool,
    /// Earlier waves first, then by a hash of the hostname.
    wave: u16,
    order: u64,
    pub(crate) node: NodeIndex,
    class: usize,
}

/// Where a member stands among those with the same needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuePlace {
    pub(crate) is_held_off: bool,
    pub(crate) wave: u16,
    pub(crate) order: u64,
}

/// What the members of one queue have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReadyNeeds {
    /// Where they are to go: a rollout that goes back starts nobody forward.
    pub(crate) goal: MemberGoal,
    /// The budgets of which they need a slot.
    pub(crate) budgets: Vec<BudgetIndex>,
    /// The edges by which they wait.
    pub(crate) waits_for: u32,
}

#[derive(Clone, Debug)]
struct ReadyClass {
    needs: ReadyNeeds,
    queue: BTreeSet<QueuePosition>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ReadyQueues {
    index: BTreeMap<ReadyNeeds, usize>,
    classes: Vec<ReadyClass>,
}

impl ReadyQueues {
    /// Where a member with these needs belongs.
    pub(crate) fn position(
        &mut self,
        needs: ReadyNeeds,
        place: QueuePlace,
        node: NodeIndex,
    ) -> QueuePosition {
        let known = self.index.get(&needs).copied();
        let class = known.unwrap_or_else(|| {
            self.classes.push(ReadyClass { needs: needs.clone(), queue: BTreeSet::new() });
            self.index.insert(needs, self.classes.len() - 1);
            self.classes.len() - 1
        });
        let QueuePlace { is_held_off, wave, order } = place;
        QueuePosition { is_held_off, wave, order, node, class }
    }

    pub(crate) fn insert(&mut self, position: QueuePosition) {
        if let Some(class) = self.classes.get_mut(position.class) {
            class.queue.insert(position);
        }
    }

    pub(crate) fn remove(&mut self, position: QueuePosition) {
        if let Some(class) = self.classes.get_mut(position.class) {
            class.queue.remove(&position);
        }
    }

    /// The first member of all with this goal whose budgets have room and whose edges hold nobody back.
    pub(crate) fn next(&self, goal: MemberGoal, book: &BudgetBook, holding_edges: u32) -> Option<NodeIndex> {
        let can = |class: &&ReadyClass| {
            let has_room = |budget: &BudgetIndex| book.get(*budget).is_some_and(|budget| budget.has_room());
            let needs = &class.needs;
            needs.goal == goal && needs.waits_for & holding_edges == 0 && needs.budgets.iter().all(has_room)
        };
        let filled = self.classes.iter().filter(|class| !class.queue.is_empty());
        filled.filter(can).filter_map(|class| class.queue.first()).min().map(|position| position.node)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.classes.iter().all(|class| class.queue.is_empty())
    }
}
