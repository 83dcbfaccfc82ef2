//! `tokens.yaml` and `revocations.yaml`: which tokens may be used, and which hosts are revoked (ENR-3, IDN-6).
//!
//! Both only grow: an entry that is over stays, and what is signed of it is left out. Commands append to them.

use std::collections::BTreeMap;

use lang::Diagnostics;
use model::{Hostname, NodeId, Timestamp};
use trust::lists::{MAX_NONCE, MAX_WHY};

use super::nodes::hostname;
use crate::parse::{self, FileDecl};
use crate::shape::Reading;
use crate::sink::Sink;
use crate::yaml::{At, Spanned, YamlNode};

/// The file that declares tokens.
pub const TOKENS_FILE: &str = "tokens.yaml";
/// The file that declares revocations.
pub const REVOCATIONS_FILE: &str = "revocations.yaml";
/// The most entries of either file, those that are over among them.
const MAX_ENTRIES: usize = 200_000;

/// A token that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredToken {
    /// Its nonce.
    pub nonce: String,
    /// Until when it may be used at the most.
    pub expires_at: Timestamp,
    /// For whom it was minted, for people.
    pub hostname: Option<Hostname>,
    /// The node that it replaces, for people.
    pub replaces: Option<NodeId>,
}

/// A host that is revoked. It may stand more than once: the latest time counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredRevocation {
    /// The host.
    pub host: Hostname,
    /// What was issued for it before counts no more.
    pub not_before: Timestamp,
    /// Why.
    pub why: Option<String>,
    /// Its line.
    pub line: u32,
}

/// Who may join and who is revoked, as far as a fleet repo says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredAdmission {
    /// The tokens of `tokens.yaml`; `None` without that file.
    pub tokens: Option<Vec<DeclaredToken>>,
    /// The revocations of `revocations.yaml`; `None` without that file.
    pub revocations: Option<Vec<DeclaredRevocation>>,
}

/// Reads `tokens.yaml` alone.
///
/// # Errors
/// Every mistake in it.
pub fn declared_tokens(text: &str) -> Result<Vec<DeclaredToken>, Diagnostics> {
    match alone(TOKENS_FILE, text)? {
        FileDecl::Tokens(tokens) => Ok(tokens),
        _ => Ok(Vec::new()),
    }
}

/// Reads `revocations.yaml` alone.
///
/// # Errors
/// Every mistake in it.
pub fn declared_revocations(text: &str) -> Result<Vec<DeclaredRevocation>, Diagnostics> {
    match alone(REVOCATIONS_FILE, text)? {
        FileDecl::Revocations(revocations) => Ok(revocations),
        _ => Ok(Vec::new()),
    }
}

fn alone(path: &str, text: &str) -> Result<FileDecl, Diagnostics> {
    let parsed = parse::parse(path, text.as_bytes().into());
    let mut sink = Sink::default();
    sink.take(&parsed.found);
    if sink.is_empty() { Ok(parsed.content) } else { Err(sink.finish()) }
}

/// Reads the root of `tokens.yaml`.
pub(crate) fn read_tokens(reading: &mut Reading<'_>, root: &YamlNode) -> Vec<DeclaredToken> {
    let mut known: BTreeMap<String, At> = BTreeMap::new();
    entries(reading, root, "tokens", TOKENS_FILE, |reading, item| {
        let (token, at) = token(reading, item)?;
        if let Some(first) = known.insert(token.nonce.clone(), at) {
            let message = format!("the nonce `{}` is declared twice", token.nonce);
            reading.error("E008", at, message).help("keep one of the two").label(first, "first here");
        }
        Some(token)
    })
}

