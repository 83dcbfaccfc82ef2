//! `symlink` on a host.

use std::time::Duration;

use catalog::types::{Ensure, SymlinkSpec};
use converge::kinds::symlink;

use crate::Kinds;
use crate::kinds::text;
use crate::provider::{Decided, PathProvider};

impl PathProvider for SymlinkSpec {
    fn decide(&self, kinds: &Kinds) -> Result<Decided, String> {
        let prior = kinds.look(&self.path)?;
        let edit = symlink::assess(self, &prior, kinds.shown_file(&self.path, &prior).as_deref())?;
        Ok(Decided { prior, edit, ..Decided::default() })
    }

    fn act(&self, kinds: &Kinds, _: &Decided, _: Duration) -> Result<(), String> {
        match self.ensure {
            Ensure::Present => kinds.host.make_symlink(&self.path, &self.target),
            Ensure::Absent => kinds.host.remove_file(&self.path).map(drop),
        }
        .map_err(text)
    }
}
