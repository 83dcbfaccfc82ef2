//! [`Renewal`]: when the node asks for its next certificate, and how it proves itself (IDN-2).
//!
//! ```text
//! half of validity and the node's share of a tenth, or the control plane wants it
//!     and the last contact was answered --------> Renew(Certificate), right after an answer
//! it has ended, and the last contact failed ----> Renew(Key), unless that was for the clock
//! the trust document names its CA no more ------> Renew(Key)
//! failed --> again after a wait that doubles, at most a thirty-second of the validity
//! ```
//!
//! Invariants: one request at a time; nothing is asked while the control plane cannot be reached and the
//! certificate may still open a session; whatever the control plane wants, certificates are not renewed
//! more often than [`longest_wait`] says, but for those of a CA that the trust document names no more.

use std::time::Duration;

use model::time::SLACK;
use model::{CertificateValidity, Hostname, Timestamp};

use crate::backoff::{self, Spread};

/// The longest wait after failures is the validity's part by this, within [`backoff::LONGEST`].
const WAITS_IN_VALIDITY: u32 = 32;

/// By what a node proves itself when it asks for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalProof {
    /// By the certificate that it has: `POST /v1/agent/renew`.
    Certificate,
    /// By its key alone, as its certificate has ended: `POST /v1/agent/recover`.
    Key,
}

/// How the last contact went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastContact {
    NoneYet,
    Answered,
    Failed,
}

/// Who says whether the certificate has ended, since the last answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndJudge {
    /// The time that the node knows.
    Time,
    /// The control plane refuses it as ended, whatever the clock says here.
    ControlPlane,
    /// Nobody: the clock may be ahead.
    Nobody,
    /// The trust document: the CA that issued it counts no more.
    TrustDocument,
}

/// The node's certificate, and the requests for the next one.
#[derive(Debug)]
pub(crate) struct Renewal {
    /// `None` where no session is opened with a certificate, as a proxy ends TLS.
    validity: Option<CertificateValidity>,
    contact: LastContact,
    /// The control plane wants it now.
    wanted: bool,
    judge: EndJudge,
    under_way: bool,
    /// Requests in a row that failed.
    failures: u32,
    /// The next request is not before.
    not_before: Timestamp,
    /// Why the last one failed.
    failure: Option<String>,
}

impl Renewal {
    pub(crate) fn new(validity: Option<CertificateValidity>) -> Renewal {
        Renewal {
            validity,
            contact: LastContact::NoneYet,
            wanted: false,
            judge: EndJudge::Time,
            under_way: false,
            failures: 0,
            not_before: Timestamp(i64::MIN),
            failure: None,
        }
    }

    /// A contact was answered, and the answer says whether the control plane wants a renewal.
    pub(crate) fn answered(&mut self, wanted: bool) {
        self.contact = LastContact::Answered;
        // Answers over what is open change nothing of the CA.
        if self.judge != EndJudge::TrustDocument {
            self.judge = EndJudge::Time;
        }
        self.wanted = wanted;
    }

    /// A contact failed.
    pub(crate) fn unreachable(&mut self) {
        self.contact = LastContact::Failed;
    }

    /// The control plane refuses the certificate as one that has ended.
    pub(crate) fn refused_as_ended(&mut self) {
        if self.judge != EndJudge::TrustDocument {
            self.judge = EndJudge::ControlPlane;
        }
    }

    /// The CA that issued the certificate counts no more. The next request is not paced by the certificate before, which
    /// may have been made a moment ago; by failed ones it is.
    pub(crate) fn rejected(&mut self) {
        if self.failures == 0 {
            self.not_before = Timestamp(i64::MIN);
        }
        self.judge = EndJudge::TrustDocument;
    }

