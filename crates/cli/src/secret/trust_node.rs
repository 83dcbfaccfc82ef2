//! `muster secret trust`: a node's recipient key goes into the fleet repo.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use model::Hostname;
use resolve::secrets::AwaitedStatements;
use serde::Serialize;
use spool::Disk;
use spool::atomic::{Existing, WholeFile};
use trust::RecipientKey;

use super::source::SecretSettings;
use super::{SecretVerbError, reach_by_repo};
use crate::check;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::screen::Screen;

/// The file that is written.
const FILE: &str = "recipients.yaml";
/// Where more of them may be.
const FOLDER: &str = "recipients";
/// What it begins with.
const HEAD: &str =
    "# Keys that secrets are sealed for; `muster-agent identity` prints a host's.\nrecipients:\n";

/// How its list begins, and how it is written where it has no entry.
const OPEN: &str = "recipients:";
const EMPTY: &str = "recipients: {}";

/// Arguments of `muster secret trust`.
#[derive(Args, Debug)]
pub(super) struct TrustArgs {
    /// The node
    node: String,
    /// Its recipient key, as the host prints it: age1...
    key: String,
    /// Also where no entry of the fleet repo is for such a node yet
    #[arg(long)]
    unknown: bool,
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
    if !args.unknown && fleet.specialize().node(node).is_none() {
        return Err(SecretVerbError::UnknownNode(node.to_owned()).into());
    }
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

/// What became of a node's recipient key in a fleet repo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DroppedRecipient {
    /// There was none.
    None,
    /// It is out of `recipients.yaml`; the secrets, by name, that the node could open.
    Dropped(Vec<String>),
    /// It stands in a file below `recipients/`, which is not written here.
    OtherFile,
}

impl DroppedRecipient {
    /// In a line for people.
    pub(crate) fn phrase(&self, node: &str) -> Option<String> {
        match self {
            DroppedRecipient::None => None,
            DroppedRecipient::OtherFile => Some(format!(
                "warning: secrets are still sealed for the key of {node}: take it out of the file below recipients/, and \
                 publish"
            )),
            DroppedRecipient::Dropped(secrets) if secrets.is_empty() => Some(format!(
                "the recipient key of {node} is out of recipients.yaml; nothing is sealed for it from the next publish on"
            )),
            DroppedRecipient::Dropped(secrets) => Some(format!(
                "the recipient key of {node} is out of recipients.yaml; nothing is sealed for it from the next publish on. \
                 What it opened it knows; where it may be in wrong hands: muster secret rotate {}",
                secrets.join(", ")
            )),
        }
    }
}

/// Whether secrets of a node are sealed for what it signed with the key that the fleet repo declares; of a repo that has
/// mistakes that is not known.
pub(crate) fn goes_by_statement(repo: &Path, node: &str) -> bool {
    let is_node = |awaited: &Hostname| awaited.as_str() == node;
    check::fleet(repo).is_ok_and(|fleet| AwaitedStatements::all(&fleet).nodes().any(is_node))
}

/// Takes a node's key out of the fleet repo's recipients, as the host that had it is that node no more.
///
/// # Errors
/// When the repo has mistakes, or the file cannot be written.
pub(crate) fn drop_recipient(repo: &Path, node: &str) -> Result<DroppedRecipient, Failure> {
    let path = repo.join(FILE);
    if !path.exists() && !repo.join(FOLDER).exists() {
        return Ok(DroppedRecipient::None);
    }
    let fleet = check::fleet(repo)?;
    if !fleet.recipients().contains_key(node) {
        return Ok(DroppedRecipient::None);
    }
    let before = read(&path)?.unwrap_or_default();
    let mut kept: Vec<&str> = before.lines().filter(|line| !is_of(line, node)).collect();
    if kept.len() == before.lines().count() {
        return Ok(DroppedRecipient::OtherFile);
    }
    // A list without entries has to say so.
    let has_entry = |line: &&str| line.starts_with(' ') && !line.trim_start().starts_with('#');
    if !kept.iter().any(has_entry) {
        kept.iter_mut().filter(|line| line.trim_end() == OPEN).for_each(|line| *line = EMPTY);
    }
    write(&path, &(kept.join("\n") + "\n"))?;
    if check::fleet(repo).is_ok_and(|fleet| !fleet.recipients().contains_key(node)) {
        let open =
            reach_by_repo(&fleet).into_iter().filter(|(_, reach)| reach.open.iter().any(|one| one == node));
        return Ok(DroppedRecipient::Dropped(open.map(|(name, _)| name).collect()));
    }
    write(&path, &before)?;
    Err(SecretVerbError::Form(path).into())
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
    for known in text.lines().map(|line| if line.trim_end() == EMPTY { OPEN } else { line }) {
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
