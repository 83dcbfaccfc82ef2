//! `directory` on a host.

use std::time::Duration;

use catalog::types::{DirectorySpec, Ensure};
use converge::JobFailure;
use converge::kinds::{DEFAULT_DIRECTORY_MODE, directory};
use model::PathState;

use crate::Kinds;
use crate::kinds::fault;
use crate::provider::{Decided, PathProvider};

impl PathProvider for DirectorySpec {
    fn decide(&self, kinds: &Kinds) -> Result<Decided, String> {
        let (prior, wanted, mut note) = kinds.prior(&self.path, self.ensure, &self.ownership)?;
        let edit = directory::assess(self, &prior, &wanted, &kinds.names())?;
        let full = matches!(prior, PathState::Directory { empty: false, .. });
        if self.ensure == Ensure::Absent && edit.is_some() && full {
            note = Some("cannot be undone: what is inside is removed for good".to_owned());
        }
        Ok(Decided { prior, wanted, edit, note, bytes: None })
    }

    fn act(&self, kinds: &Kinds, decided: &Decided, _: Duration) -> Result<(), JobFailure> {
        let (host, path, wanted) = (&kinds.host, &self.path, &decided.wanted);
        match (self.ensure, &decided.prior) {
            (Ensure::Absent, _) => host.remove_directory(path, self.recurse).map(drop),
            (Ensure::Present, PathState::Missing) => {
                host.make_directory(path, wanted, DEFAULT_DIRECTORY_MODE)
            }
            // What a link led to stays; the bytes of a file are kept.
            (Ensure::Present, PathState::File { .. } | PathState::Symlink { .. }) => {
                host.remove_file(path).and_then(|_| host.make_directory(path, wanted, DEFAULT_DIRECTORY_MODE))
            }
            (Ensure::Present, _) => host.set_ownership(path, wanted),
        }
        .map_err(fault)
    }
}
