//! [`Workflow`]: steps one after the other, with a gate between each two.
//!
//! ```text
//! Planned --> Running --gate reached--> Soaking --> AwaitingApproval --> Running (next step) --> Done
//!                |                         (each as far as the step asks for it)
//!                +--gate not reached--> Failed --resume--> Running
//!                +----------------------abort--> Aborting --> Aborted
//! ```
//!
//! A step is begun as a task. When it ended and its gate's share is reached, the soak
//! follows, then the approval, then the next step. Else the workflow stands still as
//! failed, until an operator resumes or aborts it.
//!
//! Resuming begins the failed step again, as a new task, on what its selector means then
//! without the nodes that succeeded in an earlier attempt; nodes of which it is not known
//! what became of it (unknown, or silent) are left out too unless the operator includes
//! them, because they may have done it. The gate counts all attempts together.

use model::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::MAX_ATTEMPTS;
use super::progress::{TaskState, TaskSummary};
use super::spec::TaskSpec;
use super::workflow_spec::{WorkflowError, WorkflowSpec};

/// Where a workflow stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "camelCase")]
pub enum WorkflowPhase {
    /// It was not begun.
    Planned,
    /// A step's task goes on.
    Running,
    /// A step passed; the next follows then.
    Soaking {
        /// When.
        until: Timestamp,
    },
    /// A step passed; an operator has to say go on.
    AwaitingApproval,
    /// A step did not pass; an operator has to resume or abort.
    Failed {
        /// Why.
        why: String,
    },
    /// An operator called it off; the step's task is being ended.
    Aborting,
    /// An operator called it off.
    Aborted,
    /// Every step passed.
    Done,
}

/// One task that a step was begun as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// The step, from 0.
    pub step: usize,
    /// The task.
    pub task: String,
    /// It is also for nodes of which it is not known whether they did it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub include_unknown: bool,
    /// What it came to; absent while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<TaskSummary>,
}

impl Attempt {
    /// How many succeeded, and of how many it is not known whether they did it.
    fn counted(&self) -> (usize, usize) {
        let progress = self.summary.as_ref().map(|summary| summary.progress).unwrap_or_default();
        (progress.succeeded, progress.unknown + progress.silent)
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum WorkflowInput {
    /// Begin.
    Begin,
    /// A task ended. One that is not the step's newest is ignored.
    TaskFinished {
        /// The task.
        task: String,
        /// What it came to.
        summary: TaskSummary,
    },
    /// A task could not be begun: its selector cannot be used, or means no node.
    TaskRefused {
        /// The task.
        task: String,
        /// Why.
        why: String,
    },
    /// An operator says go on.
    Approve {
        /// Who.
        by: String,
        /// After which step, from 0: an approval is never one of a later step by mistake.
        step: usize,
    },
    /// An operator begins the failed step again.
    Resume {
        /// Who: the tasks from now on are this operator's.
        by: String,
        /// Also on nodes of which it is not known whether they did it.
        include_unknown: bool,
    },
    /// An operator calls it off.
    Abort {
        /// Who.
        by: String,
    },
    /// Time passed.
    Tick,
}

/// What the shell is to do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkflowEffect {
    /// Make the workflow durable, whole.
    Save,
    /// Begin this task unless one of its id is there; its targets are what the selector
    /// means now, without those nodes that in one of the named tasks succeeded, or of which
    /// one does not know (unknown, or silent). A named task that is not there has no nodes.
    /// No target left is [`WorkflowInput::TaskFinished`] as done with nothing in it when
    /// tasks are named, else [`WorkflowInput::TaskRefused`].
    StartTask {
        /// The task.
        spec: Box<TaskSpec>,
        /// Leave out who succeeded in one of these tasks.
        not_succeeded_in: Vec<String>,
        /// Leave out of whom one of these tasks does not know.
        not_unknown_in: Vec<String>,
    },
    /// Call a task off.
    CancelTask {
        /// The task.
        task: String,
        /// Who asked for it.
        by: String,
    },
    /// It is over: done or aborted. Said once.
    Finished,
}

/// A workflow under way: keep it as it is (it serializes), and [`Workflow::resume_after_restart`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Workflow {
    /// Its id: the ids of its tasks begin with it.
    pub id: String,
    /// Who began or resumed it.
    pub by: String,
    /// What was asked for.
    pub spec: WorkflowSpec,
    /// Where it stands.
    pub phase: WorkflowPhase,
    /// The step that it stands at, from 0.
    pub step: usize,
    /// Every task so far, in order.
    pub attempts: Vec<Attempt>,
    /// When it was asked for.
    pub created: Timestamp,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<Timestamp>,
}

