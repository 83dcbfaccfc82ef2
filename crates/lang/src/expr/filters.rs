//! Filters; each is also a function of its operand (`x|upper`, `upper(x)`).

use std::borrow::Cow;
use std::collections::BTreeSet;

use model::collect::CollectInserting;
use model::sort::SortCompactly;

use super::ops::within;
use super::val::Val;
use super::version::Version;
use crate::Value;
use crate::value::append;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Bool,
    Default,
    First,
    Int,
    Join,
    Keys,
    Last,
    Length,
    Lower,
    Replace,
    Sort,
    Split,
    String,
    Tojson,
    Trim,
    Unique,
    Upper,
    Values,
    Version,
}

/// Name, least and most arguments with the operand, how it is written.
type FilterRow = (&'static str, Filter, usize, usize, &'static str);

const FILTERS: [FilterRow; 19] = [
    ("bool", Filter::Bool, 1, 1, "text|bool"),
    ("default", Filter::Default, 2, 2, "name|default(value)"),
    ("first", Filter::First, 1, 1, "list|first"),
    ("int", Filter::Int, 1, 1, "text|int"),
    ("join", Filter::Join, 1, 2, "list|join(\", \")"),
    ("keys", Filter::Keys, 1, 1, "map|keys"),
    ("last", Filter::Last, 1, 1, "list|last"),
    ("length", Filter::Length, 1, 1, "list|length"),
    ("lower", Filter::Lower, 1, 1, "text|lower"),
    ("replace", Filter::Replace, 3, 3, "text|replace(\"from\", \"to\")"),
    ("sort", Filter::Sort, 1, 1, "list|sort"),
    ("split", Filter::Split, 1, 2, "text|split(\",\")"),
    ("string", Filter::String, 1, 1, "value|string"),
    ("tojson", Filter::Tojson, 1, 1, "value|tojson"),
    ("trim", Filter::Trim, 1, 1, "text|trim"),
    ("unique", Filter::Unique, 1, 1, "list|unique"),
    ("upper", Filter::Upper, 1, 1, "text|upper"),
    ("values", Filter::Values, 1, 1, "map|values"),
    ("version", Filter::Version, 1, 1, "version(text)"),
];

impl Filter {
    pub(crate) fn named(name: &str) -> Option<Filter> {
        FILTERS.iter().find(|entry| entry.0 == name).map(|entry| entry.1)
    }

    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        FILTERS.iter().map(|entry| entry.0)
    }

    pub(crate) fn name(self) -> &'static str {
        self.entry().0
    }

    pub(crate) fn arguments(self) -> (usize, usize) {
        (self.entry().2, self.entry().3)
    }

    pub(crate) fn usage(self) -> &'static str {
        self.entry().4
    }

    fn entry(self) -> &'static FilterRow {
        // Every variant stands in the table; a test counts them.
        FILTERS.iter().find(|entry| entry.1 == self).unwrap_or(&FILTERS[0])
    }

    /// Applies the filter; the error is a message, `Ok(None)` an undefined result.
    pub(super) fn apply<'a>(self, args: Vec<Val<'a>>) -> Result<Option<Val<'a>>, String> {
        let mut args = args.into_iter();
        let wrong = || format!("`{}` is written {}", self.name(), self.usage());
        let operand = args.next().ok_or_else(wrong)?;
        let Val::Plain(operand) = operand else {
            return self.of_version(operand).map(Some);
        };
        let texts = args.map(|arg| arg.text(self.name())).collect::<Result<Vec<_>, _>>()?;
        let text = |i: usize| texts.get(i).map(String::as_str);
        let value = match (self, operand.as_ref()) {
            (Filter::Upper, Value::Str(s)) => Value::Str(s.to_uppercase()),
            (Filter::Lower, Value::Str(s)) => Value::Str(s.to_lowercase()),
            (Filter::Trim, Value::Str(s)) => Value::from(s.trim()),
            (Filter::Replace, Value::Str(s)) => replace(s, text(0), text(1))?,
            (Filter::Split, Value::Str(s)) => split(s, text(0))?,
            (Filter::Join, Value::List(items)) => join(items, text(0).unwrap_or(""))?,
            (Filter::Length, value) => length(value)?,
            (Filter::First, Value::List(items)) => return Ok(item(operand.clone(), items, 0)),
            (Filter::Last, Value::List(items)) => {
                return Ok(item(operand.clone(), items, items.len().wrapping_sub(1)));
            }
            (Filter::Sort, Value::List(items)) => sort(items)?,
            (Filter::Unique, Value::List(items)) => unique(items),
            (Filter::Keys, Value::Map(map)) => map.keys().cloned().collect::<Vec<_>>().into(),
            (Filter::Values, Value::Map(map)) => Value::List(map.values().cloned().collect()),
            (Filter::Int, value) => int(value)?,
            (Filter::Bool, value) => bool(value)?,
            (Filter::String, Value::Str(_)) => return Ok(Some(Val::Plain(operand))),
            (Filter::String, value @ (Value::Bool(_) | Value::Int(_))) => Value::Str(value.to_string()),
            (Filter::Tojson, value) => {
                Value::Str(serde_json::to_string(value).map_err(|error| error.to_string())?)
            }
            (Filter::Version, Value::Str(s)) => {
                let version = Version::parse(s).ok_or_else(|| format!("\"{s}\" is not a version"))?;
                return Ok(Some(Val::Version(version)));
            }
            (_, value) => return Err(self.wrong_operand(value.type_name())),
        };
        Ok(Some(Val::Plain(Cow::Owned(value))))
    }

    fn of_version<'a>(self, operand: Val<'a>) -> Result<Val<'a>, String> {
        match (self, operand) {
            (Filter::String, Val::Version(version)) => Ok(Val::owned(Value::Str(version.into_text()))),
            (Filter::Version, version @ Val::Version(_)) => Ok(version),
            (_, operand) => Err(self.wrong_operand(operand.type_name())),
        }
    }

    fn wrong_operand(self, found: &str) -> String {
        let wanted = match self {
            Filter::Join | Filter::First | Filter::Last | Filter::Sort | Filter::Unique => "a list",
            Filter::Keys | Filter::Values => "a map",
            Filter::String => "a string, an int or a bool",
            _ => "a string",
        };
        format!("`{}` takes {wanted}, not a value of type {found}", self.name())
    }
}

