//! An item of `resources:` or `handlers:`, in the short or the long form.

use std::collections::BTreeMap;

use catalog::module::{DeclaredResource, OnRemove, ParamDecl};
use catalog::schema::{self, COMMON, LATER_COMMON, ProblemKind, ResourceType, Short};
use catalog::types::TYPES;
use lang::{Expr, Value};

use super::kind;
use crate::exprs::{self, ExprSite};
use crate::shape::Reading;
use crate::yaml::{At, Spanned, YamlNode};

/// The longest name that is made of a resource's attributes, in characters.
const MAX_DERIVED: usize = 120;
/// The longest name, in bytes.
const MAX_NAME: usize = 4096;

/// The keys that refer to other resources.
const REFERENCES: [&str; 4] = ["depends_on", "before", "notify", "subscribes"];

/// A resource and the positions of its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) resource: DeclaredResource,
    pub(crate) at: At,
    pub(crate) id_at: At,
    pub(crate) attributes: BTreeMap<String, At>,
    /// Every reference, with the key of [`REFERENCES`] that it stands under.
    pub(crate) references: Vec<(&'static str, Spanned<String>)>,
    /// Uses of `changed` in `when:`; bare ones name nothing.
    pub(crate) changed: Vec<(Option<String>, At)>,
}

/// Reads one resource; `None` when its type is unknown.
pub(crate) fn read(
    reading: &mut Reading<'_>,
    node: &YamlNode,
    params: &BTreeMap<String, ParamDecl>,
    handler: bool,
) -> Option<Placed> {
    let entries = reading.map(node, "a resource");
    if entries.is_empty() {
        return None;
    }
    let (kind, short) = kind::find(reading, node, entries)?;
    let resource = DeclaredResource { kind: kind.name.to_owned(), ..DeclaredResource::default() };
    let mut placed = Placed { resource, at: node.at, id_at: node.at, ..Placed::default() };
    if let Some(entry) = short {
        short_value(reading, kind, entry, &mut placed);
    }
    for (key, value) in entries.iter().filter(|(key, _)| short.is_none_or(|(short, _)| short.at != key.at)) {
        let known = common(reading, key, value, &mut placed, params);
        if !known {
            placed.attributes.insert(key.value.clone(), value.at);
            attribute(reading, kind, key, value, &mut placed, params);
        }
    }
    if let Some((key, value)) = short {
        exprs::texts(reading, value, ExprSite::Attribute, Some(params));
        placed.attributes.entry("name".into()).or_insert(value.at);
        placed.at = key.at;
    }
    name(reading, kind, &mut placed);
    limits(reading, kind, &placed, handler);
    problems(reading, kind, &placed, handler);
    let Placed { resource, references, .. } = &mut placed;
    let lists =
        [&mut resource.depends_on, &mut resource.before, &mut resource.notify, &mut resource.subscribes];
    for (key, list) in REFERENCES.into_iter().zip(lists) {
        list.extend(references.iter().filter(|(of, _)| *of == key).map(|(_, item)| item.value.clone()));
    }
    Some(placed)
}

fn short_value(
    reading: &mut Reading<'_>,
    kind: &ResourceType,
    entry: &(Spanned<String>, YamlNode),
    placed: &mut Placed,
) {
    let (key, node) = entry;
    match kind.short {
        Short::Path | Short::Name => {
            if let Some(text) = reading.any_text(node, &key.value) {
                placed.resource.name = text.value;
            }
        }
        Short::Attribute(attribute) => {
            placed.attributes.insert(attribute.to_owned(), node.at);
            if let Some(value) = reading.value(node) {
                placed.resource.attributes.insert(attribute.to_owned(), value);
            }
        }
    }
}