    /// Why the node proves itself by its key alone.
    pub(crate) fn why_by_key(&self) -> &'static str {
        match self.judge {
            EndJudge::TrustDocument => "the CA that issued the certificate counts no more",
            EndJudge::Time | EndJudge::ControlPlane | EndJudge::Nobody => "the certificate has ended",
        }
    }

    /// The host's clock may be ahead: the control plane's own certificate has ended by it.
    pub(crate) fn doubts_the_clock(&mut self) {
        if self.judge == EndJudge::Time {
            self.judge = EndJudge::Nobody;
        }
    }

    /// When the next request is due by the host's clock, and by what it proves the node. `time`: what the node
    /// takes for the time of day.
    pub(crate) fn due(
        &self,
        hostname: &Hostname,
        now: Timestamp,
        time: Timestamp,
    ) -> Option<(Timestamp, RenewalProof)> {
        let validity = self.validity.filter(|_| !self.under_way)?;
        let ended = match self.judge {
            EndJudge::Time => time > validity.until.plus(SLACK),
            EndJudge::ControlPlane | EndJudge::TrustDocument => true,
            EndJudge::Nobody => false,
        };
        let (at, proof) = match self.contact {
            // The next contact would fail.
            _ if self.judge == EndJudge::TrustDocument => (now, RenewalProof::Key),
            LastContact::Answered if self.wanted => (now, RenewalProof::Certificate),
            LastContact::Answered => {
                (now.plus(validity.renew_at(hostname.as_str()).since(time)), RenewalProof::Certificate)
            }
            LastContact::Failed if ended => (now, RenewalProof::Key),
            LastContact::Failed | LastContact::NoneYet => return None,
        };
        Some((at.max(self.not_before), proof))
    }

    /// A request is under way.
    pub(crate) fn begins(&mut self) {
        self.under_way = true;
    }

    /// The node has another certificate, by a request or because somebody joined it anew.
    pub(crate) fn renewed(&mut self, validity: CertificateValidity, now: Timestamp) {
        let not_before = now.plus(longest_wait(&validity));
        *self = Renewal { contact: self.contact, not_before, ..Renewal::new(Some(validity)) };
    }

    /// A request failed; says whether it is for another reason than the one before.
    pub(crate) fn failed(&mut self, why: String, now: Timestamp, spread: &mut Spread) -> bool {
        self.under_way = false;
        self.failures = self.failures.saturating_add(1);
        let longest = self.validity.as_ref().map_or(backoff::LONGEST, longest_wait);
        self.not_before = now.plus(spread.backoff(self.failures, longest));
        let is_new = self.failure.as_ref() != Some(&why);
        self.failure = Some(why);
        is_new
    }

    /// Why the certificate could not be renewed, while that is so.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The clock was set back by so much.
    pub(crate) fn set_back(&mut self, back: Duration) {
        self.not_before = self.not_before.minus(back);
    }
}

/// The longest wait after failures, and the shortest between two renewals: an hour of validity has some.
fn longest_wait(validity: &CertificateValidity) -> Duration {
    (validity.span() / WAITS_IN_VALIDITY).clamp(backoff::FIRST, backoff::LONGEST)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// IDN-8: a second CA that counts no more, a moment after a renewal, keeps no node waiting; failed requests do.
    #[test]
    fn a_rejected_certificate_is_replaced_at_once() {
        let (hostname, now) = ("web-1".parse().unwrap(), Timestamp::from_secs(1_800_000_000));
        let validity = CertificateValidity::starting(now, Duration::from_secs(30 * 24 * 3600));
        let mut renewal = Renewal::new(Some(validity));
        renewal.answered(true);
        renewal.renewed(validity, now);
        renewal.answered(true);
        let wanted = renewal.due(&hostname, now, now).unwrap();
        assert_eq!(wanted, (now.plus(longest_wait(&validity)), RenewalProof::Certificate));
        renewal.rejected();
        assert_eq!(renewal.due(&hostname, now, now).unwrap(), (now, RenewalProof::Key));
        renewal.failed("refused".to_owned(), now, &mut Spread::new(7));
        let paced = renewal.due(&hostname, now, now).unwrap();
        assert!(paced.0 > now);
        renewal.rejected();
        assert_eq!(renewal.due(&hostname, now, now).unwrap(), paced);
    }
}
