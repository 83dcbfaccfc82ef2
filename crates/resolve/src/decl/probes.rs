//! `probes:` of `fleet.yaml` or `rollouts.yaml`: what says that a generation works (ROL-7).

use std::time::Duration;

use lang::Selector;
use model::health_probe::{
    HealthProbe, HealthProbeKind, HealthProbeMode, MAX_CHANNEL_PROBES, MAX_PROBE_TIME, MIN_PROBE_INTERVAL,
    MetricBound,
};

use super::selection::{self, NodesSaid};
use crate::shape::{Keys, Reading};
use crate::yaml::{At, Spanned, YamlKind, YamlNode};

/// The keys that say what a probe asks.
const TARGETS: [&str; 5] = ["http", "tcp", "command", "unit", "metric"];
/// How often a probe is asked that does not say so.
const EVERY: Duration = Duration::from_secs(10);
/// How long after a switch the failures of a probe that does not say so do not count.
const GRACE: Duration = Duration::from_secs(30);
/// For how long a probe that does not say so goes on failing until the generation has failed.
const SUSTAINED: Duration = Duration::from_secs(30);
/// After which a probe that does not say so is cut off; never more than the time from one to the next.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeDecl {
    pub(crate) at: At,
    /// The nodes of which it is asked; all of the channel where there is none.
    pub(crate) nodes: Option<Selector>,
    pub(crate) probe: HealthProbe,
}

/// Reads `probes:`, in order.
pub(super) fn read(reading: &mut Reading<'_>, node: &YamlNode) -> Vec<ProbeDecl> {
    let entries = reading.map(node, "probes");
    if let Some((over, _)) = entries.get(MAX_CHANNEL_PROBES) {
        reading.error("E099", over.at, format!("more than {MAX_CHANNEL_PROBES} probes")).help("join some");
    }
    let all = entries.iter().take(MAX_CHANNEL_PROBES);
    all.filter_map(|(name, value)| probe(reading, name, value)).collect()
}

fn probe(reading: &mut Reading<'_>, name: &Spanned<String>, node: &YamlNode) -> Option<ProbeDecl> {
    let named = reading.name(&name.value, name.at, "a probe");
    let what = format!("probe {}", name.value);
    let mut keys = reading.keys(node, &what, "a probe");
    let kind = target(reading, name, node, &mut keys);
    let said = selection::read(reading, &mut keys);
    let modes = [
        ("enforce", HealthProbeMode::Enforce),
        ("observe", HealthProbeMode::Observe),
        ("disabled", HealthProbeMode::Disabled),
    ];
    let mode = keys.read("mode", |node| reading.word(node, "mode", &modes));
    let time = |reading: &mut Reading<'_>, keys: &mut Keys<'_>, key: &'static str, otherwise: Duration| {
        let read = keys.get(key).map(|node| (node.at, reading.duration(node, key)));
        let secs = |secs: u32| Duration::from_secs(secs.into());
        (read.map(|(at, _)| at), read.map_or(Some(otherwise), |(_, read)| read.map(secs)))
    };
    let (every_at, every) = time(reading, &mut keys, "every", EVERY);
    let (_, grace) = time(reading, &mut keys, "grace", GRACE);
    let (_, sustained) = time(reading, &mut keys, "sustained", SUSTAINED);
    let (timeout_at, timeout) = time(reading, &mut keys, "timeout", TIMEOUT.min(every.unwrap_or(TIMEOUT)));
    keys.end(reading);
    let (kind, every, timeout) = (kind?, every?, timeout?);
    let (name_text, grace, sustained) = (name.value.clone(), grace?, sustained?);
    let probe = HealthProbe {
        name: name_text,
        kind,
        mode: mode.unwrap_or(HealthProbeMode::Enforce),
        grace,
        sustained,
        every,
        timeout,
    };
    if every < MIN_PROBE_INTERVAL || timeout > every || probe.check().is_err() {
        let at = if timeout > every { timeout_at } else { every_at };
        let least = MIN_PROBE_INTERVAL.as_secs();
        let most = MAX_PROBE_TIME.as_secs() / 3600;
        let message = match timeout > every {
            true => format!("probe {} would be cut off after it is asked again", name.value),
            false => format!("probe {} is out of bounds", name.value),
        };
        reading.error("E117", at.unwrap_or(name.at), message).help(format!(
            "`every` is at least {least}s, `timeout` more than 0 and at most `every`, none of the times is over {most}h, \
             and no text is longer than 2 KiB"
        ));
        return None;
    }
    let nodes = match said {
        NodesSaid::Broken => return None,
        said => said.selector(),
    };
    named.then_some(ProbeDecl { at: name.at, nodes, probe })
}

