//! Expressions at their sites: do they parse, and is every name in them known?
//!
//! What one file shows is reported when it is read; uses of labels and of other modules'
//! vars are collected in [`Uses`] and checked against the whole fleet.

use std::collections::BTreeMap;

use catalog::module::ParamDecl;
use catalog::traits;
use lang::secret::is_secret_name;
use lang::{Expr, InterpolatedText, NameUse, ParseError};

use crate::shape::{Reading, did_you_mean, near_or_all};
use crate::yaml::{At, YamlKind, YamlNode};

/// Names below `node` in expressions.
const NODE_NAMES: [&str; 6] = ["hostname", "channel", "environment", "owner", "roles", "labels"];

/// The node-side predicates that `when:` of a resource may ask; all but the first that of a
/// module too.
const OF_RESOURCES: [&str; 9] = [
    "changed",
    "command_succeeds",
    "day_of_week",
    "dir_exists",
    "file_exists",
    "hour_range",
    "in_window",
    "port_listening",
    "process_running",
];

/// A name that only the whole fleet can check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LabelUse {
    pub(crate) label: String,
    pub(crate) at: At,
}

/// A use of `vars.MODULE.PARAM`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VarUse {
    pub(crate) module: String,
    pub(crate) param: Option<String>,
    pub(crate) at: At,
    /// It stands before `default` or `is defined`, so the module need not be on the node.
    pub(crate) guarded: bool,
}

/// A use of `in_window("NAME")`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WindowName {
    pub(crate) window: String,
    pub(crate) at: At,
}

/// A use of `@GROUP` in a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SelectedGroup {
    pub(crate) group: String,
    pub(crate) at: At,
}

/// What a file's expressions and selectors refer to beyond the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uses {
    pub(crate) labels: Vec<LabelUse>,
    pub(crate) vars: Vec<VarUse>,
    pub(crate) windows: Vec<WindowName>,
    pub(crate) groups: Vec<SelectedGroup>,
}

impl Uses {
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.vars.is_empty() && self.windows.is_empty() && self.groups.is_empty()
    }
}

/// Where an expression stands; it decides what the expression may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExprSite {
    /// The value of a var or of a param's default.
    Var,
    /// `when:` of conditional vars.
    Conditional,
    /// `where:` of a group.
    Group,
    /// `where:` of a wave, a budget, an edge or a probe.
    Rollout,
    /// `when:` of a module.
    Module,
    /// `when:` of a resource or handler.
    Resource,
    /// An attribute, a command, a path.
    Attribute,
    /// `when:` of a resource with `foreach`.
    LoopedResource,
    /// An attribute, a command, a path of a resource with `foreach`.
    LoopedAttribute,
}

/// The names of a loop's item.
pub(crate) const LOOP_NAMES: [&str; 2] = ["item", "key"];

impl ExprSite {
    fn roots(self) -> &'static [&'static str] {
        match self {
            ExprSite::Var => &["node", "traits"],
            ExprSite::Conditional => &["traits", "node", "vars"],
            ExprSite::Group => &["labels", "environment", "channel", "roles", "owner"],
            ExprSite::Rollout => &["labels", "hostname"],
            ExprSite::Module | ExprSite::Resource | ExprSite::Attribute => {
                &["params", "vars", "traits", "node"]
            }
            ExprSite::LoopedResource | ExprSite::LoopedAttribute => {
                &["params", "vars", "traits", "node", "item", "key"]
            }
        }
    }

    fn predicates(self) -> &'static [&'static str] {
        match self {
            ExprSite::Resource | ExprSite::LoopedResource => &OF_RESOURCES,
            ExprSite::Module => OF_RESOURCES.get(1..).unwrap_or_default(),
            ExprSite::Var
            | ExprSite::Conditional
            | ExprSite::Group
            | ExprSite::Rollout
            | ExprSite::Attribute
            | ExprSite::LoopedAttribute => &[],
        }
    }

    fn describe(self) -> &'static str {
        match self {
            ExprSite::Var => "a var's value",
            ExprSite::Conditional => "`when:` of conditional_vars",
            ExprSite::Group => "`where:` of a group",
            ExprSite::Rollout => "`where:` of a rollout",
            ExprSite::Module => "`when:` of a module",
            ExprSite::Resource | ExprSite::LoopedResource => "`when:` of a resource",
            ExprSite::Attribute | ExprSite::LoopedAttribute => "an attribute",
        }
    }
}

