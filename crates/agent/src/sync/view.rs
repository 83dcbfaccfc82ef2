//! [`SharedStatus`]: what `muster-agent status` shows of synchronization and work, as the daemon
//! writes it beside the state every few seconds.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use model::Timestamp;
use model::condition::{SyncCause, SyncCondition};
use model::replication::{Mode, TransportPolicy};
use serde::{Deserialize, Serialize};
use spool::SpoolError;
use sync::link::LinkCounters;
use tokio::sync::watch;

use crate::clock::now;
use crate::volatile_file::VolatileFile;

const FILE: VolatileFile<SyncStatus> = VolatileFile::new("status.json", 4 * 1024 * 1024).readable();
/// It is written no more often than this.
pub const EVERY: Duration = Duration::from_secs(3);
/// The subject of the problem that the control plane's word is not proven (IDN-9).
pub const PROOFS: &str = "control plane";
/// The most problems that are shown.
const MAX_PROBLEMS: usize = 100;

/// Synchronization and work of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SyncStatus {
    /// When this was written.
    pub at: Timestamp,
    /// Who is the source of truth.
    pub mode: Mode,
    /// How events may travel.
    pub transport: TransportPolicy,
    /// The folder of manifests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The open link: what carries it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// How both sets stand, as the last link saw them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<SyncCondition>,
    /// How the last link ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Objects that the node authors, statuses among them.
    pub feed_objects: u64,
    /// Objects that the control plane authors for it, actions among them.
    pub replica_objects: u64,
    /// Vanished objects that are not taken for deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// Actions that run.
    pub actions_running: u64,
    /// Actions that wait for their turn.
    pub actions_waiting: u64,
    /// What is wrong, by where.
    pub problems: BTreeMap<String, String>,
    /// What was counted since the daemon began.
    pub counts: SyncCounts,
}

impl SyncStatus {
    /// The link sees both sets so.
    pub fn observed(&mut self, cause: SyncCause) {
        let same = self.condition.take().filter(|before| before.cause.reason() == cause.reason());
        let since = same.and_then(|before| before.since).or_else(|| Some(now()));
        self.condition = Some(SyncCondition::new(cause, since));
    }

    /// What somebody on the host should know.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn show(&self, node: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = catalog::sync::mode_word(self.mode);
        match &self.folder {
            Some(folder) => writeln!(f, "synchronization {mode}, folder {folder}")?,
            None => writeln!(f, "synchronization {mode}")?,
        }
        let link = match (&self.link, self.since) {
            (Some(link), Some(since)) => format!("{link} since {since}"),
            _ => "none now".to_owned(),
        };
        writeln!(f, "link           {link} (transport {})", self.transport)?;
        self.show_condition(node, f)?;
        let (replica, feed) = (self.replica_objects, self.feed_objects);
        writeln!(f, "objects        {replica} from the control plane, {feed} own")?;
        if let Some(held) = &self.held {
            writeln!(f, "held back      {held}")?;
        }
        let (running, waiting) = (self.actions_running, self.actions_waiting);
        if running + waiting > 0 {
            writeln!(f, "actions        {running} running, {waiting} waiting")?;
        }
        for (subject, problem) in &self.problems {
            writeln!(f, "problem        {subject}: {problem}")?;
        }
        Ok(())
    }

    fn show_condition(&self, node: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cause, since) = match (self.mode, &self.condition) {
            (Mode::Off, _) => (&SyncCause::Off, None),
            (_, Some(condition)) => (&condition.cause, condition.since),
            (_, None) => (&SyncCause::NeverCompared, None),
        };
        // What the last link saw is not how it is now.
        let is_now = self.link.is_some() || self.mode == Mode::Off;
        let seen = if is_now { "" } else { " when the last link ended" };
        let since = since.map(|since| format!(" since {since}")).unwrap_or_default();
        writeln!(
            f,
            "objects are    {}{since}{seen}: {} ({})",
            cause.state(),
            cause.message(),
            cause.reason()
        )?;
        match cause.next_step(node).filter(|_| self.mode != Mode::Off) {
            Some(next) => writeln!(f, "next           {next}"),
            None => Ok(()),
        }
    }
}

