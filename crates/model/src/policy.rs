//! [`Policy`]: a channel's settings, as a node's set carries them.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::health_probe::ChannelProbe;
use crate::replication::{LinkSettings, TransportPolicy};
use crate::window::DeclaredWindow;

/// Content of the object of kind `Policy` named `channel` (CNV-4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// Seconds between check-ins.
    pub contact_secs: u64,
    /// Random share of the interval, in percent, by which a contact is moved either way.
    pub jitter_percent: u8,
    /// Seconds between full runs on the held set.
    pub converge_secs: u64,
    /// Seconds without a full answer or a newer beacon after which the agent calls its set stale.
    pub bundle_max_age_secs: u64,
    /// Seconds without contact after which the agent warns in the journal.
    pub offline_grace_secs: u64,
    /// The link is paid by volume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub metered: bool,
    /// How events travel.
    #[serde(default, skip_serializing_if = "is_auto")]
    pub transport: TransportPolicy,
    /// Bounds and waits of the agent's end of links (SYN-3).
    #[serde(default, skip_serializing_if = "LinkSettings::is_default")]
    pub link: LinkSettings,
    /// Seconds for which what a collector observed counts, by the group of traits; the others have
    /// times of their own (TRT-1).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub trait_ttl_secs: BTreeMap<String, u64>,
    /// When a host reboots on which that is required; never by itself without it (CNV-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot: Option<RebootPolicy>,
    /// What says that a generation of a node works, for all nodes or for some (ROL-7). At most
    /// [`MAX_CHANNEL_PROBES`](crate::health_probe::MAX_CHANNEL_PROBES); `rollout::probes_of` says which are a node's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ChannelProbe>,
    /// What follows a run that can cut its host off (CNV-11).
    #[serde(default, skip_serializing_if = "GuardPolicy::is_default")]
    pub guard: GuardPolicy,
}

/// How a run is guarded that can cut its host off (CNV-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GuardPolicy {
    /// Seconds within which a contact must follow it; within [`GuardPolicy::WINDOW_SECS`].
    pub window_secs: u32,
    /// What becomes of its changes on a host that had no contact before it.
    pub offline: OfflineGuard,
}

/// What becomes of changes that can cut a host off which had no contact before them, and gets none after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OfflineGuard {
    /// They are undone at the end of the window.
    #[default]
    Return,
    /// An agent that lives on keeps them.
    Confirm,
}

impl GuardPolicy {
    /// The shortest and the longest window, in seconds.
    pub const WINDOW_SECS: std::ops::RangeInclusive<u32> = 10..=24 * 3600;

    /// Nothing is declared.
    pub fn is_default(&self) -> bool {
        *self == GuardPolicy::default()
    }
}

impl Default for GuardPolicy {
    fn default() -> GuardPolicy {
        GuardPolicy { window_secs: 300, offline: OfflineGuard::Return }
    }
}

impl OfflineGuard {
    /// As the fleet repo says it.
    pub const ALL: [OfflineGuard; 2] = [OfflineGuard::Return, OfflineGuard::Confirm];

    /// As the fleet repo says it.
    pub fn as_str(self) -> &'static str {
        match self {
            OfflineGuard::Return => "return",
            OfflineGuard::Confirm => "confirm",
        }
    }
}

/// How often the nodes of a channel run: what a control plane needs to know of a [`Policy`] to tell that a run is
/// overdue (CNV-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunTimes {
    /// Seconds between full runs.
    pub converge_secs: u32,
    /// The share by which a run is moved either way, in percent.
    pub jitter_percent: u8,
}

impl Default for RunTimes {
    fn default() -> RunTimes {
        RunTimes::of(&Policy::default())
    }
}

impl RunTimes {
    /// Those of a channel's settings.
    pub fn of(policy: &Policy) -> RunTimes {
        let converge_secs = u32::try_from(policy.converge_secs).unwrap_or(u32::MAX);
        RunTimes { converge_secs, jitter_percent: policy.jitter_percent }
    }
}

/// When hosts of a channel reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebootPolicy {
    /// The window's name.
    pub name: String,
    /// The window.
    pub window: DeclaredWindow,
}

fn is_auto(transport: &TransportPolicy) -> bool {
    *transport == TransportPolicy::Auto
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            contact_secs: 300,
            jitter_percent: 20,
            converge_secs: 300,
            bundle_max_age_secs: 24 * 3600,
            offline_grace_secs: 7 * 24 * 3600,
            metered: false,
            transport: TransportPolicy::Auto,
            link: LinkSettings::default(),
            trait_ttl_secs: BTreeMap::new(),
            reboot: None,
            probes: Vec::new(),
            guard: GuardPolicy::default(),
        }
    }
}

impl Policy {
    /// The interval between contacts.
    pub fn contact(&self) -> Duration {
        Duration::from_secs(self.contact_secs)
    }

    /// The interval between runs.
    pub fn converge(&self) -> Duration {
        Duration::from_secs(self.converge_secs)
    }
}
