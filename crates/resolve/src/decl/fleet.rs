//! `fleet.yaml`: the fleet's name, its channels, its defaults, its own vars, its windows, and
//! what is synchronized, delegated and staged.

use std::collections::BTreeMap;

use catalog::channel::{
    ChannelSettings, DEFAULT_FRESHNESS_SECS, MAX_JITTER, MIN_CONTACT_SECS, TRAIT_TTL_SECS,
};
use model::ReleaseVersion;
use model::policy::{GuardPolicy, OfflineGuard, RebootPolicy};
use model::replication::{Bounds, LinkSettings, TransportPolicy};
use model::window::DeclaredWindow;

use super::delegation::{self, DelegationDecl};
use super::rollouts::{self, StagedDecl};
use super::secrets::{self, SecretSource};
use super::sync::{self, SyncDecl};
use super::vars::{self, Var};
use super::windows;
use crate::shape::Reading;
use crate::yaml::{At, Spanned, YamlKind, YamlNode};

/// The only format of this version.
const FORMAT: &str = "1";

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
    /// The oldest agent that check-ins are taken from.
    pub(crate) minimum_agent: Option<String>,
    /// In order: the first that is for a node holds.
    pub(crate) sync: Vec<SyncDecl>,
    /// By name.
    pub(crate) windows: BTreeMap<String, DeclaredWindow>,
    /// By name.
    pub(crate) delegations: Vec<DelegationDecl>,
    /// In order: the first that has a secret gives it.
    pub(crate) secret_sources: Vec<SecretSource>,
    /// Rollouts and probes.
    pub(crate) staged: StagedDecl,
    /// A channel may be declared that could not be read.
    pub(crate) hidden: bool,
}

/// Reads `fleet.yaml`.
pub(crate) fn read(reading: &mut Reading<'_>, root: &YamlNode) -> FleetDecl {
    let mut fleet = FleetDecl { hidden: root.is_bad(), ..FleetDecl::default() };
    let mut keys = reading.keys(root, "fleet.yaml", "fleet.yaml");
    let within = (At { line: 1, column: 1, len: 1 }, "fleet.yaml");
    if let Some(node) = keys.needed(reading, "format", within, "begin with `format: 1`") {
        check_format(reading, node);
    }
    let name = keys.needed(reading, "name", within, "add `name: my-fleet`");
    if let Some(name) = name.and_then(|node| reading.text(node, "the fleet's name")) {
        reading.name(&name.value, name.at, "a fleet");
        fleet.name = name.value;
    }
    // Before the channels, which name them.
    let mut windows = DeclaredWindows::default();
    if let Some(node) = keys.get("windows") {
        fleet.windows = windows::read(reading, node);
        windows.hidden = !matches!(&node.kind, YamlKind::Map(all) if all.len() == fleet.windows.len());
    }
    windows.declared = fleet.windows.clone();
    let help = "add `channels: {stable: {freshness: 14d}}`";
    if let Some(node) = keys.needed(reading, "channels", within, help) {
        fleet.channels = channels(reading, node, &windows);
        // One that has no name or that stands twice may still be meant elsewhere.
        let declared = if let YamlKind::Map(all) = &node.kind { all.len() } else { usize::MAX };
        fleet.hidden = fleet.channels.len() != declared;
    }
    if let Some(node) = keys.get("defaults") {
        defaults(reading, node, &mut fleet);
    }
    fleet.vars = keys.read("vars", |node| vars::read(reading, node, "vars"));
    fleet.observe = keys.read("observe", |node| reading.bool(node, "observe")).unwrap_or(false);
    fleet.minimum_agent = keys.read("minimum_agent", |node| version(reading, node));
    fleet.sync = keys.read("sync", |node| sync::read(reading, node));
    fleet.delegations = keys.read("delegations", |node| delegation::read(reading, node));
    fleet.secret_sources = keys.read("secrets", |node| secrets::read(reading, node));
    fleet.staged = rollouts::read(reading, &mut keys);
    keys.end(reading);
    fleet
}

/// A version of the agent.
fn version(reading: &mut Reading<'_>, node: &YamlNode) -> Option<String> {
    let text = reading.text(node, "minimum_agent")?;
    match ReleaseVersion::parse(&text.value) {
        Some(version) => Some(version.to_string()),
        None => {
            let message = format!("`{}` is no version of an agent", text.value);
            reading.error("E039", text.at, message).help("write it as in `minimum_agent: 0.2.0`");
            None
        }
    }
}