impl Workflow {
    /// A workflow that is planned.
    ///
    /// # Errors
    /// When it breaks a rule.
    pub fn new(id: &str, by: &str, spec: WorkflowSpec, now: Timestamp) -> Result<Workflow, WorkflowError> {
        spec.check()?;
        Ok(Workflow {
            id: id.to_owned(),
            by: by.to_owned(),
            spec,
            phase: WorkflowPhase::Planned,
            step: 0,
            attempts: Vec::new(),
            created: now,
            finished: None,
        })
    }

    /// Nothing more is done.
    pub fn is_final(&self) -> bool {
        matches!(self.phase, WorkflowPhase::Done | WorkflowPhase::Aborted)
    }

    /// After a restart of the control plane: says again what may not have been done. The
    /// shell gives it what its tasks came to meanwhile: [`WorkflowInput::TaskFinished`].
    pub fn resume_after_restart(&self) -> Vec<WorkflowEffect> {
        let running = |task: &str| match self.phase {
            WorkflowPhase::Running => self.start(task),
            WorkflowPhase::Aborting => {
                let (task, by) = (task.to_owned(), self.by.clone());
                Some(WorkflowEffect::CancelTask { task, by })
            }
            _ => None,
        };
        self.current().and_then(|attempt| running(&attempt.task)).into_iter().collect()
    }

    /// What to do about an input.
    pub fn handle(&mut self, input: WorkflowInput, now: Timestamp) -> Vec<WorkflowEffect> {
        let before = self.clone();
        let mut effects = Vec::new();
        match input {
            WorkflowInput::Begin => {
                if self.phase == WorkflowPhase::Planned {
                    self.begin_step(false, &mut effects);
                }
            }
            WorkflowInput::TaskFinished { task, summary } => self.task_finished(&task, summary, now),
            WorkflowInput::TaskRefused { task, why } => {
                if self.is_current(&task) {
                    self.phase = match self.phase {
                        WorkflowPhase::Aborting => WorkflowPhase::Aborted,
                        _ => WorkflowPhase::Failed { why },
                    };
                }
            }
            WorkflowInput::Approve { by, step } => {
                if self.phase == WorkflowPhase::AwaitingApproval && self.step == step {
                    self.by = by;
                    self.next_step(&mut effects);
                }
            }
            WorkflowInput::Resume { by, include_unknown } => self.resume(by, include_unknown, &mut effects),
            WorkflowInput::Abort { by } => self.abort(by, &mut effects),
            WorkflowInput::Tick => {}
        }
        self.pass_gates(now, &mut effects);
        if self.is_final() && self.finished.is_none() {
            self.finished = Some(now);
            effects.push(WorkflowEffect::Finished);
        }
        if *self != before {
            effects.insert(0, WorkflowEffect::Save);
        }
        effects
    }

