//! `muster diff`: what a publish would change, on every node, before it is published.

mod compare;
mod granted;
mod group;
mod line;
mod moves;
mod one;
mod rollouts;
mod text;

use std::path::PathBuf;

use clap::Args;
use lang::Pattern;
use lang::pattern::PatternError;
use model::Digest;
use resolve::release::Builder;
use resolve::secrets::SecretNeeds;
use resolve::{Changed, Fleet, Specialized};
use server::api;
use server::api::operation::Empty;
use trust::Header;

use crate::check;
use crate::connect::Connect;
use crate::credentials;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::operator::Operator;
use crate::publish::tried;
use crate::remote::{self, RemoteError};
use crate::screen::{Screen, aside};
use crate::secret::{self, SecretPublisher, SecretSettings, StatementRelay};
use crate::whom::NAMING_HINT;

pub(crate) use compare::Rules;
pub use compare::{NodeChange, Population};
pub use group::{Compared, DiffGroup};
pub use line::Line;
pub(crate) use one::NewRelease;
pub use one::{GroupError, NodeDifference};
pub(crate) use text::{required, text_from};

const AFTER: &str = "\
Nodes to which the same happens are one group; the first of them shows it, resource by
resource, bound with the traits that it recorded. Ends with 2 when something differs.

Examples:
  muster diff --repo fleet
  muster diff --repo fleet web-1.example.com
  muster diff --repo fleet 'web-*.example.com'
  muster diff --repo fleet --json | jq '.groups[] | {count, nodes}'";

/// Arguments of `muster diff`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct DiffArgs {
    #[command(flatten)]
    connect: Connect,
    /// The fleet repo
    #[arg(long, value_name = "DIR", default_value = ".")]
    repo: PathBuf,
    /// Only these nodes: a hostname, a glob or a /regular expression/
    #[arg(value_name = "NODE|PATTERN")]
    nodes: Option<String>,
}

