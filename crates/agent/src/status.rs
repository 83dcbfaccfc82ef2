//! `muster-agent status`: what is held, what the last run came to and what waits; read from the state
//! directory without disturbing the daemon, which adds what it alone knows.

use std::fmt;
use std::path::Path;

use model::delta::render_edit;
use model::exchange::HeldFreshness;
use model::text::{one_line, same_cause};
use model::{CertificateState, CertificateValidity, Pause, ResourceReport, Timestamp};
use node::{Adoption, FreshnessRecord, LastRun};
use serde::{Deserialize, Serialize};
use spool::{Disk, StateFile};
use trust::token::TlsTermination;

use crate::clock::now;
use crate::invocation::{command, continue_daemon, start_daemon};
use crate::local::messages::{ContactView, DaemonView, join_again};
use crate::membership::{believed_authority, is_certified, validity};
use crate::outcomes::{LastRunView, ResourceOutcome};
use crate::render::{self, when, word};
use crate::run_mark::RunMark;
use crate::state::{FRESHNESS_FILE, PAUSE_FILE, StateDir, StateError, read_trusted};
use crate::sync::{self, view::SyncStatus};

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

struct StatusText<'a> {
    view: &'a AgentStatusView,
    shown: ShownResources,
    now: Timestamp,
}

impl fmt::Display for StatusText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.view;
        writeln!(f, "{} ({}) of fleet {}", view.hostname, view.node_id, view.fleet)?;
        if let Some(pause) = &view.paused {
            writeln!(f, "PAUSED         {}", render::pause(pause, self.now))?;
            let resume = command("resume");
            writeln!(f, "               nothing is changed on this host; to go on: {resume}")?;
        }
        if let Some(reboot) = view.daemon.as_ref().and_then(|daemon| daemon.reboot.as_ref()) {
            writeln!(f, "REBOOT         {}", render::reboot(reboot, self.now))?;
        }
        self.show_daemon(f)?;
        for server in &view.servers {
            writeln!(f, "control plane  {server}")?;
        }
        if let Some(proxy) = &view.proxy {
            writeln!(f, "through        {proxy}")?;
        }
        if view.tls_termination == TlsTermination::Proxy {
            writeln!(f, "TLS            ends at a proxy: signed requests, polls and server-sent events")?;
        }
        self.show_certificate(f)?;
        self.show_trust(f)?;
        let unassigned = view.unassigned();
        match &view.release {
            // A control plane that answered would have sent the release that has an entry for this host.
            None if unassigned.is_some() => {}
            None => {
                let wave = view.contact().and_then(|contact| contact.awaited_wave.as_ref());
                let wave = wave.map(|wave| format!("; {}", wave.text())).unwrap_or_default();
                writeln!(f, "release        none yet: nothing is converged{wave}")?;
            }
            Some(release) => {
                let (seq, channel, root) = (release.seq, &release.channel, release.root.short());
                writeln!(
                    f,
                    "release        {seq} of channel {channel}, root {root}, {} objects",
                    release.objects
                )?;
                writeln!(f, "adopted        {}", when(release.adopted_at, self.now))?;
                self.show_freshness(release.freshness, f)?;
            }
        }
        if let Some(unassigned) = unassigned {
            writeln!(f, "RELEASE        NONE: {unassigned}")?;
            writeln!(f, "               next: {UNASSIGNED_NEXT}")?;
        }
        self.show_runs(f)?;
        match &view.sync {
            None => Ok(()),
            Some(sync) => sync.show(view.hostname.as_str(), f),
        }
    }
}

