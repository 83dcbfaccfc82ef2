//! What holds between attributes: required ones, those that exclude each other, guards.

use std::collections::BTreeMap;

use lang::Value;

use super::{Attribute, FieldKind, Need, ResourceType, Short, read};
use crate::params;

/// A mistake in a resource's attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeProblem {
    /// The attribute to blame; none when something is missing.
    pub attribute: Option<String>,
    /// What kind of mistake it is.
    pub kind: ProblemKind,
    /// One sentence without a final stop.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

/// Kinds of [`AttributeProblem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// The type has no such attribute.
    Unknown,
    /// The value is not what the attribute holds.
    Value,
    /// A mode that is not octal.
    Mode,
    /// A regular expression that does not compile.
    Regex,
    /// Something is missing.
    Missing,
    /// Two attributes exclude each other.
    Conflict,
    /// An exec or shell that would run for ever.
    Unguarded,
}

/// The attribute whose command looks at the new file.
const VALIDATE: &str = "validate";
/// What stands for the path of the new file in it.
const PLACEHOLDER: &str = "%s";

/// Everything wrong with a resource's attributes as declared. A value that holds `${{ }}`
/// is taken on trust: it is read when it is bound. `handler` lifts the need for a guard.
pub fn check(
    kind: &ResourceType,
    name: &str,
    attributes: &BTreeMap<String, Value>,
    handler: bool,
) -> Vec<AttributeProblem> {
    let mut found = problems(kind, name, attributes, handler, params::is_dynamic);
    found.extend(blind_validation(attributes));
    found
}

/// A command that is to accept a file before it becomes visible, and is not told where it is. Nodes take it,
/// as releases have held it.
fn blind_validation(attributes: &BTreeMap<String, Value>) -> Option<AttributeProblem> {
    let command = attributes.get(VALIDATE)?;
    let (Value::Str(_) | Value::List(_)) = command else { return None };
    if params::is_dynamic(command) || command.to_string().contains(PLACEHOLDER) {
        return None;
    }
    Some(AttributeProblem {
        attribute: Some(VALIDATE.to_owned()),
        kind: ProblemKind::Value,
        message: format!("without {PLACEHOLDER} the command looks at another file than the new one"),
        help: Some(format!(
            "write {PLACEHOLDER} where the command takes the file, as in [visudo, -cf, \"{PLACEHOLDER}\"]"
        )),
    })
}

pub(super) fn problems(
    kind: &ResourceType,
    name: &str,
    attributes: &BTreeMap<String, Value>,
    handler: bool,
    skip: fn(&Value) -> bool,
) -> Vec<AttributeProblem> {
    let mut found = Vec::new();
    let as_name = || Value::Str(name.to_owned());
    if kind.short == Short::Path
        && let Err(message) = params::path(name).and_then(|()| no_root(name))
        && !skip(&as_name())
    {
        found.push(AttributeProblem {
            attribute: Some("name".into()),
            kind: ProblemKind::Value,
            message,
            help: None,
        });
    }
    for (key, value) in attributes {
        found.extend(value_problem(kind, key, value, skip));
    }
    found.extend(missing(kind, attributes));
    if kind.short == Short::Name {
        // Such a name is a value like any other: its rules see it as `name`.
        let mut with_name = attributes.clone();
        with_name.insert("name".to_owned(), as_name());
        found.extend((kind.rules)(&with_name));
    } else {
        found.extend((kind.rules)(attributes));
    }
    if kind.guarded && !handler {
        found.extend(unguarded(kind, attributes));
    }
    found
}

fn no_root(path: &str) -> Result<(), String> {
    let names_something = path.split('/').any(|part| !part.is_empty());
    if names_something && !path.ends_with('/') {
        return Ok(());
    }
    Err(format!("`{path}` must name something below /, without a slash at the end"))
}

