//! [`ChannelSettings`]: how often nodes of a channel call, converge and what they promise.

use std::collections::BTreeMap;

use model::Fields;
use model::health_probe::ChannelProbe;
use model::policy::{GuardPolicy, Policy, RebootPolicy};
use model::replication::{LinkSettings, TransportPolicy};
use serde::{Deserialize, Serialize};

use crate::duration;

/// A channel's settings; content of the object of kind `Policy` (CNV-4, ROL-1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelSettings {
    /// Seconds between check-ins.
    pub contact_secs: u32,
    /// How far a check-in may be off its time, in percent of `contact_secs`; at most [`MAX_JITTER`].
    pub jitter_percent: u32,
    /// Seconds for which a signed header or beacon is fresh enough to be adopted, and to take actions and objects by.
    pub freshness_secs: u32,
    /// Seconds between runs.
    pub converge_secs: u32,
    /// Only report what would change.
    #[serde(default)]
    pub observe: bool,
    /// Seconds without a full answer or a newer beacon after which the agent calls itself stale.
    pub bundle_max_age_secs: u32,
    /// Seconds without contact after which the agent warns in the journal (CNV-5).
    pub offline_grace_secs: u32,
    /// The link costs money: move as little as possible.
    #[serde(default)]
    pub metered: bool,
    /// How events travel (SYN-1, SYN-10).
    #[serde(default)]
    pub transport: TransportPolicy,
    /// Bounds and waits of the agents' ends of links (SYN-3).
    #[serde(default, skip_serializing_if = "LinkSettings::is_default")]
    pub link: LinkSettings,
    /// Seconds for which what a collector observed counts, by the group of traits (TRT-1).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub trait_ttl_secs: BTreeMap<String, u32>,
    /// When hosts reboot on which that is required (CNV-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot: Option<RebootPolicy>,
    /// What says that a generation works, in a channel that has rollouts (ROL-7).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ChannelProbe>,
    /// What follows a run that can cut its host off (CNV-11).
    #[serde(default, skip_serializing_if = "GuardPolicy::is_default")]
    pub guard: GuardPolicy,
}

/// How long a signature is fresh where a channel does not say so: two weeks, so that nodes of a fleet that publishes
/// each week go on taking actions.
pub const DEFAULT_FRESHNESS_SECS: u32 = 14 * 24 * 3600;
/// The shortest and the longest time for which traits count, in seconds.
pub const TRAIT_TTL_SECS: std::ops::RangeInclusive<u32> = 10..=30 * 24 * 3600;
/// The most jitter, in percent.
pub const MAX_JITTER: u32 = 50;
/// The shortest time between check-ins, in seconds.
pub const MIN_CONTACT_SECS: u32 = 1;

impl ChannelSettings {
    /// The defaults of a channel in which a signature is fresh for so long.
    pub fn with_freshness(freshness_secs: u32) -> ChannelSettings {
        ChannelSettings {
            contact_secs: 300,
            jitter_percent: 20,
            freshness_secs,
            converge_secs: 300,
            observe: false,
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

/// A policy as named texts, for people.
pub fn fields(policy: &Policy) -> Fields {
    let time = |secs: u64| duration::show(u32::try_from(secs).unwrap_or(u32::MAX));
    let mut fields = Fields::from([
        ("contact".to_owned(), time(policy.contact_secs)),
        ("jitter".to_owned(), format!("{}%", policy.jitter_percent)),
        ("converge".to_owned(), time(policy.converge_secs)),
        ("bundle_max_age".to_owned(), time(policy.bundle_max_age_secs)),
        ("offline_grace".to_owned(), time(policy.offline_grace_secs)),
        ("transport".to_owned(), policy.transport.to_string()),
    ]);
    if !policy.link.is_default() {
        let LinkSettings { window, pending_retries, keepalive_secs, timeout_secs } = policy.link;
        let (keepalive, timeout) = (time(keepalive_secs.into()), time(timeout_secs.into()));
        let text = format!(
            "window {window}, pending_retries {pending_retries}, keepalive {keepalive}, timeout {timeout}"
        );
        fields.insert("link".to_owned(), text);
    }
    if !policy.trait_ttl_secs.is_empty() {
        let ttls = policy.trait_ttl_secs.iter().map(|(group, secs)| format!("{group} {}", time(*secs)));
        fields.insert("traits".to_owned(), ttls.collect::<Vec<_>>().join(", "));
    }
    if let Some(reboot) = &policy.reboot {
        fields.insert("reboot".to_owned(), format!("in the window {} ({})", reboot.name, reboot.window));
    }
    if !policy.guard.is_default() {
        let GuardPolicy { window_secs, offline } = policy.guard;
        let text = format!("window {}, offline {}", time(window_secs.into()), offline.as_str());
        fields.insert("guard".to_owned(), text);
    }
    for ChannelProbe { of, probe } in &policy.probes {
        let nodes = of.as_ref().map(|of| format!(" of {of}")).unwrap_or_default();
        fields.insert(format!("probe {}", probe.name), format!("{probe}{nodes}"));
    }
    if policy.metered {
        fields.insert("metered".to_owned(), "true".to_owned());
    }
    fields
}
