//! Node-side predicates (CFG-3): what they are called, what they take, what they ask.

use model::window::{ClockZone, Weekdays};

use crate::{Probe, Value};

/// The most arguments of a command that is asked.
const MAX_ARGS: usize = 64;
/// The longest text that a predicate takes, in bytes.
const MAX_TEXT: usize = 4096;

/// A function whose answer is known only on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Predicate {
    FileExists,
    DirExists,
    CommandSucceeds,
    ProcessRunning,
    PortListening,
    HourRange,
    DayOfWeek,
    InWindow,
    Changed,
    /// `secret("...")`: no question, but the value of a secret, which the node alone opens.
    Secret,
}

/// What a predicate is called, how many arguments it takes, and how it is written.
struct PredicateUsage {
    name: &'static str,
    arguments: (usize, usize),
    example: &'static str,
}

impl Predicate {
    pub(crate) const ALL: [Predicate; 10] = [
        Predicate::Changed,
        Predicate::CommandSucceeds,
        Predicate::DayOfWeek,
        Predicate::DirExists,
        Predicate::FileExists,
        Predicate::HourRange,
        Predicate::InWindow,
        Predicate::PortListening,
        Predicate::ProcessRunning,
        Predicate::Secret,
    ];

    fn usage(self) -> PredicateUsage {
        let (name, arguments, example) = match self {
            Predicate::FileExists => ("file_exists", (1, 1), "file_exists(\"/etc/motd\")"),
            Predicate::DirExists => ("dir_exists", (1, 1), "dir_exists(\"/srv/app\")"),
            Predicate::CommandSucceeds => {
                ("command_succeeds", (1, 1), "command_succeeds([\"test\", \"-s\", \"/etc/motd\"])")
            }
            Predicate::ProcessRunning => ("process_running", (1, 1), "process_running(\"nginx\")"),
            Predicate::PortListening => ("port_listening", (1, 1), "port_listening(80)"),
            Predicate::HourRange => ("hour_range", (2, 3), "hour_range(22, 4) or hour_range(22, 4, \"UTC\")"),
            Predicate::DayOfWeek => (
                "day_of_week",
                (1, 2),
                "day_of_week(\"mon-fri\") or day_of_week([\"sat\", \"sun\"], \"UTC\")",
            ),
            Predicate::InWindow => ("in_window", (1, 1), "in_window(\"nights\")"),
            Predicate::Changed => ("changed", (0, 1), "changed or changed(\"id\")"),
            Predicate::Secret => ("secret", (1, 1), "secret(\"team/name\")"),
        };
        PredicateUsage { name, arguments, example }
    }

    pub(crate) fn name(self) -> &'static str {
        self.usage().name
    }

    pub(crate) fn named(name: &str) -> Option<Predicate> {
        Predicate::ALL.into_iter().find(|predicate| predicate.name() == name)
    }

    /// Whether it takes so many arguments; the error says how it is written.
    pub(crate) fn takes(self, arguments: usize) -> Result<(), String> {
        let PredicateUsage { name, arguments: (least, most), example } = self.usage();
        if (least..=most).contains(&arguments) {
            return Ok(());
        }
        Err(format!("`{name}` is written {example}"))
    }

    /// What it asks with these arguments; the error is a message.
    pub(crate) fn probe(self, args: Vec<Value>) -> Result<Probe, String> {
        let name = self.name();
        let mut args = args.into_iter();
        let mut next = || args.next();
        match self {
            Predicate::FileExists => path(name, next()).map(Probe::FileExists),
            Predicate::DirExists => path(name, next()).map(Probe::DirExists),
            Predicate::CommandSucceeds => argv(next()).map(Probe::CommandSucceeds),
            Predicate::ProcessRunning => process(next()).map(Probe::ProcessRunning),
            Predicate::PortListening => port(next()).map(Probe::PortListening),
            Predicate::HourRange => {
                let (from, to) = (hour(next())?, hour(next())?);
                Ok(Probe::HourRange { from, to, zone: zone(next())? })
            }
            Predicate::DayOfWeek => {
                let days = days(next())?;
                Ok(Probe::DayOfWeek { days, zone: zone(next())? })
            }
            Predicate::InWindow => text(name, next()).map(Probe::InWindow),
            Predicate::Changed => match next() {
                None => Ok(Probe::Changed(None)),
                given => text(name, given).map(|id| Probe::Changed(Some(id))),
            },
            Predicate::Secret => Err("`secret` is a value and asks nothing of the host".into()),
        }
    }
}