fn value_problem(
    kind: &ResourceType,
    key: &str,
    value: &Value,
    skip: fn(&Value) -> bool,
) -> Option<AttributeProblem> {
    let blame = |kind, message: String, help| {
        Some(AttributeProblem { attribute: Some(key.to_owned()), kind, message, help })
    };
    let Some(attribute) = kind.attribute(key) else {
        let names =
            kind.attributes.iter().map(|a| a.name).chain(super::COMMON.iter().map(|(name, _, _)| *name));
        let near = lang::nearest(key, names).map(|near| format!("did you mean `{near}`?"));
        let all: Vec<&str> = kind.attributes.iter().map(|a| a.name).collect();
        let help = near.unwrap_or_else(|| format!("it has {}", all.join(", ")));
        return blame(ProblemKind::Unknown, format!("`{}` has no attribute `{key}`", kind.name), Some(help));
    };
    if skip(value) {
        return None;
    }
    let message = read::read(attribute.kind, value).err()?;
    let problem = match attribute.kind {
        FieldKind::Mode => ProblemKind::Mode,
        FieldKind::Regex => ProblemKind::Regex,
        _ => ProblemKind::Value,
    };
    blame(problem, message, None)
}

/// The text of an attribute, where it is given and holds no `${{ }}`.
pub(crate) fn literal<'a>(attributes: &'a BTreeMap<String, Value>, name: &str) -> Option<&'a str> {
    attributes.get(name).filter(|value| !params::is_dynamic(value)).and_then(Value::as_str)
}

/// As [`literal`], of a list or of one text that stands for a list: those items that hold no `${{ }}`.
pub(crate) fn literals<'a>(
    attributes: &'a BTreeMap<String, Value>,
    name: &str,
) -> impl Iterator<Item = &'a str> {
    let items = match attributes.get(name) {
        Some(Value::List(items)) => items.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    items.iter().filter(|item| !params::is_dynamic(item)).filter_map(Value::as_str)
}

pub(crate) fn is_absent(attributes: &BTreeMap<String, Value>) -> bool {
    attributes.get("state").and_then(Value::as_str) == Some("absent")
}

impl AttributeProblem {
    /// Two attributes that exclude each other.
    pub(crate) fn conflict(attribute: &str, message: String, help: &str) -> AttributeProblem {
        let attribute = Some(attribute.to_owned());
        AttributeProblem { attribute, kind: ProblemKind::Conflict, message, help: Some(help.to_owned()) }
    }

    /// Something that must be given; `attribute` is what asks for it.
    pub(crate) fn missing(attribute: Option<&str>, message: String, help: &str) -> AttributeProblem {
        let attribute = attribute.map(str::to_owned);
        AttributeProblem { attribute, kind: ProblemKind::Missing, message, help: Some(help.to_owned()) }
    }

    /// A value that cannot be held and may be secret: the resource is blamed, so that no line of the
    /// repo is shown with it.
    pub(crate) fn secret_value(message: String, help: &str) -> AttributeProblem {
        AttributeProblem { attribute: None, kind: ProblemKind::Value, message, help: Some(help.to_owned()) }
    }

    /// A value that the attribute cannot hold.
    pub(crate) fn value(attribute: &str, message: String, help: &str) -> AttributeProblem {
        let attribute = Some(attribute.to_owned());
        AttributeProblem { attribute, kind: ProblemKind::Value, message, help: Some(help.to_owned()) }
    }
}

fn missing(kind: &ResourceType, attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let needed = |attribute: &&Attribute| match attribute.need {
        Need::Optional => false,
        Need::UnlessAbsent => !is_absent(attributes),
        Need::Always => true,
    };
    let lacking = kind.attributes.iter().filter(needed).filter(|a| !attributes.contains_key(a.name));
    let problem = |a: &Attribute| {
        let help = format!("add `{}:` ({}): {}", a.name, a.kind.describe(), a.summary);
        AttributeProblem::missing(None, format!("`{}` needs `{}`", kind.name, a.name), &help)
    };
    lacking.map(problem).collect()
}

fn unguarded(kind: &ResourceType, attributes: &BTreeMap<String, Value>) -> Option<AttributeProblem> {
    let always = attributes.get("always").is_some_and(|value| params::bool(value) != Ok(false));
    let guarded = ["creates", "unless", "onlyif"].iter().any(|key| attributes.contains_key(*key));
    if always || guarded {
        return None;
    }
    Some(AttributeProblem {
        attribute: None,
        kind: ProblemKind::Unguarded,
        message: format!("`{}` would run every time", kind.name),
        help: Some("add creates, unless, onlyif or `always: true`, or make it a handler".into()),
    })
}
