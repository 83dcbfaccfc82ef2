//! `line` on a host.

use std::path::Path;
use std::time::Duration;

use catalog::types::{Ensure, LineSpec};
use converge::JobFailure;
use converge::kinds::{DEFAULT_FILE_MODE, line};
use host::FileWrite;
use model::{Digest, PathState};

use crate::Kinds;
use crate::file::run_validate;
use crate::kinds::{fault, text};
use crate::provider::{ChangeTurn, Decided, PathProvider};

impl PathProvider for LineSpec {
    fn decide(&self, kinds: &Kinds) -> Result<Decided, String> {
        let (prior, wanted, note) = kinds.prior(&self.path, self.ensure, &self.ownership)?;
        let old = match &prior {
            PathState::File { .. } => kinds.host.read(&self.path, line::MAX_FILE).map_err(text)?,
            _ => None,
        };
        let edit = line::assess(self, &prior, old.as_deref(), &wanted, &kinds.names())?;
        let bytes = line::edit(self, old.as_deref())?.map(|change| change.bytes);
        Ok(Decided { prior, wanted, edit, note, bytes })
    }

    /// Two modules may edit one file: each must see what the other wrote.
    fn turn(&self) -> Option<ChangeTurn> {
        Some(ChangeTurn::Files)
    }

    fn needs_command(&self, decided: &Decided) -> bool {
        self.validate.is_some() && decided.bytes.is_some()
    }

    fn act(&self, kinds: &Kinds, decided: &Decided, timeout: Duration) -> Result<(), JobFailure> {
        let validate = |path: &Path| match &self.validate {
            Some(command) => run_validate(kinds, command, path, timeout),
            None => Ok(()),
        };
        match &decided.bytes {
            // As with the other parts of files: who may make it may take it away.
            Some(bytes) if bytes.is_empty() && self.create && self.ensure == Ensure::Absent => {
                kinds.host.remove_file(&self.path).map(drop)
            }
            Some(bytes) => {
                let write = FileWrite {
                    content: &mut bytes.as_slice(),
                    digest: Digest::of(bytes),
                    ownership: decided.wanted,
                    default_mode: DEFAULT_FILE_MODE,
                    backup: false,
                    validate: Some(&validate),
                };
                kinds.host.write(&self.path, write)
            }
            None => kinds.host.set_ownership(&self.path, &decided.wanted),
        }
        .map_err(fault)
    }
}
