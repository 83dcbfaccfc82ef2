//! What travels over the socket, as JSON; docs/agent-socket.md shows each.

use std::collections::{BTreeMap, BTreeSet};

use model::rollout::RolloutId;
use model::text::one_line;
use model::time::SLACK;
use model::unadopted::UnadoptedRelease;
use model::{Hostname, Pause, RunReport, Timestamp, UnmadeRun};
use net::client::ClientError;
use net::proxy::ProxyError;
use node::RebootOutlook;
use serde::{Deserialize, Serialize};

use crate::activations::ActivationView;
use crate::files::UnkeptFile;
use crate::guard::GuardView;
use crate::healing::WatchView;
use crate::invocation::command;

/// The longest pause that ends by itself.
pub const MAX_PAUSE_SECS: u64 = 366 * 24 * 3600;

/// What the daemon knows of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonView {
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// Since when it runs.
    pub since: Timestamp,
    /// How its contacts with the control plane went.
    pub contact: ContactView,
    /// Facts that wait to be delivered.
    pub facts_waiting: u64,
    /// A run is under way since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_since: Option<Timestamp>,
    /// Why no run can be made; absent while runs are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmade_run: Option<UnmadeRun>,
    /// What is watched, and what fights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchView>,
    /// How a reboot stands that something on the host requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot: Option<RebootOutlook>,
    /// How the activation of a release stands (ROL-7), or that the host went back from one and confirmed none since; else absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<ActivationView>,
    /// How guarded runs stand (CNV-11); absent while none waits for a contact and nothing is held back.
    #[serde(default, skip_serializing_if = "GuardView::is_empty")]
    pub guard: GuardView,
    /// Why newer trust documents are not followed; absent while they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_trust: Option<String>,
    /// Why the release that the control plane points to is not adopted; absent unless fetching or keeping it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unadopted: Option<UnadoptedRelease>,
}

/// Why the control plane gave no answer, as far as another step follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContactProblem {
    /// No session with it could be had, for another reason than those below.
    Unreachable,
    /// Its name is not known on this host.
    UnknownName,
    /// The proxy that is set cannot be reached, or does not answer.
    ProxyUnreachable,
    /// The proxy wants a user and password, or others than are set.
    ProxyCredentials,
    /// The proxy does not connect to the control plane.
    ProxyRefused,
    /// What answers as the proxy opens no tunnel: it is none, or sends a page.
    NoTunnel,
    /// What answers in the control plane's place speaks no TLS.
    NotTls,
    /// What answers in the control plane's place is under another CA.
    ForeignServer,
    /// By this host's clock the control plane's certificate has ended: one of the two is wrong.
    ClockAhead,
    /// The node's certificate has ended, so no session is had with it.
    CertificateExpired,
    /// No node of this certificate is enrolled there: it was removed.
    UnknownNode,
    /// The host was revoked: what was issued for it before counts no more (IDN-6).
    Revoked,
    /// It refused for another reason.
    Refused,
    /// A sort that a newer daemon knows.
    #[serde(other)]
    Other,
}

impl ContactProblem {
    /// Of what sort a failure to reach the control plane is.
    pub fn of_dial(error: &ClientError) -> ContactProblem {
        match error {
            ClientError::UnknownName { .. } => ContactProblem::UnknownName,
            ClientError::Proxy { source, .. } => match source {
                ProxyError::Unreachable(_) | ProxyError::Silent => ContactProblem::ProxyUnreachable,
                ProxyError::CredentialsAsked
                | ProxyError::CredentialsRefused
                | ProxyError::CredentialsOther(_) => ContactProblem::ProxyCredentials,
                ProxyError::Refused(_) | ProxyError::Closed | ProxyError::Broke(_) => {
                    ContactProblem::ProxyRefused
                }
                ProxyError::NotHttp(_) | ProxyError::Page(_) | ProxyError::HeadTooLong => {
                    ContactProblem::NoTunnel
                }
            },
            ClientError::NotTls { .. } => ContactProblem::NotTls,
            // Newer trust documents say which CA counts, and that another certificate is to be had.
            ClientError::ForeignServer { .. } | ClientError::CertificateUnknown { .. } => {
                ContactProblem::ForeignServer
            }
            ClientError::ServerCertificateEnded { .. } => ContactProblem::ClockAhead,
            ClientError::CertificateRevoked { .. } => ContactProblem::Revoked,
            ClientError::Name(_)
            | ClientError::Dial { .. }
            | ClientError::Handshake { .. }
            | ClientError::Timeout { .. }
            | ClientError::Exchange { .. }
            | ClientError::Body { .. } => ContactProblem::Unreachable,
        }
    }

