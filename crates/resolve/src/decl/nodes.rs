//! `nodes.yaml`, `nodes/*.yaml` and `hosts/*.yaml`: which nodes there are, and what each
//! entry says of them.

use lang::{Expr, Pattern};

use super::vars::{self, Var};
use crate::exprs::{self, ExprSite};
use crate::shape::Reading;
use crate::yaml::{At, Kind, Node, Spanned};

const ENTRY_KEYS: [&str; 12] = [
    "match",
    "except",
    "owner",
    "roles",
    "modules",
    "environment",
    "channel",
    "labels",
    "vars",
    "observe",
    "environment_overrides",
    "conditional_vars",
];
const HOST_KEYS: [&str; 9] =
    ["owner", "roles", "modules", "exclude_modules", "environment", "channel", "labels", "vars", "observe"];
const OVERRIDE_KEYS: [&str; 3] = ["vars", "modules", "exclude_modules"];
const CONDITIONAL_KEYS: [&str; 2] = ["when", "vars"];
/// The longest label value, in bytes.
const MAX_LABEL: usize = 256;
/// The longest label name, in bytes.
const MAX_LABEL_NAME: usize = 63;

/// What an entry or a host file declares about a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) owner: Option<Spanned<String>>,
    pub(crate) environment: Option<Spanned<String>>,
    pub(crate) channel: Option<Spanned<String>>,
    pub(crate) roles: Option<Vec<Spanned<String>>>,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) modules: Vec<Spanned<String>>,
    pub(crate) vars: Vec<Var>,
    pub(crate) observe: bool,
}

/// An item of `match:` or `except:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) pattern: Pattern,
    pub(crate) at: At,
}

/// An entry of `nodes:`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodesEntry {
    pub(crate) at: At,
    pub(crate) matches: Vec<Item>,
    pub(crate) except: Vec<Item>,
    pub(crate) facts: Facts,
    pub(crate) overrides: Vec<Override>,
    pub(crate) conditional: Vec<Conditional>,
}

/// What holds for an entry's nodes in one environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Override {
    pub(crate) environment: Spanned<String>,
    pub(crate) vars: Vec<Var>,
    pub(crate) modules: Vec<Spanned<String>>,
    pub(crate) exclude: Vec<Spanned<String>>,
}

/// Vars that hold where an expression over traits does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conditional {
    pub(crate) when: Expr,
    pub(crate) at: At,
    pub(crate) vars: Vec<Var>,
}

/// A host file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) facts: Facts,
    pub(crate) exclude: Vec<Spanned<String>>,
}

/// Reads `nodes.yaml` or a file of `nodes/`.
pub(crate) fn read(reading: &mut Reading<'_>, root: &Node) -> Vec<NodesEntry> {
    let mut entries = Vec::new();
    for (key, node) in reading.map(root, "the file") {
        match key.value.as_str() {
            "nodes" => {
                entries =
                    reading.list(node, "nodes").iter().filter_map(|item| entry(reading, item)).collect();
            }
            _ => reading.unknown_key(key, &["nodes"], "a nodes file"),
        }
    }
    entries
}

fn entry(reading: &mut Reading<'_>, node: &Node) -> Option<NodesEntry> {
    let at = At { len: 1, ..node.at };
    let mut entry = NodesEntry { at, ..NodesEntry::default() };
    let mut matched = false;
    for (key, value) in reading.map(node, "a node entry") {
        match key.value.as_str() {
            "match" => {
                matched = true;
                entry.matches = patterns(reading, value, "match");
            }
            "except" => entry.except = patterns(reading, value, "except"),
            "environment_overrides" => entry.overrides = overrides(reading, value),
            "conditional_vars" => entry.conditional = conditional(reading, value),
            _ if fact(reading, key, value, &mut entry.facts) => {}
            _ => reading.unknown_key(key, &ENTRY_KEYS, "a node entry"),
        }
    }
    if !matched && matches!(node.kind, Kind::Map(_)) {
        reading.missing_key(at, "a node entry", "match", "add `match: [\"web-*.example.com\"]`");
    }
    own_exceptions(reading, &entry);
    Some(entry)
}

/// An exact name that the entry's own `except` takes out again.
fn own_exceptions(reading: &mut Reading<'_>, entry: &NodesEntry) {
    for item in entry.matches.iter().filter(|item| item.pattern.is_exact()) {
        if let Some(except) = entry.except.iter().find(|except| except.pattern.matches(item.pattern.as_str()))
        {
            reading
                .error("E035", item.at, format!("`{}` is matched and excepted in one entry", item.pattern))
                .help("drop it from `match`, or narrow `except`")
                .label(except.at, "excepted here");
        }
    }
}

/// Patterns of hostnames.
pub(super) fn patterns(reading: &mut Reading<'_>, node: &Node, what: &str) -> Vec<Item> {
    let texts = reading.one_or_more(node, what);
    if texts.is_empty() && matches!(&node.kind, Kind::List(items) if items.is_empty()) {
        reading.error("E030", node.at, format!("`{what}` names no node")).help("name one, or drop the entry");
    }
    let mut items = Vec::new();
    for text in texts {
        match Pattern::parse(&text.value) {
            Ok(pattern) => {
                if what != "except"
                    && pattern.is_exact()
                    && let Err(why) = hostname(&text.value)
                {
                    reading.error("E034", text.at, format!("`{}` is not a hostname: {why}", text.value));
                    continue;
                }
                items.push(Item { pattern, at: text.at });
            }
            Err(error) => {
                reading.error("E030", text.at, error.to_string());
            }
        }
    }
    items
}

