//! `timer`: a timer of systemd with the service that it starts.

use std::collections::BTreeMap;

use lang::Value;

use super::unit::{UNIT_FOLDER, unit_name};
use super::{Ensure, NotifyAction, RunState, STATE, Spec, UnitFile, UnitSpec};
use crate::module::CommandLine;
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, is_absent,
    literal, literals,
};

/// Seconds that a timer may take to start where `timeout:` says nothing.
const TIMER_TIMEOUT_SECS: u32 = 120;
/// Words that systemd has for calendar expressions.
const SHORTHANDS: [&str; 9] =
    ["minutely", "hourly", "daily", "monthly", "weekly", "yearly", "annually", "quarterly", "semiannually"];
const WEEKDAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// What makes a timer go off.
const TRIGGERS: [&str; 3] = ["on_calendar", "on_boot", "on_unit_active"];

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "timer",
    summary: "A command that systemd runs by time: `NAME.timer`, which is started and enabled, and \
              `NAME.service`, which runs the command and whose journal has what it printed. Both are kept in \
              /etc/systemd/system. A run that is under way is never disturbed.",
    short: Short::Name,
    attributes: &[
        STATE,
        Attribute::required(
            "command",
            FieldKind::Command,
            "what is run; a program is given by its absolute path",
        ),
        Attribute::new(
            "on_calendar",
            FieldKind::List,
            "",
            "when, as `man systemd.time` has it (`*-*-* 02:30:00`, `Mon 07:00`, `daily`); several: whenever one \
             comes; the node checks it before anything is written",
        ),
        Attribute::new("on_boot", FieldKind::Duration, "", "this long after the machine started"),
        Attribute::new("on_unit_active", FieldKind::Duration, "", "this long after it was started last"),
        Attribute::new(
            "persistent",
            FieldKind::Bool,
            "false",
            "a run of `on_calendar` that was missed while the machine was off is made up for",
        ),
        Attribute::new(
            "randomized_delay",
            FieldKind::Duration,
            "0s",
            "each run is put off by a random time up to this, so that a fleet does not begin at once",
        ),
        Attribute::new(
            "accuracy",
            FieldKind::Duration,
            "1m",
            "runs may come this much later, to save wake-ups",
        ),
        Attribute::new("description", FieldKind::Line, "", "what `systemctl list-timers` shows"),
        Attribute::new("user", FieldKind::Account, "root", "user to run as"),
        Attribute::new("cwd", FieldKind::Path, "/", "working directory"),
        Attribute::new("environment", FieldKind::Texts, "", "added to the command's environment"),
    ],
    timeout_secs: TIMER_TIMEOUT_SECS,
    on_remove: &[Delete, Keep, Restore],
    handler: false,
    guarded: false,
    example: "\
- timer: tidy-cache
  on_calendar: \"*-*-* 02:30:00\"
  randomized_delay: 10m
  persistent: true
  command: [/usr/bin/find, /var/tmp, -name, \"*.cache\", -mtime, \"+30\", -delete]
",
    manages: Manages::State,
    removal: &[],
    rules,
    bind,
};

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let mut found = Vec::new();
    if let Some(name) = literal(attributes, "name")
        && let Err(why) = timer_name(name)
    {
        found.push(AttributeProblem::value("name", why, "write the name without `.timer`, as in `backup`"));
    }
    if !is_absent(attributes) && !TRIGGERS.iter().any(|key| attributes.contains_key(*key)) {
        let help = "add `on_calendar`, `on_boot` or `on_unit_active`";
        found.push(AttributeProblem::missing(None, "nothing says when the timer goes off".to_owned(), help));
    }
    let plausible = |text: &str| calendar_problem(text).map(|why| (text.to_owned(), why));
    for (text, why) in literals(attributes, "on_calendar").filter_map(plausible) {
        let help = "write one such as \"*-*-* 02:30:00\", \"Mon..Fri 07:00\" or \"daily\"";
        found.push(AttributeProblem::value("on_calendar", format!("`{text}`: {why}"), help));
    }
    if attributes.contains_key("persistent") && !attributes.contains_key("on_calendar") {
        let message = "`persistent` is about `on_calendar`, which is not given".to_owned();
        found.push(AttributeProblem::conflict("persistent", message, "drop it, or add `on_calendar`"));
    }
    let program = match attributes.get("command") {
        Some(Value::List(items)) => items.first().and_then(Value::as_str),
        _ => None,
    };
    if let Some(program) = program.filter(|program| !program.starts_with('/') && !program.contains("${{")) {
        let message = format!("`{program}` is not an absolute path");
        found.push(AttributeProblem::value("command", message, "write the path that `command -v` shows"));
    }
    found
}

fn timer_name(name: &str) -> Result<String, String> {
    let stem = name.strip_suffix(".timer").unwrap_or(name);
    let unit = unit_name(&format!("{stem}.timer"))?;
    match stem.contains(['@', '.']) {
        true => Err(format!("`{name}` cannot name a timer and its service")),
        false => Ok(unit.trim_end_matches(".timer").to_owned()),
    }
}

