//! [`ProbeResults`]: what the probes of one generation said since it was switched to, in one boot.
//!
//! ```text
//! switched --- grace ---|
//!     fail    fail      | fail ........... sustained: the generation has failed
//!                       ^ since then
//! ```
//!
//! Invariants: a result counts only for the generation and the boot that it was asked in, and only where the probe was
//! asked after the switch; a probe that passed before, or never, has not passed.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use model::collect::CollectInserting;
use model::health_probe::{HealthProbe, HealthProbeMode, MAX_PROBE_OUTPUT, ProbeTopology};
use serde::{Deserialize, Serialize};

use crate::boot::{BootId, BootTime};
use crate::generation::GenerationId;
use crate::record::bounded;

/// What a probe came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum HealthProbeOutcome {
    /// It found what it asks for.
    Passed,
    /// It found something else.
    Failed {
        /// What, for people.
        reason: String,
    },
    /// Its command ended with another code than 0.
    Exited {
        /// The code.
        code: i32,
        /// What it printed, for the journal of its host alone. It may be a secret that the command read, and a probe
        /// cannot be declared sensitive, as a resource can whose report then hides what its command printed (SEC-3). So
        /// [`Display`](fmt::Display) leaves it out, and with that what is durable and what the control plane is told.
        printed: String,
    },
    /// It was cut off, since it did not end in its time.
    TimedOut,
    /// It was cut off, since it gave more than [`MAX_PROBE_OUTPUT`].
    TooMuchOutput,
}

impl HealthProbeOutcome {
    /// The same, with as much of its texts as is kept.
    pub(crate) fn bounded(self) -> HealthProbeOutcome {
        match self {
            HealthProbeOutcome::Failed { reason } => HealthProbeOutcome::Failed { reason: bounded(&reason) },
            HealthProbeOutcome::Exited { code, printed } => {
                HealthProbeOutcome::Exited { code, printed: bounded(&printed) }
            }
            other => other,
        }
    }
}

impl fmt::Display for HealthProbeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HealthProbeOutcome::Passed => f.write_str("passed"),
            HealthProbeOutcome::Failed { reason } => f.write_str(&model::text::one_line(reason)),
            HealthProbeOutcome::Exited { code, .. } => write!(f, "it exits with {code}"),
            HealthProbeOutcome::TimedOut => f.write_str("it did not end in its time"),
            HealthProbeOutcome::TooMuchOutput => write!(f, "it gave more than {MAX_PROBE_OUTPUT} bytes"),
        }
    }
}

/// An enforcing probe that has gone on failing for as long as it may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeFailure {
    /// The probe.
    pub probe: String,
    /// What it came to the last time, at most [`MAX_REASON`](crate::MAX_REASON) bytes; nothing where an earlier agent
    /// wrote it down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl fmt::Display for ProbeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the probe {} failed", self.probe)?;
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

/// One result, as the shell gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthProbeResult {
    /// The probe.
    pub probe: String,
    /// The generation of which it was asked.
    pub generation: GenerationId,
    /// The boot in which it was asked.
    pub boot: BootId,
    /// When it was begun.
    pub began: BootTime,
    /// What it came to.
    pub outcome: HealthProbeOutcome,
}

/// Why a result counts for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeResultRefusal {
    /// It is of another generation.
    #[error("it is of another generation")]
    Generation,
    /// It is of another boot.
    #[error("it is of another boot")]
    Boot,
    /// It was begun before the switch, or before the agent asked anew.
    #[error("it was begun before the generation was activated")]
    Before,
    /// No probe of this name is asked.
    #[error("no such probe was declared")]
    Undeclared,
}

/// What is news about a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProbeNews {
    /// Its first result, or another one than before.
    Outcome,
    /// Its first failure that counts, after a time without.
    FailsSince(BootTime),
}

/// What the probes of one generation said.
#[derive(Clone, Debug)]
pub(crate) struct ProbeResults {
    generation: GenerationId,
    boot: BootId,
    since: BootTime,
    probes: BTreeMap<String, TrackedProbe>,
}

