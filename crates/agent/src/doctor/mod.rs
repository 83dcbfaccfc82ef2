//! `muster-agent doctor`: what keeps this host from being looked after, each with a next step.
//!
//! ```text
//! state, certificate, clock, disk, unit, limits ---+
//! proxy, each server: name -> TCP -> TLS        ---+--> Finding (ok, warn, fail) --> exit 0 or 1
//! the daemon, as its socket shows it            ---+
//! ```
//!
//! Works with and without the daemon, and changes nothing on the host. Invariants: each look has a time
//! limit; nothing that is shown holds a secret (a proxy's password is hidden).

mod clock;
pub(crate) mod host;
mod network;

use std::fmt;

use model::CertificateState;
use serde::{Deserialize, Serialize};
use trust::token::TlsTermination;

use crate::clock::{BUILT, now};
use crate::guard::GuardView;
use crate::identity::Membership;
use crate::invocation::{command, continue_daemon, restart_daemon, start_daemon};
use crate::local::client::{LocalClient, LocalClientError};
use crate::local::messages::{ContactProblem, join_again};
use crate::machine::MachineOptions;
use crate::render::{chain, when};
use crate::state::{StateDir, StateError};
use crate::status::{AgentStatusView, SILENT_DAEMON, UNASSIGNED_NEXT};

/// How well something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingLevel {
    /// As it should be.
    Ok,
    /// It works, and may not for long.
    Warn,
    /// It keeps the agent from its work.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How well it is.
    pub level: FindingLevel,
    /// What was looked at.
    pub subject: String,
    /// What was seen.
    pub evidence: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Finding {
    fn ok(subject: impl Into<String>, evidence: impl Into<String>) -> Finding {
        let (subject, evidence) = (subject.into(), evidence.into());
        Finding { level: FindingLevel::Ok, subject, evidence, next: None }
    }

    fn warn(subject: impl Into<String>, evidence: impl Into<String>, next: impl Into<String>) -> Finding {
        let next = Some(next.into());
        Finding { level: FindingLevel::Warn, next, ..Finding::ok(subject, evidence) }
    }

    fn fail(subject: impl Into<String>, evidence: impl Into<String>, next: impl Into<String>) -> Finding {
        Finding { level: FindingLevel::Fail, ..Finding::warn(subject, evidence, next) }
    }
}

/// All that was looked at.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Diagnosis {
    /// In the order in which they were looked at.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// Something keeps the agent from its work.
    pub fn failed(&self) -> bool {
        self.findings.iter().any(|finding| finding.level == FindingLevel::Fail)
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            let level = match finding.level {
                FindingLevel::Ok => "ok  ",
                FindingLevel::Warn => "warn",
                FindingLevel::Fail => "FAIL",
            };
            writeln!(f, "{level}  {:<16} {}", finding.subject, finding.evidence.replace('\n', "\n      "))?;
            if let Some(next) = &finding.next {
                writeln!(f, "      next: {next}")?;
            }
        }
        let count = |level| self.findings.iter().filter(|finding| finding.level == level).count();
        let (fails, warns) = (count(FindingLevel::Fail), count(FindingLevel::Warn));
        writeln!(f, "{} looked at: {fails} fail, {warns} warn", self.findings.len())
    }
}

/// How an agent is started before the host has joined: systemd starts nothing until then.
const START_BY_JOINING: &str = "join; the agent starts by itself then";

