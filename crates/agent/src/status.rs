//! `muster-agent status`: what is held and what waits, read without disturbing the daemon.

use std::fmt;
use std::path::Path;

use model::Timestamp;
use node::{Adoption, LastRun};
use serde::Serialize;
use spool::{Disk, StateFile};
use trust::token::TlsTermination;

use crate::clock::now;
use crate::state::{StateDir, StateError};
use crate::sync::{self, view::SyncStatus};

/// A node's state as the node itself sees it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatusView {
    fleet: model::FleetId,
    hostname: model::Hostname,
    node_id: model::NodeId,
    servers: Vec<net::ServerUrl>,
    tls_termination: TlsTermination,
    #[serde(skip_serializing_if = "Option::is_none")]
    release: Option<HeldReleaseView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_changed_run: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_counts: Option<model::RunCounts>,
    /// Synchronization and work, as the daemon wrote last.
    #[serde(skip_serializing_if = "Option::is_none")]
    sync: Option<SyncStatus>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct HeldReleaseView {
    seq: u64,
    channel: model::Channel,
    root: model::Digest,
    objects: usize,
    adopted_at: Timestamp,
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
    let release = adoption.load().map_err(failed)?.value.map(|adoption| HeldReleaseView {
        seq: adoption.seq,
        channel: adoption.channel,
        root: adoption.root,
        objects: adoption.objects.len(),
        adopted_at: adoption.adopted_at,
    });
    let last = last_run.load().map_err(failed)?.value;
    Ok(AgentStatusView {
        fleet: membership.trust.fleet,
        hostname: membership.hostname,
        node_id: membership.node_id,
        servers: membership.servers,
        tls_termination: membership.tls_termination,
        release,
        last_changed_run: last.as_ref().map(|last| last.at),
        last_counts: last.map(|last| last.counts),
        sync: sync::view::read(state),
    })
}

impl fmt::Display for AgentStatusView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}) of fleet {}", self.hostname, self.node_id, self.fleet)?;
        for server in &self.servers {
            writeln!(f, "control plane  {server}")?;
        }
        if self.tls_termination == TlsTermination::Proxy {
            writeln!(f, "TLS            ends at a proxy: signed requests, polls and server-sent events")?;
        }
        match &self.release {
            None => writeln!(f, "release        none yet: nothing is converged")?,
            Some(release) => {
                let (seq, channel, root) = (release.seq, &release.channel, release.root.short());
                writeln!(
                    f,
                    "release        {seq} of channel {channel}, root {root}, {} objects",
                    release.objects
                )?;
                let ago = now().since(release.adopted_at).as_secs();
                writeln!(f, "adopted        {} ({ago} s ago)", release.adopted_at)?;
            }
        }
        match self.last_changed_run {
            None => writeln!(f, "last run       none yet")?,
            Some(at) => writeln!(f, "runs alike     since {at}")?,
        }
        if let Some(counts) = &self.last_counts {
            writeln!(
                f,
                "each of them   {} ok, {} changed, {} failed, {} skipped, {} would change",
                counts.ok, counts.changed, counts.failed, counts.skipped, counts.would_change
            )?;
        }
        match &self.sync {
            None => Ok(()),
            Some(sync) => sync.show(self.hostname.as_str(), f),
        }
    }
}
