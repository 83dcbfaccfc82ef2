//! `muster secret trust`: a node's recipient key goes into the fleet repo.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use spool::Disk;
use spool::atomic::{Existing, WholeFile};
use trust::RecipientKey;

use super::SecretVerbError;
use super::source::SecretSettings;
use crate::check;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::screen::Screen;

/// The file that is written.
const FILE: &str = "recipients.yaml";
/// What it begins with.
const HEAD: &str =
    "# Keys that secrets are sealed for; `muster-agent identity` prints a host's.\nrecipients:\n";

/// Arguments of `muster secret trust`.
#[derive(Args, Debug)]
pub(super) struct TrustArgs {
    /// The node
    node: String,
    /// Its recipient key, as the host prints it: age1...
    key: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// What is trusted now.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TrustedRecipient {
    node: String,
    key: RecipientKey,
    fingerprint: String,
    file: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    instead_of: Option<RecipientKey>,
}

pub(super) fn run(args: &TrustArgs, settings: &SecretSettings, screen: Screen) -> Result<Exit, Failure> {
    let node = args.node.as_str();
    resolve::hostname(node).map_err(|why| SecretVerbError::Hostname(node.to_owned(), why))?;
    let key: RecipientKey =
        args.key.trim().parse().map_err(|error| SecretVerbError::Key(args.key.clone(), error))?;
    let fleet = check::fleet(&settings.repo)?;
    let path = settings.repo.join(FILE);
    let before = read(&path)?;
    let known = fleet.recipients().get(node).copied();
    if known.is_some() && !before.as_deref().is_some_and(|text| text.lines().any(|line| is_of(line, node))) {
        return Err(SecretVerbError::OtherFile(node.to_owned()).into());
    }
    let instead_of = known.filter(|known| *known != key);
    let instead = instead_of.map(|known| format!(", instead of {}", known.fingerprint())).unwrap_or_default();
    let question = format!("secrets of {node} are sealed for the key {}{instead}", key.fingerprint());
    screen.confirm(&question, args.yes)?;
    let text = with_line(before.as_deref().unwrap_or(HEAD), node, &key);
    write(&path, &text)?;
    // What this verb cannot write right is as it was.
    let written = check::fleet(&settings.repo).ok().and_then(|fleet| fleet.recipients().get(node).copied());
    if written != Some(key) {
        match &before {
            Some(before) => write(&path, before)?,
            None => fs::remove_file(&path)
                .map_err(|source| SecretVerbError::Use { path: path.clone(), source })?,
        }
        return Err(SecretVerbError::Form(path).into());
    }
    let trusted = TrustedRecipient {
        node: node.to_owned(),
        key,
        fingerprint: key.fingerprint(),
        file: path,
        instead_of,
    };
    Ok(screen.result(&trusted, || {
        let TrustedRecipient { node, fingerprint, file, .. } = &trusted;
        format!(
            "{node}: {fingerprint}, in {}\ncompare it with what `muster-agent identity` prints on {node}; next: muster publish\n",
            file.display()
        )
    })?)
}

fn read(path: &Path) -> Result<Option<String>, SecretVerbError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(SecretVerbError::Use { path: path.to_owned(), source }),
    }
}

fn write(path: &Path, text: &str) -> Result<(), SecretVerbError> {
    let file = WholeFile { existing: Existing::Replace, ..WholeFile::new(path, 0o644) };
    let written = file.write(&Disk::new(), text.as_bytes());
    written.map_err(|source| SecretVerbError::Write { path: path.to_owned(), source })
}

/// Whether a line of the file is the node's.
fn is_of(line: &str, node: &str) -> bool {
    let name = line.trim_start().split(':').next().unwrap_or_default();
    line.starts_with(' ') && name.trim_matches(['"', '\'']) == node
}

/// The text with the node's line: in the place of the one that it has, else at the end.
fn with_line(text: &str, node: &str, key: &RecipientKey) -> String {
    let line = format!("  {node}: {key}");
    let mut found = false;
    let mut lines: Vec<String> = Vec::new();
    for known in text.lines() {
        match is_of(known, node) {
            true if found => {}
            true => {
                found = true;
                lines.push(line.clone());
            }
            false => lines.push(known.to_owned()),
        }
    }
    if !found {
        lines.push(line);
    }
    lines.join("\n") + "\n"
}