fn item<'a>(list: Cow<'a, Value>, items: &[Value], index: usize) -> Option<Val<'a>> {
    items.get(index)?;
    match list {
        Cow::Borrowed(Value::List(items)) => items.get(index).map(|item| Val::Plain(Cow::Borrowed(item))),
        _ => items.get(index).map(|item| Val::owned(item.clone())),
    }
}

fn replace(text: &str, from: Option<&str>, to: Option<&str>) -> Result<Value, String> {
    match (from, to) {
        (Some(""), _) => Err("`replace` needs a text to look for".into()),
        (Some(from), Some(to)) => Ok(Value::Str(text.replace(from, to))),
        _ => Err("`replace` takes two texts".into()),
    }
}

fn split(text: &str, separator: Option<&str>) -> Result<Value, String> {
    match separator {
        Some("") => Err("`split` needs a separator".into()),
        Some(separator) => Ok(text.split(separator).map(Value::from).collect::<Vec<_>>().into()),
        None => Ok(text.split_whitespace().map(Value::from).collect::<Vec<_>>().into()),
    }
}

fn join(items: &[Value], separator: &str) -> Result<Value, String> {
    let mut out = String::new();
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(separator);
        }
        append(&mut out, item)?;
    }
    Ok(Value::Str(out))
}

fn length(value: &Value) -> Result<Value, String> {
    let length = match value {
        Value::Str(text) => text.chars().count(),
        Value::List(items) => items.len(),
        Value::Map(map) => map.len(),
        Value::Bool(_) | Value::Int(_) => return Err("`length` takes a string, a list or a map".into()),
    };
    within(i64::try_from(length).ok())
}

fn sort(items: &[Value]) -> Result<Value, String> {
    let kinds: BTreeSet<&str> = items.iter().map(Value::type_name).collect_inserting();
    if kinds.len() > 1 || kinds.iter().any(|kind| !matches!(*kind, "int" | "string")) {
        return Err("`sort` takes a list of ints or a list of strings".into());
    }
    let mut sorted = items.to_vec();
    sorted.sort_compactly();
    Ok(Value::List(sorted))
}

fn unique(items: &[Value]) -> Value {
    let mut seen = BTreeSet::new();
    Value::List(items.iter().filter(|item| seen.insert(*item)).cloned().collect())
}

fn int(value: &Value) -> Result<Value, String> {
    match value {
        Value::Int(_) => Ok(value.clone()),
        Value::Str(text) => match text.trim().parse::<i64>() {
            Ok(number) => within(Some(number)),
            Err(_) => Err(format!("\"{}\" is not a whole number", clip(text))),
        },
        Value::Bool(_) | Value::List(_) | Value::Map(_) => {
            Err(format!("`int` takes a string, not a value of type {}", value.type_name()))
        }
    }
}

fn bool(value: &Value) -> Result<Value, String> {
    match value {
        Value::Bool(_) => Ok(value.clone()),
        Value::Str(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Ok(Value::Bool(true)),
            "false" | "no" | "off" => Ok(Value::Bool(false)),
            _ => Err(format!("\"{}\" is none of true, false, yes, no, on, off", clip(text))),
        },
        Value::Int(_) | Value::List(_) | Value::Map(_) => {
            Err(format!("`bool` takes a string, not a value of type {}", value.type_name()))
        }
    }
}

/// The beginning of a text, for a message.
fn clip(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_stands_in_the_table_once_and_in_order() {
        let names: Vec<&str> = Filter::names().collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(names, sorted);
        assert_eq!(names.len(), Filter::Version as usize + 1);
        assert!(Filter::names().all(|name| Filter::named(name).map(Filter::name) == Some(name)));
    }
}
