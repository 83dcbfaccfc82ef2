//! `nodes.yaml`, `nodes/*.yaml` and `hosts/*.yaml`: which nodes there are, and what each
//! entry says of them.

use lang::{Expr, Pattern};
use trust::declared_key;

use super::vars::{self, Var};
use crate::exprs::{self, ExprSite};
use crate::shape::{Keys, Reading};
use crate::yaml::{At, Spanned, YamlKind, YamlNode};

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
    /// The fingerprint of the node's key (CFG-8).
    pub(crate) key: Option<Spanned<String>>,
}

/// An item of `match:` or `except:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PatternItem {
    pub(crate) pattern: Pattern,
    pub(crate) at: At,
}

/// An entry of `nodes:`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodesEntry {
    pub(crate) at: At,
    pub(crate) matches: Vec<PatternItem>,
    pub(crate) except: Vec<PatternItem>,
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
pub(crate) struct HostFile {
    pub(crate) facts: Facts,
    pub(crate) exclude: Vec<Spanned<String>>,
}

/// Reads `nodes.yaml` or a file of `nodes/`.
pub(crate) fn read(reading: &mut Reading<'_>, root: &YamlNode) -> Vec<NodesEntry> {
    let mut keys = reading.keys(root, "the file", "a nodes file");
    let items = keys.read("nodes", |node| reading.list(node, "nodes"));
    keys.end(reading);
    items.iter().map(|item| entry(reading, item)).collect()
}

fn entry(reading: &mut Reading<'_>, node: &YamlNode) -> NodesEntry {
    let at = At { len: 1, ..node.at };
    let mut keys = reading.keys(node, "a node entry", "a node entry");
    let matches = keys.needed(reading, "match", (at, "a node entry"), "add `match: [\"web-*.example.com\"]`");
    let entry = NodesEntry {
        at,
        matches: matches.map(|node| patterns(reading, node, "match")).unwrap_or_default(),
        except: keys.read("except", |node| patterns(reading, node, "except")),
        facts: facts(reading, &mut keys),
        overrides: keys.read("environment_overrides", |node| overrides(reading, node)),
        conditional: keys.read("conditional_vars", |node| conditional(reading, node)),
    };
    keys.end(reading);
    own_exceptions(reading, &entry);
    one_node_of_key(reading, &entry);
    entry
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

/// A key is one node's: an entry that declares one names one node exactly.
fn one_node_of_key(reading: &mut Reading<'_>, entry: &NodesEntry) {
    let Some(key) = &entry.facts.key else { return };
    let is_one = matches!(entry.matches.as_slice(), [one] if one.pattern.is_exact());
    if !is_one && !entry.matches.is_empty() {
        reading
            .error("E036", key.at, "`key` is the key of one node, and this entry is for more than one name")
            .help("give the node an entry of its own, or write `key:` into hosts/HOSTNAME.yaml");
    }
}

/// Patterns of hostnames.
pub(super) fn patterns(reading: &mut Reading<'_>, node: &YamlNode, what: &str) -> Vec<PatternItem> {
    let texts = reading.one_or_more(node, what);
    if texts.is_empty() && matches!(&node.kind, YamlKind::List(items) if items.is_empty()) {
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
                items.push(PatternItem { pattern, at: text.at });
            }
            Err(error) => {
                reading.error("E030", text.at, error.to_string());
            }
        }
    }
    items
}

/// Reads the keys that entries and host files share.
fn facts(reading: &mut Reading<'_>, keys: &mut Keys<'_>) -> Facts {
    Facts {
        owner: keys.read("owner", |node| reading.text(node, "owner")),
        roles: keys.get("roles").map(|node| reading.texts(node, "roles")),
        modules: keys.read("modules", |node| reading.texts(node, "modules")),
        environment: keys.read("environment", |node| reading.text(node, "environment")),
        channel: keys.read("channel", |node| reading.text(node, "channel")),
        labels: keys.read("labels", |node| labels(reading, node)),
        vars: keys.read("vars", |node| vars::read(reading, node, "vars")),
        observe: keys.read("observe", |node| reading.bool(node, "observe")).unwrap_or(false),
        key: keys.read("key", |node| key(reading, node)),
    }
}

/// A node's public key, as the fingerprint by which it is compared.
fn key(reading: &mut Reading<'_>, node: &YamlNode) -> Option<Spanned<String>> {
    let text = reading.text(node, "key")?;
    match declared_key::fingerprint(&text.value) {
        Ok(fingerprint) => Some(Spanned { value: fingerprint, at: text.at }),
        Err(error) => {
            reading.error("E037", text.at, format!("this is no node's key: {error}")).help(
                "write what `muster-agent fingerprint` prints on the host, or the line of \
                 /etc/ssh/ssh_host_ed25519_key.pub where it joins with its SSH host key",
            );
            None
        }
    }
}

fn labels(reading: &mut Reading<'_>, node: &YamlNode) -> Vec<(String, String)> {
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

fn overrides(reading: &mut Reading<'_>, node: &YamlNode) -> Vec<Override> {
    let mut all = Vec::new();
    for (environment, value) in reading.map(node, "environment_overrides") {
        let mut keys = reading.keys(value, "an environment override", "an environment override");
        all.push(Override {
            environment: environment.clone(),
            vars: keys.read("vars", |node| vars::read(reading, node, "vars")),
            modules: keys.read("modules", |node| reading.texts(node, "modules")),
            exclude: keys.read("exclude_modules", |node| reading.texts(node, "exclude_modules")),
        });
        keys.end(reading);
    }
    all
}

fn conditional(reading: &mut Reading<'_>, node: &YamlNode) -> Vec<Conditional> {
    const WHAT: &str = "an item of conditional_vars";
    let mut all = Vec::new();
    for item in reading.list(node, "conditional_vars") {
        let mut keys = reading.keys(item, WHAT, WHAT);
        let condition_node = keys.needed(reading, "when", (item.at, WHAT), "say when its vars hold");
        let when =
            condition_node.and_then(|node| exprs::condition(reading, node, ExprSite::Conditional, None));
        let vars = keys.read("vars", |node| vars::read(reading, node, "vars"));
        let refused = ["roles", "modules", "exclude_modules"].into_iter().filter_map(|key| keys.refused(key));
        for (key, _) in refused {
            let message = format!("observed traits choose no `{}`: they may only tune vars", key.value);
            let help = "declare a label or an environment and decide by that";
            reading.error("E063", key.at, message).help(help);
        }
        keys.end(reading);
        all.extend(when.zip(condition_node).map(|(when, node)| Conditional { when, at: node.at, vars }));
    }
    all
}

/// Reads a host file; `name` is the hostname that its file name gives.
pub(crate) fn read_host(reading: &mut Reading<'_>, root: &YamlNode) -> HostFile {
    let mut keys = reading.keys(root, "a host file", "a host file");
    let facts = facts(reading, &mut keys);
    let exclude = keys.read("exclude_modules", |node| reading.texts(node, "exclude_modules"));
    keys.end(reading);
    HostFile { facts, exclude }
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
