//! Status: axes, projected to one word for people (CNV-3).

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::RunTimes;
use crate::{RunCounts, RunReport, Timestamp};

/// Corrective runs in a row that make a node `relapsed`.
pub const RELAPSED_AFTER: u32 = 2;
/// Corrective runs in a row that make a node `diverged`.
pub const DIVERGED_AFTER: u32 = 3;
/// Promised contacts missed that make a node `unreachable`.
pub const UNREACHABLE_AFTER: u32 = 3;
/// Promised contacts missed that make a node `offline`.
pub const OFFLINE_AFTER: u32 = 10;

/// A run that has been under way for longer is taken for one that does not end (CNV-3).
pub const LONGEST_RUN: Duration = Duration::from_secs(3600);

/// What the last run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunResult {
    /// No run is known.
    None,
    /// Nothing failed.
    Ok,
    /// Something failed.
    Degraded,
    /// Nothing succeeded.
    Failed,
}

/// Whether the host stays as declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Drift {
    /// It does.
    Converged,
    /// Two runs in a row had to correct it.
    Relapsed,
    /// Three or more did.
    Diverged,
}

/// Whether the node keeps the contact that it was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Contact {
    /// It does.
    Online,
    /// It missed three.
    Unreachable,
    /// It missed ten.
    Offline,
}

/// Whether the node holds what it is pointed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReleaseState {
    /// No release has an entry for it.
    Unassigned,
    /// It does.
    Current,
    /// It holds an older one.
    Behind,
    /// What it holds, or was to hold instead, is past its freshness: no release and no beacon was signed since. An
    /// earlier control plane calls it `stale`.
    #[serde(rename = "not-fresh", alias = "stale")]
    NotFresh,
}

/// Whether the last run that was due was made, on the release that is held: what green rests on (CNV-3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunEvidence {
    /// It was, or none is due: nothing is held.
    #[default]
    Current,
    /// The first run on what is held is not reported yet and not overdue, or the run that is due is under way.
    Awaited,
    /// It was not: none was heard of in time, one has been under way for longer than [`LONGEST_RUN`], or the node
    /// says that it cannot make one.
    Missing,
}

/// Whether the node makes its host as declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Enforcement {
    /// It does, save for what only observes.
    #[default]
    On,
    /// Somebody on the host paused it.
    Paused,
}

/// Whether the certificates that the node was given count (IDN-6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CertificateTrust {
    /// They do, as far as they have not ended.
    #[default]
    Trusted,
    /// Its host was revoked after it joined: nothing of it is heard, and nothing is given to it.
    Revoked,
}

/// A node's state on all axes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// What the last run came to.
    pub result: RunResult,
    /// Whether the host stays as declared.
    pub drift: Drift,
    /// Whether the node keeps contact.
    pub contact: Contact,
    /// Whether it holds what it is pointed to.
    pub release: ReleaseState,
    /// Whether the last run that was due was made; an earlier control plane does not say so.
    #[serde(default)]
    pub evidence: RunEvidence,
    /// Whether it makes its host as declared; an earlier control plane does not say so.
    #[serde(default)]
    pub enforcement: Enforcement,
    /// Whether its certificates count; an earlier control plane does not say so.
    #[serde(default)]
    pub certificate: CertificateTrust,
    /// Resources that only observe and would change.
    pub would_change: u32,
}

/// A [`Status`] in one word: the axis that matters most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each is explained at the axis that it comes from")]
pub enum Overall {
    Revoked,
    Stalled,
    Failed,
    Degraded,
    Paused,
    Diverged,
    Relapsed,
    Offline,
    Unreachable,
    #[serde(alias = "stale")]
    NotFresh,
    Changing,
    WouldChange,
    Converged,
    Unassigned,
    New,
}

