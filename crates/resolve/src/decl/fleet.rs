//! `fleet.yaml`: the fleet's name, its channels, its defaults, its own vars, and what is
//! synchronized and delegated.

use std::collections::BTreeMap;

use catalog::channel::{ChannelSettings, MAX_JITTER, MIN_CONTACT_SECS};
use model::replication::{Bounds, LinkSettings, TransportPolicy};

use super::delegation::{self, DelegationDecl};
use super::sync::{self, SyncDecl};
use super::vars::{self, Var};
use crate::shape::Reading;
use crate::yaml::{At, Kind, Node, Spanned};

/// The only format of this version.
const FORMAT: &str = "1";
const KEYS: [&str; 8] = ["format", "name", "channels", "defaults", "vars", "observe", "sync", "delegations"];
const DEFAULT_KEYS: [&str; 3] = ["channel", "environment", "owner"];
const LINK_KEYS: [&str; 4] = ["window", "pending_retries", "keepalive", "timeout"];
const CHANNEL_KEYS: [&str; 10] = [
    "link",
    "contact",
    "jitter",
    "freshness",
    "converge",
    "observe",
    "bundle_max_age",
    "offline_grace",
    "metered",
    "transport",
];

/// What `fleet.yaml` declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FleetDecl {
    pub(crate) name: String,
    pub(crate) channels: BTreeMap<String, ChannelSettings>,
    pub(crate) channel: Option<Spanned<String>>,
    pub(crate) environment: Option<Spanned<String>>,
    pub(crate) owner: Option<Spanned<String>>,
    pub(crate) vars: Vec<Var>,
    pub(crate) observe: bool,
    /// In order: the first that is for a node holds.
    pub(crate) sync: Vec<SyncDecl>,
    /// By name.
    pub(crate) delegations: Vec<DelegationDecl>,
    /// A channel may be declared that could not be read.
    pub(crate) hidden: bool,
}

/// Reads `fleet.yaml`.
pub(crate) fn read(reading: &mut Reading<'_>, root: &Node) -> FleetDecl {
    let mut fleet = FleetDecl { hidden: root.is_bad(), ..FleetDecl::default() };
    let mut format = false;
    for (key, node) in reading.map(root, "fleet.yaml") {
        match key.value.as_str() {
            "format" => {
                format = true;
                check_format(reading, node);
            }
            "name" => {
                if let Some(name) = reading.text(node, "the fleet's name") {
                    reading.name(&name.value, name.at, "a fleet");
                    fleet.name = name.value;
                }
            }
            "channels" => {
                fleet.channels = channels(reading, node);
                let declared = if let Kind::Map(all) = &node.kind { all.len() } else { usize::MAX };
                fleet.hidden = fleet.channels.len() != declared;
            }
            "defaults" => defaults(reading, node, &mut fleet),
            "vars" => fleet.vars = vars::read(reading, node, "vars"),
            "observe" => fleet.observe = reading.bool(node, "observe").unwrap_or(false),
            "sync" => fleet.sync = sync::read(reading, node),
            "delegations" => fleet.delegations = delegation::read(reading, node),
            _ => reading.unknown_key(key, &KEYS, "fleet.yaml"),
        }
    }
    let at = At { line: 1, column: 1, len: 1 };
    if root.is_bad() {
        return fleet;
    }
    let present =
        |name: &str| matches!(&root.kind, Kind::Map(all) if all.iter().any(|(key, _)| key.value == name));
    if !format {
        reading.missing_key(at, "fleet.yaml", "format", "begin with `format: 1`");
    }
    if !present("name") {
        reading.missing_key(at, "fleet.yaml", "name", "add `name: my-fleet`");
    }
    if !present("channels") {
        reading.missing_key(at, "fleet.yaml", "channels", "add `channels: {stable: {freshness: 24h}}`");
    }
    fleet
}

fn check_format(reading: &mut Reading<'_>, node: &Node) {
    if let Some(text) = reading.text(node, "format")
        && text.value != FORMAT
    {
        reading
            .error("E022", node.at, format!("format `{}` is not known", text.value))
            .help("this version reads `format: 1`");
    }
}

fn defaults(reading: &mut Reading<'_>, node: &Node, fleet: &mut FleetDecl) {
    for (key, value) in reading.map(node, "defaults") {
        match key.value.as_str() {
            "channel" => fleet.channel = reading.text(value, "channel"),
            "environment" => fleet.environment = reading.text(value, "environment"),
            "owner" => fleet.owner = reading.text(value, "owner"),
            _ => reading.unknown_key(key, &DEFAULT_KEYS, "defaults"),
        }
    }
}

