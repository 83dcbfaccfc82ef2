//! `group` on a host.

use catalog::types::GroupSpec;
use converge::JobFailure;
use converge::kinds::group;
use model::{Edit, Fields};

use crate::Kinds;
use crate::provider::{ChangeTurn, StateChange, StateProvider};

impl StateProvider for GroupSpec {
    fn observe(&self, kinds: &Kinds) -> Result<Option<Fields>, String> {
        Ok(group::observe(self, &*kinds.account_database()?))
    }

    fn desired(&self, now: Option<&Fields>) -> Result<Option<Fields>, String> {
        Ok(group::desired(self, now))
    }

    fn refuse(&self, kinds: &Kinds, edit: &Edit<Fields>) -> Result<(), String> {
        group::refuse(self, &*kinds.account_database()?, edit).map_or(Ok(()), Err)
    }

    fn set(&self, kinds: &Kinds, change: StateChange<'_>) -> Result<Option<String>, JobFailure> {
        let StateChange { now, to, timeout } = change;
        kinds.call_account_tools(group::calls(self, now, to), None, timeout).map(|()| None)
    }

    fn turn(&self) -> ChangeTurn {
        ChangeTurn::Accounts
    }

    fn note(&self, edit: &Edit<Fields>) -> Option<String> {
        let renumbered = edit.from().and_then(|from| from.get("gid")).filter(|_| edit.to().is_some());
        renumbered.map(|gid| format!("files of the gid {gid} keep it"))
    }
}