/// The params that `params.x` may name; none where no module is at hand.
pub(crate) type ParamScope<'p> = Option<&'p BTreeMap<String, ParamDecl>>;

/// Reads a condition (`when:`, `where:`), without or within `${{ }}`.
pub(crate) fn condition(
    reading: &mut Reading<'_>,
    node: &YamlNode,
    site: ExprSite,
    params: ParamScope<'_>,
) -> Option<Expr> {
    let text = reading.any_text(node, site.describe())?;
    let (inner, shift) = unwrapped(&text.value);
    match Expr::parse(inner) {
        Ok(expr) => {
            check(reading, &expr, Written { at: node.at, raw: &text.value, shift }, site, params);
            Some(expr)
        }
        Err(error) => {
            syntax(reading, node.at, &text.value, shift, error);
            None
        }
    }
}

/// A lone `${{ x }}` means `x` at a site that is an expression anyway.
fn unwrapped(text: &str) -> (&str, usize) {
    let trimmed = text.trim();
    match trimmed.strip_prefix("${{").and_then(|rest| rest.strip_suffix("}}")) {
        Some(inner) if !inner.contains("${{") => (inner, text.find("${{").unwrap_or(0) + 3),
        _ => (text, 0),
    }
}

/// Checks every `${{ }}` in a value, at any depth.
pub(crate) fn texts(reading: &mut Reading<'_>, node: &YamlNode, site: ExprSite, params: ParamScope<'_>) {
    match &node.kind {
        YamlKind::Text { text, .. } if !InterpolatedText::is_literal(text) => {
            match InterpolatedText::parse(text) {
                Ok(parsed) => {
                    for (expr, offset) in parsed.exprs() {
                        check(reading, expr, Written { at: node.at, raw: text, shift: offset }, site, params);
                    }
                }
                Err(error) => syntax(reading, node.at, text, 0, error),
            }
        }
        YamlKind::Text { .. } | YamlKind::Bad => {}
        YamlKind::List(items) => items.iter().for_each(|item| texts(reading, item, site, params)),
        YamlKind::Map(entries) => entries.iter().for_each(|(_, value)| texts(reading, value, site, params)),
    }
}

fn syntax(reading: &mut Reading<'_>, at: At, raw: &str, shift: usize, error: ParseError) {
    let position = locate(reading.source, at, raw, error.offset + shift, error.len);
    reading.error("E060", position, error.message).maybe_help(error.help);
}

/// Where an expression is written: the text's position, the text, and the offset of the
/// expression in it.
#[derive(Clone, Copy)]
struct Written<'w> {
    at: At,
    raw: &'w str,
    shift: usize,
}

fn check(
    reading: &mut Reading<'_>,
    expr: &Expr,
    written: Written<'_>,
    site: ExprSite,
    params: ParamScope<'_>,
) {
    secrets(reading, expr, written, site);
    for call in expr.calls().into_iter().filter(|call| *call != "secret") {
        if !site.predicates().contains(&call) {
            let offset = expr.source().find(call).unwrap_or(0) + written.shift;
            let at = locate(reading.source, written.at, written.raw, offset, call.len());
            let message =
                format!("`{call}` is known only on the node and cannot stand in {}", site.describe());
            reading.error("E062", at, message).help("use it in `when:` of a resource");
        }
    }
    if site.predicates().contains(&"in_window") {
        windows(reading, expr, written);
    }
    for used in expr.names() {
        let at = locate(reading.source, written.at, written.raw, used.offset + written.shift, used.len);
        name(reading, &used, at, site, params);
    }
}

