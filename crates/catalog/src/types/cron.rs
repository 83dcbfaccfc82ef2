//! `cron`: an entry of its own file in /etc/cron.d.

use std::collections::BTreeMap;

use lang::Value;

use super::{Ensure, FILE_TIMEOUT_SECS, FileContent, FileSpec, InTheWay, Ownership, STATE, Spec};
use crate::module::CommandLine;
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, is_absent,
    literal,
};

/// Where cron looks for files of entries.
pub(super) const FOLDER: &str = "/etc/cron.d";
/// The longest command that cron reads, in bytes.
const MAX_COMMAND: usize = 998;
/// What cron reads instead of the five fields.
const WORDS: [&str; 8] =
    ["@reboot", "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// One of the five fields.
struct TimeField {
    name: &'static str,
    least: u32,
    most: u32,
    /// Names of the numbers from `least` on.
    names: &'static [&'static str],
}

const FIELDS: [TimeField; 5] = [
    TimeField { name: "minute", least: 0, most: 59, names: &[] },
    TimeField { name: "hour", least: 0, most: 23, names: &[] },
    TimeField { name: "day", least: 1, most: 31, names: &[] },
    TimeField {
        name: "month",
        least: 1,
        most: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    TimeField {
        name: "weekday",
        least: 0,
        most: 7,
        names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    },
];

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "cron",
    summary: "A command that cron runs by time: `/etc/cron.d/NAME`, which is root's. Times are those of the \
              machine's own clock and zone. A `timer` says more of how its runs ended.",
    short: Short::Name,
    attributes: &[
        STATE,
        Attribute::required(
            "command",
            FieldKind::Shell,
            "one line for `/bin/sh`; a `%` is written as `\\%`, since cron would end the command there",
        ),
        Attribute::new("user", FieldKind::Account, "root", "name of the user to run as"),
        Attribute::new(
            "schedule",
            FieldKind::Line,
            "",
            "`@daily` and the like, or all five fields: `30 2 * * mon`",
        ),
        Attribute::new("minute", FieldKind::Line, "*", "0 to 59; `*/5`, `0,30`, `10-20/2`"),
        Attribute::new("hour", FieldKind::Line, "*", "0 to 23"),
        Attribute::new("day", FieldKind::Line, "*", "day of the month, 1 to 31"),
        Attribute::new("month", FieldKind::Line, "*", "1 to 12, or `jan` to `dec`"),
        Attribute::new(
            "weekday",
            FieldKind::Line,
            "*",
            "0 to 7, where 0 and 7 are Sunday, or `sun` to `sat`",
        ),
        Attribute::new("environment", FieldKind::Texts, "", "variables such as `MAILTO` and `PATH`"),
    ],
    timeout_secs: FILE_TIMEOUT_SECS,
    on_remove: &[Delete, Keep, Restore],
    handler: false,
    guarded: false,
    example: "\
- cron: tidy-cache
  minute: 30
  hour: 2
  command: find /var/tmp -name '*.cache' -mtime +30 -delete
",
    manages: Manages::Path,
    removal: &[],
    rules,
    bind,
};

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let mut found = Vec::new();
    let mut blame = |attribute: &str, checked: Result<(), String>, help: &str| {
        if let Err(why) = checked {
            found.push(AttributeProblem::value(attribute, why, help));
        }
    };
    if let Some(name) = literal(attributes, "name") {
        blame(
            "name",
            name_problem(name),
            "cron reads no file with another name; write one such as `backup-db`",
        );
    }
    if let Some(command) = literal(attributes, "command") {
        blame("command", command_problem(command), "put it into a script, and run that");
    }
    let text = |key: &str| attributes.get(key).map(Value::to_string).filter(|text| !text.contains("${{"));
    if let Some(user) = text("user") {
        blame("user", user_problem(&user), "write the user's name");
    }
    for field in &FIELDS {
        if let Some(text) = text(field.name) {
            let checked = field.check(&text).map_err(|why| why.replacen(&format!("{}: ", field.name), "", 1));
            blame(field.name, checked, "write a number, a range, a list or a step: `*/5`, `1-5`");
        }
    }
    if let Some(schedule) = literal(attributes, "schedule") {
        blame(
            "schedule",
            schedule_problem(schedule),
            "write `@daily`, or five fields such as `30 2 * * mon`",
        );
    }
    if let Some(Value::Map(variables)) = attributes.get("environment") {
        for (name, value) in variables {
            let value = value.to_string();
            blame("environment", variable(name, &value).map(drop), "cron keeps a variable in one line");
        }
    }
    let fields: Vec<&str> =
        FIELDS.iter().map(|field| field.name).filter(|name| attributes.contains_key(*name)).collect();
    let schedule = attributes.contains_key("schedule");
    if let (true, Some(field)) = (schedule, fields.first()) {
        let message = format!("`schedule` and `{field}` both say when it runs");
        found.push(AttributeProblem::conflict(field, message, "keep `schedule`, or the fields"));
    }
    if !schedule && fields.is_empty() && !is_absent(attributes) {
        let message = "nothing says when it runs, and cron would run it every minute".to_owned();
        let help =
            "add `schedule`, or fields such as `minute: 30` and `hour: 2`; `minute: \"*\"` is every minute";
        found.push(AttributeProblem::missing(None, message, help));
    }
    found
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let name = given.name();
    name_problem(&name)?;
    let content = match given.ensure() {
        Ensure::Present => Some(FileContent::text(entry(given, &name)?)),
        Ensure::Absent => None,
    };
    let ownership = match content {
        Some(_) => {
            Ownership { mode: Some(0o644), owner: Some("root".to_owned()), group: Some("root".to_owned()) }
        }
        None => Ownership::default(),
    };
    Ok(Spec::File(FileSpec {
        path: format!("{FOLDER}/{name}"),
        ensure: given.ensure(),
        content,
        ownership,
        validate: None,
        backup: false,
        in_the_way: InTheWay::Stays,
    }))
}

