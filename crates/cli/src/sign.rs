//! `muster sign FILE`: a further signature under a release that somebody else prepared. Offline.

use std::path::PathBuf;

use clap::Args;
use resolve::release::{Builder, ReleaseError};
use resolve::secrets::SecretNeeds;
use resolve::{Changed, Specialized};
use trust::Header;
use trust::feature::FEATURES;
use trust::rollout_terms::OnFailure;

use crate::check;
use crate::credentials::{self, RELEASE_KEY_ENV};
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::publish::request::{self, RequestError, RequestedHeader, SigningRequest};
use crate::screen::{Screen, aside};
use crate::signer::{self, SignError};

const AFTER: &str = "\
FILE is what `muster publish --out FILE` or `muster release rollback SEQ --out FILE` wrote. It needs
no control plane. What its headers say is shown before anything is signed; with --repo the release
is built here as well, and not signed where it is another one.

Examples:
  muster sign r7.json --key b.key
  muster sign r7.json --key hsm.yaml --repo fleet
  muster publish --from r7.json         once every channel has what it asks for";

/// Arguments of `muster sign`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct SignArgs {
    /// What is to be signed; the signatures are added to it
    file: PathBuf,
    /// A key that signs: a key file, an age file or a signer file; may be given more than once
    #[arg(long = "key", value_name = "FILE", env = RELEASE_KEY_ENV, required = true)]
    keys: Vec<PathBuf>,
    /// Sign only what this fleet repo declares
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// Why nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum SignReleaseError {
    /// The file cannot be used.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The key signs for no channel of it.
    #[error("key {0} is no signer of any channel in it")]
    UnknownSigner(String),
    /// It is signed by the key, or cannot be.
    #[error("the release cannot be signed")]
    Sign(#[from] SignError),
    /// The fleet repo cannot be built.
    #[error("the fleet repo's release cannot be built")]
    Build(#[from] ReleaseError),
    /// Sealed secrets differ by who seals them.
    #[error(
        "the fleet repo uses secrets, which are sealed by who publishes: what is here cannot be compared"
    )]
    Secrets,
    /// The fleet repo declares something else.
    #[error("what is to be signed is not what the fleet repo declares: its {0} differs")]
    OtherRelease(&'static str),
}

impl UserError for SignReleaseError {
    fn exit(&self) -> Exit {
        match self {
            SignReleaseError::UnknownSigner(_) | SignReleaseError::OtherRelease(_) => Exit::Refused,
            _ => Exit::Error,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            SignReleaseError::Request(error) => error.hint(),
            SignReleaseError::Sign(error) => error.hint(),
            SignReleaseError::UnknownSigner(_) => {
                Some("nothing was signed; `muster key show` names the signers of each channel".to_owned())
            }
            SignReleaseError::Secrets => Some(
                "nothing was signed; `muster diff` shows what a publish would change; sign without --repo"
                    .to_owned(),
            ),
            SignReleaseError::OtherRelease(_) => Some(
                "nothing was signed; take the repo to what was published from, or ask who made the file"
                    .to_owned(),
            ),
            SignReleaseError::Build(_) => None,
        }
    }
}

/// Does the verb.
///
/// # Errors
/// When the file or a key cannot be used, the key has signed already or may not, or nobody said yes.
pub fn run(args: &SignArgs, screen: Screen) -> Result<Exit, Failure> {
    let mut request = SigningRequest::read(&args.file).map_err(SignReleaseError::Request)?;
    let headers = request.headers(&request.trust).map_err(SignReleaseError::Request)?;
    let mut keys = Vec::new();
    for path in &args.keys {
        keys.push(credentials::release_key(Some(path), path)?.key);
    }
    if let Some(repo) = &args.repo {
        compare(repo, &headers)?;
    }
    let shown: String = headers.iter().map(RequestedHeader::line).collect();
    aside(shown.trim_end());
    screen.confirm("these headers are signed", args.yes)?;
    for key in &keys {
        add(&mut request, key)?;
    }
    request::written(&request, &args.file, screen)
}

/// Signs each header for which the key counts, and that it did not sign yet.
fn add(request: &mut SigningRequest, key: &signer::FleetSigner) -> Result<(), SignReleaseError> {
    let SigningRequest { commit, trust, .. } = request;
    let (mut counts, mut signed, mut again) = (false, false, None);
    for (channel, document) in &mut commit.headers {
        if !trust.header_signers(channel).has(&key.public()) {
            continue;
        }
        counts = true;
        match signer::add_signature::<Header>(document, key) {
            Ok(()) => signed = true,
            Err(error @ SignError::Twice(_)) => again = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    match (counts, again) {
        (false, _) => Err(SignReleaseError::UnknownSigner(key.public().id())),
        (true, Some(error)) if !signed => Err(error.into()),
        _ => Ok(()),
    }
}

/// The rollout of a header is what the fleet repo declares.
fn policy_is_of(fleet: &Specialized, header: &Header) -> bool {
    match (fleet.rollouts.get(header.channel.as_str()), &header.rollout) {
        (None, None) => true,
        (Some(policy), Some(terms)) => policy.is_of(terms, header.created),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// Its rollout sends nodes back to what the header names.
fn goes_back(header: &Header) -> bool {
    header.rollout.as_ref().is_some_and(|terms| terms.on_failure == OnFailure::Rollback)
}

/// What is to be signed is what a fleet repo declares.
fn compare(repo: &std::path::Path, headers: &[RequestedHeader]) -> Result<(), Failure> {
    let fleet = check::fleet(repo)?;
    if !SecretNeeds::of(fleet.specialize()).is_empty() {
        return Err(SignReleaseError::Secrets.into());
    }
    let everything = Changed { patterns: true, modules: true, channels: true, hostnames: Vec::new() };
    let built = Builder::new().build(fleet.specialize(), &everything).map_err(SignReleaseError::Build)?;
    let (root, freshness) = (built.root().map_err(SignReleaseError::Build)?, built.freshness_secs());
    let requires = built.requires(FEATURES);
    if headers.len() != freshness.len() {
        return Err(SignReleaseError::OtherRelease("list of channels").into());
    }
    for RequestedHeader { header, .. } in headers {
        let differs = match () {
            () if header.selection != root => Some("content"),
            () if freshness.get(&header.channel) != Some(&header.freshness_secs) => Some("freshness"),
            () if !policy_is_of(fleet.specialize(), header) => Some("rollout"),
            () if header.requires != built.header_requires(header.channel.as_str(), &requires) => {
                Some("list of required features")
            }
            () if !goes_back(header) && !header.fallbacks.is_empty() => Some("list of fallbacks"),
            () => None,
        };
        if let Some(what) = differs {
            return Err(SignReleaseError::OtherRelease(what).into());
        }
    }
    Ok(())
}