/// What the probe asks: exactly one key says it.
fn target(
    reading: &mut Reading<'_>,
    name: &Spanned<String>,
    node: &YamlNode,
    keys: &mut Keys<'_>,
) -> Option<HealthProbeKind> {
    let found = TARGETS.map(|key| (key, keys.get(key)));
    let metric_url = keys.get("url");
    let (expect, at_most, at_least) = (keys.get("expect"), keys.get("atMost"), keys.get("atLeast"));
    let mut said = found.into_iter().filter_map(|(key, node)| Some((key, node?)));
    let Some((key, value)) = said.next() else {
        if matches!(node.kind, YamlKind::Map(_)) {
            reading.error("E117", name.at, format!("probe {} asks for nothing", name.value)).help(
                "add one of http, tcp, command, unit, metric, as in `http: \"http://localhost/health\"`",
            );
        }
        return None;
    };
    if let Some((second, at)) = said.next() {
        reading
            .error("E117", at.at, format!("probe {} asks for `{key}` and `{second}`", name.value))
            .help("write two probes");
        return None;
    }
    let stray = |reading: &mut Reading<'_>, node: Option<&YamlNode>, what: &str, of: &str| {
        if let Some(node) = node.filter(|_| key != of) {
            reading.error("E117", node.at, format!("`{what}` is of a probe with `{of}`")).help("drop it");
        }
    };
    stray(reading, expect, "expect", "http");
    for (node, what) in [(metric_url, "url"), (at_most, "atMost"), (at_least, "atLeast")] {
        stray(reading, node, what, "metric");
    }
    match key {
        "http" => {
            let url = url(reading, value, "http")?;
            let expect = match expect {
                Some(node) => u16::try_from(reading.int(node, "expect", 100, 599)?).ok()?,
                None => 200,
            };
            Some(HealthProbeKind::Http { url, expect })
        }
        "tcp" => Some(HealthProbeKind::Tcp { address: address(reading, value)? }),
        "command" => Some(HealthProbeKind::Command { argv: argv(reading, value)? }),
        "unit" => Some(HealthProbeKind::Unit { unit: filled(reading, value, "unit")? }),
        _ => {
            let metric = filled(reading, value, "metric")?;
            let help = "say where the metrics are, as in `url: \"http://localhost:9100/metrics\"`";
            let Some(url_node) = metric_url else {
                reading.missing_key(name.at, &format!("probe {}", name.value), "url", help);
                return None;
            };
            let url = url(reading, url_node, "url")?;
            let (bound, node) = match (at_most, at_least) {
                (Some(node), None) => (MetricBound::AtMost, node),
                (None, Some(node)) => (MetricBound::AtLeast, node),
                _ => {
                    reading
                        .error("E117", name.at, format!("probe {} says no bound of its metric", name.value))
                        .help("add one of them: `atMost: 0.9` or `atLeast: 1`");
                    return None;
                }
            };
            Some(HealthProbeKind::Metric { url, metric, bound, threshold_milli: threshold(reading, node)? })
        }
    }
}

/// A text that says something.
fn filled(reading: &mut Reading<'_>, node: &YamlNode, what: &str) -> Option<String> {
    let text = reading.text(node, what)?;
    if text.value.trim().is_empty() {
        reading.error("E117", text.at, format!("`{what}` is empty"));
        return None;
    }
    Some(text.value)
}

fn url(reading: &mut Reading<'_>, node: &YamlNode, what: &str) -> Option<String> {
    let text = reading.text(node, what)?;
    let rest = text.value.strip_prefix("http://").or_else(|| text.value.strip_prefix("https://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let plain = !text.value.contains(|c: char| c.is_whitespace() || c.is_control());
    if host.is_none_or(|host| host.is_empty() || host.contains('@')) || !plain {
        reading
            .error("E117", text.at, format!("`{}` is no address that a probe can ask", text.value))
            .help("write one such as \"http://localhost/health\", without a password");
        return None;
    }
    Some(text.value)
}

fn address(reading: &mut Reading<'_>, node: &YamlNode) -> Option<String> {
    let text = reading.text(node, "tcp")?;
    let parts = text.value.rsplit_once(':');
    let good = parts.is_some_and(|(host, port)| {
        !host.is_empty()
            && !host.contains(|c: char| c.is_whitespace() || c == '/')
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if !good {
        reading
            .error("E117", text.at, format!("`{}` is no HOST:PORT", text.value))
            .help("write it as in \"localhost:5432\"");
        return None;
    }
    Some(text.value)
}

fn argv(reading: &mut Reading<'_>, node: &YamlNode) -> Option<Vec<String>> {
    let before = reading.sink.count();
    let texts = reading.texts(node, "command");
    if reading.sink.count() != before {
        return None;
    }
    let program = texts.first().map(|program| program.value.as_str()).unwrap_or_default();
    if !program.starts_with('/') {
        reading
            .error(
                "E117",
                texts.first().map_or(node.at, |program| program.at),
                "a command begins with its program",
            )
            .help(
                "an absolute path, and each argument by itself; no shell runs it: [/usr/bin/pg_isready, -q]",
            );
        return None;
    }
    Some(texts.into_iter().map(|text| text.value).collect())
}

/// A decimal number with at most three places, in thousandths.
fn threshold(reading: &mut Reading<'_>, node: &YamlNode) -> Option<i64> {
    let text = reading.text(node, "the bound")?;
    let (whole, places) = text.value.split_once('.').unwrap_or((&text.value, ""));
    let negative = whole.starts_with('-');
    let thousandths = || {
        let good = places.len() <= 3 && places.bytes().all(|byte| byte.is_ascii_digit());
        let whole = catalog::params::plain_int(whole).filter(|_| good && !text.value.ends_with('.'))?;
        let places: i64 = format!("{places:0<3}").parse().ok()?;
        let whole = whole.checked_mul(1000).filter(|milli| milli.abs() < 1 << 53)?;
        whole.checked_add(if negative { -places } else { places })
    };
    let found = thousandths();
    if found.is_none() {
        reading
            .error("E117", text.at, format!("`{}` is no bound of a metric", text.value))
            .help("write a number with at most three places, such as 0.95");
    }
    found
}
