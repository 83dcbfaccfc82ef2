//! [`HealthProbe`]: what says that a generation works, as data (ROL-7). How it is asked is the shell's.
//!
//! Operators declare probes in the fleet repo (`probes:`); the [`Policy`](crate::policy::Policy) of a channel carries
//! them as [`ChannelProbe`]s in the sets of its nodes, so that another probe makes another generation.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::millis_form;

/// The most probes of one generation.
pub const MAX_PROBES: usize = 32;
/// The longest name of a probe, in bytes.
pub const MAX_PROBE_NAME: usize = 64;
/// The longest text in a probe, in bytes: an address, an argument, a unit.
pub const MAX_PROBE_TEXT: usize = 2048;
/// The most arguments of a command, its program included.
pub const MAX_PROBE_ARGS: usize = 64;
/// The most bytes that are read of what a probe gives: what goes on is cut off, and fails.
pub const MAX_PROBE_OUTPUT: usize = 64 * 1024;
/// The shortest time between two times that a probe is asked.
pub const MIN_PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// The most probes of one channel, over all of its nodes.
pub const MAX_CHANNEL_PROBES: usize = 128;
/// The longest of a probe's times.
pub const MAX_PROBE_TIME: Duration = Duration::from_secs(24 * 3600);

/// What a probe's failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HealthProbeMode {
    /// Nothing is confirmed without its pass, and a generation in which it goes on failing is returned from.
    Enforce,
    /// It is told, and decides nothing.
    Observe,
    /// It is not asked.
    Disabled,
}

/// How a metric must be to its threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetricBound {
    /// At most as large.
    AtMost,
    /// At least as large.
    AtLeast,
}

/// What a probe asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum HealthProbeKind {
    /// A request of HTTP is answered with this status.
    Http {
        /// Where.
        url: String,
        /// The status.
        expect: u16,
    },
    /// A TCP connection is accepted.
    Tcp {
        /// `HOST:PORT`.
        address: String,
    },
    /// A command ends with 0.
    Command {
        /// The program and its arguments; no shell reads them.
        argv: Vec<String>,
    },
    /// A unit of systemd is active.
    Unit {
        /// Its name.
        unit: String,
    },
    /// A metric in the text format of Prometheus is within a bound.
    Metric {
        /// Where the metrics are.
        url: String,
        /// The metric's name, with its labels as they are printed where it has some.
        metric: String,
        /// On which side of the threshold it must be.
        bound: MetricBound,
        /// The threshold, in thousandths: nothing that is signed holds a float.
        threshold_milli: i64,
    },
}

/// One probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthProbe {
    /// Its name, the only one of the generation.
    pub name: String,
    /// What it asks.
    #[serde(flatten)]
    pub kind: HealthProbeKind,
    /// What its failure means.
    pub mode: HealthProbeMode,
    /// How long after a switch its failures do not count, in milliseconds in the durable form.
    #[serde(rename = "graceMillis", with = "millis_form")]
    pub grace: Duration,
    /// For how long it must go on failing until the generation is returned from.
    #[serde(rename = "sustainedMillis", with = "millis_form")]
    pub sustained: Duration,
    /// From the begin of one time that it is asked to the next.
    #[serde(rename = "everyMillis", with = "millis_form")]
    pub every: Duration,
    /// After which it is cut off, and has failed.
    #[serde(rename = "timeoutMillis", with = "millis_form")]
    pub timeout: Duration,
}

/// A probe that a channel declares for some of its nodes, or for all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelProbe {
    /// The nodes, as a selector over what is declared of them; every node of the channel where there is none. `rollout`
    /// reads it, on the control plane, in the fleet repo and on the node alike.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// The probe.
    #[serde(flatten)]
    pub probe: HealthProbe,
}

/// The probes of a generation: declared as a whole before any result of them counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ProbeTopology(Vec<HealthProbe>);

/// Why probes cannot be gone by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclareProbesError {
    /// There are too many.
    #[error("{0} probes are declared; a generation has at most {MAX_PROBES}")]
    TooMany(usize),
    /// A name is empty, too long, or holds something else than letters, digits, `-`, `_` and `.`.
    #[error("`{}` is not a probe's name: 1 to {MAX_PROBE_NAME} letters, digits, `-`, `_` and `.`", crate::text::printable(.0))]
    Name(String),
    /// Two have one name.
    #[error("two probes are called {0}")]
    Twice(String),
    /// What it asks is empty or too long.
    #[error(
        "the probe {0} asks for nothing, or for more than {MAX_PROBE_ARGS} arguments of {MAX_PROBE_TEXT} bytes"
    )]
    Question(String),
    /// One of its times is out of bounds.
    #[error(
        "the probe {0}: `every` is at least {MIN_PROBE_INTERVAL:?}, `timeout` more than 0 and at most `every`, and \
         none of its times is over {MAX_PROBE_TIME:?}"
    )]
    Times(String),
}