fn check_format(reading: &mut Reading<'_>, node: &YamlNode) {
    if let Some(text) = reading.text(node, "format")
        && text.value != FORMAT
    {
        reading
            .error("E022", node.at, format!("format `{}` is not known", text.value))
            .help("this version reads `format: 1`");
    }
}

fn defaults(reading: &mut Reading<'_>, node: &YamlNode, fleet: &mut FleetDecl) {
    let mut keys = reading.keys(node, "defaults", "defaults");
    fleet.channel = keys.read("channel", |node| reading.text(node, "channel"));
    fleet.environment = keys.read("environment", |node| reading.text(node, "environment"));
    fleet.owner = keys.read("owner", |node| reading.text(node, "owner"));
    keys.end(reading);
}

fn channels(
    reading: &mut Reading<'_>,
    node: &YamlNode,
    windows: &DeclaredWindows,
) -> BTreeMap<String, ChannelSettings> {
    let mut channels = BTreeMap::new();
    let entries = reading.map(node, "channels");
    if entries.is_empty() && matches!(node.kind, YamlKind::Map(_)) {
        reading.missing_key(node.at, "channels", "one channel", "add `stable: {freshness: 14d}`");
    }
    for (key, value) in entries {
        if reading.name(&key.value, key.at, "a channel") {
            channels.insert(key.value.clone(), channel(reading, value, windows));
        }
    }
    channels
}

fn channel(reading: &mut Reading<'_>, node: &YamlNode, windows: &DeclaredWindows) -> ChannelSettings {
    let mut channel = ChannelSettings::with_freshness(DEFAULT_FRESHNESS_SECS);
    let mut keys = reading.keys(node, "a channel", "a channel");
    channel.link = keys.read("link", |node| link(reading, node));
    channel.trait_ttl_secs = keys.read("traits", |node| trait_ttls(reading, node));
    channel.reboot = keys.read("reboot", |node| reboot(reading, node, windows));
    channel.guard = keys.read("guard", |node| guard(reading, node));
    keys.set("contact", &mut channel.contact_secs, |node| interval(reading, node, "contact"));
    keys.set("jitter", &mut channel.jitter_percent, |node| {
        percent(reading, node, "jitter", MAX_JITTER, "20%")
    });
    keys.set("freshness", &mut channel.freshness_secs, |node| interval(reading, node, "freshness"));
    keys.set("converge", &mut channel.converge_secs, |node| interval(reading, node, "converge"));
    keys.set("observe", &mut channel.observe, |node| reading.bool(node, "observe"));
    let age = &mut channel.bundle_max_age_secs;
    keys.set("bundle_max_age", age, |node| reading.duration(node, "bundle_max_age"));
    let grace = &mut channel.offline_grace_secs;
    keys.set("offline_grace", grace, |node| reading.duration(node, "offline_grace"));
    keys.set("metered", &mut channel.metered, |node| reading.bool(node, "metered"));
    let transports = TransportPolicy::ALL.map(|policy| (policy.as_str(), policy));
    keys.set("transport", &mut channel.transport, |node| reading.word(node, "transport", &transports));
    keys.end(reading);
    channel
}

/// The windows that a channel may name.
#[derive(Default)]
struct DeclaredWindows {
    declared: BTreeMap<String, DeclaredWindow>,
    /// One may be declared that could not be read.
    hidden: bool,
}

/// When hosts reboot on which that is required (CNV-12).
fn reboot(reading: &mut Reading<'_>, node: &YamlNode, windows: &DeclaredWindows) -> Option<RebootPolicy> {
    let mut keys = reading.keys(node, "reboot", "reboot");
    let help = "name one of the fleet's windows, as in `reboot: {window: nights}`";
    let window = keys.needed(reading, "window", (node.at, "reboot"), help);
    let name = window.and_then(|node| reading.text(node, "window"));
    keys.end(reading);
    let name = name?;
    if let Some(window) = windows.declared.get(&name.value) {
        return Some(RebootPolicy { name: name.value.clone(), window: window.clone() });
    }
    if !windows.hidden {
        let near = lang::nearest(&name.value, windows.declared.keys().map(String::as_str));
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "declare it in fleet.yaml, under `windows:`".to_owned(),
        };
        let message = format!("there is no window `{}`", name.value);
        reading.error("E065", name.at, message).help(help);
    }
    None
}

