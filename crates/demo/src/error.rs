//! Why the demo does not go on, where no verb of the operators says it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use cli::failure::UserError;
use server::ServerStartError;

use crate::agents::AGENT;
use crate::steps::DEADLINE;

/// Why the demo does not go on.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A file, a directory or a program cannot be used.
    #[error("cannot use {}", path.display())]
    Use {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The fleet repo is not there.
    #[error("there is no fleet repo at {}", .0.display())]
    NoExample(PathBuf),
    /// There is no agent beside this program.
    #[error("there is no {AGENT} at {}", .0.display())]
    NoAgent(PathBuf),
    /// The agent could not be built.
    #[error("building {AGENT} ended with {0}")]
    Build(ExitStatus),
    /// The control plane does not start.
    #[error("the demo's control plane cannot start")]
    Start(#[source] ServerStartError),
    /// A host did not join.
    #[error("{host} did not join: {message}")]
    Join {
        /// The host.
        host: String,
        /// What its agent said.
        message: String,
    },
    /// A step did not happen in time.
    #[error("not seen within {} s: {step}; {so_far}", DEADLINE.as_secs())]
    NotSeen {
        /// The step.
        step: String,
        /// What was seen instead.
        so_far: String,
    },
    /// Somebody asked the demo to end.
    #[error("the demo was ended before everything was shown")]
    Interrupted,
}

impl DemoError {
    /// What makes an error of one of the operating system's.
    pub fn using(path: &Path) -> impl Fn(io::Error) -> DemoError {
        move |source| DemoError::Use { path: path.to_owned(), source }
    }

    /// The error of a step of which only this was seen.
    pub fn not_seen(step: &str, so_far: String) -> DemoError {
        DemoError::NotSeen { step: step.to_owned(), so_far }
    }
}

impl UserError for DemoError {
    fn hint(&self) -> Option<String> {
        match self {
            DemoError::NoExample(_) => Some("name one with --fleet DIR".to_owned()),
            DemoError::NoAgent(_) => Some(format!("install {AGENT} beside this program")),
            _ => None,
        }
    }
}