    /// The control plane answered, and does not take this node.
    pub fn is_refusal(self) -> bool {
        matches!(
            self,
            ContactProblem::CertificateExpired
                | ContactProblem::UnknownNode
                | ContactProblem::Revoked
                | ContactProblem::Refused
        )
    }

    /// What to do about it at a host of this name.
    pub fn next_step(self, hostname: &Hostname) -> String {
        let set_proxy = command("proxy --file FILE");
        match self {
            ContactProblem::CertificateExpired | ContactProblem::UnknownNode | ContactProblem::Revoked => {
                join_again(hostname)
            }
            problem => problem.on_the_way(&set_proxy).unwrap_or_else(|| command("doctor")),
        }
    }

    /// What to do about what is in the way to the control plane, where that is known. `set_proxy`: the command that
    /// sets another proxy, or none.
    pub fn on_the_way(self, set_proxy: &str) -> Option<String> {
        Some(match self {
            ContactProblem::UnknownName => {
                "look at /etc/resolv.conf and /etc/hosts: getent hosts NAME must find it".to_owned()
            }
            ContactProblem::ProxyUnreachable => {
                format!("is the proxy up, and is that its address? another one: {set_proxy}")
            }
            ContactProblem::ProxyCredentials => {
                format!(
                "write http://USER:PASSWORD@HOST:PORT of the proxy into a file, then: {set_proxy}; a proxy that takes no \
                 such password (Basic) has to let this host through without one"
            )
            }
            ContactProblem::ProxyRefused => format!(
                "have the proxy allow CONNECT to the control plane's host and port (sign in to the network where it asks for \
                 that), or set another one: {set_proxy}"
            ),
            ContactProblem::NoTunnel => format!(
                "what answers is no proxy that opens tunnels, or a captive portal: sign in to the network where it \
                 asks for that, or set another proxy: {set_proxy}"
            ),
            ContactProblem::NotTls => {
                "a captive portal or another service answers: sign in to the network where it asks for that, and check \
                 host and port"
                    .to_owned()
            }
            ContactProblem::ForeignServer => {
                "something on the way ends TLS (a proxy that inspects it, a captive portal), or the host is another \
                 fleet's: have it pass the control plane's name through; TLS is weakened for nobody (docs/proxy.md)"
                    .to_owned()
            }
            ContactProblem::Unreachable
            | ContactProblem::ClockAhead
            | ContactProblem::CertificateExpired
            | ContactProblem::UnknownNode
            | ContactProblem::Refused
            | ContactProblem::Revoked
            | ContactProblem::Other => return None,
        })
    }
}

/// How a host that is a member already gets a new certificate: it keeps its key and all that it holds, and
/// a daemon that runs takes the certificate up.
pub(crate) fn join_again(hostname: &Hostname) -> String {
    let join = command("join --token-file FILE");
    format!("where the fleet's keys are: muster token mint {hostname}; then here: {join}")
}

/// How contacts with the control plane went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContactView {
    /// When the control plane answered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<Timestamp>,
    /// When the last check-in without an answer was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Timestamp>,
    /// Why it got none; absent when the last one was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Of what sort that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ContactProblem>,
    /// Why the node's certificate could not be renewed; absent unless that is due and failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewal_failure: Option<String>,
    /// What the control plane's clock is ahead of the host's, in milliseconds, as far as it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ms: Option<i64>,
    /// On how many other nodes what failed here fails for the same cause, by resource, as the last answer
    /// said.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub same_cause: BTreeMap<String, u32>,
    /// What the control plane refuses as too large and is left out of check-ins since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// By the last answer no entry of what is published matches this host. What it holds stays in force.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unassigned: bool,
    /// By the last answer this host, which holds no release, waits for its wave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaited_wave: Option<AwaitedWave>,
    /// Another host holds the node's key, as the control plane says: no releases, actions or objects come.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub identity_copied: bool,
}