/// Looks at everything.
pub fn diagnose(options: &MachineOptions) -> Diagnosis {
    let state = options.state_dir();
    let daemon = LocalClient::find(options).and_then(|client| client.status());
    let membership = StateDir::at(&state, spool::Disk::new()).membership();
    let start = match &membership {
        Ok(None) => START_BY_JOINING.to_owned(),
        Ok(Some(_)) | Err(_) => start_daemon(),
    };
    let mut findings = vec![about_daemon(&daemon, &start)];
    findings.extend(host::user());
    findings.extend(host::state_directory(&state));
    let membership = match membership {
        Ok(Some(membership)) => {
            let (fleet, name) = (&membership.trust.fleet, &membership.hostname);
            findings.push(Finding::ok("membership", format!("{name} of fleet {fleet}")));
            Some(membership)
        }
        Ok(None) => {
            let error = StateError::NotJoined(state.clone()).to_string();
            findings.push(Finding::fail("membership", error, command("join --token-file FILE")));
            None
        }
        Err(error) => {
            let next = "run it with sudo; if the file is damaged, join again";
            findings.push(Finding::fail("membership", chain(&error), next));
            None
        }
    };
    findings.extend(host::disks(&state));
    let verified = membership.as_ref().and_then(|_| clock::newest_signature(&state));
    findings.push(clock::plausible(now(), BUILT, verified));
    if let Some(unassigned) = daemon.as_ref().ok().and_then(AgentStatusView::unassigned) {
        findings.push(Finding::warn("release", unassigned, UNASSIGNED_NEXT));
    }
    let view = daemon.ok().and_then(|view| view.daemon);
    findings.extend(view.as_ref().and_then(|view| view.watch.as_ref()).into_iter().flat_map(host::watched));
    let on_disk = || GuardView::on_disk(options);
    findings.extend(host::guarded(&view.as_ref().map_or_else(on_disk, |daemon| daemon.guard.clone())));
    let contact = view.map(|daemon| daemon.contact);
    findings.extend(contact.and_then(|contact| contact.clock_ahead_ms).map(clock::compared));
    let proxy = membership.as_ref().and_then(|membership| membership.proxy.as_deref());
    findings.extend(network::proxies(proxy, |name| std::env::var(name).ok()));
    if let Some(membership) = &membership {
        findings.extend(certificate(membership));
        findings.extend(network::servers(options, membership));
    }
    findings.extend(host::limits());
    if options.root.is_none() && membership.as_ref().is_none_or(|membership| membership.root.is_none()) {
        findings.extend(host::unit(&start));
    }
    Diagnosis { findings }
}

fn about_daemon(daemon: &Result<AgentStatusView, LocalClientError>, start: &str) -> Finding {
    let view = match daemon {
        Ok(view) => view,
        Err(error @ LocalClientError::NoDaemon(_)) => {
            return Finding::warn("daemon", error.to_string(), start);
        }
        Err(error @ LocalClientError::Denied(_)) => {
            return Finding::warn("daemon", error.to_string(), "run it with sudo");
        }
        Err(LocalClientError::Silent { .. }) => {
            return Finding::fail("daemon", SILENT_DAEMON, continue_daemon());
        }
        Err(error) => return Finding::fail("daemon", chain(error), restart_daemon()),
    };
    if let Some(pause) = &view.paused {
        let evidence = format!("paused since {}: {}", pause.since, pause.reason);
        return Finding::warn("daemon", evidence, command("resume"));
    }
    let Some(daemon) = &view.daemon else { return Finding::ok("daemon", "runs") };
    let since = when(daemon.since, now());
    let Some(problem) = &daemon.contact.problem else {
        return Finding::ok("daemon", format!("runs since {since}, pid {}", daemon.pid));
    };
    let evidence = format!("runs since {since}, and its last check-in failed: {problem}");
    let next = match daemon.contact.reason {
        // The way to the control plane is in order: it does not take this node.
        Some(
            reason @ (ContactProblem::CertificateExpired
            | ContactProblem::UnknownNode
            | ContactProblem::Revoked),
        ) => reason.next_step(&view.hostname),
        _ => "see the lines about proxy, name, TCP and TLS below".to_owned(),
    };
    Finding::fail("daemon", evidence, next)
}

/// When the node's certificate ends; behind a proxy no session is opened with it.
fn certificate(membership: &Membership) -> Option<Finding> {
    if membership.tls_termination == TlsTermination::Proxy {
        return None;
    }
    let (now, again) = (now(), join_again(&membership.hostname));
    let Some(validity) = net::identity::validity(membership.cert_pem.as_bytes()) else {
        return Some(Finding::fail("certificate", "the node's certificate cannot be read", again));
    };
    let evidence = format!("ends {}", when(validity.until, now));
    let late = format!("{evidence}, and its renewal is late");
    Some(match validity.state(now) {
        CertificateState::Ended => Finding::fail("certificate", evidence, again),
        CertificateState::RenewalLate => Finding::warn("certificate", late, again),
        CertificateState::Valid => Finding::ok("certificate", evidence),
    })
}
