//! `host` on a host: an entry of its hosts file.

use catalog::types::HostSpec;
use converge::JobFailure;
use converge::kinds::host;
use model::Fields;

use crate::Kinds;
use crate::provider::{ChangeTurn, StateChange, StateProvider, as_declared};

impl StateProvider for HostSpec {
    fn observe(&self, kinds: &Kinds) -> Result<Option<Fields>, String> {
        let file = kinds.text_file(&self.path)?;
        Ok(host::observe(self, &file.unwrap_or_default()))
    }

    fn desired(&self, _: Option<&Fields>) -> Result<Option<Fields>, String> {
        as_declared(self)
    }

    fn set(&self, kinds: &Kinds, change: StateChange<'_>) -> Result<Option<String>, JobFailure> {
        let StateChange { to, .. } = change;
        let file = kinds.text_file(&self.path)?.unwrap_or_default();
        kinds.write_text(&self.path, &host::edit(self, &file, to)).map(|()| None)
    }

    fn turn(&self) -> ChangeTurn {
        ChangeTurn::Files
    }

    fn works_below_root(&self) -> bool {
        true
    }
}
