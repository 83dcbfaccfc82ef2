//! What a node and a control plane say to each other of a rollout (ROL-5): [`RolloutFact`], a fact of the node's
//! log, and [`RolloutDispatch`], part of the answer to a check-in.
//!
//! ```text
//! check-in -> answer: offer of the release, dispatch {task: acknowledge, until}
//! fact DispatchAck -> answer, once it was taken: dispatch {task: proceed} -> the node begins
//!                     answer, where the request was withdrawn: dispatch {task: hold} -> it does not
//! facts ActivationStarted, ActivationComplete, ProbeTopologyDeclared, ProbeResult, Converged
//! ```
//!
//! A dispatch decides nothing that was not signed: the node goes by the terms in the header of the release that it
//! verified, and a dispatch only says which of it is wanted now.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::exchange::Signature;
use crate::{Channel, Digest, Timestamp};

/// The longest text of an event that is kept, in bytes.
pub const MAX_EVENT_TEXT: usize = 500;
/// The most probes that a node declares.
pub const MAX_PROBES: usize = 64;
/// The longest name of a probe and of a boot, in bytes.
pub const MAX_PROBE_NAME: usize = 100;

/// An event of a rollout, as a fact of a node's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutFact {
    /// The rollout.
    pub rollout: RolloutId,
    /// Its number among the node's events of this rollout in this incarnation of the log; the first one is 1.
    pub event_seq: u64,
    /// What happened.
    pub event: RolloutEventBody,
    /// The signature of the host's key over what a probe found (`trust::ProbeEvidence`); absent in other events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
}

/// What a node is asked for in the rollout that it is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutDispatch {
    /// The rollout.
    pub rollout: RolloutId,
    /// The number of its release.
    pub seq: u64,
    /// The name of the node's wave.
    pub wave: String,
    /// What the node is asked for.
    #[serde(flatten)]
    pub task: RolloutTask,
    /// Seconds for which the node's probes must pass after its activation.
    pub soak_secs: u64,
    /// The rollout in which the node is confirmed for good, as it was through: the generation before is needed no more. It is
    /// this one, or an earlier one of the channel, of whose end the node may not have heard before this one began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<RolloutId>,
}

impl RolloutDispatch {
    /// The node is confirmed for good in this rollout.
    pub fn is_through(&self) -> bool {
        self.through.as_ref() == Some(&self.rollout)
    }
}

/// What a node is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "task", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum RolloutTask {
    /// It stays on the release that it has.
    Hold,
    /// It is to say until then that it will begin ([`RolloutEventBody::DispatchAck`]), and begins nothing yet.
    Acknowledge {
        /// Until when.
        until: Timestamp,
    },
    /// Its acknowledgement was taken: it begins, or goes on, and is on the rollout's release when it is through.
    Proceed,
    /// It is to go back to the release that it had, if the signed terms let it.
    GoBack,
    /// Something that only a newer control plane has a word for: the node stays as it is.
    #[serde(other)]
    Unknown,
}

/// What happened on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all_fields = "camelCase")]
pub enum RolloutEventBody {
    /// It saw that it is asked. It begins only after this was taken: a request that was withdrawn in the
    /// meantime is answered with a refusal, so that what is in flight is never more than the control plane
    /// counts.
    DispatchAck,
    /// It does not do what it is asked.
    DispatchReject {
        /// A stable code, as `not-before`.
        code: String,
    },
    /// It switches now.
    ActivationStarted,
    /// It runs this release.
    ActivationComplete {
        /// The release.
        release: u64,
        /// The boot in which it runs it.
        boot: String,
    },
    /// The switch failed.
    ActivationFailed {
        /// Why.
        message: String,
    },
    /// The release takes effect at the next boot.
    ActivationDeferred {
        /// What needs the boot: `kernel`, `systemd`.
        component: String,
    },
    /// The probes that will be judged.
    ProbeTopologyDeclared {
        /// All of them.
        probes: Vec<DeclaredProbe>,
    },
    /// What a probe found.
    ProbeResult {
        /// The probe.
        probe: String,
        /// What it found.
        outcome: ProbeOutcome,
        /// The boot in which it looked.
        boot: String,
    },
    /// A probe failed, and the time until this counts began.
    ProbeFailureFirst {
        /// The probe.
        probe: String,
    },
    /// The node gave the release up.
    Failed {
        /// Why.
        message: String,
    },
    /// It runs a release that it had before.
    RollbackComplete {
        /// Which.
        release: u64,
    },
    /// It confirms.
    Converged {
        /// The release that it runs.
        release: u64,
        /// The boot in which it runs it.
        boot: String,
        /// Seconds since it activated it, by a clock that nobody sets.
        soaked_secs: u64,
    },
    /// An event that only a newer agent has a word for: it is taken, and changes nothing.
    #[serde(other)]
    Unknown,
}

