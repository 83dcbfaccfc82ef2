//! `muster-agent status`: what is held, what the last run came to and what waits; read from the state
//! directory without disturbing the daemon, which adds what it alone knows.

mod text;

use std::path::Path;

use model::exchange::HeldFreshness;
use model::{Pause, Timestamp};
use node::{Adoption, FreshnessRecord, LastRun};
use serde::{Deserialize, Serialize};
use spool::{Disk, StateFile};
use trust::token::TlsTermination;

use crate::activations::{QuarantineView, QuarantinedRelease};
use crate::clock::now;
use crate::local::messages::{ContactView, DaemonView};
use crate::membership::{believed_authority, is_certified, validity};
use crate::outcomes::LastRunView;
use crate::run_mark::RunMark;
use crate::state::{FRESHNESS_FILE, PAUSE_FILE, StateDir, StateError, read_trusted};
use crate::sync::{self, view::SyncStatus};

use self::text::StatusText;

/// A node's state as the node itself sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatusView {
    fleet: model::FleetId,
    pub(crate) hostname: model::Hostname,
    node_id: model::NodeId,
    servers: Vec<net::ServerUrl>,
    tls_termination: TlsTermination,
    /// The proxy that leads to them, without its password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proxy: Option<String>,
    /// When the node's certificate ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate_ends: Option<Timestamp>,
    /// The version of the trust document that is held.
    #[serde(default)]
    trust_version: u64,
    /// The id of the CA's key that the trust document names as the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate_authority: Option<String>,
    /// A CA issued the certificate that the trust document names no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    certificate_rejected: bool,
    /// Since when it counts, and when the node asks for the next one; absent where no session is opened with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate: Option<CertificateView>,
    /// What the daemon says of itself; absent when none runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon: Option<DaemonView>,
    /// How contacts went when a daemon ran last; absent while one runs, which says so itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    contact: Option<ContactView>,
    /// Why the host is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    release: Option<HeldReleaseView>,
    /// The contents that this host went back from and refuses, the oldest first (ROL-12).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    quarantine: Vec<QuarantinedRelease>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_changed_run: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_counts: Option<model::RunCounts>,
    /// Every resource of the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<LastRunView>,
    /// When a run began that was cut off, until another one ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cut_off_run: Option<Timestamp>,
    /// Synchronization and work, as the daemon wrote last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sync: Option<SyncStatus>,
    /// Why the daemon says nothing of itself, where it does not.
    #[serde(default, skip_serializing_if = "DaemonAbsence::is_none_there")]
    daemon_absence: DaemonAbsence,
}

/// Why there is no word of a daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DaemonAbsence {
    /// None runs.
    #[default]
    NotRunning,
    /// It has its socket, and gave no answer in time.
    Silent,
}

