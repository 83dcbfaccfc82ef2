//! `muster-agent bundle`: what somebody who helps needs to see of this host, without its secrets.
//!
//! ```text
//! status, last run (no edits), doctor, versions, membership, release held (names, digests),
//! list of state files, unit, journal  --> Redactor --> TarWriter --> FILE.tar.gz (0600)
//! ```
//!
//! Invariants: no content of a managed file, no key, no token, no parameter and no object is read into
//! it; every text goes through the redactor; each part has a bound, and a part that cannot be made says
//! why in its place.

mod redact;
mod tar;

use std::fmt::{self, Write as _};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use model::Timestamp;
use serde::Serialize;

use crate::clock::now;
use crate::doctor::{self, host::UNIT, host::output};
use crate::local::client::LocalClient;
use crate::machine::MachineOptions;
use crate::render::chain;
use crate::state::StateDir;
use crate::status::{self, AgentStatusView, ShownResources};
use redact::Redactor;
use tar::TarWriter;

/// The most that one part of a bundle holds, in bytes; its end counts.
const MAX_PART: usize = 2 * 1024 * 1024;
/// How many lines of the journal go in.
const JOURNAL_LINES: &str = "3000";
/// How many files of the state directory are listed.
const MAX_LISTED: usize = 2000;
/// How the settings of a unit begin that may hold a secret.
const NOT_SHOWN: [&str; 5] =
    ["Environment", "PassEnvironment", "SetCredential", "LoadCredential", "ImportCredential"];

/// Why a bundle cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("the support bundle {} cannot be written", path.display())]
pub struct WriteBundleError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// A support bundle that was written.
#[derive(Clone, Debug, Serialize)]
pub struct WrittenBundle {
    /// The file.
    pub file: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// What is in it.
    pub parts: Vec<&'static str>,
}

impl fmt::Display for WrittenBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, kib) = (self.file.display(), self.bytes.div_ceil(1024));
        writeln!(f, "wrote {file}, {kib} KiB: {}", self.parts.join(", "))?;
        writeln!(f, "look through it before you pass it on: tar xzOf {file} | less")
    }
}

/// Writes a support bundle to `output`, or to a file of its own name in this directory.
///
/// # Errors
/// When the file is there already, or cannot be written.
pub fn write(options: &MachineOptions, output: Option<PathBuf>) -> Result<WrittenBundle, WriteBundleError> {
    let at = now();
    let name = format!("muster-agent-bundle-{}", at.0 / 1000);
    let path = output.unwrap_or_else(|| PathBuf::from(format!("{name}.tar.gz")));
    let failed = |source| WriteBundleError { path: path.clone(), source };
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
    let parts = parts(options);
    let redactor = Redactor::new(&options.state_dir());
    let mut archive = TarWriter::new(file, at);
    let mut written = WrittenBundle { file: path.clone(), bytes: 0, parts: Vec::new() };
    for (part, text) in parts {
        written.parts.push(part);
        let text = ending(redactor.clean(&text));
        archive.file(&format!("{name}/{part}"), text.as_bytes()).map_err(failed)?;
    }
    let file = archive.finish().and_then(|file| file.sync_all().map(|()| file)).map_err(failed)?;
    written.bytes = file.metadata().map_err(failed)?.len();
    Ok(written)
}

/// The end of a text that is too long.
fn ending(text: String) -> String {
    match text.len().checked_sub(MAX_PART) {
        None | Some(0) => text,
        Some(over) => format!("... {over} bytes before this\n{}", &text[text.ceil_char_boundary(over)..]),
    }
}

fn parts(options: &MachineOptions) -> Vec<(&'static str, String)> {
    let state = options.state_dir();
    let status = LocalClient::find(options)
        .and_then(|client| client.status())
        .map_err(|error| chain(&error))
        .or_else(|_| status::read(&state).map_err(|error| chain(&error)))
        .map(AgentStatusView::without_edits);
    let diagnosis = doctor::diagnose(options);
    vec![
        ("README.txt", readme(now())),
        ("versions.txt", versions()),
        ("status.txt", status.as_ref().map_or_else(Clone::clone, |view| view.text(ShownResources::All))),
        ("status.json", status.as_ref().map_or_else(Clone::clone, json)),
        ("doctor.txt", diagnosis.to_string()),
        ("doctor.json", json(&diagnosis)),
        ("membership.json", membership(&state)),
        ("release.json", release(&state)),
        ("state-files.txt", listing(&state)),
        ("unit.txt", unit(&["cat", UNIT])),
        ("unit-status.txt", unit(&["show", UNIT, "--no-pager"])),
        ("journal.txt", journal()),
    ]
}

