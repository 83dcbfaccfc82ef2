//! [`ClockDifference`]: how far apart the host's clock and the control plane's are.

use std::time::Duration;

use model::Timestamp;
use model::time::{SLACK, short};

/// How far the control plane's clock is from the host's; one of the two is zero.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClockDifference {
    pub(crate) ahead: Duration,
    behind: Duration,
}

impl ClockDifference {
    pub(crate) fn between(server: Timestamp, host: Timestamp) -> ClockDifference {
        ClockDifference { ahead: server.since(host), behind: host.since(server) }
    }

    /// The same after the host's clock was set back.
    pub(crate) fn set_back(self, back: Duration) -> ClockDifference {
        ClockDifference {
            ahead: self.ahead + back.saturating_sub(self.behind),
            behind: self.behind.saturating_sub(back),
        }
    }

    /// What the control plane's clock says when the host's says this.
    pub(crate) fn at_server(&self, host: Timestamp) -> Timestamp {
        host.plus(self.ahead).minus(self.behind)
    }

    pub(crate) fn most(&self) -> Duration {
        self.ahead.max(self.behind)
    }

    /// Which clock is ahead of which, and by how much, as far as that is worth a word.
    pub(crate) fn text(&self) -> String {
        if self.behind > SLACK {
            return format!("; this host's clock is {} ahead of the control plane's", short(self.behind));
        }
        match self.ahead > SLACK {
            true => format!("; the control plane's clock is {} ahead of this host's", short(self.ahead)),
            false => String::new(),
        }
    }
}
