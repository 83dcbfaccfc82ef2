//! The demo's work: an action on nodes whose release delegates it, and a question to all.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use model::work::Work;
use server::api::work::{BEGIN_TASK, NewTask, OUTPUT, OutputQuery, TASK, TASK_NODES, TaskNodeView, TaskView};

use crate::board::Board;
use crate::error::DemoError;
use crate::steps::{Demo, NODES};
use cli::failure::Failure;
use cli::operator::Operator;
use cli::screen::Screen;
use cli::task::{self, Lines};

/// The nodes that the action runs on.
const WEB: &str = "web-*.demo";
/// What it leaves on each of them, a line every time that it runs.
const NOTE: &str = "run/nginx.asked";
/// The trait that all nodes are asked for.
const TRAIT: &str = "os.distro";
/// The longest time on one node, in seconds.
const TIMEOUT: u64 = 30;

impl Demo<'_> {
    /// An action runs on some nodes, and what it printed is here.
    pub(super) async fn task(&mut self, operator: &Operator) -> Result<(), Failure> {
        let step = "the nodes ran, once each, what their release delegates, and what it printed is here";
        let work = Work::Action { name: "reload".to_owned(), args: BTreeMap::new() };
        let began = Instant::now();
        let (task, nodes) = self.work(operator, step, WEB, work).await?;
        let took = began.elapsed();
        let mut text = String::new();
        for node in &nodes {
            let name = node.hostname.as_ref().map(ToString::to_string).unwrap_or_default();
            let mut lines = Lines::of(&name);
            let asked = OutputQuery { id: task.id.clone(), node: node.node.to_string(), after: 0 };
            for piece in operator.call(&OUTPUT, asked).await? {
                text.push_str(&lines.take(&piece, Screen::of_process(false)));
            }
        }
        for name in [NODES[0], NODES[1]] {
            let note = self.root_of(name).map(|root| root.join(NOTE));
            let note = note.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
            if note != "reloaded\n" || !text.contains(&format!("{name} | reloaded")) {
                let so_far = format!("{name} left {note:?}, and printed: {text}");
                return Err(DemoError::not_seen(step, so_far).into());
            }
        }
        text.push_str(&task::summary(&task, &nodes, Screen::of_process(false)));
        self.shown(&format!("muster task run '{WEB}' --action reload"), &text)?;
        Ok(self.board.done(step, took)?)
    }

    /// All nodes are asked something; equal answers are shown once.
    pub(super) async fn query(&mut self, operator: &Operator) -> Result<(), Failure> {
        let step = "all nodes answered a question; equal answers are shown once";
        let work = Work::Query { what: "traits".to_owned(), path: None };
        let began = Instant::now();
        let (task, nodes) = self.work(operator, step, "**", work).await?;
        let answers = task::answers(&task.id, &nodes, Some(TRAIT));
        if answers.asked != NODES.len() || answers.answers.iter().any(|same| same.answer.is_null()) {
            let so_far = task::answers_text(&answers, Screen::of_process(false));
            return Err(DemoError::not_seen(step, so_far).into());
        }
        let took = began.elapsed();
        let text = task::answers_text(&answers, Screen::of_process(false));
        self.shown(&format!("muster query '**' traits {TRAIT}"), &text)?;
        Ok(self.board.done(step, took)?)
    }

    /// Has nodes do something, and sees that each of them succeeded.
    async fn work(
        &mut self,
        operator: &Operator,
        step: &str,
        selector: &str,
        work: Work,
    ) -> Result<(TaskView, Vec<TaskNodeView>), Failure> {
        let begun = operator.call(&BEGIN_TASK, NewTask::new(selector, work, TIMEOUT)).await?;
        let over = async |_: &mut Board| {
            let task = operator.call(&TASK, begun.id.as_str()).await?;
            Ok(if task.finished.is_some() { Ok(task) } else { Err(task::line(&task.summary)) })
        };
        let task = self.see(step, over).await?;
        let nodes = operator.all(&TASK_NODES, task.id.as_str()).await?;
        let progress = &task.summary.progress;
        if progress.total == 0 || progress.succeeded < progress.total {
            let so_far = task::summary(&task, &nodes, Screen::of_process(false));
            return Err(DemoError::not_seen(step, so_far).into());
        }
        Ok((task, nodes))
    }
}