fn readme(at: Timestamp) -> String {
    format!(
        "Support bundle of muster-agent, made {at}.\n\nIt holds names of resources, causes of failures with \
         what commands printed, and the journal.\nIt holds no key, no token, no content of managed files and \
         no parameters. Look through it before you pass it on.\n"
    )
}

fn versions() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_else(|error| format!("{path}: {error}\n"));
    format!(
        "muster-agent {}\n{}{}",
        env!("CARGO_PKG_VERSION"),
        read("/proc/version"),
        read("/etc/os-release")
    )
}

/// Who this node is, without the certificate's and the CA's text.
fn membership(state: &Path) -> String {
    match StateDir::at(state, spool::Disk::new()).membership() {
        Err(error) => chain(&error),
        Ok(None) => "this host has not joined a fleet".to_owned(),
        Ok(Some(membership)) => json(&serde_json::json!({
            "nodeId": membership.node_id, "hostname": membership.hostname, "servers": membership.servers,
            "tlsTermination": membership.tls_termination,
            "proxy": membership.proxy.as_ref().map(ToString::to_string), "key": membership.key, "root": membership.root,
            "allowExec": membership.allow_exec, "trust": membership.trust,
            "certificateEnds": net::identity::validity(membership.cert_pem.as_bytes()).map(|validity| validity.until),
        })),
    }
}

/// Which release is held: its names and digests of objects, not their contents.
fn release(state: &Path) -> String {
    let text = match fs::read_to_string(state.join("adoption.json")) {
        Ok(text) => text,
        Err(error) => return format!("adoption.json: {error}"),
    };
    let adoption = text
        .split_once('\n')
        .and_then(|(_, json)| serde_json::from_slice::<node::Adoption>(json.as_bytes()).ok());
    adoption.as_ref().map_or_else(|| "adoption.json cannot be read".to_owned(), json)
}

/// The files of the state directory with their modes and sizes.
fn listing(state: &Path) -> String {
    let (mut out, mut open, mut listed) = (String::new(), vec![state.to_owned()], 0);
    while let Some(directory) = open.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let (path, Ok(there)) = (entry.path(), entry.metadata()) else { continue };
            listed += 1;
            if listed > MAX_LISTED {
                let _ = writeln!(out, "... and more than {MAX_LISTED}");
                return out;
            }
            let shown = path.strip_prefix(state).unwrap_or(&path).display();
            let (mode, uid) = (there.mode() & 0o7777, there.uid());
            let _ = writeln!(out, "{mode:04o} {uid:>5} {:>12} {:>11} {shown}", there.len(), there.mtime());
            if there.is_dir() {
                open.push(path);
            }
        }
    }
    out
}

fn unit(arguments: &[&str]) -> String {
    let shown = output("systemctl", arguments).unwrap_or_else(|| "no systemctl answers\n".into());
    without_environment(&shown)
}

/// A unit without what it was given in its environment and as credentials, which is nobody's business:
/// each such line with the lines that continue it.
fn without_environment(unit: &str) -> String {
    let mut kept = String::with_capacity(unit.len());
    let (mut goes_on, mut hides) = (false, false);
    for line in unit.lines() {
        let comment = matches!(line.trim_start().as_bytes().first(), Some(b'#' | b';'));
        // A comment between two lines of one setting neither ends nor continues it.
        if goes_on && comment {
            continue;
        }
        if !goes_on {
            hides = NOT_SHOWN.iter().any(|setting| line.trim_start().starts_with(setting));
        }
        goes_on = !comment && line.ends_with('\\');
        if !hides {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

fn journal() -> String {
    let arguments = ["--unit", UNIT, "--lines", JOURNAL_LINES, "--output", "short-iso", "--no-pager"];
    output("journalctl", &arguments).unwrap_or_else(|| "no journalctl answers".to_owned())
}

/// Indented, by way of the one type of value that is written so anyway: a type's own code for it would be large.
fn json(value: &impl Serialize) -> String {
    let value = serde_json::to_vec(value).and_then(|json| serde_json::from_slice::<serde_json::Value>(&json));
    value.map_or_else(|error| error.to_string(), |value| format!("{value:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_shown_without_its_environment() {
        let unit = "[Service]\nEnvironment=A=canary \\\n  B=canary \\\n# canary\n  C=canary\n\
                    ExecStart=/bin/a \\\n  Environment\nSetCredential=x:canary\n\
                    LoadCredentialEncrypted=x:canary\nPassEnvironment=canary\n \
                    EnvironmentFile=canary\nRestart=always\n";
        let want = "[Service]\nExecStart=/bin/a \\\n  Environment\nRestart=always\n";
        assert_eq!(without_environment(unit), want);
    }
}
