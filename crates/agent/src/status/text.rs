//! [`StatusText`]: the state of a node as people read it.

use std::fmt;

use model::delta::render_edit;
use model::exchange::HeldFreshness;
use model::text::{one_line, same_cause};
use model::{CertificateState, CertificateValidity, ResourceReport, Timestamp};
use trust::token::TlsTermination;

use super::{AgentStatusView, DaemonAbsence, SILENT_DAEMON, ShownResources, UNASSIGNED_NEXT};
use crate::invocation::{command, continue_daemon, start_daemon};
use crate::local::messages::join_again;
use crate::outcomes::ResourceOutcome;
use crate::render::{self, when, word};
/// What the view says, for one reader at one time.
pub(super) struct StatusText<'a> {
    pub(super) view: &'a AgentStatusView,
    pub(super) shown: ShownResources,
    pub(super) now: Timestamp,
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
        self.show_quarantine(f)?;
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

    fn show_quarantine(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((newest, others)) = self.view.quarantine.split_last() else { return Ok(()) };
        writeln!(f, "quarantine     {newest}")?;
        let next = newest.lift();
        writeln!(
            f,
            "               its content is refused, whatever its number; to have it tried again: {next}"
        )?;
        match others.len() {
            0 => Ok(()),
            more => writeln!(f, "               and {more} more: {}", command("quarantine list")),
        }
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
