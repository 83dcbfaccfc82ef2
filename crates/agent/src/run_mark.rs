//! [`RunMark`]: a run that is under way, so that one that was cut off leaves a trace.
//!
//! `run.json` is written when a run begins and goes when the run ends. What a daemon finds of it at its start is a
//! run that a kill, or a host that went down, cut off. It is not synced: the ledger says what was begun.

use std::path::Path;

use model::Timestamp;
use serde::{Deserialize, Serialize};
use spool::Disk;
use spool::atomic::WholeFile;

/// The file in the state directory.
const FILE: &str = "run.json";
/// The longest file that is read, in bytes.
const MAX_FILE: u64 = 4096;

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
    /// Marks a run that begins. Without a mark it is made all the same.
    pub fn begin(state: &Path, started: Timestamp) {
        RunMark { started, reported: false }.write(state);
    }

    /// The run ended.
    pub fn end(state: &Path) {
        // What stays is taken for a run that was cut off.
        if let Err(error) = std::fs::remove_file(state.join(FILE)) {
            tracing::debug!(%error, "the mark of a run stays");
        }
    }

    /// The run that was cut off, or that is under way.
    pub fn read(state: &Path) -> Option<RunMark> {
        let bytes = spool::atomic::read_file(&state.join(FILE), MAX_FILE).ok()??;
        serde_json::from_slice(&bytes).ok()
    }

    /// Writes it.
    pub fn write(self, state: &Path) {
        let path = state.join(FILE);
        let file = WholeFile { durable: false, ..WholeFile::new(&path, 0o600) };
        let written = serde_json::to_vec(&self)
            .map_err(std::io::Error::other)
            .and_then(|json| file.write(&Disk::new(), &json).map_err(std::io::Error::other));
        if let Err(error) = written {
            tracing::debug!(%error, "a run cannot be marked");
        }
    }
}
