//! Tasks and workflows with their targets.

use std::collections::BTreeMap;
use std::ops::Bound;

use model::NodeId;

use super::State;
use super::nodes::listed;
use crate::closure::limit;
use crate::error::{Result, StoreError};
use crate::tasks::{MAX_OPEN_TASKS, TaskNode, TaskRecord};

/// A task with its targets.
#[derive(Debug)]
pub(super) struct Task {
    record: TaskRecord,
    nodes: BTreeMap<NodeId, TaskNode>,
}

impl State {
    fn task_number(&self, id: &str) -> Option<u64> {
        self.tasks.iter().find(|(_, task)| task.record.id == id).map(|(number, _)| *number)
    }

    pub(super) fn put_task(&mut self, task: TaskRecord) -> Result<()> {
        if let Some(known) = self.tasks.values_mut().find(|known| known.record.id == task.id) {
            (known.record.document, known.record.finished) = (task.document, task.finished);
            return Ok(());
        }
        if task.finished.is_none() {
            let open = self.tasks.values().filter(|task| task.record.finished.is_none()).count() as u64;
            limit("open tasks", open + 1, MAX_OPEN_TASKS as u64)?;
        }
        self.last_task += 1;
        self.tasks.insert(self.last_task, Task { record: task, nodes: BTreeMap::new() });
        Ok(())
    }

    pub(super) fn task(&self, id: &str) -> Option<TaskRecord> {
        Some(self.tasks[&self.task_number(id)?].record.clone())
    }

    pub(super) fn list_tasks(&self, limit: usize, before: Option<&str>) -> Vec<TaskRecord> {
        let before = before.map_or(u64::MAX, |id| self.task_number(id).unwrap_or(0));
        let newest = self.tasks.range(..before).rev().take(listed(limit));
        newest.map(|(_, task)| task.record.clone()).collect()
    }

    pub(super) fn open_tasks(&self) -> Vec<TaskRecord> {
        let open = self.tasks.values().filter(|task| task.record.finished.is_none());
        open.map(|task| task.record.clone()).collect()
    }

    pub(super) fn put_task_nodes(&mut self, task: &str, targets: Vec<TaskNode>) -> Result<()> {
        let known = self.tasks.values_mut().find(|known| known.record.id == task);
        let known = known.ok_or_else(|| StoreError::UnknownTask(task.into()))?;
        known.nodes.extend(targets.into_iter().map(|target| (target.node.clone(), target)));
        Ok(())
    }

    pub(super) fn task_nodes(&self, task: &str, after: Option<&NodeId>, limit: usize) -> Vec<TaskNode> {
        let Some(number) = self.task_number(task) else { return Vec::new() };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.tasks[&number].nodes.range((from, Bound::Unbounded));
        rest.take(listed(limit)).map(|(_, target)| target.clone()).collect()
    }

    /// Takes away the oldest finished tasks beyond the newest so many.
    pub(super) fn prune_tasks(&mut self, keep: usize) -> u64 {
        let finished: Vec<u64> = self
            .tasks
            .iter()
            .filter(|(_, t)| t.record.finished.is_some())
            .map(|(number, _)| *number)
            .collect();
        let beyond = finished.len().saturating_sub(keep);
        finished[..beyond].iter().for_each(|number| drop(self.tasks.remove(number)));
        beyond as u64
    }
}