/// How long what each collector observed counts (TRT-1).
fn trait_ttls(reading: &mut Reading<'_>, node: &YamlNode) -> BTreeMap<String, u32> {
    let mut ttls = BTreeMap::new();
    for (group, value) in reading.map(node, "traits") {
        let known = || catalog::traits::groups().chain([catalog::traits::EXTERNAL]);
        if !known().any(|name| name == group.value) {
            let help = lang::nearest(&group.value, known()).map(|near| format!("did you mean `{near}`?"));
            reading
                .error("E015", group.at, format!("`traits.{}` is no group of traits", group.value))
                .maybe_help(help);
        } else if let Some(secs) = reading.duration(value, "how long traits count") {
            if TRAIT_TTL_SECS.contains(&secs) {
                ttls.insert(group.value.clone(), secs);
            } else {
                let show = catalog::duration::show;
                let (least, most) = (show(*TRAIT_TTL_SECS.start()), show(*TRAIT_TTL_SECS.end()));
                reading.error("E017", value.at, format!("traits count for {least} to {most}"));
            }
        }
    }
    ttls
}

/// Bounds and waits of the agents' ends of links (SYN-3).
fn link(reading: &mut Reading<'_>, node: &YamlNode) -> LinkSettings {
    let mut link = LinkSettings::default();
    let mut keys = reading.keys(node, "link", "link");
    keys.set("window", &mut link.window, |node| count(reading, node, "window", LinkSettings::WINDOW));
    keys.set("pending_retries", &mut link.pending_retries, |node| {
        count(reading, node, "pending_retries", LinkSettings::PENDING_RETRIES)
    });
    keys.set("keepalive", &mut link.keepalive_secs, |node| {
        wait(reading, node, "keepalive", LinkSettings::KEEPALIVE_SECS)
    });
    keys.set("timeout", &mut link.timeout_secs, |node| {
        wait(reading, node, "timeout", LinkSettings::TIMEOUT_SECS)
    });
    keys.end(reading);
    link
}

/// What follows a run that can cut its host off (CNV-11).
fn guard(reading: &mut Reading<'_>, node: &YamlNode) -> GuardPolicy {
    let mut guard = GuardPolicy::default();
    let mut keys = reading.keys(node, "guard", "guard");
    let offline = OfflineGuard::ALL.map(|offline| (offline.as_str(), offline));
    keys.set("window", &mut guard.window_secs, |node| guard_window(reading, node));
    keys.set("offline", &mut guard.offline, |node| reading.word(node, "offline", &offline));
    keys.end(reading);
    guard
}

fn guard_window(reading: &mut Reading<'_>, node: &YamlNode) -> Option<u32> {
    let secs = reading.duration(node, "window")?;
    if GuardPolicy::WINDOW_SECS.contains(&secs) {
        return Some(secs);
    }
    let show = catalog::duration::show;
    let (min, max) = (show(*GuardPolicy::WINDOW_SECS.start()), show(*GuardPolicy::WINDOW_SECS.end()));
    let message = format!("a contact follows a guarded run within {min} to {max}");
    reading.error("E017", node.at, message).help("the default is `guard: {window: 5m}`");
    None
}

fn count(reading: &mut Reading<'_>, node: &YamlNode, what: &str, bounds: Bounds) -> Option<u32> {
    let count = reading.int(node, what, bounds.min.into(), bounds.max.into())?;
    u32::try_from(count).ok()
}

fn wait(reading: &mut Reading<'_>, node: &YamlNode, what: &str, bounds: Bounds) -> Option<u32> {
    let secs = reading.duration(node, what)?;
    if (bounds.min..=bounds.max).contains(&secs) {
        return Some(secs);
    }
    let (min, max) = (catalog::duration::show(bounds.min), catalog::duration::show(bounds.max));
    reading.error("E017", node.at, format!("{what} is a time from {min} to {max}"));
    None
}

fn interval(reading: &mut Reading<'_>, node: &YamlNode, what: &str) -> Option<u32> {
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
    node: &YamlNode,
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
