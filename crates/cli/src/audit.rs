//! `muster audit`: what operators did, and that nothing of it was changed (OPS-5).

use std::path::{Path, PathBuf};
use std::time::Duration;

use catalog::duration;
use clap::{Args, Subcommand};
use model::Timestamp;
use serde::Serialize;
use server::api::operators::{AUDIT, AuditQuery};
use server::posture::{self, DATABASE, FoundError};
use spool::{Disk, SpoolError};
use store::StoreError;
use store::audit::{AuditBreak, AuditEntry, AuditHead, AuditRow, AuditVerifier};

use crate::backup;
use crate::clock::now;
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::operator::Operator;
use crate::screen::Screen;
use crate::table::table;

const AFTER: &str = "\
Each entry has the digest of the one before it, so that the newest one, the head, stands for all of them. `list` and
`verify` print the head: keep it elsewhere. `verify` also keeps it beside the credentials, and each backup has its own;
a log that was cut off or made anew is found by them.

Examples:
  muster audit list --since 7d --author alice
  muster audit list --node web-1.example.com
  muster audit verify                             every entry, over the control plane
  muster audit verify --head 42:2c26b46b68ff...   a head that was kept
  muster audit verify --data /var/lib/muster-server     on the control plane's host, without it
  muster audit verify --backup fleet.backup             in a backup";

/// Arguments of `muster audit`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct AuditArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    what: AuditVerb,
}

