//! `delegations:` of `fleet.yaml`: what the control plane may ask which nodes for.

use std::collections::BTreeMap;

use catalog::delegation::argument::{self, TextError};
use catalog::delegation::{self as catalog_delegation, MAX_DELEGATIONS, MAX_ITEMS, QUERIES, REST};
use model::work::{ActionSpec, Delegation, MAX_ARGS, MAX_TIMEOUT_SECS, QuerySpec};

use super::whom::{self, Whom};
use crate::shape::{Reading, did_you_mean, near_or_all};
use crate::yaml::{At, Spanned, YamlKind, YamlNode};

const ABSOLUTE: &str = "name it by its absolute path, as in /usr/bin/uptime";
const FILES: &str = "write `{file: [\"/var/log/app/*\"]}`";

/// An entry of `delegations:`. All that are for a node count together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DelegationDecl {
    pub(crate) name: String,
    pub(crate) at: At,
    pub(crate) nodes: Whom,
    pub(crate) content: Delegation,
    /// Where each action is declared.
    pub(crate) actions: BTreeMap<String, At>,
}

/// Reads `delegations:`, by name.
pub(crate) fn read(reading: &mut Reading<'_>, node: &YamlNode) -> Vec<DelegationDecl> {
    let mut all = Vec::new();
    for (key, value) in reading.map(node, "delegations") {
        if all.len() == MAX_DELEGATIONS {
            reading
                .error("E099", key.at, format!("more than {MAX_DELEGATIONS} delegations"))
                .help("join some");
            break;
        }
        reading.name(&key.value, key.at, "a delegation");
        all.push(entry(reading, key, value));
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn entry(reading: &mut Reading<'_>, name: &Spanned<String>, node: &YamlNode) -> DelegationDecl {
    let what = format!("delegation {}", name.value);
    let before = reading.sink.count();
    let mut keys = reading.keys(node, &what, "a delegation");
    let nodes = keys.read("nodes", |node| whom::read(reading, node));
    let commands = keys.read("commands", |node| commands(reading, node));
    let actions = keys.read("actions", |node| actions(reading, node));
    let queries = keys.read("queries", |node| queries(reading, node));
    let timeout_secs = keys.read("timeout", |node| timeout(reading, node));
    keys.end(reading);
    let nothing = commands.is_empty() && actions.is_empty() && queries.is_empty();
    if nothing && reading.sink.count() == before {
        let help =
            "say what the control plane may ask for, as in `queries: [traits]`, or drop the delegation";
        reading.missing_key(name.at, &what, "commands, actions or queries", help);
    }
    let declared_at = actions.iter().map(|(action, (at, _))| (action.clone(), *at)).collect();
    let actions = actions.into_iter().map(|(action, (_, spec))| (action, spec)).collect();
    let content = Delegation { commands, actions, queries, timeout_secs };
    DelegationDecl { name: name.value.clone(), at: name.at, nodes, content, actions: declared_at }
}

fn timeout(reading: &mut Reading<'_>, node: &YamlNode) -> Option<u64> {
    let secs = u64::from(reading.duration(node, "timeout")?);
    if secs == 0 || secs > MAX_TIMEOUT_SECS {
        let message = format!("timeout is from 1s to {}h", MAX_TIMEOUT_SECS / 3600);
        reading.error("E017", node.at, message);
        return None;
    }
    Some(secs)
}

/// The items of a list, at most as many as one delegation may have.
fn bounded<'n>(reading: &mut Reading<'_>, node: &'n YamlNode, what: &str) -> &'n [YamlNode] {
    let items = reading.list(node, what);
    if let Some(over) = items.get(MAX_ITEMS) {
        reading.error("E099", over.at, format!("more than {MAX_ITEMS} {what}")).help("join some");
    }
    items.get(..MAX_ITEMS).unwrap_or(items)
}

fn commands(reading: &mut Reading<'_>, node: &YamlNode) -> Vec<Vec<String>> {
    let mut all: Vec<Spanned<Vec<String>>> = Vec::new();
    for item in bounded(reading, node, "commands") {
        let Some(words) = words(reading, item, "a command", "E093") else { continue };
        check_command(reading, &words);
        let command: Vec<String> = words.into_iter().map(|word| word.value).collect();
        if let Some(first) = all.iter().find(|known| known.value == command) {
            let message = format!("`{}` stands here twice", catalog_delegation::show(&command));
            reading.error("E008", item.at, message).help("keep one of the two").label(first.at, "first here");
            continue;
        }
        all.push(Spanned { value: command, at: item.at });
    }
    all.into_iter().map(|command| command.value).collect()
}

/// A command as a text, or as a list of its words.
fn words(
    reading: &mut Reading<'_>,
    node: &YamlNode,
    what: &str,
    code: &'static str,
) -> Option<Vec<Spanned<String>>> {
    let words: Vec<Spanned<String>> = match &node.kind {
        YamlKind::List(_) => {
            let before = reading.sink.count();
            let texts = reading.texts(node, what);
            if reading.sink.count() != before {
                return None;
            }
            texts
        }
        _ => {
            let text = reading.text(node, what)?;
            match catalog_delegation::split(&text.value) {
                Ok(words) => words.into_iter().map(|value| Spanned { value, at: text.at }).collect(),
                Err(why) => {
                    reading
                        .error(code, text.at, format!("{what} cannot be read: {why}"))
                        .help("words stand apart by spaces; '...' and \"...\" hold one together");
                    return None;
                }
            }
        }
    };
    if words.is_empty() {
        reading.error(code, node.at, format!("{what} is empty")).help(ABSOLUTE);
        return None;
    }
    if words.len() > MAX_ARGS {
        reading
            .error("E099", node.at, format!("{what} has at most {MAX_ARGS} arguments"))
            .help("run a script");
        return None;
    }
    Some(words)
}

fn check_command(reading: &mut Reading<'_>, words: &[Spanned<String>]) {
    let Some((program, arguments)) = words.split_first() else { return };
    check_program(reading, program, "E093");
    if program.value.contains(REST) {
        reading
            .error(
                "E093",
                program.at,
                format!("`**` in the program `{}` would allow any folder's", program.value),
            )
            .help("name the folder; `*` stands for any text without a slash");
    }
    for (index, word) in arguments.iter().enumerate() {
        if word.value == REST && index + 1 < arguments.len() {
            reading
                .error("E093", word.at, "`**` stands for any further arguments, so it comes last")
                .help("write `*` for one argument, or move `**` to the end");
        }
        if let Err(why) = argument::pattern(&word.value) {
            reading.error(
                "E093",
                word.at,
                format!("`{}` is not a pattern of an argument: {why}", word.value),
            );
        }
    }
}

fn check_program(reading: &mut Reading<'_>, program: &Spanned<String>, code: &'static str) {
    if let Err(why) = argument::path_pattern(&program.value) {
        let message = format!("the program `{}` is not a path that can be run: {why}", program.value);
        let help = match why {
            TextError::Relative => ABSOLUTE,
            _ => "write the path as it is, without `..`, `.` and `//`",
        };
        reading.error(code, program.at, message).help(help);
    }
}

fn actions(reading: &mut Reading<'_>, node: &YamlNode) -> BTreeMap<String, (At, ActionSpec)> {
    let mut all = BTreeMap::new();
    for (key, value) in reading.map(node, "actions") {
        if all.len() == MAX_ITEMS {
            reading.error("E099", key.at, format!("more than {MAX_ITEMS} actions")).help("drop some");
            break;
        }
        reading.name(&key.value, key.at, "an action");
        all.extend(action(reading, key, value).map(|spec| (key.value.clone(), (key.at, spec))));
    }
    all
}

fn action(reading: &mut Reading<'_>, name: &Spanned<String>, node: &YamlNode) -> Option<ActionSpec> {
    let what = format!("action {}", name.value);
    let mut keys = reading.keys(node, "an action", "an action");
    let help = "say what it runs, as in `command: [/usr/bin/systemctl, restart, nginx]`";
    let command = keys.needed(reading, "command", (name.at, &what), help);
    let command = command.and_then(|node| words(reading, node, "an action's command", "E094"));
    let before = reading.sink.count();
    let args = keys.read("args", |node| arguments(reading, node));
    let args_read = reading.sink.count() == before;
    let timeout_secs = keys.read("timeout", |node| timeout(reading, node));
    keys.end(reading);
    let command = command?;
    check_action(reading, &command, &args, args_read);
    let command = command.into_iter().map(|word| word.value).collect();
    let args = args.into_iter().map(|(name, (pattern, _))| (name, pattern)).collect();
    Some(ActionSpec { command, args, timeout_secs })
}

fn arguments(reading: &mut Reading<'_>, node: &YamlNode) -> BTreeMap<String, (String, At)> {
    let mut args = BTreeMap::new();
    for (key, value) in reading.map(node, "args") {
        reading.identifier(&key.value, key.at, "an argument");
        let Some(pattern) = reading.text(value, "an argument's pattern") else { continue };
        if let Err(why) = argument::pattern(&pattern.value) {
            let message = format!("the pattern of `{}` cannot be used: {why}", key.value);
            reading.error("E094", pattern.at, message);
        }
        args.insert(key.value.clone(), (pattern.value, key.at));
    }
    args
}

/// An action's command against its arguments: each is declared, and each is used.
fn check_action(
    reading: &mut Reading<'_>,
    command: &[Spanned<String>],
    args: &BTreeMap<String, (String, At)>,
    args_read: bool,
) {
    if let Some(program) = command.first() {
        check_program(reading, program, "E094");
        if argument::has_wildcard(&program.value) {
            reading
                .error(
                    "E094",
                    program.at,
                    format!("an action runs one program, and `{}` is a pattern", program.value),
                )
                .help(ABSOLUTE);
        }
    }
    let names = || args.keys().map(String::as_str);
    for word in command.iter().skip(1) {
        if let Err(why) = argument::plain(&word.value) {
            reading.error("E094", word.at, format!("an argument of the command cannot be used: {why}"));
        }
        match catalog_delegation::placeholder(&word.value) {
            Some(name) if !args.contains_key(name) && args_read => {
                let help = did_you_mean(name, names())
                    .unwrap_or_else(|| format!("declare it:  args: {{{name}: \"web-*\"}}"));
                reading
                    .error("E094", word.at, format!("`{{{name}}}` is not an argument of the action"))
                    .help(help);
            }
            Some(_) => {}
            None => {
                for name in names().filter(|name| word.value.contains(&format!("{{{name}}}"))) {
                    let message =
                        format!("`{{{name}}}` stands inside `{}`, where it means nothing", word.value);
                    reading
                        .error("E094", word.at, message)
                        .help(format!("give it an argument of its own: `{{{name}}}` is the whole of one"));
                }
            }
        }
    }
    let uses = |name: &str| command.iter().any(|word| word.value.contains(&format!("{{{name}}}")));
    for (name, (_, at)) in args.iter().filter(|(name, _)| !uses(name)) {
        reading
            .error("E094", *at, format!("the command does not use the argument `{name}`"))
            .help(format!("write  {{{name}}}  as an item of the command, or drop the argument"));
    }
}

fn queries(reading: &mut Reading<'_>, node: &YamlNode) -> Vec<QuerySpec> {
    let mut all: Vec<(QuerySpec, At)> = Vec::new();
    for item in bounded(reading, node, "queries") {
        let query = match &item.kind {
            YamlKind::Map(entries) => files(reading, item, entries),
            _ => simple(reading, item),
        };
        let Some(query) = query else { continue };
        let name = catalog_delegation::name_of(&query);
        if let Some((_, first)) = all.iter().find(|(known, _)| catalog_delegation::name_of(known) == name) {
            let help = if name == "file" { "put all paths into one list" } else { "keep one of the two" };
            reading
                .error("E008", item.at, format!("the query `{name}` stands here twice"))
                .help(help)
                .label(*first, "first here");
            continue;
        }
        all.push((query, item.at));
    }
    all.into_iter().map(|(query, _)| query).collect()
}

fn simple(reading: &mut Reading<'_>, node: &YamlNode) -> Option<QuerySpec> {
    let text = reading.text(node, "a query")?;
    match text.value.as_str() {
        "traits" => Some(QuerySpec::Traits),
        "processes" => Some(QuerySpec::Processes),
        "listeners" => Some(QuerySpec::Listeners),
        "disks" => Some(QuerySpec::Disks),
        "file" => {
            reading.error("E095", text.at, "the query `file` needs the paths that may be read").help(FILES);
            None
        }
        other => {
            let help = near_or_all(other, QUERIES.into_iter());
            reading.error("E095", text.at, format!("there is no query `{other}`")).help(help);
            None
        }
    }
}

fn files(
    reading: &mut Reading<'_>,
    node: &YamlNode,
    entries: &[(Spanned<String>, YamlNode)],
) -> Option<QuerySpec> {
    let [(key, value)] = entries else {
        reading.error("E095", node.at, "a query is one word, or `file` with its paths").help(FILES);
        return None;
    };
    if key.value != "file" {
        let message = format!("the query `{}` has nothing after it, or is not known", key.value);
        reading.error("E095", key.at, message).help("only `file` has paths; the others are a word alone");
        return None;
    }
    let paths = reading.one_or_more(value, "file");
    if paths.is_empty() {
        if matches!(&value.kind, YamlKind::List(items) if items.is_empty()) {
            reading.error("E095", value.at, "`file` names no path").help(FILES);
        }
        return None;
    }
    if let Some(over) = paths.get(MAX_ITEMS) {
        reading.error("E099", over.at, format!("more than {MAX_ITEMS} paths")).help("join some");
    }
    for path in &paths {
        if let Err(why) = argument::path_pattern(&path.value) {
            let message = format!("`{}` is not a pattern of paths: {why}", path.value);
            reading
                .error("E095", path.at, message)
                .help("`*` stops at a slash, `**` does not; write  /etc/*");
        }
    }
    Some(QuerySpec::File { paths: paths.into_iter().map(|path| path.value).collect() })
}
