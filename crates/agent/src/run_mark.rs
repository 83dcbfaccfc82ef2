//! [`RunMark`]: a run that is under way, so that one that was cut off leaves a trace.
//!
//! `run.json` is written when a run begins and goes when the run ends. What a daemon finds of it at its start is a
//! run that a kill, or a host that went down, cut off. It is not synced: the ledger says what was begun.

use std::path::Path;

use model::Timestamp;
use serde::{Deserialize, Serialize};
use spool::SpoolError;

use crate::volatile_file::VolatileFile;

const FILE: VolatileFile<RunMark> = VolatileFile::new("run.json", 4096);

/// A run that began and has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunMark {
    /// When it began.
    pub started: Timestamp,
    /// A fact says already that it was cut off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reported: bool,
}

impl RunMark {
    /// Marks a run that begins.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn begin(state: &Path, started: Timestamp) -> Result<(), SpoolError> {
        RunMark { started, reported: false }.write(state)
    }

    /// The run ended.
    pub fn end(state: &Path) {
        // What stays is taken for a run that was cut off.
        if let Err(error) = FILE.remove(state) {
            tracing::debug!(%error, "the mark of a run stays");
        }
    }

    /// The run that was cut off, or that is under way.
    pub fn read(state: &Path) -> Option<RunMark> {
        FILE.read(state)
    }

    /// Writes the mark.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(self, state: &Path) -> Result<(), SpoolError> {
        FILE.write(state, &self)
    }
}