#[derive(Debug, Subcommand)]
enum AuditVerb {
    /// List what operators did, the newest first
    List {
        /// Only what is not older
        #[arg(long, value_name = "TIME", value_parser = duration::parse)]
        since: Option<u32>,
        /// Only what this operator did
        #[arg(long, value_name = "NAME")]
        author: Option<String>,
        /// Only what was done to this node, by its hostname
        #[arg(long, value_name = "HOSTNAME")]
        node: Option<String>,
        /// At most this many
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// Compute the chain of all entries anew, and name the first that does not hold
    Verify {
        /// A head that was kept, as `list` prints it; may be given more than once
        #[arg(long, value_name = "NUMBER:DIGEST")]
        head: Vec<AuditHead>,
        /// In a control plane's directory, without the control plane
        #[arg(long, value_name = "DIR", conflicts_with = "backup")]
        data: Option<PathBuf>,
        /// In a backup; needs room for it below TMPDIR
        #[arg(long, value_name = "FILE")]
        backup: Option<PathBuf>,
    },
}

/// Why the audit log is not verified.
#[derive(Debug, thiserror::Error)]
enum AuditVerifyError {
    /// It does not hold.
    #[error("the audit log does not hold")]
    Broken(#[source] AuditBreak),
    /// The database cannot be read.
    #[error("the database {} cannot be read", path.display())]
    Database {
        path: PathBuf,
        #[source]
        source: StoreError,
    },
    /// The head that was kept cannot be read.
    #[error("the head that was kept cannot be read")]
    ReadHead(#[source] FoundError),
    /// The head cannot be kept.
    #[error("the head cannot be kept in {}", path.display())]
    KeepHead {
        path: PathBuf,
        #[source]
        source: SpoolError,
    },
    /// The head has no JSON form.
    #[error("the head has no JSON form")]
    Encode(#[source] serde_json::Error),
}

impl UserError for AuditVerifyError {
    fn hint(&self) -> Option<String> {
        match self {
            AuditVerifyError::Broken(_) => Some(
                "whoever can write the control plane's database changed it, or it went back to a backup of before; \
                 `muster audit verify --backup FILE` says which backup still holds"
                    .to_owned(),
            ),
            AuditVerifyError::Database { .. } => {
                Some("run this as root or as the user that the control plane runs as".to_owned())
            }
            _ => None,
        }
    }

    fn details(&self) -> Option<serde_json::Value> {
        match self {
            AuditVerifyError::Broken(broken) => Some(serde_json::json!({ "firstBroken": broken.number })),
            _ => None,
        }
    }
}

/// Entries of the log.
#[derive(Serialize)]
struct AuditListView {
    entries: Vec<AuditEntry>,
    head: AuditHead,
}

/// A log that holds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VerifiedView {
    entries: u64,
    head: AuditHead,
}

/// Does the verb.
///
/// # Errors
/// When the log cannot be read, or does not hold.
pub async fn run(args: &AuditArgs, screen: Screen) -> Result<Exit, Failure> {
    match &args.what {
        AuditVerb::List { since, author, node, limit } => {
            let operator = args.connect.dial().await?;
            let since = since.map(|secs| now().minus(Duration::from_secs(secs.into())));
            let (author, node, limit) = (author.clone(), node.clone(), usize::from(*limit).into());
            let asked = AuditQuery { since, author, node, limit, ..AuditQuery::default() };
            let page = operator.call(&AUDIT, asked).await?;
            let entry = |row: &AuditRow| serde_json::from_str(&row.entry).ok();
            let view =
                AuditListView { entries: page.entries.iter().filter_map(entry).collect(), head: page.head };
            Ok(screen.result(&view, || list(&view))?)
        }
        AuditVerb::Verify { head, data: Some(data), .. } => {
            let path = data.join(DATABASE);
            let verified = store::backup::verify_audit(&path, head.clone());
            let verified = verified.map_err(|source| AuditVerifyError::Database { path, source })?;
            told(verified.map_err(AuditVerifyError::Broken)?, screen)
        }
        AuditVerb::Verify { head, backup: Some(file), .. } => {
            let verified = backup::audit::verify(file, head.clone())?;
            told(verified.map_err(AuditVerifyError::Broken)?, screen)
        }
        AuditVerb::Verify { head, .. } => {
            let (credentials_file, credentials) = args.connect.credentials()?;
            let kept = credentials_file.with_extension("audit-head.json");
            let mut noted = head.clone();
            if kept.exists() {
                noted.push(posture::read_json(&kept).map_err(AuditVerifyError::ReadHead)?);
            }
            let operator = Operator::dial(&credentials).await?;
            let head = verify(&operator, noted).await?;
            keep(&kept, &head)?;
            told(head, screen)
        }
    }
}

/// Verifies the whole log, page by page.
async fn verify(operator: &Operator, noted: Vec<AuditHead>) -> Result<AuditHead, Failure> {
    let mut verifier = AuditVerifier::with_noted(noted);
    loop {
        let asked = AuditQuery { after: Some(verifier.head().number), ..AuditQuery::default() };
        let page = operator.call(&AUDIT, asked).await?;
        if page.entries.is_empty() {
            return Ok(verifier.end().map_err(AuditVerifyError::Broken)?);
        }
        for row in &page.entries {
            verifier.take(row).map_err(AuditVerifyError::Broken)?;
        }
    }
}

/// Keeps the head for the next time.
fn keep(path: &Path, head: &AuditHead) -> Result<(), AuditVerifyError> {
    let bytes = serde_json::to_vec_pretty(head).map_err(AuditVerifyError::Encode)?;
    let written = spool::atomic::write_file(&Disk::new(), path, &bytes, 0o600);
    written.map_err(|source| AuditVerifyError::KeepHead { path: path.to_owned(), source })
}

fn told(head: AuditHead, screen: Screen) -> Result<Exit, Failure> {
    let view = VerifiedView { entries: head.number, head };
    Ok(screen.result(&view, || format!("{} entries, and their chain holds\nhead {head}\n", view.entries))?)
}

fn list(view: &AuditListView) -> String {
    let row = |entry: &AuditEntry| {
        [
            entry.number.to_string(),
            when_text(entry.at),
            entry.by.clone(),
            entry.operation.clone(),
            about(entry),
        ]
    };
    let rows = table(&["ENTRY", "AT", "BY", "OPERATION", "ABOUT"], view.entries.iter().map(row));
    format!("{rows}head {}\n", view.head)
}

fn when_text(at: Timestamp) -> String {
    Timestamp::from_secs(at.secs()).to_string()
}

/// What an entry is about, in a line.
fn about(entry: &AuditEntry) -> String {
    let mut parts = Vec::new();
    if let Some(code) = &entry.refused {
        parts.push(format!("refused: {code}"));
    }
    if entry.left_out > 0 {
        parts.push(format!("{} refusals before it have no entry", entry.left_out));
    }
    parts.extend(entry.what.clone());
    match (entry.nodes.as_slice(), entry.node_count) {
        ([], _) => {}
        ([one], 1) => parts.push(one.clone()),
        (named, count) => parts.push(format!("{} +{}", named[0], count.saturating_sub(1))),
    }
    parts.join("; ")
}
