//! Tasks and workflows with their targets.

use model::{NodeId, Timestamp};
use rusqlite::{Connection, Row, params};

use super::Store;
use super::cell::{Text, int};
use super::query::{self, change, listed};
use crate::closure;
use crate::error::{Result, StoreError};
use crate::tasks::{self as bounds, MAX_OPEN_TASKS, TaskKind, TaskNode, TaskRecord};

impl Store {
    /// Keeps a task: a new one, or a new document and end of one that is known. At most
    /// [`crate::MAX_OPEN_TASKS`] are open at one time.
    pub async fn put_task(&self, task: TaskRecord) -> Result<()> {
        bounds::check_task(&task)?;
        self.write(task.document.len(), move |session| put(&session.db, &task)).await
    }

    /// One task.
    pub async fn task(&self, id: &str) -> Result<Option<TaskRecord>> {
        let id = id.to_owned();
        self.read(move |db| one(db, &id)).await
    }

    /// Tasks, newest first, those before the one of an id.
    pub async fn tasks(&self, limit: usize, before: Option<&str>) -> Result<Vec<TaskRecord>> {
        let before = before.map(str::to_owned);
        self.read(move |db| list(db, limit, before.as_deref())).await
    }

    /// Tasks that are not finished, oldest first.
    pub async fn open_tasks(&self) -> Result<Vec<TaskRecord>> {
        self.read(open).await
    }

    /// Keeps targets of a task, new ones and new states of known ones. At most
    /// [`crate::MAX_TARGETS_IN_PUT`] in one call.
    ///
    /// # Errors
    /// [`crate::StoreError::UnknownTask`].
    pub async fn put_task_nodes(&self, task: &str, targets: Vec<TaskNode>) -> Result<()> {
        bounds::check_targets(&targets)?;
        let task = task.to_owned();
        let bytes = targets.iter().map(|target| target.state.len()).sum();
        self.write(bytes, move |session| put_nodes(&session.db, &task, &targets)).await
    }

    /// Targets of a task in the order of their nodes' ids, after one.
    pub async fn task_nodes(
        &self,
        task: &str,
        after: Option<&NodeId>,
        limit: usize,
    ) -> Result<Vec<TaskNode>> {
        let (task, after) = (task.to_owned(), after.cloned());
        self.read(move |db| nodes(db, &task, after.as_ref(), limit)).await
    }
}

/// The column of a kind.
fn column(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::Task => "task",
        TaskKind::Workflow => "workflow",
    }
}

fn number(db: &Connection, id: &str) -> Result<Option<i64>> {
    query::one(db, "find a task", "SELECT no FROM task WHERE id = ?1", [id], |row| row.get(0))
}

fn put(db: &Connection, task: &TaskRecord) -> Result<()> {
    const NEW: &str = "INSERT INTO task (id, kind, created, by, finished, document)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    const KNOWN: &str = "UPDATE task SET finished = ?2, document = ?3 WHERE no = ?1";
    const OPEN: &str = "SELECT count(*) FROM task WHERE finished IS NULL";
    let finished = task.finished.map(|at| at.0);
    if let Some(no) = number(db, &task.id)? {
        return change(db, "keep a task", KNOWN, params![no, finished, task.document]).map(|_| ());
    }
    let open: i64 = query::one(db, "count the tasks", OPEN, [], |row| row.get(0))?.unwrap_or(0);
    let after = super::cell::uint(open) + u64::from(finished.is_none());
    if finished.is_none() {
        closure::limit("open tasks", after, MAX_OPEN_TASKS as u64)?;
    }
    let kind = column(task.kind);
    let row = params![task.id, kind, task.created.0, task.by, finished, task.document];
    change(db, "keep a task", NEW, row).map(|_| ())
}

macro_rules! select_tasks {
    ($rest:literal) => {
        concat!("SELECT id, kind, created, by, finished, document FROM task ", $rest)
    };
}

fn one(db: &Connection, id: &str) -> Result<Option<TaskRecord>> {
    query::one(db, "read a task", select_tasks!("WHERE id = ?1"), [id], record)
}

fn list(db: &Connection, limit: usize, before: Option<&str>) -> Result<Vec<TaskRecord>> {
    const SQL: &str = select_tasks!("WHERE no < ?1 ORDER BY no DESC LIMIT ?2");
    let before = match before {
        None => i64::MAX,
        // One that is gone was older than all that are left.
        Some(id) => number(db, id)?.unwrap_or(0),
    };
    query::all(db, "read tasks", SQL, params![before, listed(limit)], record)
}

fn open(db: &Connection) -> Result<Vec<TaskRecord>> {
    const SQL: &str = select_tasks!("WHERE finished IS NULL ORDER BY no");
    query::all(db, "read the open tasks", SQL, [], record)
}

fn put_nodes(db: &Connection, task: &str, targets: &[TaskNode]) -> Result<()> {
    const SQL: &str = "INSERT OR REPLACE INTO task_node (task, node, action, state) VALUES (?1, ?2, ?3, ?4)";
    let no = number(db, task)?.ok_or_else(|| StoreError::UnknownTask(task.into()))?;
    for target in targets {
        let row = params![no, target.node.as_str(), target.action, target.state];
        change(db, "keep a task's targets", SQL, row)?;
    }
    Ok(())
}

fn nodes(db: &Connection, task: &str, after: Option<&NodeId>, limit: usize) -> Result<Vec<TaskNode>> {
    const SQL: &str = "SELECT node, action, state FROM task_node
        WHERE task = ?1 AND node > ?2 ORDER BY node LIMIT ?3";
    let Some(no) = number(db, task)? else { return Ok(Vec::new()) };
    let bounds = params![no, after.map_or("", NodeId::as_str), listed(limit)];
    query::all(db, "read a task's targets", SQL, bounds, |row| {
        Ok(TaskNode { node: row.get::<_, Text<_>>(0)?.0, action: row.get(1)?, state: row.get(2)? })
    })
}

/// Takes away one finished task beyond the newest so many; whether there was one.
pub(super) fn prune_one(db: &Connection, keep: usize) -> Result<bool> {
    const SQL: &str = "DELETE FROM task WHERE no = (SELECT min(no) FROM task WHERE finished IS NOT NULL)
        AND ?1 < (SELECT count(*) FROM task WHERE finished IS NOT NULL)";
    Ok(change(db, "prune tasks", SQL, [int(keep as u64)])? > 0)
}

fn record(row: &Row<'_>) -> rusqlite::Result<TaskRecord> {
    let kind = if row.get_ref(1)?.as_str()? == column(TaskKind::Workflow) {
        TaskKind::Workflow
    } else {
        TaskKind::Task
    };
    Ok(TaskRecord {
        id: row.get(0)?,
        kind,
        created: Timestamp(row.get(2)?),
        by: row.get(3)?,
        document: row.get(5)?,
        finished: row.get::<_, Option<i64>>(4)?.map(Timestamp),
    })
}