/// Why there is no difference to show.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    /// The pattern cannot be read.
    #[error("{0:?} is no pattern")]
    Pattern(String, #[source] PatternError),
    /// The pattern matches nothing.
    #[error("no node matches, neither enrolled nor declared")]
    NoNode,
    /// What is published now cannot be read.
    #[error("the release that is published now cannot be read")]
    Remote(#[from] RemoteError),
    /// Old and new cannot be put side by side.
    #[error("the difference cannot be worked out")]
    Group(#[from] GroupError),
    /// The new release cannot be built.
    #[error("the release cannot be built")]
    Build(#[from] resolve::release::ReleaseError),
}

impl UserError for DiffError {
    fn hint(&self) -> Option<String> {
        matches!(self, DiffError::NoNode)
            .then(|| format!("{NAMING_HINT}; a fleet repo is named by --repo DIR"))
    }
}

/// Does the verb.
///
/// # Errors
/// When the repo has mistakes, or the control plane cannot be asked.
pub async fn run(args: &DiffArgs, screen: Screen) -> Result<Exit, Failure> {
    let selector = match &args.nodes {
        // Every node, as in all verbs.
        Some(text) if lang::selector::is_every(text) => None,
        Some(text) => Some(Pattern::parse(text).map_err(|error| DiffError::Pattern(text.clone(), error))?),
        None => None,
    };
    let fleet = check::fleet(&args.repo)?;
    let operator = args.connect.dial().await?;
    let compared = against_published(&operator, &fleet, selector.as_ref(), secret_inputs(args)).await?;
    screen.result(&compared, || text::text(&compared, screen))?;
    if compared.is_same()
        && let Some(seq) = compared.from
        && let Some(tried) = tried::in_vain(&operator, seq).await?
    {
        aside(&tried);
    }
    Ok(if compared.is_same() { Exit::Ok } else { Exit::Differences })
}

fn secret_inputs(args: &DiffArgs) -> Option<SecretInputs> {
    let (path, _) = args.connect.credentials().ok()?;
    let key = credentials::release_key(None, &path).ok()?.key;
    Some(SecretInputs { settings: secret::settings(args.repo.clone(), None, Some(&path)), key })
}

/// Compares what a fleet repo means with what the control plane points to.
///
/// # Errors
/// When what is published cannot be read.
pub async fn against_published(
    operator: &Operator,
    fleet: &Fleet,
    selector: Option<&Pattern>,
    secrets: Option<SecretInputs>,
) -> Result<Compared, Failure> {
    let everything = Changed { patterns: true, modules: true, channels: true, hostnames: Vec::new() };
    let head = operator.call(&api::HEAD, Empty {}).await?;
    let relay = StatementRelay { operator, fleet: &head.trust.fleet };
    let sealed = sealed(fleet, &everything, secrets, relay).await?;
    let built = Builder::new().build(&sealed, &everything).map_err(DiffError::Build)?;
    let old = match &head.selection {
        Some(root) => Some(remote::top(operator, root).await.map_err(DiffError::Remote)?),
        None => None,
    };
    let enrolled = operator.enrolled(selector).await?;
    let population = compare::population(operator, old.as_ref(), built.selection(), enrolled, selector).await;
    let population = population.map_err(DiffError::Remote)?;
    if population.nodes == 0 && selector.is_some() {
        return Err(DiffError::NoNode.into());
    }
    let compared = group::group(operator, NewRelease::Built(&built), head.seq, population).await;
    let compared = compared.map_err(DiffError::Group)?;
    // Of some nodes nobody asks how all are reached.
    let rollouts =
        if selector.is_none() { rollouts::differ(&head, built.fleet()) } else { compared.rollouts };
    Ok(Compared { rollouts, ..compared })
}

/// What is needed to seal the secrets of a fleet repo as a publish would.
pub struct SecretInputs {
    /// Where they are asked for.
    pub settings: SecretSettings,
    /// The key that signs releases.
    pub key: crate::signer::FleetSigner,
}

/// The fleet with its secrets sealed as a publish would; where that cannot be done here, as it is: nodes that need
/// one are then told to differ.
async fn sealed(
    fleet: &Fleet,
    everything: &Changed,
    secrets: Option<SecretInputs>,
    relay: StatementRelay<'_>,
) -> Result<Specialized, Failure> {
    if SecretNeeds::of(fleet.specialize()).is_empty() {
        return Ok(fleet.specialize().clone());
    }
    let Some(SecretInputs { settings, key }) = secrets else {
        aside(
            "note: without the release key nobody can tell whether a secret has another value; nodes that need one are shown as different",
        );
        return Ok(fleet.specialize().clone());
    };
    let mut publisher = SecretPublisher::default();
    publisher.settings = Some(settings);
    Ok(publisher.seal(fleet, everything, &key, relay).await?.fleet)
}

/// Compares a published release with the one that is pointed to now, as if it were published again.
///
/// # Errors
/// When one of them cannot be read.
pub(crate) async fn of_published(
    operator: &Operator,
    head: &api::HeadView,
    new: &Digest,
    headers: &[Header],
) -> Result<Compared, Failure> {
    let requires = headers.first().map(|header| header.requires.clone()).unwrap_or_default();
    let new = remote::top(operator, new).await.map_err(DiffError::Remote)?;
    let new = remote::selection(operator, &new).await.map_err(DiffError::Remote)?;
    let old = match &head.selection {
        Some(root) => Some(remote::top(operator, root).await.map_err(DiffError::Remote)?),
        None => None,
    };
    let enrolled = operator.enrolled(None).await?;
    let population = compare::population(operator, old.as_ref(), &new, enrolled, None).await;
    let population = population.map_err(DiffError::Remote)?;
    let new = NewRelease::Published { requires };
    let compared = group::group(operator, new, head.seq, population).await.map_err(DiffError::Group)?;
    Ok(Compared { rollouts: rollouts::of_headers(head, headers), ..compared })
}