impl StatusText<'_> {
    fn show_freshness(&self, freshness: HeldFreshness, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HeldFreshness { signed_at, not_fresh_since, stale_since } = freshness;
        if let Some(since) = not_fresh_since {
            let (since, signed) = (when(since, self.now), when(signed_at, self.now));
            writeln!(f, "NOT FRESH      since {since}: no release and no beacon was signed since {signed}")?;
            writeln!(
                f,
                "               no actions and no object changes are taken from the control plane; what is held is kept"
            )?;
            writeln!(f, "               next: where the release key is, muster beacon or muster publish")?;
        }
        if let Some(since) = stale_since {
            let since = when(since, self.now);
            writeln!(f, "STALE          since {since}: nothing confirmed what is held for bundle_max_age")?;
        }
        Ok(())
    }

    fn show_trust(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (view, version) = (self.view, self.view.trust_version);
        match view.daemon.as_ref().and_then(|daemon| daemon.refused_trust.as_ref()) {
            // Of the first there is nothing to say.
            None if version <= 1 => Ok(()),
            None => match &view.certificate_authority {
                Some(authority) => writeln!(f, "trust          document {version}, CA {authority}"),
                None => writeln!(f, "trust          document {version}"),
            },
            Some(why) => {
                writeln!(
                    f,
                    "TRUST          document {version} is held, and newer ones are not followed: {}",
                    one_line(why)
                )?;
                writeln!(
                    f,
                    "               what is held stays in force; next: {}",
                    join_again(&view.hostname)
                )
            }
        }
    }

    fn show_certificate(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Behind a proxy no session is opened with it.
        let Some((certificate, ends)) = self.view.certificate.zip(self.view.certificate_ends) else {
            return Ok(());
        };
        // The control plane judges it, by its own clock: that of a host that is ahead ends no certificate.
        let ahead = self.view.contact().and_then(|contact| contact.clock_ahead_ms).unwrap_or_default();
        let validity = CertificateValidity { from: certificate.from, until: ends };
        let (at, state) = (when(ends, self.now), validity.state(Timestamp(self.now.0.saturating_add(ahead))));
        let failure = self.view.contact().and_then(|contact| contact.renewal_failure.as_deref());
        match state {
            _ if self.view.certificate_rejected => {
                writeln!(
                    f,
                    "CERTIFICATE    of a CA that counts no more; a daemon that runs asks for another one by this host's key"
                )?;
            }
            CertificateState::Ended => {
                writeln!(
                    f,
                    "CERTIFICATE    EXPIRED {at}; a daemon that runs asks for another one by this host's key"
                )?;
            }
            CertificateState::RenewalLate => {
                writeln!(f, "CERTIFICATE    ends {at}, and its renewal is late")?
            }
            CertificateState::Valid if failure.is_some() => {
                writeln!(f, "CERTIFICATE    ends {at}, and its renewal fails")?;
            }
            CertificateState::Valid => {
                return writeln!(
                    f,
                    "certificate    ends {at}, to be renewed {}",
                    when(certificate.renew_at, self.now)
                );
            }
        }
        if let Some(failure) = failure {
            writeln!(f, "               it is tried again; last: {}", one_line(failure))?;
        }
        match state {
            // A daemon asks for another one by the host's key first.
            CertificateState::Ended if self.view.daemon.is_none() => {
                let (start, join) = (start_daemon(), join_again(&self.view.hostname));
                writeln!(f, "               next: {start}; where that is refused: {join}")
            }
            CertificateState::Ended => {
                writeln!(f, "               next: {}", join_again(&self.view.hostname))
            }
            _ => writeln!(f, "               next: {}", command("doctor")),
        }
    }

    fn show_contact(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(contact) = self.view.contact() else { return Ok(()) };
        let answered = contact.answered.map_or("never".to_owned(), |at| when(at, self.now));
        if let Some(left_out) = &contact.left_out {
            writeln!(f, "LEFT OUT       {}", one_line(left_out))?;
        }
        if contact.identity_copied {
            writeln!(
                f,
                "COPIED         another host holds this node's key: no releases, actions or objects come"
            )?;
            writeln!(
                f,
                "               next: on the copy `muster-agent prepare-image`; then an operator decides: \
                `muster node approve {} --copy-resolved`",
                self.view.hostname
            )?;
        }
        let Some(problem) = &contact.problem else {
            return writeln!(f, "last contact   {answered}");
        };
        let failed = contact.failed.map(|at| when(at, self.now)).unwrap_or_default();
        let next = contact.reason.map_or_else(|| command("doctor"), |it| it.next_step(&self.view.hostname));
        writeln!(f, "last contact   {answered}; since then FAILED, last {failed}: {}", one_line(problem))?;
        writeln!(f, "               next: {next}")
    }

    fn show_daemon(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(daemon) = &self.view.daemon else {
            match self.view.daemon_absence {
                DaemonAbsence::NotRunning => {
                    let start = start_daemon();
                    writeln!(f, "daemon         does not run: nothing is kept as declared ({start})")?;
                }
                DaemonAbsence::Silent => {
                    writeln!(f, "DAEMON         {SILENT_DAEMON}")?;
                    writeln!(f, "               next: {}", continue_daemon())?;
                }
            }
            return self.show_contact(f);
        };
        let (since, doctor) = (when(daemon.since, self.now), command("doctor"));
        writeln!(f, "daemon         runs since {since}, version {}, pid {}", daemon.version, daemon.pid)?;
        self.show_contact(f)?;
        if let Some(beside) = daemon.contact.clock_beside() {
            writeln!(f, "CLOCK          {beside} the control plane's; next: {doctor}")?;
        }
        if daemon.facts_waiting > 0 {
            writeln!(f, "facts          {} wait to be delivered", daemon.facts_waiting)?;
        }
        if let Some(watch) = daemon.watch.as_ref().filter(|watch| watch.resources > 0) {
            writeln!(f, "watched        {}", watch.text())?;
            let limit = watch.limit.as_ref().map(|name| format!("the kernel's limit {name} is reached"));
            for problem in limit.iter().chain(&watch.problem).chain(&watch.units_problem) {
                writeln!(f, "               {problem}; the interval still holds; next: {doctor}")?;
            }
            for contention in &watch.contended {
                writeln!(f, "CONTENDED      {}", contention.text(self.now))?;
            }
        }
        if let Some(unmade) = &daemon.unmade_run {
            let since = when(unmade.since, self.now);
            writeln!(f, "NO RUN         can be made since {since}: {}", one_line(&unmade.reason))?;
        }
        if let Some(activation) = &daemon.activation {
            writeln!(f, "ROLLOUT        {activation}")?;
        }
        write!(f, "{}", daemon.guard)?;
        if let Some(unadopted) = &daemon.unadopted {
            let since = when(unadopted.since, self.now);
            writeln!(f, "NOT ADOPTED    since {since}: {}", one_line(&unadopted.text()))?;
            writeln!(f, "               what is held stays in force; next: {doctor}")?;
        }
        match daemon.running_since {
            Some(since) => writeln!(f, "run            under way since {}", when(since, self.now)),
            None => Ok(()),
        }
    }

    fn show_runs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.view;
        match &view.last_run {
            None if view.last_changed_run.is_none() => writeln!(f, "last run       none yet")?,
            None => {}
            Some(last) => {
                let how = if last.paused.is_some() { ", only observed" } else { "" };
                let at = when(last.started, self.now);
                writeln!(f, "last run       {at}, took {} ms{how}", last.duration_ms)?;
            }
        }
        if let Some(at) = view.cut_off_run {
            let at = when(at, self.now);
            writeln!(
                f,
                "CUT OFF        the run that began {at}: the agent was killed, or the host went down"
            )?;
        }
        let succeeded = view.last_run.as_ref().and_then(|last| last.succeeded);
        if let (Some(at), Some(last)) = (succeeded, &view.last_run)
            && at != last.started
        {
            writeln!(f, "last success   {}", when(at, self.now))?;
        }
        if let Some(at) = view.last_changed_run {
            writeln!(f, "runs alike     since {at}")?;
        }
        if let Some(counts) = view.last_run.as_ref().map(|last| last.counts).or(view.last_counts) {
            writeln!(
                f,
                "each of them   {} ok, {} changed, {} failed, {} skipped, {} would change",
                counts.ok, counts.changed, counts.failed, counts.skipped, counts.would_change
            )?;
        }
        let Some(last) = &view.last_run else { return Ok(()) };
        match self.shown {
            ShownResources::All => {
                for outcome in &last.resources {
                    self.show_resource(outcome, last.item(outcome.resource.as_str()), f)?;
                }
            }
            ShownResources::Notable => {
                for outcome in last.notable() {
                    self.show_resource(outcome, last.item(outcome.resource.as_str()), f)?;
                }
            }
        }
        // Of no resource: a module's verify.
        let known =
            |item: &ResourceReport| last.resources.iter().any(|one| one.resource.as_str() == item.resource);
        for item in last.items.iter().filter(|item| !known(item)) {
            writeln!(f, "  {:<16} {}", word(Some(item.action)), item.resource)?;
            self.show_details(item, f)?;
        }
        match last.left_out {
            0 => Ok(()),
            left_out => writeln!(f, "  and {left_out} that are not kept here"),
        }
    }

    fn show_resource(
        &self,
        outcome: &ResourceOutcome,
        item: Option<&ResourceReport>,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        let since = render::short(self.now.since(outcome.since));
        let (word, id) = (word(outcome.action), &outcome.resource);
        writeln!(f, "  {word:<16} {id}  ({} ms, since {since})", outcome.duration_ms)?;
        item.map_or(Ok(()), |item| self.show_details(item, f))
    }

    fn show_details(&self, item: &ResourceReport, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &item.reason {
            writeln!(f, "      {}", reason.replace('\n', "\n      "))?;
        }
        let contact = self.view.daemon.as_ref().map(|daemon| &daemon.contact);
        if let Some(others) = contact.and_then(|contact| contact.same_cause.get(&item.resource)) {
            writeln!(f, "      {}", same_cause(*others))?;
        }
        if let Some(edit) = &item.edit {
            let mut text = String::new();
            render_edit(&mut text, &item.resource, edit);
            // Its first line names the resource again.
            for line in text.lines().skip(1) {
                writeln!(f, "  {line}")?;
            }
        }
        Ok(())
    }
}
