//! What the demo shows: steps that were seen to happen, and the nodes while they converge.

use std::time::Duration;

use serde::Serialize;
use server::api::NodeView;

use cli::node;
use cli::screen::{Mark, Screen, ScreenError};

/// A step that was seen to happen.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    /// What was seen.
    pub name: String,
    /// How long it took, in milliseconds.
    pub took_ms: u128,
}

/// The demo's output.
pub struct Board {
    screen: Screen,
    /// Steps so far.
    pub done: Vec<Done>,
    /// Lines of the table that stands at the end, to be drawn over.
    drawn: usize,
    last: String,
}

impl Board {
    /// An empty board.
    pub fn new(screen: Screen) -> Board {
        Board { screen, done: Vec::new(), drawn: 0, last: String::new() }
    }

    /// Says something.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn say(&mut self, text: &str) -> Result<(), ScreenError> {
        if self.screen.is_json() {
            return Ok(());
        }
        self.drawn = 0;
        self.last.clear();
        self.screen.text(&format!("{text}\n"))
    }

    /// A step was seen to happen.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn done(&mut self, name: &str, took: Duration) -> Result<(), ScreenError> {
        self.done.push(Done { name: name.to_owned(), took_ms: took.as_millis() });
        let mark = self.screen.mark(Mark::Good, "ok");
        self.say(&format!("{mark}  {name}  ({:.1} s)", took.as_secs_f32()))
    }

    /// Shows the nodes: drawn over on a terminal, else a new table when a state changed.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn nodes(&mut self, nodes: &[NodeView]) -> Result<(), ScreenError> {
        if self.screen.is_json() || nodes.is_empty() {
            return Ok(());
        }
        if self.screen.is_terminal() {
            let table = node::list(nodes, self.screen);
            let up = if self.drawn > 0 { format!("\u{1b}[{}A\u{1b}[J", self.drawn) } else { String::new() };
            self.drawn = table.lines().count();
            return self.screen.text(&format!("{up}{table}"));
        }
        let states: Vec<String> =
            nodes.iter().map(|node| format!("{} {}", node.hostname, node.state)).collect();
        let line = states.join(", ");
        if line == self.last {
            return Ok(());
        }
        self.last.clone_from(&line);
        self.screen.text(&format!("    {line}\n"))
    }
}
