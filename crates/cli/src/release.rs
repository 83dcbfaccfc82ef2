//! `muster release`: what was published, and the way back to it.

mod reseal;
mod rollback;

use clap::{Args, Subcommand};
use serde::Serialize;
use server::api::{self, History, ReleaseSummary};
use store::Release;
use trust::Header;

use crate::clock::{ago, now, short};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::operator::{Operator, OperatorCallError};
use crate::screen::{Screen, plural};
use crate::table::table;

const AFTER: &str = "\
Examples:
  muster release list
  muster release show          the newest
  muster release show 41
  muster release rollback 41   show what would change, ask, and publish what release 41 held
  muster release rollback 41 --repo fleet   the same, with its secrets as their sources have them now";

/// Arguments of `muster release`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct ReleaseArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    what: ReleaseVerb,
}

#[derive(Debug, Subcommand)]
enum ReleaseVerb {
    /// List releases, newest first
    List {
        /// At most this many
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// Show one release and its headers
    Show {
        /// Its number; else the newest
        seq: Option<u64>,
    },
    /// Publish what an earlier release held, as a new release
    Rollback(rollback::RollbackArgs),
}

/// There is no such release.
#[derive(Debug, thiserror::Error)]
enum ReleaseListError {
    #[error("release {0} is not kept")]
    NotKept(u64),
    #[error("nothing is published yet")]
    None,
}

impl UserError for ReleaseListError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            ReleaseListError::NotKept(_) => "`muster release list` shows those that are kept".to_owned(),
            ReleaseListError::None => "muster publish --repo DIR".to_owned(),
        })
    }
}

/// Does the verb.
///
/// # Errors
/// When the control plane cannot be asked, or there is no such release.
pub async fn run(args: &ReleaseArgs, screen: Screen) -> Result<Exit, Failure> {
    if let ReleaseVerb::Rollback(rollback) = &args.what {
        return rollback::run(rollback, &args.connect, screen).await;
    }
    let operator = args.connect.dial().await?;
    match &args.what {
        // Done above.
        ReleaseVerb::Rollback(_) => {}
        ReleaseVerb::List { limit } => {
            let request = History { limit: usize::from(*limit).into(), ..History::default() };
            let releases = operator.call(&api::RELEASES, request).await?;
            screen.result(&releases, || list(&releases))?;
        }
        ReleaseVerb::Show { seq } => {
            let release = find(&operator, *seq).await?;
            let view = ReleaseView { headers: headers(&release), release };
            screen.result(&view, || show(&view))?;
        }
    }
    Ok(Exit::Ok)
}

/// A release by its number, or the newest.
pub(crate) async fn find(operator: &Operator, seq: Option<u64>) -> Result<Release, Failure> {
    match seq {
        Some(seq) => Ok(by_number(operator, seq).await?.ok_or(ReleaseListError::NotKept(seq))?),
        None => Ok(newest_below(operator, None).await?.ok_or(ReleaseListError::None)?),
    }
}

/// A release by its number; `None` where it is not kept.
pub(crate) async fn by_number(operator: &Operator, seq: u64) -> Result<Option<Release>, OperatorCallError> {
    let found = newest_below(operator, Some(seq.saturating_add(1))).await?;
    Ok(found.filter(|release| release.seq == seq))
}

async fn newest_below(
    operator: &Operator,
    before: Option<u64>,
) -> Result<Option<Release>, OperatorCallError> {
    let request = History { node: None, before, limit: 1.into() };
    Ok(operator.call(&api::RELEASES, request).await?.into_iter().next())
}

/// A release with its headers read; their signatures were verified when it was committed,
/// and every node verifies them anew.
#[derive(Serialize)]
struct ReleaseView {
    #[serde(flatten)]
    release: Release,
    #[serde(rename = "headersRead")]
    headers: Vec<Header>,
}

fn headers(release: &Release) -> Vec<Header> {
    release.headers.values().filter_map(|signed| serde_json::from_str(&signed.payload).ok()).collect()
}

fn summary(release: &Release) -> ReleaseSummary {
    serde_json::from_value(release.summary.clone()).unwrap_or_default()
}

fn list(releases: &[Release]) -> String {
    let now = now();
    let row = |release: &Release| {
        let summary = summary(release);
        [
            release.seq.to_string(),
            release.ref_label.clone(),
            format!("{} ago", ago(release.created, now)),
            summary.by.unwrap_or_default(),
            summary.nodes.to_string(),
            summary.patterns.to_string(),
            summary.modules.to_string(),
            release.selection.short(),
        ]
    };
    table(
        &["RELEASE", "REF", "WHEN", "BY", "NODES", "PATTERNS", "MODULES", "SELECTION"],
        releases.iter().map(row),
    )
}

fn show(view: &ReleaseView) -> String {
    let (release, summary) = (&view.release, summary(&view.release));
    let label =
        if release.ref_label.is_empty() { String::new() } else { format!("  ref {}", release.ref_label) };
    let mut out = format!(
        "release {}{label}\nmade {}, published by {}\n{}, {}, {}\nselection {}\n\n",
        release.seq,
        release.created,
        summary.by.as_deref().unwrap_or("unknown"),
        plural(summary.nodes, "named node"),
        plural(summary.patterns, "pattern"),
        plural(summary.modules, "module"),
        release.selection,
    );
    let row = |header: &Header| {
        let contact = summary.contact_secs.get(&header.channel).copied().unwrap_or(0);
        let fallbacks: Vec<String> =
            header.fallbacks.iter().map(|fallback| fallback.seq.to_string()).collect();
        [
            header.channel.to_string(),
            short(header.freshness()),
            short(std::time::Duration::from_secs(contact)),
            fallbacks.join(", "),
            header.requires.join(", "),
        ]
    };
    out.push_str(&table(
        &["CHANNEL", "FRESH FOR", "CONTACT", "FALLBACKS", "REQUIRES"],
        view.headers.iter().map(row),
    ));
    out
}
