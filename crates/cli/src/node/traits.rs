//! `muster node traits`: what nodes observe of themselves, as files that `check --traits` reads.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use server::api;

use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::observed;
use crate::operator::Operator;
use crate::screen::{Screen, plural};

/// Why traits cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepTraitsError {
    /// The directory or a file in it cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The directory or the file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// What a node reported has no JSON form.
    #[error("the traits of {0} have no JSON form")]
    Encode(String, #[source] serde_json::Error),
}

impl UserError for KeepTraitsError {}

/// Whose traits were written.
#[derive(Serialize)]
struct KeptTraits {
    written: Vec<String>,
    /// Nodes that reported none yet.
    without: Vec<String>,
}

/// Writes the traits that nodes reported, one file a node.
///
/// # Errors
/// When the control plane cannot be asked, or a file not be written.
pub async fn keep(
    operator: &Operator,
    pattern: Option<&str>,
    out: &Path,
    screen: Screen,
) -> Result<Exit, Failure> {
    let unwritten = |path: &Path| {
        let path = path.to_owned();
        move |source| KeepTraitsError::Write { path, source }
    };
    fs::create_dir_all(out).map_err(unwritten(out))?;
    let mut kept = KeptTraits { written: Vec::new(), without: Vec::new() };
    for node in operator.all(&api::NODES, pattern).await? {
        let hostname = node.hostname.as_str();
        let Some(report) = operator.call(&api::TRAITS, hostname).await? else {
            kept.without.push(hostname.to_owned());
            continue;
        };
        let text = serde_json::to_string_pretty(&report.values)
            .map_err(|source| KeepTraitsError::Encode(hostname.to_owned(), source))?;
        let file = observed::file_in(out, hostname);
        fs::write(&file, text).map_err(unwritten(&file))?;
        kept.written.push(hostname.to_owned());
    }
    Ok(screen.result(&kept, || {
        let mut text = format!("traits of {} in {}\n", plural(kept.written.len(), "node"), out.display());
        if !kept.without.is_empty() {
            text.push_str(&format!("without traits yet: {}\n", kept.without.join(", ")));
        }
        text
    })?)
}
