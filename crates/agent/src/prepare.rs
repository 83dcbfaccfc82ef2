//! `muster-agent prepare-image`: clears what makes a host one node, so that its disk can be a template (IDN-10).

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use model::sort::SortCompactly;
use serde::Serialize;
use spool::{SpoolError, StateLock};
use trust::token::KeySource;

use crate::identity::{KEY_FILE, SSH_ED25519_KEY};
use crate::invocation::command;
use crate::state::StateDir;

/// Why an image was not prepared. Nothing was removed, but by [`PrepareImageError::Remove`].
#[derive(Debug, thiserror::Error)]
pub enum PrepareImageError {
    /// The daemon, or another verb, has the state directory.
    #[error("the agent runs here{}", pid.map(|pid| format!(", as process {pid}")).unwrap_or_default())]
    Running {
        /// Its process, where that is known.
        pid: Option<u32>,
    },
    /// Nobody said that it is meant.
    #[error("what is kept of this host ({} entries) would be removed for good from {}", count, path.display())]
    Unconfirmed {
        /// How many.
        count: usize,
        /// The state directory.
        path: PathBuf,
    },
    /// The directory cannot be used.
    #[error("the state directory {} cannot be used", path.display())]
    Use {
        /// The state directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The directory cannot be taken.
    #[error("the state directory cannot be taken")]
    Lock(#[source] SpoolError),
    /// Something could not be removed; what was before it is gone.
    #[error("cannot remove {}", path.display())]
    Remove {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl PrepareImageError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            PrepareImageError::Running { .. } => {
                Some("stop it first: systemctl stop muster-agent".to_owned())
            }
            PrepareImageError::Unconfirmed { .. } => {
                Some(format!("{} does it", command("prepare-image --yes")))
            }
            PrepareImageError::Use { .. } | PrepareImageError::Lock(_) | PrepareImageError::Remove { .. } => {
                None
            }
        }
    }
}

/// What was cleared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreparedImage {
    /// The state directory.
    pub state: PathBuf,
    /// The names in it that were removed, sorted.
    pub removed: Vec<String>,
    /// The host's identity is its SSH host key, which is not Muster's to remove.
    pub ssh_host_key: bool,
}

impl fmt::Display for PreparedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.display();
        match self.removed.as_slice() {
            [] => writeln!(f, "nothing was there to remove in {state}")?,
            removed => writeln!(f, "removed from {state}: {}", removed.join(", "))?,
        }
        if self.ssh_host_key {
            writeln!(
                f,
                "this host joined with its SSH host key: remove /{SSH_ED25519_KEY} and its like before the image is made"
            )?;
        }
        writeln!(f, "a clone joins as a host of its own: {}", command("join --token-file FILE"))
    }
}

/// Removes all that the state directory holds. The directory stays, with nothing in it but its lock. The identity goes
/// first, so that what is cut off in the middle is no node any more.
///
/// # Errors
/// [`PrepareImageError`] says what is in the way.
pub fn prepare_image(state: &Path, yes: bool) -> Result<PreparedImage, PrepareImageError> {
    let used = |source| PrepareImageError::Use { path: state.to_owned(), source };
    let ssh_host_key = StateDir::at(state, spool::Disk::new())
        .membership()
        .ok()
        .flatten()
        .is_some_and(|member| member.key != KeySource::Own);
    let empty = |removed| PreparedImage { state: state.to_owned(), removed, ssh_host_key };
    if !state.try_exists().map_err(used)? {
        return Ok(empty(Vec::new()));
    }
    let _lock = StateLock::acquire(state).map_err(|error| match error {
        SpoolError::Locked { pid, .. } => PrepareImageError::Running { pid },
        other => PrepareImageError::Lock(other),
    })?;
    let mut names = Vec::new();
    for entry in fs::read_dir(state).map_err(used)? {
        let name = entry.map_err(used)?.file_name().to_string_lossy().into_owned();
        if name != spool::lock::NAME {
            names.push(name);
        }
    }
    names.sort_compactly_by_key(|name| (name != KEY_FILE, name != "membership.json", name.clone()));
    if !yes && !names.is_empty() {
        return Err(PrepareImageError::Unconfirmed { count: names.len(), path: state.to_owned() });
    }
    for name in &names {
        let path = state.join(name);
        let is_directory = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
        let removed = if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|source| PrepareImageError::Remove { path, source })?;
    }
    // Durable, as the machine is to be cut off now.
    fs::File::open(state).and_then(|directory| directory.sync_all()).map_err(used)?;
    names.sort_compactly();
    Ok(empty(names))
}
