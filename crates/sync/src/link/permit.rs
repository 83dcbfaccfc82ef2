//! The permit for resyncs, that the principal needs for either direction.
//!
//! ```text
//! Free --want--> Wanted --admitted--> Held --give_back--> Free
//!                   +----denied---------------------------^
//! ```

use model::Timestamp;

use super::Cx;
use super::types::Output;

/// What a permit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PermitUse {
    /// Resync the replica here.
    Requesting,
    /// Answer the other side's resync.
    Serving,
}

/// How far it is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Permit {
    #[default]
    Free,
    Wanted(PermitUse),
    Held(PermitUse, Timestamp),
}

impl Permit {
    pub fn is_free(&self) -> bool {
        *self == Permit::Free
    }

    pub fn is_held_for(&self, wanted: PermitUse) -> bool {
        matches!(self, Permit::Held(held, _) if *held == wanted)
    }

    /// Since when it is held, for whatever.
    pub fn held_since(&self) -> Option<Timestamp> {
        match self {
            Permit::Held(_, since) => Some(*since),
            Permit::Free | Permit::Wanted(_) => None,
        }
    }

    pub fn is_wanted(&self) -> Option<PermitUse> {
        match self {
            Permit::Wanted(wanted) => Some(*wanted),
            Permit::Free | Permit::Held(..) => None,
        }
    }

    pub fn want(&mut self, wanted: PermitUse, cx: &mut Cx<'_>) {
        *self = Permit::Wanted(wanted);
        cx.out.push(Output::WantPermit);
    }

    pub fn admitted(&mut self, since: Timestamp) {
        if let Permit::Wanted(wanted) = self {
            *self = Permit::Held(*wanted, since);
        }
    }

    pub fn denied(&mut self) {
        *self = Permit::Free;
    }

    /// Gives back what is held; a permit that is only wanted is given up.
    pub fn give_back(&mut self, cx: &mut Cx<'_>) {
        if !self.is_free() {
            cx.out.push(Output::ReturnPermit);
        }
        *self = Permit::Free;
    }
}
