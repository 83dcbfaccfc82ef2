//! The permit for resyncs, that the principal needs for either direction: of the whole fleet so many
//! resync at once (SYN-6).

use std::time::Duration;

use super::{Cx, Link};
use crate::mode::Role;

/// What a permit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PermitUse {
    /// Resync the replica here.
    Requesting,
    /// Answer the other side's resync.
    Serving,
}

/// How soon a resync in one direction is tried again while one in the other direction goes on.
const BUSY: Duration = Duration::from_secs(1);

impl Link {
    /// Takes the permit, unless it is held.
    ///
    /// # Errors
    /// How long to wait: too many others resync, or this link does in the other direction.
    pub(super) fn take_permit(&mut self, wanted: PermitUse, cx: &mut Cx<'_>) -> Result<(), Duration> {
        match self.permit {
            _ if self.config.role == Role::Agent => Ok(()),
            Some((held, _)) if held == wanted => Ok(()),
            Some(_) => Err(BUSY),
            None => {
                cx.permits.take()?;
                self.permit = Some((wanted, cx.now));
                Ok(())
            }
        }
    }

    /// Gives back what is held.
    pub(super) fn return_permit(&mut self, cx: &mut Cx<'_>) {
        if self.permit.take().is_some() {
            cx.permits.give_back();
        }
    }

    /// Gives back what is held for this.
    pub(super) fn return_permit_of(&mut self, done: PermitUse, cx: &mut Cx<'_>) {
        if self.permit.is_some_and(|(held, _)| held == done) {
            self.return_permit(cx);
        }
    }
}