/// What a daemon counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SyncCounts {
    /// Links opened.
    pub links: u64,
    /// Links that were opened again after one ended otherwise than in order.
    pub reconnects: u64,
    /// Events received.
    pub events_in: u64,
    /// Events sent.
    pub events_out: u64,
    /// Objects applied.
    pub applied: u64,
    /// Objects that could not be taken here.
    pub refused_here: u64,
    /// Objects that could not be taken there.
    pub refused_there: u64,
    /// Resyncs, of both directions.
    pub resyncs: u64,
    /// Changes that a newer one replaced before they were sent.
    pub coalesced: u64,
    /// Own changes that are not acknowledged.
    pub depth: u64,
    /// From the source's acceptance to here, the newest, in milliseconds; absent before the first was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
    /// The longest such time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_max_ms: Option<u64>,
    /// Local edits put back.
    pub reverted: u64,
    /// Local deletes made good.
    pub recreated: u64,
    /// Check-ins that went over a link.
    pub check_ins: u64,
}

impl SyncCounts {
    /// Adds what a link counted since `before`.
    pub fn add(&mut self, link: &LinkCounters, before: &LinkCounters) {
        self.events_in += link.received - before.received;
        self.events_out += link.sent - before.sent;
        self.applied += link.applied - before.applied;
        self.refused_here += link.refused_here - before.refused_here;
        self.refused_there += link.refused_there - before.refused_there;
        self.resyncs += link.resyncs + link.resyncs_served - before.resyncs - before.resyncs_served;
        self.coalesced += link.coalesced - before.coalesced;
    }
}

/// The status that all parts write into.
#[derive(Default)]
pub struct SharedStatus(watch::Sender<SyncStatus>);

impl SharedStatus {
    /// Changes what is shown.
    pub fn set(&self, change: impl FnOnce(&mut SyncStatus)) {
        self.0.send_modify(change);
    }

    /// What is wrong with a subject; `None`: nothing any more. `true` when that is new.
    pub fn problem(&self, subject: &str, problem: Option<String>) -> bool {
        self.0.send_if_modified(|SyncStatus { problems, .. }| match problem {
            None => problems.remove(subject).is_some(),
            Some(text) if problems.get(subject) == Some(&text) => false,
            Some(_) if problems.len() >= MAX_PROBLEMS && !problems.contains_key(subject) => false,
            Some(text) => {
                problems.insert(subject.to_owned(), text);
                true
            }
        })
    }

    /// What is shown now.
    pub fn shown(&self) -> SyncStatus {
        self.0.borrow().clone()
    }

    /// Changes when what is shown does.
    pub fn watch(&self) -> watch::Receiver<SyncStatus> {
        self.0.subscribe()
    }

    /// Writes the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, state: &Path) -> Result<(), SpoolError> {
        FILE.write(state, &SyncStatus { at: now(), ..self.shown() })
    }
}

/// Runs a thread of this name, without which something is not done; a panic is shown.
pub fn watched(view: &SharedStatus, subject: &str, lost: &str, work: impl FnOnce()) {
    // Of what it worked on nothing is left.
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        tracing::error!(subject, lost, "a thread of the agent panicked; restart the agent");
        let problem = format!("the agent's thread panicked, {lost}; restart the agent, and report its log");
        view.problem(&format!("thread {subject}"), Some(problem));
    }
}

/// What the daemon wrote last; `None` when it never ran.
pub fn read(state: &Path) -> Option<SyncStatus> {
    FILE.read(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_is_a_problem_and_one_that_ends_is_none() {
        let view = SharedStatus::default();
        let run = |panics: bool| {
            watched(&view, "work", "actions are not carried out", || assert!(!panics, "a defect"));
        };
        run(false);
        assert!(view.shown().problems.is_empty());
        run(true);
        let problems = view.shown().problems;
        assert!(problems["thread work"].contains("actions are not carried out"), "{problems:?}");
    }

    /// What was not measured is no number, of now or of 1970.
    #[test]
    fn a_latency_is_absent_before_it_is_measured() {
        let shown = |counts: &SyncCounts| serde_json::to_value(counts).unwrap_or_default();
        let mut counts = SyncCounts::default();
        let names = ["latencyMs", "latencyMaxMs"];
        assert_eq!(names.map(|name| shown(&counts).get(name).cloned()), [None, None]);
        (counts.latency_ms, counts.latency_max_ms) = (Some(0), Some(7));
        assert_eq!(names.map(|name| shown(&counts).get(name).cloned()), [Some(0.into()), Some(7.into())]);
    }
}
