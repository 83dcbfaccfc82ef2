//! [`ContactHistory`]: whether a host was in contact before a guarded change, and [`ContactAnswer`]: what is a contact.

use std::time::Duration;

use crate::boot::{BootMoment, BootTime};

/// How long an agent has to live after a guarded change for which no contact is asked.
pub const OFFLINE_WINDOW: Duration = Duration::from_secs(30);
/// Where the HTTP status of a server's own failures begins.
const SERVER_FAILS: u16 = 500;

/// What an exchange with the control plane came to, as far as it says that the host is not cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContactAnswer {
    /// The control plane answered over a session that was verified to its end.
    Answered,
    /// Somebody behind a proxy that ends TLS answered, with this HTTP status.
    ThroughProxy(u16),
    /// Nobody answered whom the host believes.
    None,
}

impl ContactAnswer {
    /// Whether it is a contact: any answer of the control plane is one, also one that refuses or says that it failed, as
    /// the way to it is there. A proxy that ends TLS says itself that the control plane failed, where it cannot reach
    /// it: its 5xx are none.
    pub fn is_contact(self) -> bool {
        match self {
            ContactAnswer::Answered => true,
            ContactAnswer::ThroughProxy(status) => status < SERVER_FAILS,
            ContactAnswer::None => false,
        }
    }
}

/// How contacts went, as one process of the agent saw them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContactHistory {
    /// When the last one was answered, in this boot and of this process.
    answered: Option<BootTime>,
    /// The last try was answered; of a process that made none, that of the one before.
    reached: bool,
}

impl ContactHistory {
    /// What a process that starts knows: whether the last contact of the one before was answered.
    pub fn found(reached: bool) -> ContactHistory {
        ContactHistory { answered: None, reached }
    }

    /// A try was made.
    pub fn tried(&mut self, answer: ContactAnswer, now: BootTime) {
        self.reached = answer.is_contact();
        if self.reached {
            self.answered = Some(now);
        }
    }

    /// The host is in contact: the last try was answered, or one within the last window. One try that fails makes no
    /// host an offline one, of which less is asked.
    pub fn is_reached(&self, window: Duration, now: BootTime) -> bool {
        self.reached || self.answered.is_some_and(|answered| now.since(answered) < window)
    }

    /// The last try was answered.
    pub fn is_last_answered(&self) -> bool {
        self.reached
    }

    /// A contact was answered after a moment. Of a boot before, any answer is.
    pub fn is_answered_since(&self, moment: &BootMoment, now: &BootMoment) -> bool {
        self.answered.is_some_and(|answered| moment.boot != now.boot || answered > moment.at)
    }
}
