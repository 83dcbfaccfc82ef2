//! `symlink` on a host.

use std::time::Duration;

use catalog::types::{Ensure, SymlinkSpec};
use converge::JobFailure;
use converge::kinds::symlink;

use crate::Kinds;
use crate::kinds::{fault, replaced_note};
use crate::provider::{Decided, PathProvider};

impl PathProvider for SymlinkSpec {
    fn decide(&self, kinds: &Kinds) -> Result<Decided, String> {
        let prior = kinds.look(&self.path)?;
        let edit = symlink::assess(self, &prior, kinds.shown_file(&self.path, &prior).as_deref())?;
        let note = edit.as_ref().and_then(|_| replaced_note(&prior));
        Ok(Decided { prior, edit, note, ..Decided::default() })
    }

    fn act(&self, kinds: &Kinds, decided: &Decided, _: Duration) -> Result<(), JobFailure> {
        match self.ensure {
            Ensure::Present => kinds.in_place_of(&self.path, &decided.prior, || {
                kinds.host.make_symlink(&self.path, &self.target).map_err(fault)
            }),
            Ensure::Absent => kinds.host.remove_file(&self.path).map(drop).map_err(fault),
        }
    }
}