fn text(name: &str, value: Option<Value>) -> Result<String, String> {
    match value {
        Some(Value::Str(text)) if text.len() <= MAX_TEXT => Ok(text),
        Some(Value::Str(_)) => Err(format!("`{name}` takes at most {MAX_TEXT} bytes")),
        other => Err(format!("`{name}` takes a string, not a {}", type_name(other.as_ref()))),
    }
}

fn path(name: &str, value: Option<Value>) -> Result<String, String> {
    let path = text(name, value)?;
    if path.starts_with('/') { Ok(path) } else { Err(format!("`{name}` takes an absolute path")) }
}

fn argv(value: Option<Value>) -> Result<Vec<String>, String> {
    let wanted = "`command_succeeds` takes a list of a program and its arguments";
    let Some(Value::List(items)) = value else {
        return Err(format!("{wanted}, not a {}", type_name(value.as_ref())));
    };
    if items.is_empty() || items.len() > MAX_ARGS {
        return Err(format!("{wanted}, from 1 to {MAX_ARGS} texts"));
    }
    let item = |item: Value| match item {
        Value::Int(number) => Ok(number.to_string()),
        other => text("command_succeeds", Some(other)),
    };
    let argv: Vec<String> = items.into_iter().map(item).collect::<Result<_, _>>()?;
    if argv.iter().any(|arg| arg.contains('\0')) || argv.first().is_none_or(String::is_empty) {
        return Err(format!("{wanted}, and no program has that name"));
    }
    Ok(argv)
}

fn process(value: Option<Value>) -> Result<String, String> {
    let name = text("process_running", value)?;
    if name.is_empty() || name.contains(['/', '\0']) {
        return Err("`process_running` takes the name of a program, without its path".into());
    }
    Ok(name)
}

fn port(value: Option<Value>) -> Result<u16, String> {
    match value {
        Some(Value::Int(port @ 1..=65_535)) => u16::try_from(port).map_err(|error| error.to_string()),
        Some(Value::Int(port)) => Err(format!("{port} is no port; a port is from 1 to 65535")),
        other => Err(format!("`port_listening` takes an int, not a {}", type_name(other.as_ref()))),
    }
}

fn hour(value: Option<Value>) -> Result<u8, String> {
    match value {
        Some(Value::Int(hour @ 0..=24)) => u8::try_from(hour).map_err(|error| error.to_string()),
        Some(Value::Int(hour)) => Err(format!("{hour} is no hour; an hour is from 0 to 24")),
        other => Err(format!("`hour_range` takes two ints, not a {}", type_name(other.as_ref()))),
    }
}

fn days(value: Option<Value>) -> Result<Weekdays, String> {
    let words = match value {
        Some(Value::Str(text)) => vec![text],
        Some(Value::List(items)) => {
            items.into_iter().map(|item| text("day_of_week", Some(item))).collect::<Result<_, _>>()?
        }
        other => {
            let found = type_name(other.as_ref());
            return Err(format!("`day_of_week` takes a string or a list of strings, not a {found}"));
        }
    };
    Weekdays::read(words.iter().map(String::as_str)).map_err(|error| error.to_string())
}

fn zone(value: Option<Value>) -> Result<ClockZone, String> {
    match value {
        None => Ok(ClockZone::Local),
        Some(Value::Str(text)) => ClockZone::read(&text).map_err(|_| {
            format!(
                "`{text}` is no zone here; write \"local\", \"UTC\" or an offset such as \"+02:00\", \
                 or declare a window and ask in_window(\"NAME\")"
            )
        }),
        Some(other) => Err(format!("a zone is a string, not a {}", other.type_name())),
    }
}

fn type_name(value: Option<&Value>) -> &'static str {
    value.map_or("missing value", Value::type_name)
}