/// Reads a key that every resource has; false for any other key.
fn common(
    reading: &mut Reading<'_>,
    key: &Spanned<String>,
    node: &YamlNode,
    placed: &mut Placed,
    params: &BTreeMap<String, ParamDecl>,
) -> bool {
    let resource = &mut placed.resource;
    match key.value.as_str() {
        "type" => {}
        "name" => {
            exprs::texts(reading, node, ExprSite::Attribute, Some(params));
            placed.attributes.insert("name".into(), node.at);
            resource.name = reading.any_text(node, "name").map(|text| text.value).unwrap_or_default();
        }
        "id" => {
            placed.id_at = node.at;
            if let Some(id) = reading.text(node, "id")
                && reading.name(&id.value, id.at, "a resource")
            {
                resource.id = Some(id.value);
            }
        }
        "when" => when(reading, node, placed, params),
        "observe" => resource.observe = reading.bool(node, "observe").unwrap_or(false),
        "sensitive" => resource.sensitive = reading.bool(node, "sensitive").unwrap_or(false),
        "ignore_failure" => resource.ignore_failure = reading.bool(node, "ignore_failure").unwrap_or(false),
        "timeout" => resource.timeout = timeout(reading, node),
        "on_remove" => resource.on_remove = on_remove(reading, node, &resource.kind),
        later if LATER_COMMON.contains(&later) => {
            let all: Vec<&str> = COMMON.iter().map(|(name, _, _)| *name).collect();
            reading
                .error("E024", key.at, format!("`{later}` is not available in this version"))
                .help(format!("a resource has {}", all.join(", ")));
        }
        other => {
            let Some(key) = REFERENCES.into_iter().find(|key| *key == other) else { return false };
            placed.references.extend(reading.one_or_more(node, key).into_iter().map(|item| (key, item)));
        }
    }
    true
}

fn when(
    reading: &mut Reading<'_>,
    node: &YamlNode,
    placed: &mut Placed,
    params: &BTreeMap<String, ParamDecl>,
) {
    let Some(expr) = exprs::condition(reading, node, ExprSite::Resource, Some(params)) else { return };
    placed.resource.when = Some(expr.source().trim().to_owned());
    if expr.calls().contains(&"changed") {
        placed.changed = changed_uses(&expr).into_iter().map(|id| (id, node.at)).collect();
    }
}

/// The ids that `changed("id")` asks for; `None` for a bare `changed`.
fn changed_uses(expr: &Expr) -> Vec<Option<String>> {
    let source = expr.source();
    let mut found = Vec::new();
    for (at, word) in source.match_indices("changed") {
        let boundary =
            |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '"' | '\''));
        let rest = &source[at + word.len()..];
        if !boundary(source[..at].chars().next_back())
            || rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
        {
            continue;
        }
        let argument = rest.trim_start().strip_prefix('(').map(str::trim_start).and_then(|inner| {
            let quote = inner.chars().next().filter(|c| matches!(c, '"' | '\''))?;
            inner[1..].split(quote).next().map(str::to_owned)
        });
        found.push(argument);
    }
    found
}

fn timeout(reading: &mut Reading<'_>, node: &YamlNode) -> Option<u32> {
    let secs = reading.duration(node, "timeout")?;
    if (1..=schema::MAX_TIMEOUT_SECS).contains(&secs) {
        return Some(secs);
    }
    let most = catalog::duration::show(schema::MAX_TIMEOUT_SECS);
    reading.error("E017", node.at, format!("a timeout is from 1s to {most}"));
    None
}

fn on_remove(reading: &mut Reading<'_>, node: &YamlNode, kind: &str) -> Option<OnRemove> {
    let text = reading.text(node, "on_remove")?;
    let known = [("keep", OnRemove::Keep), ("delete", OnRemove::Delete), ("restore", OnRemove::Restore)];
    let allowed = schema::find(kind).map_or(&[][..], |kind| kind.on_remove);
    match known.iter().find(|(name, _)| *name == text.value) {
        Some((_, value)) if allowed.contains(value) => Some(*value),
        found => {
            let can: Vec<&str> =
                known.iter().filter(|(_, value)| allowed.contains(value)).map(|(name, _)| *name).collect();
            let message = match found {
                Some(_) => format!("`{kind}` cannot `{}`: it leaves nothing that could be", text.value),
                None => format!("`{}` is not a way to leave a node's set", text.value),
            };
            reading.error("E072", text.at, message).help(format!("write {}", can.join(", ")));
            None
        }
    }
}

fn attribute(
    reading: &mut Reading<'_>,
    kind: &ResourceType,
    key: &Spanned<String>,
    node: &YamlNode,
    placed: &mut Placed,
    params: &BTreeMap<String, ParamDecl>,
) {
    if kind.attribute(&key.value).is_none() {
        // The key itself is to blame.
        placed.attributes.insert(key.value.clone(), key.at);
        placed.resource.attributes.insert(key.value.clone(), Value::Bool(true));
        return;
    }
    exprs::texts(reading, node, ExprSite::Attribute, Some(params));
    if let Some(value) = reading.value(node) {
        placed.resource.attributes.insert(key.value.clone(), value);
    } else {
        // Refused and reported: an expression stands in, so that nothing more is said of it.
        placed.resource.attributes.insert(key.value.clone(), Value::Str("${{ refused }}".into()));
    }
}

