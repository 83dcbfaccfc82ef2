//! `muster publish`: sign what a fleet repo declares, and point the fleet to it.

pub(crate) mod again;
mod error;
mod from;
mod left_out;
pub(crate) mod number;
mod publisher;
pub(crate) mod request;
mod rollouts;
mod signers;
pub(crate) mod tried;
mod upload;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use model::Channel;
use resolve::release::Built;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use trust::feature::FEATURES;

use crate::clock::{bytes, now};
use crate::connect::Connect;
use crate::credentials::{self, RELEASE_KEY_ENV};
use crate::diff::required;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::folder::{FileChanges, FolderChange, RepoFolder, Watch};
use crate::lists::{ListsPlan, named};
use crate::screen::{Screen, aside, plural};
use crate::secret::{self, IDENTITY_ENV};
use crate::server::ServerError;

pub use error::PublishError;
pub use left_out::LeftOut;
pub(crate) use publisher::EarlierHeaders;
pub use publisher::{Published, Publisher, ReleaseComparison};
pub use rollouts::{RolloutPlanView, WavePlanView};
pub(crate) use upload::{batches, upload_parts};

/// How long a resident publisher waits before it tries again what did not reach the control
/// plane.
const RETRY: Duration = Duration::from_secs(5);

const AFTER: &str = "\
The release is built and signed here; the control plane verifies it, keeps it and points to
it. Only what it lacks is sent. A repo with mistakes publishes nothing. The question names the
nodes that have an entry now and get none. What tokens.yaml and revocations.yaml declare is signed
and published too; a file that is not there changes nothing of what counts.
A channel with `rollouts` is reached by waves: each is told with its time and number of nodes.
What is published already is not published again, also where its rollout went back; another
label (--ref) has the same content tried once more.

Examples:
  muster publish --repo fleet
  muster publish --repo fleet --ref \"$(git -C fleet rev-parse --short HEAD)\" --yes
  muster publish --repo fleet --dry-run     say what would change (muster diff shows it)
  muster publish --repo fleet --watch       stay, and publish every edit

A channel with a threshold (`muster key threshold`) asks for several signers, at once or in steps:
  muster publish --repo fleet --key a.key --key b.key
  muster publish --repo fleet --key a.key --out r7.json   uploads, signs, publishes nothing
  muster sign r7.json --key b.key                         the second signer, offline as well
  muster publish --from r7.json                           whoever has credentials";

