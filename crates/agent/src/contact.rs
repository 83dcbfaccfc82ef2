//! Contacts with the control plane: why one failed, and what is known of them over restarts.
//!
//! `contact.json` holds the [`ContactView`] for `muster-agent status` while no daemon runs, and for the next
//! daemon. It need not outlive a crash of the host: the next contact writes it anew.

use std::path::Path;

use activation::guarded::ContactAnswer;
use net::client::ClientError;
use spool::SpoolError;
use trust::token::TlsTermination;
use wire::Code;

use crate::local::messages::{ContactProblem, ContactView};
use crate::render::chain;
use crate::session::CallError;
use crate::volatile_file::VolatileFile;

const FILE: VolatileFile<ContactView> = VolatileFile::new("contact.json", 64 * 1024);

/// A check-in without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContactFailure {
    /// Of what sort it is.
    pub problem: ContactProblem,
    /// What failed, for people.
    pub text: String,
    /// Whether the way to the control plane is there all the same (CNV-11).
    pub answer: ContactAnswer,
}

/// What a call that did not get what it asked for says of the way to the control plane. Where TLS ends there, nobody else can
/// have answered.
pub fn answer_of_error(error: &CallError, tls: TlsTermination) -> ContactAnswer {
    match (error, tls) {
        (CallError::Refused(_) | CallError::Answer(_), TlsTermination::ControlPlane) => {
            ContactAnswer::Answered
        }
        (CallError::Refused(problem), TlsTermination::Proxy) => ContactAnswer::ThroughProxy(problem.status),
        (CallError::Answer(_), TlsTermination::Proxy)
        | (CallError::ClockOff { .. } | CallError::Reach(_) | CallError::Request(_), _) => {
            ContactAnswer::None
        }
    }
}

impl ContactFailure {
    /// Nobody answered in the time that there was.
    pub fn unanswered(text: String) -> ContactFailure {
        ContactFailure { problem: ContactProblem::Unreachable, text, answer: ContactAnswer::None }
    }

    /// What an error of a call comes to. `ended`: the certificate with which sessions are opened has ended.
    pub fn of(error: &CallError, ended: bool, tls: TlsTermination) -> ContactFailure {
        let problem = match error {
            // TLS says so in an alert, which is lost when the connection closes before it is read.
            CallError::Reach(
                ClientError::Handshake { .. }
                | ClientError::Exchange { .. }
                | ClientError::CertificateUnknown { .. },
            ) if ended => ContactProblem::CertificateExpired,
            CallError::Reach(error) => ContactProblem::of_dial(error),
            CallError::Answer(_) | CallError::Request(_) => ContactProblem::Unreachable,
            CallError::Refused(problem) if problem.code == Code::UnknownNode.as_str() => {
                ContactProblem::UnknownNode
            }
            CallError::Refused(problem) if problem.code == Code::Revoked.as_str() => ContactProblem::Revoked,
            // It is up, and takes nothing from anybody now.
            CallError::Refused(problem) if problem.status >= 500 => ContactProblem::Unreachable,
            CallError::Refused(_) | CallError::ClockOff { .. } => ContactProblem::Refused,
        };
        let text = match problem {
            ContactProblem::CertificateExpired => {
                format!("this host's certificate has ended: {}", chain(error))
            }
            _ => chain(error),
        };
        ContactFailure { problem, text, answer: answer_of_error(error, tls) }
    }
}

impl ContactView {
    /// Writes the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, state: &Path) -> Result<(), SpoolError> {
        FILE.write(state, &self.without_what_an_answer_says())
    }

    /// What the last daemon wrote; `None` when none did, or the file is damaged.
    pub fn read(state: &Path) -> Option<ContactView> {
        FILE.read(state)
    }

    /// What holds no longer than until the next answer is not kept.
    fn without_what_an_answer_says(&self) -> ContactView {
        let ContactView { answered, failed, problem, reason, renewal_failure, .. } = self.clone();
        ContactView { answered, failed, problem, reason, renewal_failure, ..ContactView::default() }
    }
}

#[cfg(test)]
mod tests {
    use wire::{BodyError, Problem};

    use super::*;

    /// CNV-11: what is a contact, and what a proxy may have written in the control plane's place.
    #[test]
    fn an_answer_is_a_contact_where_nobody_else_can_have_given_it() {
        let refused = |code| CallError::Refused(Box::new(Problem::from(code)));
        let unread = || CallError::Answer(BodyError::Json("no object".to_owned()));
        let table = [
            (refused(Code::NotFound), true, true),
            (refused(Code::Revoked), true, true),
            (refused(Code::Busy), true, false),
            (unread(), true, false),
            (CallError::ClockOff { offset_secs: 9999 }, false, false),
        ];
        for (error, direct, proxied) in table {
            let is_contact = |tls| answer_of_error(&error, tls).is_contact();
            let found = (is_contact(TlsTermination::ControlPlane), is_contact(TlsTermination::Proxy));
            assert_eq!(found, (direct, proxied), "{error:?}");
        }
    }
}
