//! [`Scope`]: where an expression finds its names, and [`Probe`]: what only a host knows.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use model::window::{ClockZone, Weekdays};

use crate::{OpenedSecrets, Value};

/// The names that an expression may use.
pub trait Scope {
    /// The value of a root name (`params`, `vars`, `traits`, `node`).
    fn root(&self, name: &str) -> Option<&Value>;

    /// The answer to a node-side predicate; `None` when it is not known yet, which ends the
    /// evaluation with [`crate::EvalError::Needs`].
    fn probe(&self, probe: &Probe) -> Option<bool>;

    /// The root names there are, for "did you mean".
    fn roots(&self) -> Vec<&str> {
        Vec::new()
    }

    /// The text of a secret; `None` where it was not opened, which ends the evaluation with
    /// [`crate::EvalError::Unobserved`].
    fn secret(&self, name: &str) -> Option<&str> {
        let _ = name;
        None
    }

    /// The observed trait that the value at a dotted path depends on, where nobody has observed it yet. Asked
    /// for paths that lead to nothing, and answered off the node alone: it ends the evaluation with
    /// [`crate::EvalError::Unobserved`] instead of taking what is not known for what is not there.
    fn unobserved(&self, path: &str) -> Option<&str> {
        let _ = path;
        None
    }
}

/// What is not observed yet: dotted paths, each with the observed trait that it depends on.
pub type Unobserved = BTreeMap<String, String>;

/// A node-side predicate (CFG-3): a question that no value answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Probe {
    /// `file_exists("/path")`: something is at this absolute path.
    FileExists(String),
    /// `dir_exists("/path")`: a directory is at this absolute path.
    DirExists(String),
    /// `command_succeeds(["test", "-d", "/home"])`: this program exits with 0.
    CommandSucceeds(Vec<String>),
    /// `process_running("nginx")`: a process of this name runs.
    ProcessRunning(String),
    /// `port_listening(80)`: something listens on this TCP port.
    PortListening(u16),
    /// `hour_range(22, 4)`: the clock is between these hours.
    HourRange {
        /// The first hour in it.
        from: u8,
        /// The first hour not in it.
        to: u8,
        /// Whose clock is meant.
        zone: ClockZone,
    },
    /// `day_of_week("mon-fri")`: the clock shows one of these days.
    DayOfWeek {
        /// The days.
        days: Weekdays,
        /// Whose clock is meant.
        zone: ClockZone,
    },
    /// `in_window("nights")`: this declared window is open.
    InWindow(String),
    /// `changed`: one of my notifiers changed; `changed("id")`: that one did.
    Changed(Option<String>),
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Probe::FileExists(path) => write!(f, "file_exists(\"{path}\")"),
            Probe::DirExists(path) => write!(f, "dir_exists(\"{path}\")"),
            Probe::CommandSucceeds(argv) => write!(f, "command_succeeds({argv:?})"),
            Probe::ProcessRunning(name) => write!(f, "process_running(\"{name}\")"),
            Probe::PortListening(port) => write!(f, "port_listening({port})"),
            Probe::HourRange { from, to, zone } => write!(f, "hour_range({from}, {to}, \"{zone}\")"),
            Probe::DayOfWeek { days, zone } => write!(f, "day_of_week(\"{days}\", \"{zone}\")"),
            Probe::InWindow(name) => write!(f, "in_window(\"{name}\")"),
            Probe::Changed(None) => f.write_str("changed"),
            Probe::Changed(Some(id)) => write!(f, "changed(\"{id}\")"),
        }
    }
}

/// A [`Scope`] over a map of values and a map of answers.
#[derive(Clone, Debug, Default)]
pub struct Names<'a> {
    roots: BTreeMap<String, Cow<'a, Value>>,
    answers: BTreeMap<Probe, bool>,
    unobserved: Vec<&'a Unobserved>,
    secrets: Option<&'a OpenedSecrets>,
}

impl<'a> Names<'a> {
    /// No names and no answers.
    pub fn new() -> Names<'a> {
        Names::default()
    }

    /// With a root name.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Names<'a> {
        self.roots.insert(name.to_owned(), Cow::Owned(value));
        self
    }

    /// With a root name that borrows its value.
    #[must_use]
    pub fn with_ref(mut self, name: &str, value: &'a Value) -> Names<'a> {
        self.roots.insert(name.to_owned(), Cow::Borrowed(value));
        self
    }

    /// With paths that nobody has observed yet.
    #[must_use]
    pub fn with_unobserved(mut self, unobserved: &'a Unobserved) -> Names<'a> {
        self.unobserved.push(unobserved);
        self
    }

    /// With the values of secrets.
    #[must_use]
    pub fn with_secrets(mut self, secrets: &'a OpenedSecrets) -> Names<'a> {
        self.secrets = Some(secrets);
        self
    }

    /// With an answer to a probe.
    #[must_use]
    pub fn answer(mut self, probe: Probe, answer: bool) -> Names<'a> {
        self.answers.insert(probe, answer);
        self
    }
}

impl Scope for Names<'_> {
    fn root(&self, name: &str) -> Option<&Value> {
        self.roots.get(name).map(AsRef::as_ref)
    }

    fn probe(&self, probe: &Probe) -> Option<bool> {
        self.answers.get(probe).copied()
    }

    fn roots(&self) -> Vec<&str> {
        self.roots.keys().map(String::as_str).collect()
    }

    fn secret(&self, name: &str) -> Option<&str> {
        self.secrets?.text(name)
    }

    fn unobserved(&self, path: &str) -> Option<&str> {
        self.unobserved.iter().find_map(|known| known.get(path)).map(String::as_str)
    }
}