impl ProbeTopology {
    /// These probes, all within bounds.
    ///
    /// # Errors
    /// The first one that is not.
    pub fn declare(probes: Vec<HealthProbe>) -> Result<ProbeTopology, DeclareProbesError> {
        if probes.len() > MAX_PROBES {
            return Err(DeclareProbesError::TooMany(probes.len()));
        }
        let mut names = BTreeSet::new();
        for probe in &probes {
            probe.check()?;
            if !names.insert(&probe.name) {
                return Err(DeclareProbesError::Twice(probe.name.clone()));
            }
        }
        Ok(ProbeTopology(probes))
    }

    /// Those that are asked: a disabled one is declared, and nothing more.
    pub fn asked(&self) -> impl Iterator<Item = &HealthProbe> {
        self.0.iter().filter(|probe| probe.mode != HealthProbeMode::Disabled)
    }

    /// All of them.
    pub fn probes(&self) -> &[HealthProbe] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for ProbeTopology {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<ProbeTopology, D::Error> {
        ProbeTopology::declare(Vec::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for HealthProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            HealthProbeMode::Enforce => "enforce",
            HealthProbeMode::Observe => "observe",
            HealthProbeMode::Disabled => "disabled",
        };
        let [every, timeout, grace, sustained] =
            [self.every, self.timeout, self.grace, self.sustained].map(|time| time.as_secs_f64());
        write!(
            f,
            "{mode}: {}, every {every} s for at most {timeout} s, {grace} s of grace, failed after {sustained} s",
            self.kind
        )
    }
}

impl fmt::Display for HealthProbeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HealthProbeKind::Http { url, expect } => write!(f, "{url} answers {expect}"),
            HealthProbeKind::Tcp { address } => write!(f, "{address} accepts"),
            HealthProbeKind::Command { argv } => write!(f, "{}", argv.join(" ")),
            HealthProbeKind::Unit { unit } => write!(f, "{unit} is active"),
            HealthProbeKind::Metric { url, metric, bound, threshold_milli } => {
                let bound = match bound {
                    MetricBound::AtMost => "at most",
                    MetricBound::AtLeast => "at least",
                };
                let (sign, milli) =
                    (if *threshold_milli < 0 { "-" } else { "" }, threshold_milli.unsigned_abs());
                write!(f, "{metric} of {url} is {bound} {sign}{}.{:03}", milli / 1000, milli % 1000)
            }
        }
    }
}

impl HealthProbe {
    /// Whether all of it is within bounds.
    ///
    /// # Errors
    /// The first bound that is broken.
    pub fn check(&self) -> Result<(), DeclareProbesError> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=MAX_PROBE_NAME).contains(&self.name.len()) || !self.name.bytes().all(is_name) {
            return Err(DeclareProbesError::Name(self.name.chars().take(MAX_PROBE_NAME).collect()));
        }
        if !self.kind.is_within_bounds() {
            return Err(DeclareProbesError::Question(self.name.clone()));
        }
        let longest = self.every.max(self.grace).max(self.sustained);
        let is_timed = self.every >= MIN_PROBE_INTERVAL
            && longest <= MAX_PROBE_TIME
            && !self.timeout.is_zero()
            && self.timeout <= self.every;
        if is_timed { Ok(()) } else { Err(DeclareProbesError::Times(self.name.clone())) }
    }
}

impl HealthProbeKind {
    fn is_within_bounds(&self) -> bool {
        let is_text = |text: &String| (1..=MAX_PROBE_TEXT).contains(&text.len());
        match self {
            HealthProbeKind::Http { url, .. } => is_text(url),
            HealthProbeKind::Tcp { address } => is_text(address),
            HealthProbeKind::Command { argv } => {
                let short = argv.iter().all(|arg| arg.len() <= MAX_PROBE_TEXT);
                argv.first().is_some_and(|program| !program.is_empty())
                    && argv.len() <= MAX_PROBE_ARGS
                    && short
            }
            HealthProbeKind::Unit { unit } => is_text(unit),
            HealthProbeKind::Metric { url, metric, .. } => is_text(url) && is_text(metric),
        }
    }
}