/// Reads a key that entries and host files share; false for any other key.
fn fact(reading: &mut Reading<'_>, key: &Spanned<String>, value: &Node, facts: &mut Facts) -> bool {
    match key.value.as_str() {
        "owner" => facts.owner = reading.text(value, "owner"),
        "environment" => facts.environment = reading.text(value, "environment"),
        "channel" => facts.channel = reading.text(value, "channel"),
        "roles" => facts.roles = Some(reading.texts(value, "roles")),
        "modules" => facts.modules = reading.texts(value, "modules"),
        "labels" => facts.labels = labels(reading, value),
        "vars" => facts.vars = vars::read(reading, value, "vars"),
        "observe" => facts.observe = reading.bool(value, "observe").unwrap_or(false),
        _ => return false,
    }
    true
}

fn labels(reading: &mut Reading<'_>, node: &Node) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    for (key, value) in reading.map(node, "labels") {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        if key.value.is_empty() || key.value.len() > MAX_LABEL_NAME || !key.value.chars().all(fits) {
            reading
                .error("E023", key.at, format!("`{}` cannot name a label", key.value))
                .help(format!("letters, digits and . _ - /, at most {MAX_LABEL_NAME}"));
            continue;
        }
        let Some(text) = reading.text(value, "a label") else { continue };
        if text.value.len() > MAX_LABEL {
            reading.error("E017", text.at, format!("a label's value has at most {MAX_LABEL} bytes"));
            continue;
        }
        labels.push((key.value.clone(), text.value));
    }
    labels
}

fn overrides(reading: &mut Reading<'_>, node: &Node) -> Vec<Override> {
    let mut all = Vec::new();
    for (key, value) in reading.map(node, "environment_overrides") {
        let mut one =
            Override { environment: key.clone(), vars: Vec::new(), modules: Vec::new(), exclude: Vec::new() };
        for (key, value) in reading.map(value, "an environment override") {
            match key.value.as_str() {
                "vars" => one.vars = vars::read(reading, value, "vars"),
                "modules" => one.modules = reading.texts(value, "modules"),
                "exclude_modules" => one.exclude = reading.texts(value, "exclude_modules"),
                _ => reading.unknown_key(key, &OVERRIDE_KEYS, "an environment override"),
            }
        }
        all.push(one);
    }
    all
}

fn conditional(reading: &mut Reading<'_>, node: &Node) -> Vec<Conditional> {
    let mut all = Vec::new();
    for item in reading.list(node, "conditional_vars") {
        let (mut when, mut found, mut said, mut at) = (None, Vec::new(), false, item.at);
        for (key, value) in reading.map(item, "an item of conditional_vars") {
            match key.value.as_str() {
                "when" => {
                    said = true;
                    at = value.at;
                    when = exprs::condition(reading, value, ExprSite::Conditional, None);
                }
                "vars" => found = vars::read(reading, value, "vars"),
                _ => refuse_conditional(reading, key),
            }
        }
        if !said && matches!(item.kind, Kind::Map(_)) {
            reading.missing_key(item.at, "an item of conditional_vars", "when", "say when its vars hold");
        }
        if let Some(when) = when {
            all.push(Conditional { when, at, vars: found });
        }
    }
    all
}

fn refuse_conditional(reading: &mut Reading<'_>, key: &Spanned<String>) {
    if matches!(key.value.as_str(), "roles" | "modules" | "exclude_modules") {
        reading
            .error(
                "E063",
                key.at,
                format!("observed traits choose no `{}`: they may only tune vars", key.value),
            )
            .help("declare a label or an environment and decide by that");
        return;
    }
    reading.unknown_key(key, &CONDITIONAL_KEYS, "an item of conditional_vars");
}

/// Reads a host file; `name` is the hostname that its file name gives.
pub(crate) fn read_host(reading: &mut Reading<'_>, root: &Node) -> Host {
    let mut host = Host::default();
    for (key, value) in reading.map(root, "a host file") {
        match key.value.as_str() {
            "exclude_modules" => host.exclude = reading.texts(value, "exclude_modules"),
            _ if fact(reading, key, value, &mut host.facts) => {}
            _ => reading.unknown_key(key, &HOST_KEYS, "a host file"),
        }
    }
    host
}

/// Whether a text is a hostname as certificates and DNS take it, in lower case.
///
/// # Errors
/// What is wrong with it.
pub fn hostname(text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > 253 {
        return Err("it has 1 to 253 characters".into());
    }
    if text.chars().any(|c| c.is_ascii_uppercase()) {
        return Err(format!("write it in lower case, {}", text.to_ascii_lowercase()));
    }
    for label in text.split('.') {
        if label.is_empty() || label.len() > 63 {
            return Err("each part between dots has 1 to 63 characters".into());
        }
        if !label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err("letters, digits, hyphens and dots only".into());
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err("no part begins or ends with a hyphen".into());
        }
    }
    Ok(())
}