/// What a host waits for that holds no release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AwaitedWave {
    /// The rollout that it is in.
    pub rollout: RolloutId,
    /// The wave of it.
    pub wave: String,
}

impl AwaitedWave {
    /// In words: the wave's name is the control plane's.
    pub fn text(&self) -> String {
        let AwaitedWave { rollout, wave } = self;
        format!("this host waits for wave {} of rollout {rollout}, and holds no release yet", one_line(wave))
    }
}

impl ContactView {
    /// Where the host's clock is beside the control plane's, when that is worth a word.
    pub fn clock_beside(&self) -> Option<String> {
        let theirs = Timestamp(self.clock_ahead_ms?);
        let ours = Timestamp(0);
        (theirs.0.unsigned_abs() > SLACK.as_millis() as u64).then(|| ours.beside(theirs))
    }
}

/// What a run or a plan is about. An empty body asks for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunLimit {
    /// Only resources with one of these tags; all when there are none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tags: BTreeSet<String>,
}

/// A run was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTicket {
    /// The number of the first run that begins after the request, counted from the daemon's start.
    pub run: u64,
}

/// How a run stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum RunProgress {
    /// It has not begun.
    Waiting,
    /// It is under way.
    Running {
        /// Since when.
        since: Timestamp,
    },
    /// It ended.
    Ended {
        /// What it came to; absent when it ended too long ago.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        report: Option<Box<RunReport>>,
    },
    /// It could not be made.
    Failed {
        /// Why.
        cause: String,
    },
}

/// Pause the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PauseRequest {
    /// Why.
    pub reason: String,
    /// It ends by itself after this many seconds; never when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_secs: Option<u64>,
}

/// What a pause, or its end, came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PauseView {
    /// The pause that holds now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// The pause that held before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Pause>,
    /// This run began before the pause and goes on to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_under_way: Option<u64>,
    /// A repair that began then did not end while the answer waited for it, and goes on to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair_under_way: Option<Timestamp>,
}

/// Put a version of a file back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRestoreRequest {
    /// The file.
    pub path: String,
    /// The number of the version.
    pub version: u64,
    /// Overwrite what is there now also where it cannot be kept as a version.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// Let what is held back of a release be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiftQuarantineRequest {
    /// The number of the release.
    pub release: u64,
}

impl FileRestoreRequest {
    /// What to do with a file that cannot be kept.
    pub fn unkept(&self) -> UnkeptFile {
        if self.force { UnkeptFile::Overwrite } else { UnkeptFile::Refuse }
    }
}

/// Why a pause cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PauseError {
    /// Its reason is empty, too long, or has more than one line.
    #[error("a pause needs a reason of one line, at most {} bytes", model::report::MAX_PAUSE_REASON)]
    Reason,
    /// It is too short or too long.
    #[error("a pause lasts from 1 s to {} days", MAX_PAUSE_SECS / 86_400)]
    Length,
}

impl PauseRequest {
    /// The pause that is asked for, from now on.
    ///
    /// # Errors
    /// When reason or length are out of bounds.
    pub fn pause(&self, now: Timestamp) -> Result<Pause, PauseError> {
        let reason = self.reason.trim();
        let fits = !reason.is_empty() && reason.len() <= model::report::MAX_PAUSE_REASON;
        if !fits || reason.chars().any(char::is_control) {
            return Err(PauseError::Reason);
        }
        if self.for_secs.is_some_and(|secs| !(1..=MAX_PAUSE_SECS).contains(&secs)) {
            return Err(PauseError::Length);
        }
        let until = self.for_secs.map(|secs| now.plus(std::time::Duration::from_secs(secs)));
        Ok(Pause { reason: reason.to_owned(), since: now, until })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// A program reads what a newer daemon says.
    #[test]
    fn a_contact_problem_of_a_newer_daemon_is_another_one() {
        let read: ContactProblem = serde_json::from_str("\"moon-in-the-way\"").unwrap();
        assert_eq!((read, read.is_refusal()), (ContactProblem::Other, false));
    }
}