/// The file's text.
fn entry(given: &ResourceAttributes<'_>, name: &str) -> Result<String, String> {
    let user = given.text("user").unwrap_or_else(|| "root".to_owned());
    user_problem(&user)?;
    let command = match given.command("command").ok_or("command is missing")? {
        CommandLine::Shell(text) => text,
        CommandLine::Argv(_) => return Err("command: cron takes one line for /bin/sh".to_owned()),
    };
    let command = command.trim();
    command_problem(command)?;
    let when = match given.text("schedule") {
        Some(schedule) => {
            schedule_problem(&schedule)?;
            schedule.split_whitespace().collect::<Vec<_>>().join(" ")
        }
        None => {
            let field = |field: &TimeField| {
                let text = given.text(field.name).unwrap_or_else(|| "*".to_owned());
                field.check(&text).map(|()| text)
            };
            FIELDS.iter().map(field).collect::<Result<Vec<_>, _>>()?.join(" ")
        }
    };
    let mut out = format!("# Kept by Muster: cron `{name}`\n");
    for (name, value) in given.texts("environment") {
        out.push_str(&variable(&name, &value)?);
    }
    out.push_str(&format!("{when} {user} {}\n", escaped(command)));
    Ok(out)
}

/// A command in which no `%` ends it; one that is escaped already stays so. As cron reads it, a backslash
/// escapes what follows, another backslash too.
fn escaped(command: &str) -> String {
    let mut out = String::with_capacity(command.len());
    let mut by_backslash = false;
    for c in command.chars() {
        if c == '%' && !by_backslash {
            out.push('\\');
        }
        out.push(c);
        by_backslash = c == '\\' && !by_backslash;
    }
    out
}

fn name_problem(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    match name.is_empty() || name.len() > 200 || !name.chars().all(fits) {
        true => {
            Err(format!("`{name}` cannot name a file in {FOLDER}: it has letters, digits, _ and -, no dot"))
        }
        false => Ok(()),
    }
}

fn user_problem(user: &str) -> Result<(), String> {
    match user.chars().all(|c| c.is_ascii_digit()) {
        true => Err(format!("cron knows users by name, and `{user}` is a number")),
        false => Ok(()),
    }
}

fn command_problem(command: &str) -> Result<(), String> {
    if command.trim().contains(['\n', '\r']) {
        return Err("cron reads one line as the command, and this has a line break".to_owned());
    }
    match escaped(command.trim()).len() > MAX_COMMAND {
        true => Err(format!("cron reads at most {MAX_COMMAND} bytes of a command")),
        false => Ok(()),
    }
}

fn schedule_problem(schedule: &str) -> Result<(), String> {
    let words: Vec<&str> = schedule.split_whitespace().collect();
    match words.as_slice() {
        [word] if WORDS.contains(word) => Ok(()),
        [word] if word.starts_with('@') => {
            let near = lang::nearest(word, WORDS.iter().copied());
            let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            Err(format!("cron has no `{word}`{hint}"))
        }
        words if words.len() == FIELDS.len() => {
            words.iter().zip(&FIELDS).try_for_each(|(word, field)| field.check(word))
        }
        _ => Err(format!("`{schedule}` is not five fields")),
    }
}

