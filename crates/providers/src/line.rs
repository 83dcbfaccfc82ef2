//! `line` on a host.

use std::sync::PoisonError;

use catalog::spec::{Ensure, LineSpec};
use converge::kinds::{Applied, Checked, DEFAULT_FILE_MODE, line};
use host::Write;
use model::{Digest, Edit, Fields, PathOwnership, PathState};

use crate::Kinds;
use crate::kinds::{applied, text, unchanged};
use crate::undo::undo_note;

pub(crate) fn check(kinds: &Kinds, spec: &LineSpec) -> Result<Checked, String> {
    let decided = decide(kinds, spec)?;
    let cannot_undo = decided.edit.as_ref().and_then(|_| undo_note(&decided.prior));
    let note = decided.note.into_iter().chain(cannot_undo).reduce(|a, b| format!("{a}; {b}"));
    Ok(Checked { edit: decided.edit, prior: decided.prior, note, unknown: false })
}

pub(crate) fn apply(kinds: &Kinds, spec: &LineSpec) -> Result<Applied, String> {
    // Two modules may edit one file: each must see what the other wrote.
    let _turn = kinds.lines.lock().unwrap_or_else(PoisonError::into_inner);
    let decided = decide(kinds, spec)?;
    let Some(edit) = decided.edit else {
        return Ok(unchanged());
    };
    match decided.bytes {
        Some(bytes) => {
            let write = Write {
                content: &mut bytes.as_slice(),
                digest: Digest::of(&bytes),
                ownership: decided.wanted,
                default_mode: DEFAULT_FILE_MODE,
                backup: false,
                validate: None,
            };
            kinds.host.write(&spec.path, write)
        }
        None => kinds.host.set_ownership(&spec.path, &decided.wanted),
    }
    .map_err(text)?;
    Ok(applied(edit))
}

struct Decided {
    prior: PathState,
    wanted: PathOwnership,
    edit: Option<Edit<Fields>>,
    /// The file's new bytes, where they change.
    bytes: Option<Vec<u8>>,
    note: Option<String>,
}

fn decide(kinds: &Kinds, spec: &LineSpec) -> Result<Decided, String> {
    let prior = kinds.look(&spec.path)?;
    let old = match &prior {
        PathState::File { .. } => kinds.host.read(&spec.path, line::MAX_FILE).map_err(text)?,
        PathState::Missing
        | PathState::Directory { .. }
        | PathState::Symlink { .. }
        | PathState::Other { .. } => None,
    };
    let (wanted, note) = match spec.ensure {
        Ensure::Present => kinds.wanted(&spec.ownership)?,
        Ensure::Absent => Default::default(),
    };
    let edit = line::assess(spec, &prior, old.as_deref(), &wanted, &kinds.names())?;
    let bytes = line::edit(spec, old.as_deref())?.map(|change| change.bytes);
    Ok(Decided { prior, wanted, edit, bytes, note })
}
