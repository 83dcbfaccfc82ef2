//! `muster release rollback`: a new release of what an earlier one held. Numbers only rise, so going back is a
//! release like any other, signed here.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::find;
use crate::connect::Connect;
use crate::credentials::{self, RELEASE_KEY_ENV};
use crate::diff::{self, Compared};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::publish::{EarlierHeaders, Publisher, request};
use crate::screen::{Screen, aside};

/// Arguments of `muster release rollback`.
#[derive(Args, Debug)]
pub(super) struct RollbackArgs {
    /// The release whose content is wanted
    seq: u64,
    /// A label for people [default: rollback-SEQ]
    #[arg(long = "ref", value_name = "LABEL")]
    label: Option<String>,
    /// A key that signs releases; several sign together [default: release.key beside the credentials]
    #[arg(long = "key", value_name = "FILE", env = RELEASE_KEY_ENV)]
    keys: Vec<PathBuf>,
    /// Sign, and write what others are to sign into this file (`muster sign`); nothing is published
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    out: Option<PathBuf>,
    /// Say what would change, and publish nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RollbackView {
    /// The release that the fleet is pointed to now.
    seq: u64,
    /// The release whose content that is.
    content_of: u64,
    /// Nothing was published.
    unchanged: bool,
    /// What it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Compared>,
}

/// Does the verb.
///
/// # Errors
/// When the release is not kept, or the control plane refuses, or nobody said yes.
pub(super) async fn run(args: &RollbackArgs, connect: &Connect, screen: Screen) -> Result<Exit, Failure> {
    let (path, operator) = connect.credentials()?;
    let keys = credentials::release_keys(&args.keys, &path)?;
    let mut publisher = Publisher::connect(operator, keys).await?;
    let (wanted, now) = (args.seq, publisher.seq().unwrap_or(0));
    let release = find(publisher.operator(), Some(wanted)).await?;
    let EarlierHeaders { headers, retired } = publisher.headers_of(&release).await?;
    if let Some(retired) = retired {
        aside(&retired);
    }
    if publisher.points_to(&release.selection) {
        let view = RollbackView { seq: now, content_of: wanted, unchanged: true, changes: None };
        return Ok(screen.result(&view, || {
            format!("release {now} already holds what release {wanted} held; nothing was published\n")
        })?);
    }
    let requires = headers.first().map(|header| header.requires.clone()).unwrap_or_default();
    let compared =
        diff::of_published(publisher.operator(), publisher.head(), &release.selection, requires).await?;
    if args.dry_run {
        screen
            .result(&compared, || text(&compared, wanted, screen) + "nothing is published (--dry-run)\n")?;
        return Ok(if compared.is_same() { Exit::Ok } else { Exit::Differences });
    }
    if !screen.is_json() {
        screen.text(&text(&compared, wanted, screen))?;
    }
    // Before somebody says yes.
    if let Some(warning) = publisher.trust_warning() {
        aside(&warning);
    }
    if let Some(gap) = publisher.gap() {
        aside(&gap);
    }
    let what = format!("release {now} -> {}, with what release {wanted} held", publisher.next_seq());
    screen.confirm(&what, args.yes)?;
    let label = args.label.clone().unwrap_or_else(|| format!("rollback-{wanted}"));
    if let Some(out) = &args.out {
        let request = publisher.request_again(&release, Some(label)).await?;
        return request::written(&request, out, screen);
    }
    let seq = publisher.republish(&release, Some(label)).await?;
    let view = RollbackView { seq, content_of: wanted, unchanged: false, changes: Some(compared) };
    Ok(screen.result(&view, || {
        format!(
            "published release {seq}: what release {wanted} held\nthe fleet repo still declares what release {now} \
             held: set it back too, or the next publish brings that again\n"
        )
    })?)
}

fn text(compared: &Compared, wanted: u64, screen: Screen) -> String {
    diff::text_from(compared, &format!("what r{wanted} held"), screen)
}
