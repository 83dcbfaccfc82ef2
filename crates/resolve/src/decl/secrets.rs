//! `secrets:` of `fleet.yaml`, and `recipients.yaml`: where secrets come from, and for whom they are sealed (SEC-2).

use std::collections::BTreeMap;
use std::sync::Arc;

use trust::RecipientKey;

use super::nodes::hostname;
use crate::shape::Reading;
use crate::yaml::{At, YamlKind, YamlNode};

/// The most sources.
const MAX_SOURCES: usize = 20;
/// How long a source may take, in seconds, unless it says otherwise.
const DEFAULT_TIMEOUT_SECS: u32 = 30;
/// The longest that one may say.
const MAX_TIMEOUT_SECS: u32 = 600;
/// How a source is written.
const EXAMPLE: &str = "write `files: {age: secrets/}`, `pass: {command: [pass, show]}` or \
                       `vault: {url: \"https://vault.example.com\", path: kv/muster}`";

/// Where secrets come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretSource {
    /// Its name in the fleet repo.
    pub name: String,
    /// It has the secrets whose names begin so; all when empty.
    pub prefix: String,
    /// How long it may take to give one, in seconds.
    pub timeout_secs: u32,
    /// What it is.
    pub kind: SecretSourceKind,
}

/// What a source of secrets is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSourceKind {
    /// Age files in the fleet repo: `FOLDER/NAME.age`.
    Age {
        /// The folder, relative to the top of the fleet repo.
        folder: String,
        /// For whom `muster secret set` encrypts.
        recipients: Vec<RecipientKey>,
    },
    /// A program that prints the secret whose name is its last argument.
    Command(Vec<String>),
    /// The key-value engine, version 2, of an HTTP API as Vault's.
    Vault {
        /// Where it is.
        url: String,
        /// The engine's mount, and the path below it.
        path: String,
    },
}

/// The keys that a `recipients` file declares, each with its place.
pub(crate) type RecipientDecls = BTreeMap<Arc<str>, (RecipientKey, At)>;

/// Reads `secrets:`; the first source in the file that has a secret gives it.
pub(crate) fn read(reading: &mut Reading<'_>, node: &YamlNode) -> Vec<SecretSource> {
    let mut keys = reading.keys(node, "secrets", "secrets");
    let mut sources = Vec::new();
    if let Some(node) = keys.needed(reading, "sources", (node.at, "secrets"), EXAMPLE) {
        for (key, value) in reading.map(node, "sources") {
            if sources.len() == MAX_SOURCES {
                reading
                    .error("E099", key.at, format!("more than {MAX_SOURCES} sources of secrets"))
                    .help("join some");
                break;
            }
            reading.name(&key.value, key.at, "a source of secrets");
            sources.extend(source(reading, &key.value, value));
        }
    }
    keys.end(reading);
    sources
}

fn source(reading: &mut Reading<'_>, name: &str, node: &YamlNode) -> Option<SecretSource> {
    let what = format!("source {name}");
    let mut keys = reading.keys(node, &what, "a source of secrets");
    let prefix = keys.read("prefix", |node| reading.text(node, "prefix")).map(|text| text.value);
    let mut timeout_secs = DEFAULT_TIMEOUT_SECS;
    keys.set("timeout", &mut timeout_secs, |node| {
        let secs = reading.duration(node, "timeout")?;
        if secs == 0 || secs > MAX_TIMEOUT_SECS {
            reading.error("E017", node.at, format!("timeout is a time from 1s to {MAX_TIMEOUT_SECS}s"));
            return None;
        }
        Some(secs)
    });
    let age = keys.get("age").map(|node| age(reading, node));
    let recipients = keys.read("recipients", |node| recipient_list(reading, node));
    let command = keys.get("command").map(|node| command(reading, node));
    let url = keys.get("url").map(|node| url(reading, node));
    let path = keys.read("path", |node| reading.text(node, "path")).map(|text| text.value);
    keys.end(reading);
    let kind = match (age, command, url) {
        (Some(folder), None, None) => SecretSourceKind::Age { folder: folder?, recipients },
        (None, Some(command), None) => SecretSourceKind::Command(command?),
        (None, None, Some(url)) => {
            let Some(path) = path.filter(|path| path.contains('/')) else {
                reading.missing_key(
                    node.at,
                    &what,
                    "path",
                    "write the mount and a path below it: `path: kv/muster`",
                );
                return None;
            };
            SecretSourceKind::Vault { url: url?, path: path.trim_matches('/').to_owned() }
        }
        _ => {
            if matches!(node.kind, YamlKind::Map(_)) {
                reading
                    .error("E016", node.at, format!("{what} is one of age, command and url"))
                    .help(EXAMPLE);
            }
            return None;
        }
    };
    Some(SecretSource { name: name.to_owned(), prefix: prefix.unwrap_or_default(), timeout_secs, kind })
}