#[derive(Clone, Debug)]
struct TrackedProbe {
    mode: HealthProbeMode,
    grace_ends: BootTime,
    sustained: Duration,
    last: Option<HealthProbeOutcome>,
    fails_since: Option<BootTime>,
}

impl ProbeResults {
    /// Begins to listen, for a generation that was switched to in this boot. Results count that were begun from
    /// `since` on; what is out of grace follows from when it was switched to.
    pub(crate) fn begin(
        topology: &ProbeTopology,
        generation: GenerationId,
        boot: &BootId,
        switched: BootTime,
        since: BootTime,
    ) -> ProbeResults {
        let track = |probe: &HealthProbe| {
            let grace_ends = switched.plus(probe.grace);
            let (mode, sustained) = (probe.mode, probe.sustained);
            (probe.name.clone(), TrackedProbe { mode, grace_ends, sustained, last: None, fails_since: None })
        };
        let probes = topology.asked().map(track).collect_inserting();
        ProbeResults { generation, boot: boot.clone(), since, probes }
    }

    /// Takes a result in; says what of it is news.
    pub(crate) fn take(
        &mut self,
        result: &HealthProbeResult,
        now: BootTime,
    ) -> Result<Vec<ProbeNews>, ProbeResultRefusal> {
        if result.generation != self.generation {
            return Err(ProbeResultRefusal::Generation);
        }
        if result.boot != self.boot {
            return Err(ProbeResultRefusal::Boot);
        }
        if result.began < self.since {
            return Err(ProbeResultRefusal::Before);
        }
        let probe = self.probes.get_mut(&result.probe).ok_or(ProbeResultRefusal::Undeclared)?;
        Ok(probe.take(&result.outcome, now))
    }

    /// Every enforcing probe was asked, and passed the last time.
    pub(crate) fn all_pass(&self) -> bool {
        self.enforcing().all(|(_, probe)| probe.last == Some(HealthProbeOutcome::Passed))
    }

    /// What each came to last.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (&str, &HealthProbeOutcome)> {
        self.probes.iter().filter_map(|(name, probe)| Some((name.as_str(), probe.last.as_ref()?)))
    }

    /// The enforcing probe that has gone on failing for as long as it may, if one has.
    pub(crate) fn sustained_failure(&self, now: BootTime) -> Option<ProbeFailure> {
        let failed = |probe: &TrackedProbe| probe.fails_at().is_some_and(|at| at <= now);
        let (name, probe) = self.enforcing().find(|(_, probe)| failed(probe))?;
        let reason = probe.last.as_ref().map(|last| bounded(&last.to_string()));
        Some(ProbeFailure { probe: name.clone(), reason })
    }

    /// When the first enforcing probe has gone on failing for as long as it may.
    pub(crate) fn next_failure(&self) -> Option<BootTime> {
        self.enforcing().filter_map(|(_, probe)| probe.fails_at()).min()
    }

    fn enforcing(&self) -> impl Iterator<Item = (&String, &TrackedProbe)> {
        self.probes.iter().filter(|(_, probe)| probe.mode == HealthProbeMode::Enforce)
    }
}

impl TrackedProbe {
    fn take(&mut self, outcome: &HealthProbeOutcome, now: BootTime) -> Vec<ProbeNews> {
        let mut news = Vec::new();
        let passes = *outcome == HealthProbeOutcome::Passed;
        let passed = self.last.as_ref().map(|last| *last == HealthProbeOutcome::Passed);
        if passed != Some(passes) {
            news.push(ProbeNews::Outcome);
        }
        self.last = Some(outcome.clone());
        if passes {
            self.fails_since = None;
        } else if self.fails_since.is_none() && now >= self.grace_ends {
            self.fails_since = Some(now);
            news.push(ProbeNews::FailsSince(now));
        }
        news
    }

    fn fails_at(&self) -> Option<BootTime> {
        self.fails_since.map(|since| since.plus(self.sustained))
    }
}
