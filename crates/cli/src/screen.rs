//! [`Screen`]: where a verb's result goes. Logs and questions go to stderr.

use std::io::{self, BufRead, IsTerminal, Write};

use model::text::{printable, printable_json};
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::UserError;

/// Standard output, as text or as JSON.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    json: bool,
    terminal: bool,
    colour: bool,
}

/// How a text is marked on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// All is well.
    Good,
    /// It needs a look.
    Warn,
    /// It is wrong.
    Bad,
    /// It matters less.
    Dim,
    /// It matters more.
    Bold,
}

/// Why a result could not be shown, or a question not be answered.
#[derive(Debug, thiserror::Error)]
pub enum ScreenError {
    /// Standard output cannot be written.
    #[error("cannot write the result")]
    Write(#[source] io::Error),
    /// A result has no JSON form.
    #[error("the result has no JSON form")]
    Encode(#[source] serde_json::Error),
    /// Nobody can be asked.
    #[error("{what}: this needs a yes, and there is no terminal to ask on")]
    NobodyToAsk {
        /// What would be done.
        what: String,
    },
    /// Somebody was asked, and did not say yes.
    #[error("not done: nobody said yes")]
    Declined,
}

impl UserError for ScreenError {
    fn exit(&self) -> Exit {
        match self {
            ScreenError::NobodyToAsk { .. } | ScreenError::Declined => Exit::Refused,
            ScreenError::Write(_) | ScreenError::Encode(_) => Exit::Error,
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, ScreenError::NobodyToAsk { .. }).then(|| "say --yes".to_owned())
    }
}

impl Screen {
    /// The screen of this process: no colour when standard output is no terminal, or when
    /// `NO_COLOR` is set to anything.
    pub fn of_process(json: bool) -> Screen {
        let terminal = io::stdout().is_terminal();
        Screen { json, terminal, colour: terminal && colour_wanted() && !json }
    }

    /// The result is wanted as JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Standard output is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// A text, marked where the terminal can show it.
    pub fn mark(&self, mark: Mark, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let code = match mark {
            Mark::Good => 32,
            Mark::Warn => 33,
            Mark::Bad => 31,
            Mark::Dim => 2,
            Mark::Bold => 1,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// Writes text. Causes, outputs and traits come from nodes: what is no text in it is left out.
    ///
    /// # Errors
    /// When standard output cannot be written; a reader that went away is no error.
    pub fn text(&self, text: &str) -> Result<(), ScreenError> {
        self.write(&printable(text))
    }

    fn write(&self, text: &str) -> Result<(), ScreenError> {
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(ScreenError::Write(error)),
            Err(_) | Ok(()) => Ok(()),
        }
    }

    /// Writes the result: as JSON when that was asked for, else the text. Gives [`Exit::Ok`].
    ///
    /// # Errors
    /// As [`Screen::text`].
    pub fn result<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<Exit, ScreenError> {
        match self.json {
            true => {
                let json = serde_json::to_string_pretty(value).map_err(ScreenError::Encode)? + "\n";
                self.write(&printable_json(&json))?;
            }
            false => self.text(&text())?,
        }
        Ok(Exit::Ok)
    }

    /// The text of a difference, each line behind `indent` and marked by its sign.
    pub fn difference(&self, text: &str, indent: &str) -> String {
        let line = |line: &str| {
            let shown = match line.trim_start().chars().next() {
                Some('+') => self.mark(Mark::Good, line),
                Some('-') => self.mark(Mark::Bad, line),
                Some('~') => self.mark(Mark::Warn, line),
                _ => line.to_owned(),
            };
            format!("{indent}{shown}\n")
        };
        text.lines().map(line).collect()
    }

    /// Asks whether something may be done; `yes` answers beforehand.
    ///
    /// # Errors
    /// When nobody can be asked, or the answer is not yes.
    pub fn confirm(&self, what: &str, yes: bool) -> Result<(), ScreenError> {
        if yes {
            return Ok(());
        }
        let nobody = || ScreenError::NobodyToAsk { what: what.to_owned() };
        if self.json || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(nobody());
        }
        let mut answer = String::new();
        let asked = write!(io::stderr(), "{what}. Go on? [y/N] ")
            .and_then(|()| io::stderr().flush())
            .and_then(|()| io::stdin().lock().read_line(&mut answer));
        match (asked, answer.trim().to_ascii_lowercase().as_str()) {
            (Ok(_), "y" | "yes") => Ok(()),
            (Ok(_), _) => Err(ScreenError::Declined),
            (Err(_), _) => Err(nobody()),
        }
    }
}

/// How many of each: `2 failed, 1 changed`; what is zero is left out.
pub fn tally(counts: impl IntoIterator<Item = (usize, &'static str)>) -> String {
    let notes =
        counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}"));
    notes.collect::<Vec<_>>().join(", ")
}

/// The name of a value without fields, as JSON has it.
pub fn name_of(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// `1 node`, `2 nodes`.
pub fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Nobody set `NO_COLOR` to anything.
pub fn colour_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes a line of help for people to stderr, where it is in no pipe's way.
pub fn aside(text: &str) {
    // Nobody is left to tell when stderr is gone.
    let _ = writeln!(io::stderr(), "{}", printable(text));
}