/// A secret stands where a value is made that the node writes, by its name: who gets it is known before.
fn secrets(reading: &mut Reading<'_>, expr: &Expr, written: Written<'_>, site: ExprSite) {
    for used in expr.secrets() {
        let at = locate(reading.source, written.at, written.raw, used.offset + written.shift, used.len);
        if !matches!(site, ExprSite::Var | ExprSite::Attribute | ExprSite::LoopedAttribute) {
            reading
                .error("E050", at, format!("a secret cannot stand in {}", site.describe()))
                .help("nobody must see from what is done what it is");
        } else if used.name.is_none_or(|name| !is_secret_name(&name)) {
            reading
                .error("E050", at, "`secret` takes the name of a secret itself")
                .help("write it in quotes, as in secret(\"team/name\")");
        }
    }
}

/// Notes the windows that are asked for. A node gets those that its modules name, so the name
/// has to stand there.
fn windows(reading: &mut Reading<'_>, expr: &Expr, written: Written<'_>) {
    for used in expr.windows() {
        let at = locate(reading.source, written.at, written.raw, used.offset + written.shift, used.len);
        match used.name {
            Some(window) => reading.uses.windows.push(WindowName { window, at }),
            None => {
                reading
                    .error("E065", at, "`in_window` takes the name of a window itself")
                    .help("write it in quotes, as in in_window(\"nights\")");
            }
        }
    }
}

/// Checks one dotted name.
pub(crate) fn name(
    reading: &mut Reading<'_>,
    used: &NameUse,
    at: At,
    site: ExprSite,
    params: ParamScope<'_>,
) {
    let root = used.path.first().map(String::as_str).unwrap_or_default();
    let rest = used.path.get(1..).unwrap_or_default();
    if !site.roots().contains(&root) {
        unknown_root(reading, root, at, site, params);
        return;
    }
    match root {
        "traits" => known_trait(reading, rest, at),
        "node" => node_name(reading, rest, at, used.guarded),
        "labels" => label(reading, rest, at, used.guarded),
        "params" => param(reading, rest, at, params),
        // What an item holds is the param's to say.
        "item" | "key" => {}
        "vars" => {
            if let Some(module) = rest.first() {
                let param = rest.get(1).cloned();
                reading.uses.vars.push(VarUse { module: module.clone(), param, at, guarded: used.guarded });
            }
        }
        // environment, channel, owner are texts and roles is a list: nothing lies below.
        _ => {
            if let Some(below) = rest.first() {
                reading
                    .error("E061", at, format!("`{root}` has no part `{below}`"))
                    .help("it is a plain value");
            }
        }
    }
}

fn unknown_root(reading: &mut Reading<'_>, root: &str, at: At, site: ExprSite, params: ParamScope<'_>) {
    if site == ExprSite::Group && root == "traits" {
        reading
            .error("E063", at, "observed traits choose no group: a node must not talk itself into one")
            .help("tune values with `conditional_vars`, or declare a label");
        return;
    }
    if site == ExprSite::Rollout && root == "traits" {
        reading
            .error("E063", at, "observed traits choose no wave: a node must not talk itself into another one")
            .help("ask for labels, hostname or groups (`nodes: \"@group\"`), which are declared");
        return;
    }
    if site == ExprSite::Group && root == "node" {
        reading
            .error("E061", at, "`node` is not a name here")
            .help("write labels, environment, channel, roles or owner");
        return;
    }
    if site == ExprSite::Var && matches!(root, "vars" | "params") {
        reading
            .error("E061", at, format!("a var's value may use node and traits, not `{root}`"))
            .help("join vars in the module, where params and vars are known");
        return;
    }
    if LOOP_NAMES.contains(&root) && params.is_none_or(|params| !params.contains_key(root)) {
        reading
            .error("E061", at, format!("`{root}` is known only in a resource with `foreach`"))
            .help("add `foreach:` to the resource, or use params, vars, traits and node");
        return;
    }
    let bare_param = params.is_some_and(|params| params.contains_key(root));
    let help = if bare_param {
        format!("did you mean `params.{root}`?")
    } else {
        near_or_all(root, site.roots().iter().copied())
    };
    reading.error("E061", at, format!("unknown name `{root}`")).help(help);
}