/// Arguments of `muster publish`.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER)]
pub struct PublishArgs {
    #[command(flatten)]
    connect: Connect,
    /// The fleet repo
    #[arg(long, value_name = "DIR", default_value = ".")]
    repo: PathBuf,
    /// A label for people: a commit, a ticket
    #[arg(long = "ref", value_name = "LABEL")]
    label: Option<String>,
    /// A key that signs releases: a key file, an age file or a signer file; several sign together [default:
    /// release.key beside the credentials]
    #[arg(long = "key", value_name = "FILE", env = RELEASE_KEY_ENV)]
    keys: Vec<PathBuf>,
    /// The age identity that the repo's secrets are encrypted for [default: age.key beside the credentials]
    #[arg(long, value_name = "FILE", env = IDENTITY_ENV)]
    identity: Option<PathBuf>,
    /// Upload and sign, and write what others are to sign into this file; nothing is published
    #[arg(long, value_name = "FILE", conflicts_with_all = ["watch", "dry_run", "from"])]
    out: Option<PathBuf>,
    /// Publish what `--out` wrote and others signed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["repo", "label", "watch", "dry_run", "identity"])]
    from: Option<PathBuf>,
    /// Stay, and publish every edit of the repo
    #[arg(long, conflicts_with = "dry_run")]
    watch: bool,
    /// Say what would change, and publish nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// Does the verb.
///
/// # Errors
/// When the repo has mistakes, the control plane refuses, or nobody said yes.
pub async fn run(args: &PublishArgs, screen: Screen) -> Result<Exit, Failure> {
    if let Some(file) = &args.from {
        return from::run(file, &args.connect, args.yes, screen).await;
    }
    let (path, operator) = args.connect.credentials()?;
    let keys = credentials::release_keys(&args.keys, &path)?;
    let mut publisher = Publisher::connect(operator, keys).await?;
    publisher.ask_for_secrets(secret::settings(args.repo.clone(), args.identity.as_deref(), Some(&path)));
    let mut folder = RepoFolder::open(&args.repo)?;
    // Before the first look: nothing that changes in between is missed.
    let watch = if args.watch { Some(Watch::start(folder.root())?) } else { None };
    let changes = folder.scan()?;
    let exit = once(&mut publisher, changes, args, screen).await;
    match watch {
        None => exit,
        Some(watch) => {
            tell(exit)?;
            resident(&mut publisher, &mut folder, watch, args, screen).await
        }
    }
}

/// Publishes what these changes make.
async fn once(
    publisher: &mut Publisher,
    changes: FileChanges,
    args: &PublishArgs,
    screen: Screen,
) -> Result<Exit, Failure> {
    let began = Instant::now();
    let prepared = publisher.take(changes).await?;
    let changed = publisher.compare(&prepared).await?;
    if changed.same
        && args.label.is_none()
        && let Some(seq) = publisher.seq()
        && let Some(tried) = tried::in_vain(publisher.operator(), seq).await?
    {
        aside(&tried);
    }
    if !publisher.blocked().is_empty() {
        aside(publisher.blocked().phrase().trim_end());
    }
    let rollouts = publisher.rollouts().await?;
    rollouts::warn(&rollouts);
    let lists = publisher.plan_lists().await?;
    let same = changed.same && lists.is_empty();
    let would = [would(publisher, &changed, &prepared)].into_iter().chain(lists.changes.iter().cloned());
    let would = would.collect::<Vec<_>>().join("; ");
    if args.dry_run {
        let views = rollouts::views(&rollouts, None, now());
        screen
            .result(&WouldPublish { release: &changed, lists: &lists.changes, rollouts: &views }, || {
                format!("{would}\n{}nothing is published (--dry-run)\n", rollouts::text(&views))
            })?;
        return Ok(if same { Exit::Ok } else { Exit::Differences });
    }
    if let Some(warning) = publisher.trust_warning() {
        aside(&warning);
    }
    if !same {
        if !args.yes {
            aside(rollouts::text(&rollouts::views(&rollouts, None, now())).trim_end());
        }
        screen.confirm(&would, args.yes)?;
    }
    if let Some(out) = &args.out {
        return request_of(publisher, &prepared, &lists, args.label.clone(), out, screen).await;
    }
    let mut said = Vec::new();
    if !lists.is_empty() {
        // First: who is out is out before anything new is given away.
        let added = publisher.publish_lists(&lists).await?;
        said.clone_from(&lists.changes);
        if added.count > 0 {
            said.push(format!("cut off: {}", named(&added.cut)));
        }
    }
    if !changed.same
        && let Some(gap) = publisher.gap()
    {
        aside(&gap);
    }
    let published = publisher.publish(&prepared, args.label.clone(), changed).await?;
    let ids = publisher.rollout_ids(&rollouts, published.seq, args.label.as_deref()).await?;
    let rollouts =
        if published.unchanged { Vec::new() } else { rollouts::views(&rollouts, Some(&ids), now()) };
    let published = Published { lists: said, rollouts, ..published };
    let took = began.elapsed().as_millis();
    Ok(screen.result(&published, || text(&published, took))?)
}

/// Writes what others are to sign.
async fn request_of(
    publisher: &mut Publisher,
    prepared: &Built,
    lists: &ListsPlan,
    label: Option<String>,
    out: &Path,
    screen: Screen,
) -> Result<Exit, Failure> {
    let Some(request) = publisher.request(prepared, label, lists).await? else {
        let seq = publisher.seq().unwrap_or(0);
        return Ok(screen.result(&serde_json::json!({ "seq": seq, "unchanged": true }), || {
            format!("release {seq} already holds this; nothing is to be signed\n")
        })?);
    };
    request::written(&request, out, screen)
}

fn would(publisher: &Publisher, changed: &ReleaseComparison, built: &Built) -> String {
    let from = publisher.seq().map_or_else(
        || "the first release".to_owned(),
        |seq| format!("release {seq} -> {}", publisher.next_seq()),
    );
    if changed.same {
        return format!("release {} already holds this", publisher.seq().unwrap_or(0));
    }
    let required = required(&built.requires_anywhere(FEATURES));
    let left_out = changed.left_out.phrase();
    let has_rollout = |channel: &Channel| built.fleet().rollouts.contains_key(channel.as_str());
    let rollouts = rollouts::changed(&changed.rollouts, has_rollout);
    let notes = [required.trim_end(), &left_out, &rollouts].into_iter().filter(|note| !note.is_empty());
    let notes: String = notes.map(|note| format!("; {note}")).collect();
    format!(
        "{from}: {}{notes}",
        changes_of(
            changed,
            built.fleet().exact.size(),
            built.fleet().patterns.len(),
            changed.rollouts.iter().any(has_rollout)
        )
    )
}

fn changes_of(changed: &ReleaseComparison, nodes: usize, patterns: usize, is_staged: bool) -> String {
    if changed.nodes == 0 && changed.patterns == 0 {
        let goes = match is_staged {
            true => ", and the release goes through its waves all the same",
            false => "",
        };
        return format!(
            "the content of each is what it was (of {} and {} now){goes}",
            plural(nodes, "named node"),
            plural(patterns, "pattern")
        );
    }
    format!(
        "{} and {} differ (of {nodes} and {patterns} now)",
        plural(changed.nodes, "named node"),
        plural(changed.patterns, "pattern")
    )
}

/// What a publish would come to.
#[derive(Serialize)]
struct WouldPublish<'a> {
    #[serde(flatten)]
    release: &'a ReleaseComparison,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    lists: &'a [String],
    #[serde(skip_serializing_if = "<[RolloutPlanView]>::is_empty", rename = "plannedRollouts")]
    rollouts: &'a [RolloutPlanView],
}

