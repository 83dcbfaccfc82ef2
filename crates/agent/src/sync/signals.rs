//! [`LinkSignals`]: what the daemon lets its links know. Each signal is a level, not a message:
//! raised twice before the links look, it counts once, so nothing queues.

use std::sync::Arc;

use model::policy::Policy;
use tokio::sync::{Notify, watch};

use crate::release::ReleaseTerms;

/// Something that links go by changed.
#[derive(Debug)]
pub(super) enum LinkSignal {
    /// Work waits at the control plane, which wants a stream for it.
    Requested,
    /// The control plane answered a call.
    Reached,
    /// Another release is held, with these settings of the channel.
    Policy(Policy),
}

/// The daemon's end. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct LinkSignaller {
    requested: Arc<Notify>,
    reached: Arc<Notify>,
}

/// The links' end.
#[derive(Debug)]
pub(super) struct LinkSignals {
    raised: LinkSignaller,
    terms: watch::Receiver<ReleaseTerms>,
}

impl LinkSignaller {
    /// See [`LinkSignal::Requested`].
    pub(super) fn requested(&self) {
        self.requested.notify_one();
    }

    /// See [`LinkSignal::Reached`].
    pub(super) fn reached(&self) {
        self.reached.notify_one();
    }

    /// The other end, which hears of the channel's settings too.
    pub(super) fn signals(&self, terms: watch::Receiver<ReleaseTerms>) -> LinkSignals {
        LinkSignals { raised: self.clone(), terms }
    }
}

impl LinkSignals {
    /// The next signal. None is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> LinkSignal {
        tokio::select! {
            () = self.raised.requested.notified() => LinkSignal::Requested,
            () = self.raised.reached.notified() => LinkSignal::Reached,
            Ok(()) = self.terms.changed() => LinkSignal::Policy(self.terms.borrow_and_update().policy.clone()),
        }
    }
}
