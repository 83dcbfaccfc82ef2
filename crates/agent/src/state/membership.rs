//! The membership in the state directory. The daemon, `join` and `proxy` write it, each in its turn (ENR-7, WIR-7).

use spool::{DirectoryTurn, StateFile};

use super::{MODE, StateDir, StateError, spool};
use crate::identity::Membership;

/// The turn at the membership: nobody else writes it while this lives, so that what is read is what is changed.
pub struct MembershipTurn<'d> {
    dir: &'d StateDir,
    _turn: DirectoryTurn,
}

impl MembershipTurn<'_> {
    /// What joining recorded; `None` before.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn membership(&self) -> Result<Option<Membership>, StateError> {
        self.dir.membership()
    }

    /// Records the membership.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, membership: &Membership) -> Result<(), StateError> {
        self.dir.membership_slot().store(membership).map_err(spool("record the membership"))
    }
}

impl StateDir {
    /// What joining recorded; `None` before.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn membership(&self) -> Result<Option<Membership>, StateError> {
        Ok(self.membership_slot().load().map_err(spool("read the membership"))?.value)
    }

    /// Takes the turn at the membership, for whoever writes what follows from what is there.
    ///
    /// # Errors
    /// When another process keeps it for longer than [`spool::lock::TURN_WITHIN`], or the directory cannot be used.
    pub fn membership_turn(&self) -> Result<MembershipTurn<'_>, StateError> {
        let turn = DirectoryTurn::take(self.path()).map_err(spool("take the turn at the membership"))?;
        Ok(MembershipTurn { dir: self, _turn: turn })
    }

    /// Records the membership, whatever was there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save_membership(&self, membership: &Membership) -> Result<(), StateError> {
        self.membership_turn()?.save(membership)
    }

    pub(crate) fn membership_slot(&self) -> StateFile<Membership> {
        StateFile::new(&self.disk, self.path.join("membership.json"), MODE)
    }
}