fn known_trait(reading: &mut Reading<'_>, rest: &[String], at: At) {
    let Err(unknown) = traits::lookup(rest) else { return };
    let (group, member) = (rest.first().map_or("", String::as_str), rest.get(1).map_or("", String::as_str));
    match unknown {
        traits::Unknown::Group => {
            let help = near_or_all(group, traits::groups().collect::<Vec<_>>().into_iter());
            reading.error("E061", at, format!("there is no trait `traits.{group}`")).help(help);
        }
        traits::Unknown::Name => {
            let help = near_or_all(member, traits::members(group).collect::<Vec<_>>().into_iter());
            reading.error("E061", at, format!("there is no trait `traits.{group}.{member}`")).help(help);
        }
        traits::Unknown::Below => {
            let message = format!("`traits.{group}.{member}` is a plain value; nothing lies below it");
            reading.error("E061", at, message);
        }
    }
}

fn node_name(reading: &mut Reading<'_>, rest: &[String], at: At, guarded: bool) {
    let Some(first) = rest.first() else { return };
    if first == "labels" {
        label(reading, rest.get(1..).unwrap_or_default(), at, guarded);
    } else if !NODE_NAMES.contains(&first.as_str()) {
        let help = near_or_all(first, NODE_NAMES.into_iter());
        reading.error("E061", at, format!("`node` has no `{first}`")).help(help);
    }
}

fn label(reading: &mut Reading<'_>, rest: &[String], at: At, guarded: bool) {
    if let (Some(label), false) = (rest.first(), guarded) {
        reading.uses.labels.push(LabelUse { label: label.clone(), at });
    }
}

fn param(reading: &mut Reading<'_>, rest: &[String], at: At, params: ParamScope<'_>) {
    let (Some(params), Some(name)) = (params, rest.first()) else { return };
    if !params.contains_key(name) {
        let help = if params.is_empty() {
            "declare it under `params:`".to_owned()
        } else {
            did_you_mean(name, params.keys().map(String::as_str))
                .unwrap_or_else(|| "declare it under `params:`".to_owned())
        };
        reading.error("E061", at, format!("the module has no param `{name}`")).help(help);
    }
}

/// The position in the file of `len` bytes at `offset` of a text that is written at `at`.
///
/// Exact where the text stands on one line as it is; else the occurrence of the same words
/// that comes at the same count, which is what a block text or an escaped one allows.
pub(crate) fn locate(source: &str, at: At, raw: &str, offset: usize, len: usize) -> At {
    let Some(start) = byte_of(source, at) else { return at };
    let end = (offset + len).min(raw.len());
    let words = raw.get(offset..end).and_then(|text| text.lines().next()).unwrap_or_default();
    let tail = &source[start..];
    let quote = usize::from(tail.starts_with(['"', '\'']));
    let found = if tail[quote..].starts_with(raw) && !raw.contains('\n') {
        Some(quote + offset)
    } else if words.is_empty() {
        None
    } else {
        let before = raw[..offset].matches(words).count();
        tail.match_indices(words).nth(before).map(|(found, _)| found)
    };
    let Some(found) = found else { return at };
    let chars = u32::try_from(words.chars().count()).unwrap_or(1).max(1);
    position_of(source, start + found, chars)
}

fn byte_of(source: &str, at: At) -> Option<usize> {
    let mut offset = 0;
    let mut lines = source.split_inclusive('\n');
    for _ in 1..at.line {
        offset += lines.next()?.len();
    }
    let line = lines.next().unwrap_or_default();
    let column =
        line.char_indices().nth(at.column.saturating_sub(1) as usize).map_or(line.len(), |(byte, _)| byte);
    Some(offset + column)
}

/// Line and column of a byte.
pub(crate) fn position_of(source: &str, byte: usize, len: u32) -> At {
    let mut byte = byte.min(source.len());
    while !source.is_char_boundary(byte) {
        byte -= 1;
    }
    let before = &source[..byte];
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    At { line: narrow(line), column: narrow(column), len: len.max(1) }
}