fn age(reading: &mut Reading<'_>, node: &YamlNode) -> Option<String> {
    let text = reading.text(node, "age")?;
    let folder = text.value.trim_end_matches('/');
    if folder.is_empty() || folder.split('/').any(|part| matches!(part, "" | "." | "..")) {
        reading
            .error("E017", text.at, format!("`{}` is no folder of the fleet repo", text.value))
            .help("write `age: secrets/`");
        return None;
    }
    Some(folder.to_owned())
}

fn command(reading: &mut Reading<'_>, node: &YamlNode) -> Option<Vec<String>> {
    let argv: Vec<String> = reading.texts(node, "command").into_iter().map(|text| text.value).collect();
    if argv.is_empty() && matches!(node.kind, YamlKind::List(_)) {
        reading.error("E017", node.at, "a command names a program").help("write `command: [pass, show]`");
    }
    (!argv.is_empty()).then_some(argv)
}

fn url(reading: &mut Reading<'_>, node: &YamlNode) -> Option<String> {
    let text = reading.text(node, "url")?;
    if text.value.starts_with("https://") || is_local(&text.value) {
        return Some(text.value.trim_end_matches('/').to_owned());
    }
    reading
        .error("E017", text.at, format!("`{}` is no address that secrets may come from", text.value))
        .help("write an https:// address; http:// is for this machine alone");
    None
}

/// Whether an address is of this machine, as where an agent of the vault listens: the host is one of these, whole.
fn is_local(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    ["127.0.0.1", "localhost", "[::1]"].iter().any(|local| {
        let port = authority.strip_prefix(local);
        port.is_some_and(|port| port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
    })
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn recipient_list(reading: &mut Reading<'_>, node: &YamlNode) -> Vec<RecipientKey> {
    let texts = reading.one_or_more(node, "recipients");
    texts.into_iter().filter_map(|text| key(reading, &text.value, text.at)).collect()
}

fn key(reading: &mut Reading<'_>, text: &str, at: At) -> Option<RecipientKey> {
    match text.parse::<RecipientKey>() {
        Ok(key) => Some(key),
        Err(error) => {
            reading.error("E017", at, error.to_string());
            None
        }
    }
}

/// Reads `recipients.yaml`: hostnames with the sealing keys that the hosts print.
pub(crate) fn read_recipients(reading: &mut Reading<'_>, root: &YamlNode) -> RecipientDecls {
    let mut keys = reading.keys(root, "recipients", "a file of recipients");
    let mut found = RecipientDecls::new();
    let within = (At { line: 1, column: 1, len: 1 }, "a file of recipients");
    if let Some(node) = keys.needed(reading, "recipients", within, "begin with `recipients:`") {
        for (name, value) in reading.map(node, "recipients") {
            if let Err(why) = hostname(&name.value) {
                reading.error("E034", name.at, format!("`{}` is not a hostname: {why}", name.value));
                continue;
            }
            let text = reading.text(value, "a recipient's key");
            if let Some(key) = text.and_then(|text| key(reading, &text.value, text.at)) {
                found.insert(name.value.as_str().into(), (key, name.at));
            }
        }
    }
    keys.end(reading);
    found
}