    /// When a [`WorkflowInput::Tick`] is due next.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        match self.phase {
            WorkflowPhase::Soaking { until } => Some(until),
            _ => None,
        }
    }

    /// The attempts of a step.
    pub fn attempts_of(&self, step: usize) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().filter(move |attempt| attempt.step == step)
    }

    /// The task that goes on.
    fn current(&self) -> Option<&Attempt> {
        self.attempts.last().filter(|attempt| attempt.summary.is_none())
    }

    fn is_current(&self, task: &str) -> bool {
        matches!(self.phase, WorkflowPhase::Running | WorkflowPhase::Aborting)
            && self.current().is_some_and(|attempt| attempt.task == task)
    }

    fn begin_step(&mut self, include_unknown: bool, effects: &mut Vec<WorkflowEffect>) {
        let attempt = self.attempts_of(self.step).count() + 1;
        // The same id after a crash: the task is begun once.
        let task = format!("{}-{}-{attempt}", self.id, self.step + 1);
        self.attempts.push(Attempt { step: self.step, task: task.clone(), include_unknown, summary: None });
        effects.extend(self.start(&task));
        self.phase = WorkflowPhase::Running;
    }

    /// The order to begin the newest task, or to begin it again after a crash.
    fn start(&self, task: &str) -> Option<WorkflowEffect> {
        let spec = self.spec.steps.get(self.step)?.task(task, &self.by, &self.id)?;
        let name = |attempt: &&Attempt| attempt.task.clone();
        let earlier = |attempt: &&&Attempt| attempt.task != task;
        let all: Vec<&Attempt> = self.attempts_of(self.step).collect();
        let unsure = &all[since_included(&all)..];
        Some(WorkflowEffect::StartTask {
            spec: Box::new(spec),
            not_succeeded_in: all.iter().filter(earlier).map(name).collect(),
            not_unknown_in: unsure.iter().filter(earlier).map(name).collect(),
        })
    }

    fn task_finished(&mut self, task: &str, summary: TaskSummary, now: Timestamp) {
        if !self.is_current(task) {
            return;
        }
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.summary = Some(summary.clone());
        }
        if self.phase == WorkflowPhase::Aborting {
            self.phase = WorkflowPhase::Aborted;
            return;
        }
        let Some(gate) = self.spec.steps.get(self.step).map(|step| step.gate.clone()) else { return };
        self.phase = match self.missed(&summary, gate.success_percent) {
            Some(why) => WorkflowPhase::Failed { why },
            None => WorkflowPhase::Soaking { until: now.plus(Duration::from_secs(u64::from(gate.soak))) },
        };
    }

    /// Why the step did not pass.
    fn missed(&self, last: &TaskSummary, percent: u8) -> Option<String> {
        let all: Vec<&Attempt> = self.attempts_of(self.step).collect();
        let (_, earlier) = all.split_last()?;
        let before: usize = earlier.iter().map(|attempt| attempt.counted().0).sum();
        // Left out of the last attempt, and no success.
        let left_out: usize =
            earlier.iter().skip(since_included(&all)).map(|attempt| attempt.counted().1).sum();
        let succeeded = before + last.progress.succeeded;
        let total = before + left_out + last.progress.total;
        let why = last.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        match last.state {
            TaskState::Done => {}
            TaskState::Cancelled => return Some(format!("its task was cancelled{why}")),
            _ => return Some(format!("its task was halted{why}")),
        }
        let enough = succeeded * 100 >= total * usize::from(percent);
        (!enough).then(|| format!("{succeeded} of {total} succeeded, and {percent} % must"))
    }

    fn pass_gates(&mut self, now: Timestamp, effects: &mut Vec<WorkflowEffect>) {
        if matches!(self.phase, WorkflowPhase::Soaking { until } if now >= until) {
            if self.spec.steps.get(self.step).is_some_and(|step| step.gate.approve) {
                self.phase = WorkflowPhase::AwaitingApproval;
            } else {
                self.next_step(effects);
            }
        }
    }

    fn next_step(&mut self, effects: &mut Vec<WorkflowEffect>) {
        if self.step + 1 == self.spec.steps.len() {
            self.phase = WorkflowPhase::Done;
            return;
        }
        self.step += 1;
        self.begin_step(false, effects);
    }

    fn resume(&mut self, by: String, include_unknown: bool, effects: &mut Vec<WorkflowEffect>) {
        if !matches!(self.phase, WorkflowPhase::Failed { .. }) {
            return;
        }
        if self.attempts_of(self.step).count() >= MAX_ATTEMPTS {
            let why = format!("a step is begun at most {MAX_ATTEMPTS} times");
            self.phase = WorkflowPhase::Failed { why };
            return;
        }
        self.by = by;
        self.begin_step(include_unknown, effects);
    }

    fn abort(&mut self, by: String, effects: &mut Vec<WorkflowEffect>) {
        match self.phase {
            WorkflowPhase::Running => {
                if let Some(attempt) = self.current() {
                    let task = attempt.task.clone();
                    effects.push(WorkflowEffect::CancelTask { task, by: by.clone() });
                }
                (self.by, self.phase) = (by, WorkflowPhase::Aborting);
            }
            WorkflowPhase::Planned
            | WorkflowPhase::Soaking { .. }
            | WorkflowPhase::AwaitingApproval
            | WorkflowPhase::Failed { .. } => {
                (self.by, self.phase) = (by, WorkflowPhase::Aborted);
            }
            WorkflowPhase::Aborting | WorkflowPhase::Aborted | WorkflowPhase::Done => {}
        }
    }
}

/// The attempts from here on left out those of which earlier ones of them do not know.
fn since_included(attempts: &[&Attempt]) -> usize {
    attempts.iter().rposition(|attempt| attempt.include_unknown).unwrap_or(0)
}
