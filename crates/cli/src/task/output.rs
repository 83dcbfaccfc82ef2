//! What nodes print, line by line, with the node's name before it.

use std::collections::{BTreeMap, BTreeSet};

use model::NodeId;
use model::work::OutputStream;
use plane::work::NodeStage;
use serde::Serialize;
use server::api::work::{OUTPUT, OutputQuery, OutputView, TASK_NODES, TaskNodeView, TaskView};

use super::caller::Caller;
use super::outcome::exit;
use super::show::summary;
use super::ticker::Ticker;
use super::words::name;
use crate::clock::bytes;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::operator::Operator;
use crate::screen::{Mark, Screen};

/// Pieces of one node's output, put together to lines: stdout after `|`, stderr after `!`.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    name: Option<String>,
    /// The beginnings of lines that did not end yet, by stream.
    begun: [String; 2],
}

impl Lines {
    /// Lines with a node's name before each.
    pub fn of(name: &str) -> Lines {
        Lines { name: Some(name.to_owned()), begun: Default::default() }
    }

    /// Lines as they are.
    pub fn bare() -> Lines {
        Lines::default()
    }

    /// Takes a piece in; gives the lines that are whole now.
    pub fn take(&mut self, piece: &OutputView, screen: Screen) -> String {
        let mut out = String::new();
        if piece.dropped > 0 {
            let left_out = format!("({} left out)", bytes(piece.dropped));
            out.push_str(&self.line(piece.stream, &left_out, screen));
        }
        let begun = &mut self.begun[index_of(piece.stream)];
        begun.push_str(&piece.text);
        let Some(end) = begun.rfind('\n') else { return out };
        let rest = begun.split_off(end + 1);
        let whole = std::mem::replace(begun, rest);
        out.extend(whole.lines().map(|line| self.line(piece.stream, line, screen)));
        out
    }

    /// What did not end with a line's end.
    pub fn rest(&mut self, screen: Screen) -> String {
        let mut out = String::new();
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            let begun = std::mem::take(&mut self.begun[index_of(stream)]);
            if !begun.is_empty() {
                out.push_str(&self.line(stream, &begun, screen));
            }
        }
        out
    }

    fn line(&self, stream: OutputStream, text: &str, screen: Screen) -> String {
        let (sign, mark) = match stream {
            OutputStream::Stdout => ("|", Mark::Dim),
            OutputStream::Stderr => ("!", Mark::Warn),
        };
        match &self.name {
            Some(name) => format!("{} {text}\n", screen.mark(mark, &format!("{name} {sign}"))),
            None => format!("{text}\n"),
        }
    }
}

fn index_of(stream: OutputStream) -> usize {
    match stream {
        OutputStream::Stdout => 0,
        OutputStream::Stderr => 1,
    }
}

/// The output of a task while it is followed.
#[derive(Debug, Default)]
pub struct Outputs {
    wanted: bool,
    nodes: BTreeMap<NodeId, (u64, Lines)>,
    whole: BTreeSet<NodeId>,
    kept: BTreeMap<String, Vec<OutputView>>,
}

impl Outputs {
    /// Shows none.
    pub fn none() -> Outputs {
        Outputs::default()
    }

    /// Shows all of it.
    pub fn all() -> Outputs {
        Outputs { wanted: true, ..Outputs::default() }
    }

    /// Any is shown.
    pub fn wanted(&self) -> bool {
        self.wanted
    }

    /// What was read, by the nodes' names, when it was not shown.
    pub(super) fn kept(self) -> Vec<NodeOutput> {
        self.kept.into_iter().map(|(node, output)| NodeOutput { node, output }).collect()
    }

    /// Reads and shows what is new.
    pub(super) async fn read(
        &mut self,
        caller: &mut Caller<'_>,
        ticker: &mut Ticker,
        task: &TaskView,
        screen: Screen,
    ) -> Result<(), Failure> {
        if !self.wanted {
            return Ok(());
        }
        let id = task.id.as_str();
        let nodes =
            caller.ask(ticker, async |operator: &Operator| operator.all(&TASK_NODES, id).await).await?;
        for node in &nodes {
            let ended = node.stage == NodeStage::Ended;
            if !(ended || node.stage == NodeStage::Running) || self.whole.contains(&node.node) {
                continue;
            }
            let hostname = name(node);
            let (after, lines) =
                self.nodes.entry(node.node.clone()).or_insert_with(|| (0, Lines::of(&hostname)));
            let request = OutputQuery { id: id.to_owned(), node: node.node.to_string(), after: *after };
            let request = async |operator: &Operator| operator.call(&OUTPUT, request.clone()).await;
            let pieces = caller.ask(ticker, request).await?;
            *after = pieces.last().map_or(*after, |piece| piece.number);
            let mut text: String = pieces.iter().map(|piece| lines.take(piece, screen)).collect();
            if ended {
                text.push_str(&lines.rest(screen));
                self.whole.insert(node.node.clone());
            }
            if screen.is_json() {
                self.kept.entry(hostname).or_default().extend(pieces);
            } else if !text.is_empty() {
                ticker.clear();
                screen.text(&text)?;
            }
        }
        Ok(())
    }
}

/// A task and its nodes, for programs; what nodes printed when it was followed with `--output`.
#[derive(Debug, Serialize)]
pub(crate) struct TaskReport {
    pub(crate) task: TaskView,
    pub(crate) nodes: Vec<TaskNodeView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) output: Vec<NodeOutput>,
}

impl TaskReport {
    /// Tells what became of the task.
    pub(crate) fn tell(&self, screen: Screen) -> Result<Exit, Failure> {
        screen.result(self, || summary(&self.task, &self.nodes, screen))?;
        Ok(self.exit())
    }

    pub(crate) fn exit(&self) -> Exit {
        exit(&self.task.summary.progress, &self.nodes)
    }
}

/// What one node printed, for programs.
#[derive(Debug, Serialize)]
pub(crate) struct NodeOutput {
    pub(crate) node: String,
    pub(crate) output: Vec<OutputView>,
}
