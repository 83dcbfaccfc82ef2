//! `service`: a unit of systemd, whether it runs, is enabled, masked; its file and its drop-ins.

use std::collections::BTreeMap;
use std::time::Duration;

use lang::Value;

use super::unit::{DROP_IN_PREFIX, DROP_IN_TEXT, UNIT_FOLDER, unit_name, with_last_newline};
use super::{Ensure, NotifyAction, RunState, Spec, UnitFile, UnitSpec};
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, literal,
};

/// Seconds that a service may take to start where `timeout:` says nothing. systemd's own limit is
/// 90 s, and says more about what went wrong.
const START_TIMEOUT_SECS: u32 = 300;
/// The longest observation after a start, in seconds.
const MAX_SETTLE_SECS: i64 = 60;

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "service",
    summary: "A unit of systemd. A name without a type is that of a `.service`; others (`.socket`, `.timer`, \
              `.mount`, `.path`) are written out. When it is notified it is restarted, once, after all that \
              notified it, if it runs and was not started since. It counts as running when it stays up: one \
              that ends, fails or is restarted by systemd over and over is a failure, with the result, the \
              exit status and the last lines of its journal.",
    short: Short::Name,
    attributes: &[
        Attribute::new(
            "state",
            FieldKind::Word(&["running", "stopped", "absent"]),
            "",
            "`absent`: stopped and disabled, without `unit` and drop-ins; without it, left as it is",
        ),
        Attribute::new(
            "enabled",
            FieldKind::Bool,
            "",
            "it is started with the machine; without it, left as it is",
        ),
        Attribute::new(
            "masked",
            FieldKind::Bool,
            "",
            "nothing can start it, by hand neither; without it, left as it is",
        ),
        Attribute::new(
            "reload",
            FieldKind::Bool,
            "false",
            "when it is notified it reads its configuration again where it can, and is restarted where not",
        ),
        Attribute::new(
            "unit",
            FieldKind::Text,
            "",
            "the whole unit file, kept in /etc/systemd/system; a change restarts the unit if it runs",
        ),
        Attribute::new(
            "template",
            FieldKind::Template,
            "",
            "the whole unit file, from a template of the module",
        ),
        Attribute::new(
            "drop_in",
            FieldKind::Values,
            "",
            "drop-ins by name, each a text or sections (`{Service: {LimitNOFILE: 4096}}`), kept as \
             `UNIT.d/muster-NAME.conf`; those of an earlier declaration go; a change restarts the unit if it runs",
        ),
        Attribute::new(
            "settle",
            FieldKind::Duration,
            "2s",
            "how long it must stay up after a start, at most 60s; where the unit itself says when it has \
             started (`Type=notify`, `forking`, `dbus`), none",
        ),
    ],
    timeout_secs: START_TIMEOUT_SECS,
    on_remove: &[Keep, Restore, Delete],
    handler: true,
    guarded: false,
    example: "\
- service: hello
  state: running
  enabled: true
  unit: |
    [Unit]
    Description=Waits for nothing
    [Service]
    ExecStart=/bin/sleep infinity
    [Install]
    WantedBy=multi-user.target
  drop_in:
    limits: {Service: {LimitNOFILE: 4096}}