/// A resource without `name:` is named by its id, else by what it is.
fn name(reading: &mut Reading<'_>, kind: &ResourceType, placed: &mut Placed) {
    let resource = &mut placed.resource;
    if resource.name.is_empty() {
        resource.name = match kind.short {
            Short::Attribute(_) => resource.id.clone().unwrap_or_else(|| derived(kind, &resource.attributes)),
            Short::Path | Short::Name => String::new(),
        };
    }
    if resource.name.is_empty()
        && matches!(kind.short, Short::Path | Short::Name)
        && !placed.attributes.contains_key("name")
    {
        reading.missing_key(
            placed.at,
            "a resource in the long form",
            "name",
            "say what it is, as in `name: /etc/motd`",
        );
    }
    if resource.name.len() > MAX_NAME {
        let at = placed.attributes.get("name").copied().unwrap_or(placed.at);
        reading.error("E072", at, format!("a resource's name has at most {MAX_NAME} bytes"));
    }
}

fn derived(kind: &ResourceType, attributes: &BTreeMap<String, Value>) -> String {
    let text = |name: &str| attributes.get(name).map(Value::to_string).unwrap_or_default();
    let full = match (kind.name, attributes.get("command")) {
        ("line", _) => format!("{}: {}", text("path"), text("line")),
        ("ini", _) => format!("{} [{}] {}", text("path"), text("section"), text("key")).trim_end().to_owned(),
        ("json", _) => format!("{} {}", text("path"), text("pointer")).trim_end().to_owned(),
        (_, Some(Value::List(items))) => items.iter().map(Value::to_string).collect::<Vec<_>>().join(" "),
        (_, Some(other)) => other.to_string().lines().next().unwrap_or_default().trim().to_owned(),
        (_, None) => String::new(),
    };
    full.chars().take(MAX_DERIVED).collect()
}

/// What a handler may not have, and a type that is none.
fn limits(reading: &mut Reading<'_>, kind: &ResourceType, placed: &Placed, handler: bool) {
    if !handler {
        return;
    }
    if !kind.handler {
        let can: Vec<&str> = TYPES.iter().filter(|kind| kind.handler).map(|kind| kind.name).collect();
        reading
            .error("E087", placed.at, format!("a `{}` cannot be a handler", kind.name))
            .help(format!("a handler is {}", can.join(", ")));
    }
    for key in REFERENCES.into_iter().filter(|key| *key != "subscribes") {
        if let Some((_, first)) = placed.references.iter().find(|(of, _)| *of == key) {
            let message = format!("a handler has no `{key}`: handlers run in their own order, at the end");
            reading.error("E087", first.at, message).help("put them in the order in which they should run");
        }
    }
}

fn problems(reading: &mut Reading<'_>, kind: &ResourceType, placed: &Placed, handler: bool) {
    let resource = &placed.resource;
    let needs_remove = kind.attribute("remove").is_some() && resource.on_remove == Some(OnRemove::Delete);
    if needs_remove && !resource.attributes.contains_key("remove") {
        let message = format!("`on_remove: delete` of `{}` needs `remove`, what it is to run", kind.name);
        reading.error("E073", placed.at, message).help("add `remove:`, or drop `on_remove`");
    }
    let nameless = resource.name.is_empty() && kind.short == Short::Path;
    for problem in schema::check(kind, &resource.name, &resource.attributes, handler) {
        let blamed = problem.attribute.as_deref();
        if nameless && blamed == Some("name") {
            continue;
        }
        let at = blamed.and_then(|name| placed.attributes.get(name)).copied().unwrap_or(placed.at);
        let code = match problem.kind {
            ProblemKind::Unknown => "E071",
            ProblemKind::Value => "E072",
            ProblemKind::Missing => "E073",
            ProblemKind::Conflict => "E074",
            ProblemKind::Unguarded => "E075",
            ProblemKind::Mode => "E076",
            ProblemKind::Regex => "E077",
        };
        let message = match blamed {
            Some(name)
                if matches!(problem.kind, ProblemKind::Value | ProblemKind::Mode | ProblemKind::Regex) =>
            {
                format!("{name}: {}", problem.message)
            }
            _ => problem.message,
        };
        reading.error(code, at, message).maybe_help(problem.help);
    }
}