fn text(published: &Published, took: u128) -> String {
    let lists: String = published.lists.iter().map(|line| format!("{line}\n")).collect();
    if published.unchanged && !lists.is_empty() {
        return format!("{lists}release {} already holds the rest\n", published.seq);
    }
    if published.unchanged {
        return format!("release {} already holds this; nothing was published\n", published.seq);
    }
    let mut left_out = published.changed.left_out.phrase();
    if !left_out.is_empty() {
        left_out.push('\n');
    }
    let is_staged = |channel: &&Channel| published.rollouts.iter().any(|plan| plan.channel == **channel);
    let at_once = published.changed.rollouts.iter().filter(|channel| !is_staged(channel));
    let at_once: String = at_once.map(|channel| format!("{}\n", rollouts::goes_at_once(channel))).collect();
    format!(
        "{lists}published release {}: {}\n{left_out}{at_once}{}sent {} chunks and {} contents in {}, {took} ms\n",
        published.seq,
        changes_of(&published.changed, published.nodes, published.patterns, !published.rollouts.is_empty()),
        rollouts::text(&published.rollouts),
        published.chunks,
        published.contents,
        bytes(published.bytes),
    )
}

/// Publishes every edit until the program is stopped. A broken edit is reported, and the
/// next one is tried.
async fn resident(
    publisher: &mut Publisher,
    folder: &mut RepoFolder,
    mut watch: Watch,
    args: &PublishArgs,
    screen: Screen,
) -> Result<Exit, Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServerError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServerError::Signal)?;
    aside(&format!("watching {}; every edit is published", folder.root().display()));
    // A label is for the first publish alone.
    let edit = PublishArgs { yes: true, label: None, ..args.clone() };
    let mut again = false;
    loop {
        let changes = tokio::select! {
            seen = watch.next() => match seen? {
                FolderChange::Files(files) => folder.reread(&files),
                FolderChange::Everything => folder.scan(),
            },
            () = tokio::time::sleep(RETRY), if again => Ok(FileChanges::new()),
            _ = terminate.recv() => return Ok(Exit::Ok),
            _ = interrupt.recv() => return Ok(Exit::Ok),
        };
        let done = match changes {
            Ok(changes) if changes.is_empty() && !again => continue,
            Ok(changes) => once(publisher, changes, &edit, screen).await,
            Err(error) => Err(error.into()),
        };
        again = done.as_ref().is_err_and(|failure| failure.exit() == Exit::Unreachable);
        tell(done)?;
    }
}

/// A resident publisher reports a failure and stays, unless nobody said yes to the first.
fn tell(done: Result<Exit, Failure>) -> Result<(), Failure> {
    match done {
        Ok(_) => Ok(()),
        Err(failure) if failure.exit() == Exit::Refused => Err(failure),
        Err(failure) => {
            aside(failure.text().trim_end());
            Ok(())
        }
    }
}
