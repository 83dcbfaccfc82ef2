//! `directory` on a host.

use catalog::spec::{DirectorySpec, Ensure};
use converge::kinds::{Applied, Checked, DEFAULT_DIRECTORY_MODE, directory};
use model::{Edit, Fields, PathOwnership, PathState};

use crate::Kinds;
use crate::kinds::{applied, text, unchanged};

pub(crate) fn check(kinds: &Kinds, spec: &DirectorySpec) -> Result<Checked, String> {
    let (prior, _, edit, mut note) = decide(kinds, spec)?;
    let full = matches!(prior, PathState::Directory { empty: false, .. });
    if spec.ensure == Ensure::Absent && edit.is_some() && full {
        note = Some("cannot be undone: what is inside is removed for good".to_owned());
    }
    Ok(Checked { edit, prior, note, unknown: false })
}

pub(crate) fn apply(kinds: &Kinds, spec: &DirectorySpec) -> Result<Applied, String> {
    let (prior, wanted, edit, _) = decide(kinds, spec)?;
    let Some(edit) = edit else {
        return Ok(unchanged());
    };
    let (host, path) = (&kinds.host, &spec.path);
    match (spec.ensure, prior) {
        (Ensure::Absent, _) => host.remove_directory(path, spec.recurse).map(drop),
        (Ensure::Present, PathState::Missing) => host.make_directory(path, &wanted, DEFAULT_DIRECTORY_MODE),
        (Ensure::Present, _) => host.set_ownership(path, &wanted),
    }
    .map_err(text)?;
    Ok(applied(edit))
}

type Decided = (PathState, PathOwnership, Option<Edit<Fields>>, Option<String>);

fn decide(kinds: &Kinds, spec: &DirectorySpec) -> Result<Decided, String> {
    let prior = kinds.look(&spec.path)?;
    let (wanted, note) = match spec.ensure {
        Ensure::Present => kinds.wanted(&spec.ownership)?,
        Ensure::Absent => Default::default(),
    };
    let edit = directory::assess(spec, &prior, &wanted, &kinds.names())?;
    Ok((prior, wanted, edit, note))
}