fn token(reading: &mut Reading<'_>, node: &YamlNode) -> Option<(DeclaredToken, At)> {
    let within = (node.at, "a token");
    let mut keys = reading.keys(node, "a token", "a token");
    let help = "`muster token mint HOSTNAME --repo DIR` writes the whole entry";
    let nonce = keys.needed(reading, "nonce", within, help);
    let nonce = nonce.and_then(|node| reading.text(node, "nonce"));
    let expires_at = keys.needed(reading, "expires_at", within, help);
    let expires_at = expires_at.and_then(|node| time(reading, node, "expires_at"));
    let hostname = keys.read("hostname", |node| host(reading, node, "hostname"));
    let replaces = keys.read("replaces", |node| replaces(reading, node));
    keys.end(reading);
    let nonce = nonce?;
    if nonce.value.len() > MAX_NONCE {
        reading.error("E017", nonce.at, format!("a nonce has at most {MAX_NONCE} bytes"));
    }
    let hostname = hostname.map(|hostname| hostname.value);
    Some((DeclaredToken { nonce: nonce.value, expires_at: expires_at?, hostname, replaces }, nonce.at))
}

fn replaces(reading: &mut Reading<'_>, node: &YamlNode) -> Option<NodeId> {
    let text = reading.text(node, "replaces")?;
    let id = text.value.parse();
    if id.is_err() {
        let help = "`muster node show HOSTNAME` prints the id of the node that is there now";
        reading.error("E017", text.at, format!("`{}` is no node's id", text.value)).help(help);
    }
    id.ok()
}

/// Reads the root of `revocations.yaml`.
pub(crate) fn read_revocations(reading: &mut Reading<'_>, root: &YamlNode) -> Vec<DeclaredRevocation> {
    entries(reading, root, "revocations", REVOCATIONS_FILE, revocation)
}

fn revocation(reading: &mut Reading<'_>, node: &YamlNode) -> Option<DeclaredRevocation> {
    let within = (node.at, "a revocation");
    let mut keys = reading.keys(node, "a revocation", "a revocation");
    let help = "`muster node revoke HOSTNAME --repo DIR` writes the whole entry";
    let named = keys.needed(reading, "host", within, help);
    let named = named.and_then(|node| host(reading, node, "host"));
    let not_before = keys.needed(reading, "not_before", within, help);
    let not_before = not_before.and_then(|node| time(reading, node, "not_before"));
    let why = keys.read("why", |node| reading.text(node, "why"));
    keys.end(reading);
    if let Some(long) = why.as_ref().filter(|why| why.value.len() > MAX_WHY) {
        reading.error("E017", long.at, format!("why has at most {MAX_WHY} bytes"));
    }
    let (host, line) = (named?.value, node.at.line);
    Some(DeclaredRevocation { host, not_before: not_before?, why: why.map(|why| why.value), line })
}

fn entries<T>(
    reading: &mut Reading<'_>,
    root: &YamlNode,
    key: &'static str,
    file: &'static str,
    mut read: impl FnMut(&mut Reading<'_>, &YamlNode) -> Option<T>,
) -> Vec<T> {
    let mut keys = reading.keys(root, file, file);
    let items = keys.read(key, |node| if node.is_nothing() { &[] } else { reading.list(node, key) });
    keys.end(reading);
    if let Some(over) = items.get(MAX_ENTRIES) {
        let help = "take out those that are long over";
        reading.error("E099", over.at, format!("more than {MAX_ENTRIES} {key}")).help(help);
    }
    items.iter().take(MAX_ENTRIES).filter_map(|item| read(reading, item)).collect()
}

fn host(reading: &mut Reading<'_>, node: &YamlNode, what: &str) -> Option<Spanned<Hostname>> {
    let text = reading.text(node, what)?;
    let read = hostname(&text.value).and_then(|()| text.value.parse().map_err(|_| "it is none".to_owned()));
    match read {
        Ok(value) => Some(Spanned { value, at: text.at }),
        Err(why) => {
            reading.error("E034", text.at, format!("`{}` is not a hostname: {why}", text.value));
            None
        }
    }
}

fn time(reading: &mut Reading<'_>, node: &YamlNode, what: &str) -> Option<Timestamp> {
    let text = reading.text(node, what)?;
    let time = text.value.parse();
    if time.is_err() {
        let message = format!("{what} is a time, and this is `{}`", text.value);
        reading.error("E017", text.at, message).help("write it in UTC, as in \"2027-01-31T12:00:00Z\"");
    }
    time.ok()
}