",
    manages: Manages::State,
    removal: &["unit", "template"],
    rules,
    bind,
};

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let mut found = Vec::new();
    if let Some(name) = literal(attributes, "name")
        && let Err(why) = unit_name(name)
    {
        found.push(AttributeProblem::value("name", why, "write the name as `systemctl status` shows it"));
    }
    let on = |key: &str| attributes.get(key).is_some_and(|value| crate::params::bool(value) == Ok(true));
    let state = literal(attributes, "state").unwrap_or_default();
    if on("masked") {
        let help = "drop one of the two; `masked: false` takes a mask away";
        let mut refuse = |key: &str, message: String| {
            found.push(AttributeProblem::conflict(key, message, help));
        };
        if on("enabled") {
            refuse("enabled", "a unit that is masked cannot be enabled".to_owned());
        }
        if matches!(state, "running" | "absent") {
            refuse("state", format!("a unit that is masked cannot be `state: {state}`"));
        }
        for key in ["unit", "template"].iter().filter(|key| attributes.contains_key(**key)) {
            refuse(key, format!("a mask stands where the file of `{key}` would be"));
        }
    }
    if state == "absent" && on("enabled") {
        let message = "a unit that is absent is not enabled".to_owned();
        found.push(AttributeProblem::conflict("enabled", message, "drop it, or drop `state: absent`"));
    }
    if attributes.contains_key("unit") && attributes.contains_key("template") {
        let message = "`unit` and `template` both say what the unit file holds".to_owned();
        found.push(AttributeProblem::conflict("template", message, "keep one of the two"));
    }
    if let Some(settle) = literal(attributes, "settle")
        && crate::duration::parse(settle).is_ok_and(|secs| i64::from(secs) > MAX_SETTLE_SECS)
    {
        let message = format!("a unit is observed for at most {MAX_SETTLE_SECS}s");
        found.push(AttributeProblem::value("settle", message, "write a `verify:` for what takes longer"));
    }
    found
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let unit = unit_name(&given.name())?;
    let state = given.text("state");
    let ensure = given.ensure();
    let path = format!("{UNIT_FOLDER}/{unit}");
    let folder = format!("{path}.d");
    let mut files = BTreeMap::new();
    let owns_file = given.text("unit").is_some() || given.text("template").is_some();
    if owns_file {
        // Where it goes, its text is not asked for: the module may be gone too.
        let text = match (ensure, given.text("unit")) {
            (Ensure::Absent, _) => None,
            (Ensure::Present, Some(text)) => Some(with_last_newline(&text)),
            (Ensure::Present, None) => Some(with_last_newline(&given.rendered()?)),
        };
        files.insert("unit".to_owned(), UnitFile { path: path.clone(), text });
    }
    let drop_ins = given.is_given("drop_in").then(|| given.values("drop_in"));
    let manages_drop_ins = drop_ins.is_some() || ensure == Ensure::Absent;
    for (name, value) in drop_ins.into_iter().flatten().filter(|_| ensure == Ensure::Present) {
        let fits = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if name.is_empty() || !name.chars().all(fits) {
            return Err(format!("drop_in: `{name}` cannot be a name: it has letters, digits, _ and -"));
        }
        let text = sections(&value).map_err(|why| format!("drop_in `{name}`: {why}"))?;
        let path = format!("{folder}/{DROP_IN_PREFIX}{name}.conf");
        files.insert(format!("{DROP_IN_TEXT}{name}"), UnitFile { path, text: Some(text) });
    }
    let settle = given.int("settle").map(|secs| secs.clamp(0, MAX_SETTLE_SECS).unsigned_abs());
    Ok(Spec::Unit(UnitSpec {
        ensure,
        run: match state.as_deref() {
            Some("running") => Some(RunState::Running),
            Some("stopped") => Some(RunState::Stopped),
            _ => None,
        },
        enabled: given.flag("enabled"),
        masked: given.flag("masked"),
        on_notify: if given.bool("reload") { NotifyAction::Reload } else { NotifyAction::Restart },
        files,
        drop_ins: manages_drop_ins.then_some(folder),
        calendars: Vec::new(),
        user: None,
        settle: settle.map(Duration::from_secs),
        path,
        unit,
    }))
}

/// The text of a drop-in: as it is, or made of sections.
fn sections(value: &Value) -> Result<String, String> {
    let Value::Map(sections) = value else {
        return match value.as_str() {
            Some(text) if text.contains('[') => Ok(with_last_newline(text)),
            _ => Err("a text with sections, or a map of sections, is needed".to_owned()),
        };
    };
    let mut out = String::new();
    for (section, keys) in sections {
        let Value::Map(keys) = keys else {
            return Err(format!("section `{section}` is a map of keys, such as {{LimitNOFILE: 4096}}"));
        };
        let plain =
            |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if let Some(wrong) = std::iter::once(section).chain(keys.keys()).find(|name| !plain(name)) {
            return Err(format!("`{wrong}` cannot be the name of a section or a key"));
        }
        out.push_str(&format!("[{section}]\n"));
        for (key, value) in keys {
            let items = match value {
                Value::List(items) => items.as_slice(),
                one => std::slice::from_ref(one),
            };
            for item in items {
                let text = crate::params::text(item).map_err(|why| format!("{key}: {why}"))?;
                if text.contains(['\n', '\r', '\0']) {
                    return Err(format!("{key}: a value is one line; a list gives a line each"));
                }
                out.push_str(&format!("{key}={text}\n"));
            }
        }
    }
    Ok(out)
}