impl DaemonAbsence {
    fn is_none_there(&self) -> bool {
        *self == DaemonAbsence::NotRunning
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CertificateView {
    from: Timestamp,
    renew_at: Timestamp,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeldReleaseView {
    seq: u64,
    channel: model::Channel,
    root: model::Digest,
    objects: usize,
    adopted_at: Timestamp,
    /// How fresh it is.
    #[serde(flatten)]
    freshness: HeldFreshness,
}

/// Reads the state directory.
///
/// # Errors
/// When the host has not joined, or a file cannot be read.
pub fn read(state: &Path) -> Result<AgentStatusView, StateError> {
    let disk = Disk::new();
    let membership = StateDir::at(state, disk.clone()).membership()?;
    let membership = membership.ok_or_else(|| StateError::NotJoined(state.to_owned()))?;
    let failed = |source| StateError::Spool { what: "read the state", source };
    let adoption: StateFile<Adoption> = StateFile::new(&disk, state.join("adoption.json"), 0o600);
    let last_run: StateFile<LastRun> = StateFile::new(&disk, state.join("last-run.json"), 0o600);
    let kept: StateFile<FreshnessRecord> = StateFile::new(&disk, state.join(FRESHNESS_FILE), 0o600);
    let kept = kept.load().map_err(failed)?.value;
    // Back as it was found, the host holds none: what it left, and why, is said beside.
    let adoption = adoption.load().map_err(failed)?.value.filter(|adoption| !adoption.is_as_found());
    let release = adoption.map(|adoption| HeldReleaseView {
        freshness: FreshnessRecord::restored(&adoption, kept.as_ref()).view(),
        seq: adoption.seq,
        channel: adoption.channel,
        root: adoption.root,
        objects: adoption.objects.len(),
        adopted_at: adoption.adopted_at,
    });
    let last = last_run.load().map_err(failed)?.value;
    let pause: StateFile<Option<Pause>> = StateFile::new(&disk, state.join(PAUSE_FILE), 0o600);
    let paused = pause.load().map_err(failed)?.value.flatten().filter(|pause| !pause.is_over(now()));
    let trusted = read_trusted(state, &membership.trust)?;
    let authority = believed_authority(&membership, trusted.certificate_authority.as_ref());
    let certificate_rejected = !is_certified(&membership, &authority);
    let certificate = validity(&membership).map(|validity| CertificateView {
        from: validity.from,
        renew_at: validity.renew_at(membership.hostname.as_str()),
    });
    Ok(AgentStatusView {
        fleet: membership.trust.fleet,
        hostname: membership.hostname,
        node_id: membership.node_id,
        servers: membership.servers,
        tls_termination: membership.tls_termination,
        proxy: membership.proxy.as_ref().map(ToString::to_string),
        certificate_ends: net::identity::validity(membership.cert_pem.as_bytes())
            .map(|validity| validity.until),
        certificate,
        trust_version: trusted.version,
        certificate_authority: trusted.certificate_authority.map(|slots| slots.current.id()),
        certificate_rejected,
        daemon: None,
        contact: ContactView::read(state),
        paused,
        last_run: LastRunView::read(state),
        cut_off_run: RunMark::read(state).map(|mark| mark.started),
        release,
        // Where it cannot be read nothing is activated, and the daemon says so.
        quarantine: QuarantineView::read(state).unwrap_or_default().releases,
        last_changed_run: last.as_ref().map(|last| last.at),
        last_counts: last.map(|last| last.counts),
        sync: sync::view::read(state),
        daemon_absence: DaemonAbsence::NotRunning,
    })
}

/// How a host does, in one word: the first of these that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostHealth {
    /// Resources failed in the last run, no run can be made, the release cannot be fetched or kept, or something else
    /// keeps changing them.
    Failed,
    /// No daemon runs, or it does not answer, so nothing is kept as declared.
    NotKept,
    /// The control plane refuses the host: it was removed there, or its certificate has ended.
    Refused,
    /// The last contact with the control plane failed.
    OutOfContact,
    /// Something that only observes is not as declared.
    Differs,
    /// Nothing of that.
    AsDeclared,
}

/// Which resources of the last run are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownResources {
    /// Those that are not as declared, were changed or were slow.
    Notable,
    /// All of them.
    All,
}

impl AgentStatusView {
    /// Without what was read from the host and written to it.
    pub fn without_edits(mut self) -> AgentStatusView {
        self.last_run = self.last_run.map(LastRunView::without_edits);
        self
    }

    /// That the control plane answers and has no release for this host, and what is converged then.
    pub fn unassigned(&self) -> Option<String> {
        let contact = self.daemon.as_ref().map(|daemon| &daemon.contact);
        contact.filter(|contact| contact.unassigned)?;
        let converged = match &self.release {
            None => "nothing is converged".to_owned(),
            Some(held) => format!("release {}, which it holds, stays in force", held.seq),
        };
        let hostname = &self.hostname;
        Some(format!(
            "the control plane answers, and no entry of what is published matches {hostname}: {converged}"
        ))
    }

    /// Puts in what the daemon knows.
    pub(crate) fn of_daemon(self, daemon: DaemonView) -> AgentStatusView {
        AgentStatusView { daemon: Some(daemon), contact: None, ..self }
    }

    /// What is on disk, of a host whose daemon gave no answer.
    pub(crate) fn of_silent_daemon(self) -> AgentStatusView {
        AgentStatusView { daemon_absence: DaemonAbsence::Silent, ..self }
    }

    /// How contacts with the control plane went, as far as somebody knows.
    fn contact(&self) -> Option<&ContactView> {
        self.daemon.as_ref().map(|daemon| &daemon.contact).or(self.contact.as_ref())
    }

    /// How the host does at this time.
    pub fn health(&self) -> HostHealth {
        let counts = self.last_run.as_ref().map(|last| last.counts).or(self.last_counts).unwrap_or_default();
        let watch = self.daemon.as_ref().and_then(|daemon| daemon.watch.as_ref());
        let hindered = |daemon: &DaemonView| daemon.unmade_run.is_some() || daemon.unadopted.is_some();
        if counts.failed > 0
            || watch.is_some_and(|watch| !watch.contended.is_empty())
            || self.daemon.as_ref().is_some_and(hindered)
        {
            return HostHealth::Failed;
        }
        let Some(daemon) = &self.daemon else { return HostHealth::NotKept };
        match daemon.contact.reason {
            Some(problem) if problem.is_refusal() => HostHealth::Refused,
            Some(_) => HostHealth::OutOfContact,
            None if counts.would_change > 0 => HostHealth::Differs,
            None => HostHealth::AsDeclared,
        }
    }

    /// The status for people.
    pub fn text(&self, shown: ShownResources) -> String {
        StatusText { view: self, shown, now: now() }.to_string()
    }
}

/// What to do where no release names a host.
pub(crate) const UNASSIGNED_NEXT: &str =
    "where the fleet repo is, add an entry for it to nodes.yaml, then muster publish";

/// What is said of a daemon that gives no answer.
pub(crate) const SILENT_DAEMON: &str =
    "the agent does not answer (it may be stopped): shown is what is on disk";