impl Status {
    /// The state on the axis that matters most.
    pub fn overall(&self) -> Overall {
        match self {
            Status { certificate: CertificateTrust::Revoked, .. } => Overall::Revoked,
            Status { contact: Contact::Offline, .. } => Overall::Offline,
            Status { contact: Contact::Unreachable, .. } => Overall::Unreachable,
            Status { evidence: RunEvidence::Missing, .. } => Overall::Stalled,
            Status { result: RunResult::Failed, .. } => Overall::Failed,
            Status { result: RunResult::Degraded, .. } => Overall::Degraded,
            Status { enforcement: Enforcement::Paused, .. } => Overall::Paused,
            Status { drift: Drift::Diverged, .. } => Overall::Diverged,
            Status { drift: Drift::Relapsed, .. } => Overall::Relapsed,
            Status { release: ReleaseState::Unassigned, .. } => Overall::Unassigned,
            Status { release: ReleaseState::NotFresh, .. } => Overall::NotFresh,
            Status { release: ReleaseState::Behind, .. } => Overall::Changing,
            Status { result: RunResult::None, .. } => Overall::New,
            Status { evidence: RunEvidence::Awaited, .. } => Overall::Changing,
            Status { would_change: 1.., .. } => Overall::WouldChange,
            Status { .. } => Overall::Converged,
        }
    }
}

impl fmt::Display for Overall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Overall::Revoked => "revoked",
            Overall::Stalled => "stalled",
            Overall::Failed => "failed",
            Overall::Degraded => "degraded",
            Overall::Paused => "paused",
            Overall::Diverged => "diverged",
            Overall::Relapsed => "relapsed",
            Overall::Offline => "offline",
            Overall::Unreachable => "unreachable",
            Overall::NotFresh => "not fresh",
            Overall::Changing => "changing",
            Overall::WouldChange => "would change",
            Overall::Converged => "converged",
            Overall::Unassigned => "unassigned",
            Overall::New => "new",
        })
    }
}

/// What a run came to, from its totals.
pub fn result_of(counts: &RunCounts) -> RunResult {
    // Not a sum: these are a node's own word, and may be as large as they like.
    match (counts.failed, counts.ok | counts.changed | counts.would_change) {
        (0, _) => RunResult::Ok,
        (_, 0) => RunResult::Failed,
        (_, _) => RunResult::Degraded,
    }
}

/// Corrective runs in a row after one more report: intended change is not drift.
pub fn streak_after(streak: u32, report: &RunReport) -> u32 {
    if report.counts.changed > 0 && !report.intended { streak.saturating_add(1) } else { 0 }
}

/// The drift that a number of corrective runs in a row means.
pub fn drift_of(streak: u32) -> Drift {
    match streak {
        DIVERGED_AFTER.. => Drift::Diverged,
        RELAPSED_AFTER => Drift::Relapsed,
        _ => Drift::Converged,
    }
}

/// A contact that is late by less is not missed: by another contact, within these bounds. More would let a node with
/// a short contact be silent for many of them.
const CONTACT_SLACK: RangeInclusive<Duration> = Duration::from_secs(10)..=crate::time::SLACK;

/// Whether contact is kept: measured against the interval that was promised, with slack (LIF-1). Tasks,
/// synchronization and status all go by this.
pub fn contact_of(last_seen: Timestamp, promised: Duration, now: Timestamp) -> Contact {
    if now >= missed_at(last_seen, promised, OFFLINE_AFTER) {
        Contact::Offline
    } else if now >= missed_at(last_seen, promised, UNREACHABLE_AFTER) {
        Contact::Unreachable
    } else {
        Contact::Online
    }
}

/// From when [`contact_of`] says something else than now, if nothing is heard; `None` once it says `offline`.
pub fn contact_until(last_seen: Timestamp, promised: Duration, now: Timestamp) -> Option<Timestamp> {
    let thresholds = [UNREACHABLE_AFTER, OFFLINE_AFTER].map(|missed| missed_at(last_seen, promised, missed));
    thresholds.into_iter().find(|at| now < *at)
}

/// When so many promised contacts are missed.
fn missed_at(last_seen: Timestamp, promised: Duration, missed: u32) -> Timestamp {
    let slack = promised.clamp(*CONTACT_SLACK.start(), *CONTACT_SLACK.end());
    last_seen.plus(promised.max(Duration::from_secs(1)).saturating_mul(missed)).plus(slack)
}

/// By when a run must be heard of after one that was heard of at `heard`: within the interval of runs and that of
/// contacts, each with its jitter, and the slack (CNV-3).
pub fn run_overdue_at(heard: Timestamp, times: RunTimes, promised: Duration) -> Timestamp {
    let interval = Duration::from_secs(times.converge_secs.into());
    let both = interval.saturating_add(promised);
    let jitter = (both / 100).saturating_mul(times.jitter_percent.min(100).into());
    heard.plus(both).plus(jitter).plus(crate::time::SLACK)
}
