//! Answers to what an operator asks of a host, as JSON (OPS-2).
//!
//! Looks and changes nothing. Whether something may be asked is decided before, by the
//! delegations of the held release; of a file once more here, by where it really lies.
//!
//! Deliberately absent: the arguments and the environment of processes, which often hold
//! secrets, and the contents of directories.

pub(crate) mod disks;
mod file;
pub(crate) mod listeners;
pub(crate) mod proc;
mod processes;

use std::sync::Arc;

use host::Host;
use model::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::traits;

pub use file::MAX_CONTENT;

/// The largest answer, as JSON, in bytes: it is one fact.
pub const MAX_ANSWER: usize = 256 * 1024;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Traits, observed now: `{traits, failures}`.
    Traits,
    /// The processes: `{processes: [{pid, ppid, user, name, exe, state, threads, rssKib,
    /// cpuMs}], leftOut}`, without their arguments.
    Processes,
    /// Listening sockets: `{listeners: [{protocol, address, port, user, pid, process}],
    /// leftOut}`.
    Listeners,
    /// File systems: `{disks: [{mount, device, type, totalBytes, freeBytes, availableBytes,
    /// inodes, inodesFree, error}], leftOut}`.
    Disks,
    /// A file: `{path, exists, realPath, kind, mode, user, group, size, modified, sha256,
    /// text | base64, truncated}`.
    File {
        /// Its absolute path.
        path: String,
    },
}

impl Ask {
    /// What the words of an order ask; `None` when they ask nothing that is known.
    pub fn of(what: &str, path: Option<&str>) -> Option<Ask> {
        Some(match (what, path) {
            ("traits", None) => Ask::Traits,
            ("processes", None) => Ask::Processes,
            ("listeners", None) => Ask::Listeners,
            ("disks", None) => Ask::Disks,
            ("file", Some(path)) => Ask::File { path: path.to_owned() },
            _ => return None,
        })
    }
}

/// Answers; may take as long as the host takes. `allowed` says whether a file may be shown,
/// by the path at which it really lies after every link.
///
/// # Errors
/// For people: what could not be looked at, or that it may not be.
pub fn answer(
    host: &Arc<Host>,
    ask: &Ask,
    version: &str,
    now: Timestamp,
    allowed: &dyn Fn(&str) -> bool,
) -> Result<Value, String> {
    let answer = match ask {
        Ask::Traits => {
            let collected = traits::collect(host, version, now);
            json!({"traits": collected.traits, "failures": collected.failures})
        }
        Ask::Processes => processes::answer(host)?,
        Ask::Listeners => listeners::answer(host)?,
        Ask::Disks => disks::answer(host)?,
        Ask::File { path } => file::answer(host, path, allowed)?,
    };
    if answer.to_string().len() > MAX_ANSWER {
        return Err(format!("the answer is larger than {MAX_ANSWER} bytes"));
    }
    Ok(answer)
}

/// Whether a process of this name runs (`process_running`).
///
/// # Errors
/// When the processes cannot be listed.
pub fn is_running(host: &Host, name: &str) -> Result<bool, String> {
    processes::is_running(host, name)
}

/// Whether anything listens on a TCP port (`port_listening`).
///
/// # Errors
/// When the kernel's table cannot be read.
pub fn is_listening(host: &Host, port: u16) -> Result<bool, String> {
    Ok(listeners::listening_ports(host, "tcp")?.contains(&port))
}

/// As many rows as an answer holds, and how many do not fit, under a name.
fn rows<T: Serialize>(name: &str, rows: Vec<T>, unread: usize) -> Result<Value, String> {
    /// What is around the rows, in bytes.
    const AROUND: usize = 200;
    let mut room = MAX_ANSWER - AROUND;
    let (mut kept, mut left_out) = (Vec::new(), unread);
    for row in rows {
        let row =
            without_nulls(serde_json::to_value(row).map_err(|error| format!("cannot be said: {error}"))?);
        let size = row.to_string().len() + 1;
        if size > room {
            // Smaller ones that follow are no reason to leave holes.
            room = 0;
            left_out += 1;
        } else {
            room -= size;
            kept.push(row);
        }
    }
    Ok(json!({name: kept, "leftOut": left_out}))
}

/// What is not known is left out.
fn without_nulls(mut row: Value) -> Value {
    if let Value::Object(fields) = &mut row {
        fields.retain(|_, value| !value.is_null());
    }
    row
}