impl fmt::Display for RolloutEventBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RolloutEventBody::DispatchAck => f.write_str("will begin"),
            RolloutEventBody::DispatchReject { code } => write!(f, "does not begin: {code}"),
            RolloutEventBody::ActivationStarted => f.write_str("the switch began"),
            RolloutEventBody::ActivationComplete { release, .. } => write!(f, "runs release {release}"),
            RolloutEventBody::ActivationFailed { message } => write!(f, "the switch failed: {message}"),
            RolloutEventBody::ActivationDeferred { component } => {
                write!(f, "takes effect at the next boot, for {component}")
            }
            RolloutEventBody::ProbeTopologyDeclared { probes } => {
                let names: Vec<&str> = probes.iter().map(|probe| probe.name.as_str()).collect();
                write!(f, "probes: {}", if names.is_empty() { "none".to_owned() } else { names.join(", ") })
            }
            RolloutEventBody::ProbeResult { probe, outcome: ProbeOutcome::Pass, .. } => {
                write!(f, "probe {probe} passes")
            }
            RolloutEventBody::ProbeResult { probe, outcome: ProbeOutcome::Fail, .. } => {
                write!(f, "probe {probe} fails")
            }
            RolloutEventBody::ProbeFailureFirst { probe } => write!(f, "probe {probe} began to fail"),
            RolloutEventBody::Failed { message } => write!(f, "gave it up: {message}"),
            RolloutEventBody::RollbackComplete { release } => write!(f, "is back on release {release}"),
            RolloutEventBody::Converged { release, .. } => write!(f, "confirmed release {release}"),
            RolloutEventBody::Unknown => f.write_str("an event that a newer agent knows"),
        }
    }
}

/// A probe that a node declares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeclaredProbe {
    /// Its name.
    pub name: String,
    /// Whether it counts.
    pub mode: ProbeMode,
}

/// Whether a probe counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProbeMode {
    /// It must pass.
    Enforce,
    /// It is looked at.
    Observe,
    /// It is not run.
    Disabled,
}

/// What a probe found. One that could not be run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProbeOutcome {
    /// All is well.
    Pass,
    /// It is not.
    Fail,
}

/// The longest id, in bytes: a channel's name, `@` and a digest.
pub const MAX_ROLLOUT_ID: usize = crate::id::MAX_NAME + 1 + 64;
/// The hex digits of a commit's hash: SHA-1's, and SHA-256's.
const COMMIT_DIGITS: [usize; 2] = [40, 64];

/// What the wire calls a rollout: `{channel}@{ref}`, where the ref is a commit or the header's digest, in hex.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RolloutId(String);

/// The text is no rollout's id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a rollout's id such as stable@4f1c2a9: a channel's name, one `@`, and hex digits in lower case")]
pub struct ParseRolloutIdError;

impl RolloutId {
    /// Whether a release's label is the whole hash of a commit, so that a rollout may be called by it.
    pub fn is_commit(label: &str) -> bool {
        COMMIT_DIGITS.contains(&label.len()) && is_hex(label)
    }

    /// The id of a release: by its label where that is the whole hash of a commit and no earlier rollout of
    /// the channel has it, else by the digest of its header.
    pub fn of_release(
        channel: &Channel,
        label: Option<&str>,
        header: &Digest,
        is_taken: impl Fn(&RolloutId) -> bool,
    ) -> RolloutId {
        let commit = label.filter(|label| RolloutId::is_commit(label));
        let by_commit = commit.map(|commit| RolloutId(format!("{channel}@{commit}")));
        by_commit.filter(|id| !is_taken(id)).unwrap_or_else(|| RolloutId(format!("{channel}@{header}")))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

impl FromStr for RolloutId {
    type Err = ParseRolloutIdError;

    fn from_str(text: &str) -> Result<RolloutId, ParseRolloutIdError> {
        let fits = text.len() <= MAX_ROLLOUT_ID;
        let (channel, reference) = text.split_once('@').filter(|_| fits).ok_or(ParseRolloutIdError)?;
        let is_channel =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
        let good = !channel.is_empty() && channel.bytes().all(is_channel) && is_hex(reference);
        if good { Ok(RolloutId(text.to_owned())) } else { Err(ParseRolloutIdError) }
    }
}

impl fmt::Display for RolloutId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for RolloutId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RolloutId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RolloutId, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for RolloutId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RolloutId".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::json_schema(generator)
    }
}
