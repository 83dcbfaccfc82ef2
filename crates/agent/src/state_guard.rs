//! [`StateGuard`]: whether a running agent can still keep what it must (LIF-10, IDN-1).
//!
//! ```text
//! before each full run, and at each contact:
//!   lost (emptied, replaced, parts gone) -> identity written back -> Lost: the daemon starts anew there
//!   another node's, or it cannot be used -> no run is made; check-ins and `status` say why
//!   else                                 -> as it was
//! ```

use std::path::Path;
use std::sync::Arc;

use model::{Timestamp, UnmadeRunCause};
use node::RunFailure;

use crate::membership::{MembershipFile, PutBackIdentityError};
use crate::render::chain;
use crate::run_mark::RunMark;
use crate::state::{Durable, LostState, StateError};

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateGuardError {
    /// It cannot be looked at, or made.
    #[error("the state directory cannot be used")]
    State(#[from] StateError),
    /// The identity in it is not this node's, or cannot be kept there.
    #[error("the state directory cannot be used")]
    Identity(#[from] PutBackIdentityError),
}

/// Why a full run cannot begin.
#[derive(Debug)]
pub enum StateHold {
    /// The directory was lost: the daemon starts anew there.
    Lost(LostState),
    /// Nothing can be kept.
    Unusable(String),
}

impl StateHold {
    /// The failure as the node's step takes it.
    pub fn failure(&self) -> RunFailure {
        let reason = match self {
            StateHold::Lost(lost) => format!("{lost}; it starts anew with what it holds in memory"),
            StateHold::Unusable(reason) => reason.clone(),
        };
        RunFailure { cause: UnmadeRunCause::State, reason }
    }
}

/// The state directory as the daemon opened it. Cheap to clone.
#[derive(Clone)]
pub struct StateGuard {
    durable: Arc<Durable>,
    member: Arc<MembershipFile>,
}

impl StateGuard {
    /// The guard of what the daemon opened.
    pub fn new(durable: Arc<Durable>, member: Arc<MembershipFile>) -> StateGuard {
        StateGuard { durable, member }
    }

    /// Looks at the directory. Where it is lost, the node's identity lies in it again before this returns what is
    /// lost. From a thread that may wait for the disk.
    ///
    /// # Errors
    /// [`StateGuardError`] says why it cannot be used; nothing was written over then.
    pub fn check(&self) -> Result<Option<LostState>, StateGuardError> {
        let lost = self.durable.lost()?;
        if lost.is_some() {
            self.durable.make_directory()?;
        }
        self.member.put_back()?;
        self.durable.put_back_sealing_key().map_err(PutBackIdentityError::from)?;
        Ok(lost)
    }

    /// Marks a full run that begins, where what it does can be kept. A full disk is told by what it refuses.
    ///
    /// # Errors
    /// What holds the run up.
    pub fn begin_run(&self, state: &Path, started: Timestamp) -> Result<(), StateHold> {
        match self.check() {
            Ok(None) => {}
            Ok(Some(lost)) => return Err(StateHold::Lost(lost)),
            Err(error) => return Err(StateHold::Unusable(chain(&error))),
        }
        match RunMark::begin(state, started) {
            Err(error) if !error.is_full() => {
                Err(StateHold::Unusable(format!("the state directory cannot be written: {}", chain(&error))))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
