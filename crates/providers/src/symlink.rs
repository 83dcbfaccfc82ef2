//! `symlink` on a host.

use catalog::spec::{Ensure, SymlinkSpec};
use converge::kinds::{Applied, Checked, symlink};

use crate::Kinds;
use crate::kinds::{applied, text, unchanged};
use crate::undo::undo_note;

pub(crate) fn check(kinds: &Kinds, spec: &SymlinkSpec) -> Result<Checked, String> {
    let prior = kinds.look(&spec.path)?;
    let edit = symlink::assess(spec, &prior, kinds.shown_file(&spec.path, &prior).as_deref())?;
    let note = edit.as_ref().and_then(|_| undo_note(&prior));
    Ok(Checked { edit, prior, note, unknown: false })
}

pub(crate) fn apply(kinds: &Kinds, spec: &SymlinkSpec) -> Result<Applied, String> {
    let Some(edit) = check(kinds, spec)?.edit else {
        return Ok(unchanged());
    };
    match spec.ensure {
        Ensure::Present => kinds.host.make_symlink(&spec.path, &spec.target),
        Ensure::Absent => kinds.host.remove_file(&spec.path).map(drop),
    }
    .map_err(text)?;
    Ok(applied(edit))
}
