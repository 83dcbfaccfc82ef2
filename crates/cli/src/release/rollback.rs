//! `muster release rollback`: a new release of what an earlier one held. Numbers only rise, so going back is a
//! release like any other, signed here. With a fleet repo at hand its secrets are asked for anew.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use store::Release;
use trust::Header;
use trust::feature::FEATURES;

use super::find;
use super::reseal::ResealedRelease;
use crate::connect::Connect;
use crate::credentials::{self, RELEASE_KEY_ENV};
use crate::diff::{self, Compared};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::publish::{EarlierHeaders, Publisher, again, request};
use crate::screen::{Screen, aside, plural};
use crate::secret;
use crate::{check, clock};

/// The most nodes that a message names.
const NAMED: usize = 5;

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
    /// Ask the sources of this fleet repo for the release's secrets anew, and seal them for the keys that it names;
    /// else the nodes get the values of then
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
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
    let mut resealed = resealed(args, &publisher, &release, &headers, &path).await?;
    let selection = resealed.as_ref().map_or(release.selection, |resealed| resealed.root);
    if publisher.points_to(&selection) {
        let view = RollbackView { seq: now, content_of: wanted, unchanged: true, changes: None };
        return Ok(screen.result(&view, || {
            format!("release {now} already holds what release {wanted} held; nothing was published\n")
        })?);
    }
    // A release that was not sent cannot be read: without one, secrets are not compared.
    let is_read = !args.dry_run || resealed.is_none();
    if let Some(resealed) = resealed.as_mut().filter(|_| is_read) {
        resealed.upload(&publisher).await?;
    }
    let compared_with = if is_read { selection } else { release.selection };
    let compared =
        diff::of_published(publisher.operator(), publisher.head(), &compared_with, &headers).await?;
    let waves = again::waves(&headers, publisher.head(), clock::now());
    if args.dry_run {
        let text = || text(&compared, wanted, screen) + &waves + "nothing is published (--dry-run)\n";
        screen.result(&compared, text)?;
        return Ok(if compared.is_same() { Exit::Ok } else { Exit::Differences });
    }
    if !screen.is_json() {
        screen.text(&(text(&compared, wanted, screen) + &waves))?;
    }
    // Before somebody says yes.
    if let Some(warning) = publisher.trust_warning() {
        aside(&warning);
    }
    if let Some(gap) = publisher.gap() {
        aside(&gap);
    }
    let secrets = resealed.as_ref().map(|resealed| {
        warn_blocked(&resealed.blocked);
        format!(", and {} as their sources have them now", plural(resealed.names.len(), "secret"))
    });
    let secrets = secrets.unwrap_or_default();
    let what = format!("release {now} -> {}, with what release {wanted} held{secrets}", publisher.next_seq());
    screen.confirm(&what, args.yes)?;
    let label = args.label.clone().unwrap_or_else(|| format!("rollback-{wanted}"));
    if let Some(out) = &args.out {
        let request = publisher.request_again(&release, selection, Some(label)).await?;
        return request::written(&request, out, screen);
    }
    let seq = publisher.republish(&release, selection, Some(label)).await?;
    let view = RollbackView { seq, content_of: wanted, unchanged: false, changes: Some(compared) };
    Ok(screen.result(&view, || {
        format!(
            "published release {seq}: what release {wanted} held{secrets}\nthe fleet repo still declares what release {now} \
             held: set it back too, or the next publish brings that again\n"
        )
    })?)
}

/// The release with its secrets asked for anew, where it has some and a fleet repo is at hand.
async fn resealed(
    args: &RollbackArgs,
    publisher: &Publisher,
    release: &Release,
    headers: &[Header],
    credentials: &Path,
) -> Result<Option<ResealedRelease>, Failure> {
    if !has_secrets(headers) {
        return Ok(None);
    }
    let Some(repo) = &args.repo else {
        aside(&format!(
            "note: nodes get the secrets of then, also those that were rotated since\n\
             next: muster release rollback {} --repo DIR asks their sources anew",
            args.seq
        ));
        return Ok(None);
    };
    let fleet = check::fleet(repo)?;
    let settings = secret::settings(repo.clone(), None, Some(credentials));
    ResealedRelease::of(publisher, &release.selection, &fleet, settings).await
}

fn warn_blocked(blocked: &[Arc<str>]) {
    if blocked.is_empty() {
        return;
    }
    let named: Vec<&str> = blocked.iter().take(NAMED).map(|name| &**name).collect();
    aside(&format!(
        "warning: the fleet repo has no recipient key of {}, on which what is made of a secret will be blocked: {}",
        plural(blocked.len(), "node"),
        named.join(", ")
    ));
}

fn has_secrets(headers: &[Header]) -> bool {
    let is_it =
        |name: &String| FEATURES.iter().any(|feature| feature.secrets && feature.name == name.as_str());
    headers.iter().any(|header| header.requires.iter().any(is_it))
}

fn text(compared: &Compared, wanted: u64, screen: Screen) -> String {
    diff::text_from(compared, &format!("what r{wanted} held"), screen)
}