/// Why an expression cannot be one of a calendar; what systemd says on the node counts.
fn calendar_problem(text: &str) -> Option<&'static str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let first = words.first().copied().unwrap_or_default().to_ascii_lowercase();
    if SHORTHANDS.contains(&first.as_str()) {
        return None;
    }
    let digits = |word: &&str| word.chars().all(|c| c.is_ascii_digit() || "*/,-".contains(c));
    if words.len() == 5 && words.iter().all(digits) {
        return Some("that is how a crontab says it");
    }
    if words.is_empty() || words.len() > 4 {
        return Some("it has weekdays, a date, a time and a time zone, each at most once");
    }
    if !text.chars().all(|c| c.is_ascii_alphanumeric() || "*:,./~-+_@ ".contains(c)) {
        return Some("a character in it means nothing there");
    }
    let weekdays = |word: &str| {
        let days = word.split([',', '.', '-']).filter(|day| !day.is_empty());
        days.clone().count() > 0
            && days.clone().all(|day| {
                let day = day.to_ascii_lowercase();
                WEEKDAYS.iter().any(|known| day.starts_with(known))
            })
    };
    let has_point =
        words.iter().any(|word| word.contains(':') || word.contains('-') || word.starts_with('@'));
    if weekdays(&first) || (has_point && text.contains(|c: char| c.is_ascii_digit() || c == '*')) {
        return None;
    }
    Some("it says neither a weekday nor a date nor a time")
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let stem = timer_name(&given.name())?;
    let ensure = given.ensure();
    let present = ensure == Ensure::Present;
    let timer = format!("{stem}.timer");
    let path = format!("{UNIT_FOLDER}/{timer}");
    let texts = if present { Some((timer_text(given, &stem), service_text(given, &stem)?)) } else { None };
    let (timer_file, service_file) = texts.unzip();
    let files = BTreeMap::from([
        ("timer".to_owned(), UnitFile { path: path.clone(), text: timer_file }),
        (
            "service".to_owned(),
            UnitFile { path: format!("{UNIT_FOLDER}/{stem}.service"), text: service_file },
        ),
    ]);
    Ok(Spec::Unit(UnitSpec {
        ensure,
        run: present.then_some(RunState::Running),
        enabled: present.then_some(true),
        masked: None,
        on_notify: NotifyAction::Restart,
        files,
        drop_ins: None,
        calendars: given.list("on_calendar").unwrap_or_default(),
        user: given.text("user").filter(|user| user != "root"),
        settle: None,
        path,
        unit: timer,
    }))
}

fn timer_text(given: &ResourceAttributes<'_>, stem: &str) -> String {
    let mut out = head(given, stem, "Starts");
    out.push_str("\n[Timer]\n");
    for calendar in given.list("on_calendar").unwrap_or_default() {
        out.push_str(&format!("OnCalendar={}\n", calendar.replace('%', "%%")));
    }
    let spans = [
        ("on_boot", "OnBootSec"),
        ("on_unit_active", "OnUnitActiveSec"),
        ("randomized_delay", "RandomizedDelaySec"),
        ("accuracy", "AccuracySec"),
    ];
    for (attribute, key) in spans {
        if let Some(secs) = given.int(attribute) {
            out.push_str(&format!("{key}={secs}s\n"));
        }
    }
    if given.bool("persistent") {
        out.push_str("Persistent=true\n");
    }
    out + "\n[Install]\nWantedBy=timers.target\n"
}

fn service_text(given: &ResourceAttributes<'_>, stem: &str) -> Result<String, String> {
    let mut out = head(given, stem, "Is started by");
    let argv = match given.command("command").ok_or("command is missing")? {
        CommandLine::Argv(argv) => argv,
        CommandLine::Shell(text) => vec!["/bin/sh".to_owned(), "-c".to_owned(), text],
    };
    if !argv.first().is_some_and(|program| program.starts_with('/')) {
        return Err("command: a program is given by its absolute path".to_owned());
    }
    let words: Vec<String> = argv.iter().map(|word| quoted(&word.replace('$', "$$"))).collect();
    out.push_str(&format!("\n[Service]\nType=oneshot\nExecStart={}\n", words.join(" ")));
    if let Some(user) = given.text("user") {
        out.push_str(&format!("User={user}\n"));
    }
    if let Some(cwd) = given.text("cwd") {
        out.push_str(&format!("WorkingDirectory={}\n", cwd.replace('%', "%%")));
    }
    for (name, value) in given.texts("environment") {
        out.push_str(&format!("Environment={}\n", quoted(&format!("{name}={value}"))));
    }
    Ok(out)
}

fn head(given: &ResourceAttributes<'_>, stem: &str, does: &str) -> String {
    let other = if does == "Starts" { "service" } else { "timer" };
    let description = given.text("description").unwrap_or_else(|| stem.to_owned()).replace('%', "%%");
    format!("# Kept by Muster. {does} {stem}.{other}.\n[Unit]\nDescription={description}\n")
}

/// A word as a unit file quotes it, so that systemd reads it as it is.
fn quoted(word: &str) -> String {
    let mut out = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '%' => out.push_str("%%"),
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendars_are_plausible_or_refused_with_a_reason() {
        for good in [
            "daily",
            "Weekly",
            "*-*-* 02:30:00",
            "02:30",
            "Mon",
            "Mon..Fri 07:00",
            "Sat,Sun *-*-* 9..17:00",
            "*-*~1",
            "2027-01-01 00:00 Europe/Madrid",
            "*:0/15",
            "@1395716396",
        ] {
            assert_eq!(calendar_problem(good), None, "{good}");
        }
        for wrong in ["", "0 5 * * *", "at noon", "every day", "5", "02:30; rm", "a b c d e f", "someday 07"]
        {
            assert!(calendar_problem(wrong).is_some(), "{wrong}");
        }
    }

    #[test]
    fn words_are_quoted_so_that_systemd_reads_them_as_they_are() {
        assert_eq!(quoted("a b"), "\"a b\"");
        assert_eq!(quoted("50% \"x\" \\n\n"), "\"50%% \\\"x\\\" \\\\n\\n\"");
    }
}