/// A line that sets a variable.
fn variable(name: &str, value: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(fits) {
        return Err(format!("`{name}` cannot name a variable"));
    }
    if value.contains(['\n', '\r']) {
        return Err(format!("{name}: a line break cannot stand here"));
    }
    let quote = match (value.contains('"'), value.contains('\'')) {
        (false, _) => '"',
        (true, false) => '\'',
        (true, true) => return Err(format!("{name}: cron cannot read both kinds of quotes in one value")),
    };
    Ok(format!("{name}={quote}{value}{quote}\n"))
}

impl TimeField {
    fn check(&self, text: &str) -> Result<(), String> {
        let wrong = |part: &str| {
            let names = self.names.first().zip(self.names.last());
            let names = names.map(|(a, b)| format!(", or {a} to {b}")).unwrap_or_default();
            format!("{}: `{part}` is not from {} to {}{names}", self.name, self.least, self.most)
        };
        text.split(',').try_for_each(|part| {
            let (range, step) = match part.split_once('/') {
                Some((range, step)) => (range, Some(step)),
                None => (part, None),
            };
            let whole = range == "*";
            let ends = match range.split_once('-') {
                _ if whole => Some((self.least, self.most)),
                Some((from, to)) => self.number(from).zip(self.number(to)),
                None => self.number(range).map(|number| (number, number)),
            };
            let (from, to) = ends.ok_or_else(|| wrong(part))?;
            if from > to {
                return Err(format!("{}: `{part}` goes backwards", self.name));
            }
            match step.map(str::parse::<u32>) {
                None => Ok(()),
                Some(_) if from == to => Err(format!("{}: `{part}` has a step and no range", self.name)),
                Some(Ok(step)) if step >= 1 && step <= self.most => Ok(()),
                Some(_) => Err(format!("{}: `{part}` has no step from 1 to {}", self.name, self.most)),
            }
        })
    }

    fn number(&self, text: &str) -> Option<u32> {
        let lower = text.to_ascii_lowercase();
        let named = self.names.iter().position(|name| *name == lower);
        let named = named.and_then(|at| u32::try_from(at).ok()).map(|at| at + self.least);
        let digits = !text.is_empty() && text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = named.or_else(|| text.parse().ok().filter(|_| digits))?;
        (self.least..=self.most).contains(&number).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_what_cron_reads() {
        let [minute, hour, day, month, weekday] = &FIELDS;
        for (field, text) in [
            (minute, "*"),
            (minute, "*/5"),
            (minute, "0,15,30-40/2"),
            (hour, "23"),
            (day, "1-31"),
            (month, "jan"),
            (month, "Mar-jun"),
            (weekday, "mon-fri"),
            (weekday, "0,7"),
        ] {
            assert_eq!(field.check(text), Ok(()), "{} {text}", field.name);
        }
        for (field, text) in [
            (minute, "60"),
            (minute, ""),
            (minute, "*/0"),
            (minute, "*/x"),
            (minute, "5/2"),
            (minute, "-5"),
            (minute, "+5"),
            (hour, "24"),
            (day, "0"),
            (day, "9-3"),
            (month, "13"),
            (month, "mon"),
            (weekday, "8"),
            (weekday, "1,,2"),
        ] {
            assert!(field.check(text).is_err(), "{} {text}", field.name);
        }
    }

    #[test]
    fn a_percent_sign_never_ends_the_command() {
        assert_eq!(escaped("date +%F"), "date +\\%F");
        assert_eq!(escaped("date +\\%F %%"), "date +\\%F \\%\\%");
        // Two backslashes are one that is escaped: the sign after them is not.
        assert_eq!(escaped("printf '\\\\%s'"), "printf '\\\\\\%s'");
        assert_eq!(escaped("a\\\\\\%"), "a\\\\\\%");
    }

    #[test]
    fn what_cron_would_not_read_is_refused() {
        assert!(name_problem("backup.sh").unwrap_err().contains("no dot"));
        assert!(name_problem("a/b").is_err());
        assert!(user_problem("1000").is_err());
        assert!(command_problem("a\nb").is_err());
        assert!(command_problem(&"x".repeat(999)).is_err());
        assert_eq!(schedule_problem("30 2 * * mon"), Ok(()));
        assert_eq!(schedule_problem("@daily"), Ok(()));
        assert!(schedule_problem("@dialy").unwrap_err().contains("@daily"));
        assert!(schedule_problem("30 2 * *").is_err());
        assert_eq!(variable("MAILTO", "").as_deref(), Ok("MAILTO=\"\"\n"));
        assert!(variable("A B", "x").is_err());
        assert!(variable("A", "x\ny").is_err());
        assert!(variable("A", "\"'").is_err());
    }
}