fn channels(reading: &mut Reading<'_>, node: &Node) -> BTreeMap<String, ChannelSettings> {
    let mut channels = BTreeMap::new();
    let entries = reading.map(node, "channels");
    if entries.is_empty() && matches!(node.kind, Kind::Map(_)) {
        reading.missing_key(node.at, "channels", "one channel", "add `stable: {freshness: 24h}`");
    }
    for (key, value) in entries {
        if reading.name(&key.value, key.at, "a channel") {
            channels.insert(key.value.clone(), channel(reading, key, value));
        }
    }
    channels
}

fn channel(reading: &mut Reading<'_>, name: &Spanned<String>, node: &Node) -> ChannelSettings {
    let mut channel = ChannelSettings::with_freshness(0);
    let mut freshness = None;
    for (key, value) in reading.map(node, "a channel") {
        let key_name = key.value.as_str();
        match key_name {
            "contact" => set(&mut channel.contact_secs, interval(reading, value, key_name)),
            "converge" => set(&mut channel.converge_secs, interval(reading, value, key_name)),
            "jitter" => {
                set(&mut channel.jitter_percent, percent(reading, value, key_name, MAX_JITTER, "20%"));
            }
            "freshness" => freshness = interval(reading, value, key_name).or(Some(1)),
            "bundle_max_age" => set(&mut channel.bundle_max_age_secs, reading.duration(value, key_name)),
            "offline_grace" => set(&mut channel.offline_grace_secs, reading.duration(value, key_name)),
            "observe" => set(&mut channel.observe, reading.bool(value, key_name)),
            "metered" => set(&mut channel.metered, reading.bool(value, key_name)),
            "transport" => set(
                &mut channel.transport,
                sync::word(
                    reading,
                    value,
                    key_name,
                    &TransportPolicy::ALL.map(|policy| (policy.as_str(), policy)),
                ),
            ),
            "link" => channel.link = link(reading, value),
            _ => reading.unknown_key(key, &CHANNEL_KEYS, "a channel"),
        }
    }
    match freshness {
        Some(secs) => channel.freshness_secs = secs,
        None if node.is_bad() => {}
        None => reading.missing_key(
            name.at,
            &format!("channel {}", name.value),
            "freshness",
            "say how long a release may be adopted after its last signature, such as `freshness: 24h`",
        ),
    }
    channel
}

/// Bounds and waits of the agents' ends of links (SYN-3).
fn link(reading: &mut Reading<'_>, node: &Node) -> LinkSettings {
    let mut link = LinkSettings::default();
    for (key, value) in reading.map(node, "link") {
        let name = key.value.as_str();
        match name {
            "window" => set(&mut link.window, count(reading, value, name, LinkSettings::WINDOW)),
            "pending_retries" => {
                set(&mut link.pending_retries, count(reading, value, name, LinkSettings::PENDING_RETRIES));
            }
            "keepalive" => {
                set(&mut link.keepalive_secs, wait(reading, value, name, LinkSettings::KEEPALIVE_SECS));
            }
            "timeout" => set(&mut link.timeout_secs, wait(reading, value, name, LinkSettings::TIMEOUT_SECS)),
            _ => reading.unknown_key(key, &LINK_KEYS, "link"),
        }
    }
    link
}

fn count(reading: &mut Reading<'_>, node: &Node, what: &str, bounds: Bounds) -> Option<u32> {
    let count = reading.int(node, what, bounds.min.into(), bounds.max.into())?;
    u32::try_from(count).ok()
}

fn wait(reading: &mut Reading<'_>, node: &Node, what: &str, bounds: Bounds) -> Option<u32> {
    let secs = reading.duration(node, what)?;
    if (bounds.min..=bounds.max).contains(&secs) {
        return Some(secs);
    }
    let (min, max) = (catalog::duration::show(bounds.min), catalog::duration::show(bounds.max));
    reading.error("E017", node.at, format!("{what} is a time from {min} to {max}"));
    None
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn interval(reading: &mut Reading<'_>, node: &Node, what: &str) -> Option<u32> {
    let secs = reading.duration(node, what)?;
    if secs < MIN_CONTACT_SECS {
        reading.error("E017", node.at, format!("{what} is at least {MIN_CONTACT_SECS}s"));
        return None;
    }
    Some(secs)
}

/// A share in percent, up to `max`.
pub(super) fn percent(
    reading: &mut Reading<'_>,
    node: &Node,
    what: &str,
    max: u32,
    example: &str,
) -> Option<u32> {
    let text = reading.text(node, what)?;
    let number: Option<u32> = text.value.strip_suffix('%').and_then(|digits| digits.parse().ok());
    match number {
        Some(percent) if percent <= max => Some(percent),
        _ => {
            let message = format!("{what} is a share from 0% to {max}%, and this is `{}`", text.value);
            reading.error("E017", node.at, message).help(format!("write  {example}"));
            None
        }
    }
}
