//! An item of `resources:` or `handlers:`, in the short or the long form.

use std::collections::BTreeMap;

use catalog::module::{CommandLine, DeclaredResource, MAX_RETRIES, MAX_RETRY_DELAY_SECS, MAX_TAGS};
use catalog::module::{OnRemove, ParamDecl};
use catalog::params::is_dynamic;
use catalog::schema::{self, ProblemKind, ResourceType, Short};
use catalog::types::TYPES;
use lang::{Expr, Value};

use super::{foreach, kind};
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
    /// Of every key that is given, and of the name.
    pub(crate) attributes: BTreeMap<String, At>,
    /// Every reference, with the key of [`REFERENCES`] that it stands under.
    pub(crate) references: Vec<(&'static str, Spanned<String>)>,
    /// Uses of `changed` in `when:`; bare ones name nothing.
    pub(crate) changed: Vec<(Option<String>, At)>,
}

/// What the expressions of a resource may use: in one with `foreach` also `item` and `key`.
#[derive(Clone, Copy)]
struct Sites {
    when: ExprSite,
    attribute: ExprSite,
}

impl Sites {
    fn of(looped: bool) -> Sites {
        match looped {
            true => Sites { when: ExprSite::LoopedResource, attribute: ExprSite::LoopedAttribute },
            false => Sites { when: ExprSite::Resource, attribute: ExprSite::Attribute },
        }
    }
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
    let looped = entries.iter().find(|(key, _)| key.value == "foreach");
    if let Some((_, over)) = looped {
        placed.resource.foreach = foreach::read(reading, over, params);
    }
    let sites = Sites::of(looped.is_some());
    if let Some(entry) = short {
        short_value(reading, kind, entry, &mut placed);
    }
    for (key, value) in entries.iter().filter(|(key, _)| short.is_none_or(|(short, _)| short.at != key.at)) {
        placed.attributes.insert(key.value.clone(), value.at);
        let known = common(reading, key, value, &mut placed, params, sites)
            || repeated(reading, key, value, &mut placed.resource, params, sites);
        if !known {
            attribute(reading, kind, key, value, &mut placed, params, sites);
        }
    }
    if let Some((key, value)) = short {
        exprs::texts(reading, value, sites.attribute, Some(params));
        placed.attributes.entry("name".into()).or_insert(value.at);
        placed.at = key.at;
    }
    name(reading, kind, &mut placed);
    foreach::check(reading, &placed, params);
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
    sites: Sites,
) -> bool {
    let resource = &mut placed.resource;
    match key.value.as_str() {
        "type" | "foreach" => {}
        "name" => {
            exprs::texts(reading, node, sites.attribute, Some(params));
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
        "when" => when(reading, node, placed, params, sites),
        "observe" => resource.observe = reading.bool(node, "observe").unwrap_or(false),
        "sensitive" => resource.sensitive = reading.bool(node, "sensitive").unwrap_or(false),
        "ignore_failure" => resource.ignore_failure = reading.bool(node, "ignore_failure").unwrap_or(false),
        "timeout" => resource.timeout = timeout(reading, node),
        "on_remove" => resource.on_remove = on_remove(reading, node, &resource.kind),
        other => {
            let Some(key) = REFERENCES.into_iter().find(|key| *key == other) else { return false };
            placed.references.extend(reading.one_or_more(node, key).into_iter().map(|item| (key, item)));
        }
    }
    true
}

/// Reads a key about guards, retries or tags; false for any other key.
fn repeated(
    reading: &mut Reading<'_>,
    key: &Spanned<String>,
    node: &YamlNode,
    resource: &mut DeclaredResource,
    params: &BTreeMap<String, ParamDecl>,
    sites: Sites,
) -> bool {
    match key.value.as_str() {
        "only_if" => resource.only_if = guard(reading, node, "only_if", params, sites),
        "not_if" => resource.not_if = guard(reading, node, "not_if", params, sites),
        "retries" => {
            let retries = reading.int(node, "retries", 0, MAX_RETRIES.into());
            resource.retries = retries.and_then(|retries| u8::try_from(retries).ok());
        }
        "retry_delay" => resource.retry_delay = retry_delay(reading, node),
        "tags" => tags(reading, node, resource),
        _ => return false,
    }
    true
}

fn guard(
    reading: &mut Reading<'_>,
    node: &YamlNode,
    key: &str,
    params: &BTreeMap<String, ParamDecl>,
    sites: Sites,
) -> Option<CommandLine> {
    exprs::texts(reading, node, sites.attribute, Some(params));
    let value = reading.value(node)?;
    match schema::command(&value) {
        Ok(command) => Some(command),
        Err(why) => {
            reading
                .error("E072", node.at, format!("{key}: {why}"))
                .help("write an argv list such as [test, -d, /home], or a text for /bin/sh -c");
            None
        }
    }
}

fn retry_delay(reading: &mut Reading<'_>, node: &YamlNode) -> Option<u32> {
    let secs = reading.duration(node, "retry_delay")?;
    if secs <= MAX_RETRY_DELAY_SECS {
        return Some(secs);
    }
    let most = catalog::duration::show(MAX_RETRY_DELAY_SECS);
    reading.error("E017", node.at, format!("a retry_delay is at most {most}"));
    None
}

fn tags(reading: &mut Reading<'_>, node: &YamlNode, resource: &mut DeclaredResource) {
    let tags = reading.one_or_more(node, "tags");
    if tags.len() > MAX_TAGS {
        reading
            .error("E099", node.at, format!("a resource has at most {MAX_TAGS} tags"))
            .help("keep those that a run is limited by");
        return;
    }
    for tag in tags {
        if reading.name(&tag.value, tag.at, "a tag") {
            resource.tags.insert(tag.value);
        }
    }
}

fn when(
    reading: &mut Reading<'_>,
    node: &YamlNode,
    placed: &mut Placed,
    params: &BTreeMap<String, ParamDecl>,
    sites: Sites,
) {
    let Some(expr) = exprs::condition(reading, node, sites.when, Some(params)) else { return };
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
    sites: Sites,
) {
    if kind.attribute(&key.value).is_none() {
        // The key itself is to blame.
        placed.attributes.insert(key.value.clone(), key.at);
        placed.resource.attributes.insert(key.value.clone(), Value::Bool(true));
        return;
    }
    exprs::texts(reading, node, sites.attribute, Some(params));
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
            // The items of a loop have one id and need a name each.
            Short::Attribute(_) => {
                let id = resource.id.clone().filter(|_| resource.foreach.is_none());
                id.unwrap_or_else(|| derived(kind, &resource.attributes))
            }
            Short::Path | Short::Name => String::new(),
        };
    }
    if !is_dynamic(&Value::Str(resource.name.clone())) {
        resource.name = kind.canonical_name(&resource.name).into_owned();
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
        ("ssh_key", _) => format!("{}: {}", text("user"), text("key")),
        ("ini", _) => format!("{} [{}] {}", text("path"), text("section"), text("key")).trim_end().to_owned(),
        ("json", _) => format!("{} {}", text("path"), text("pointer")).trim_end().to_owned(),
        (_, Some(Value::List(items))) => items.iter().map(Value::to_string).collect::<Vec<_>>().join(" "),
        (_, Some(other)) => other.to_string().lines().next().unwrap_or_default().trim().to_owned(),
        (_, None) => String::new(),
    };
    // A name that is cut in an expression could not be evaluated.
    if is_dynamic(&Value::from(full.as_str())) { full } else { full.chars().take(MAX_DERIVED).collect() }
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
