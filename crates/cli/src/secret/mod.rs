//! `muster secret`: the secrets of a fleet repo, who can open them, and for whom they are sealed (SEC-1, SEC-2).

mod list;
mod reach;
mod recipients;
pub mod seal;
mod set;
pub mod source;
mod trust_node;
mod vault;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use resolve::Fleet;
use resolve::secrets::SecretNeeds;
use serde::Serialize;
use server::posture::AGE_IDENTITY;
use trust::sealing::ParseRecipientError;
use trust::sealing::age::AgeError;

use crate::connect::Connect;
use crate::credentials;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::next_step;
use crate::screen::Screen;
pub use recipients::StatementRelay;
use recipients::{RecipientStanding, Recipients};
pub(crate) use recipients::{keys_of, stated, tell_refused};
pub use seal::{BlockedNodes, SecretPublisher};
use source::TOO_LARGE_HINT;
pub use source::{SecretError, SecretSettings, SourceError};
pub(crate) use trust_node::{drop_recipient, goes_by_statement};

/// Names the age identity.
pub const IDENTITY_ENV: &str = "MUSTER_AGE_IDENTITY";

const SET_AFTER: &str = "\
Reads the value from standard input, to the last byte, and encrypts it into the fleet repo: an age
file for the source's `recipients`, or for the identity beside the credentials, which is made when
there is none. Nothing is published. A trailing newline is kept for a file that holds the secret
alone, and is left out where the secret stands in a text.

Examples:
  muster secret set retail/tls.key --repo fleet < tls.key
  printf %s \"$PASSWORD\" | muster secret set retail/db --repo fleet";

const ROTATE_AFTER: &str = "\
As `set`, for a secret that is there: the value from standard input, or a random one. Only what is
made of it is applied again, once it is published.

Examples:
  muster secret rotate retail/db --random --repo fleet && muster publish --repo fleet
  muster secret rotate retail/tls.key --repo fleet < tls-2.key";

const TRUST_AFTER: &str = "\
Writes the node's recipient key into recipients.yaml of the fleet repo; secrets are sealed for it
from the next publish on. The key is what `muster-agent identity` prints on the host: compare the
fingerprint there. A control plane's word is never taken for it. A node whose `key` nodes.yaml declares
needs no line: its agent signs for its recipient key with that one.

Examples:
  muster secret trust web-1.example.com age1... --repo fleet";

/// Arguments of `muster secret`.
#[derive(Args, Debug)]
pub struct SecretArgs {
    #[command(flatten)]
    connect: Connect,
    /// The fleet repo
    #[arg(long, value_name = "DIR", default_value = ".", global = true)]
    repo: PathBuf,
    /// The age identity that the repo's files are encrypted for [default: age.key beside the credentials]
    #[arg(long, value_name = "FILE", env = IDENTITY_ENV, global = true)]
    identity: Option<PathBuf>,
    #[command(subcommand)]
    what: SecretVerb,
}

#[derive(Debug, Subcommand)]
enum SecretVerb {
    /// Encrypt a secret into the fleet repo
    #[command(after_help = SET_AFTER)]
    Set(set::SetArgs),
    /// Give a secret another value
    #[command(after_help = ROTATE_AFTER)]
    Rotate(set::RotateSecretArgs),
    /// List the secrets that the fleet repo uses, and where they come from
    List,
    /// Show which nodes can open which secrets
    Reach(reach::ReachArgs),
    /// Have secrets sealed for a node's key
    #[command(after_help = TRUST_AFTER)]
    Trust(trust_node::TrustArgs),
}

/// Why a verb about secrets did not do it.
#[derive(Debug, thiserror::Error)]
pub enum SecretVerbError {
    /// Not a name.
    #[error("`{0}` is no name of a secret")]
    Name(String),
    /// No source of the repo holds files.
    #[error("fleet.yaml names no folder of age files for secret `{0}`")]
    NoFolder(String),
    /// There is none to be given another value.
    #[error("there is no secret `{0}` in the fleet repo")]
    NotThere(String),
    /// The value cannot be read.
    #[error("the value cannot be read from standard input")]
    ReadValue(#[source] std::io::Error),
    /// There is no value.
    #[error("the value is empty: nothing was changed")]
    Empty,
    /// Nobody may get what is sealed for it.
    #[error("no entry of the fleet repo is for a node {0}: nothing was changed")]
    UnknownNode(String),
    /// The secret is encrypted for an identity that is not here.
    #[error("there is no age identity at {}, and the secret is encrypted for one: nothing was changed", .0.display())]
    NoIdentity(PathBuf),
    /// The value is too long.
    #[error("the value has more than {} bytes", trust::sealing::MAX_SECRET)]
    TooLarge,
    /// The operating system gives no randomness.
    #[error("no randomness")]
    Random(#[source] server::posture::FoundError),
    /// The identity cannot be used.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// It cannot be encrypted.
    #[error("the value cannot be encrypted")]
    Encrypt(#[source] AgeError),
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: spool::SpoolError,
    },
    /// A file cannot be read, or its folder made.
    #[error("cannot use {}", path.display())]
    Use {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Not a recipient's key.
    #[error("`{0}` is no recipient key")]
    Key(String, #[source] ParseRecipientError),
    /// Not a hostname.
    #[error("`{0}` is no hostname: {1}")]
    Hostname(String, String),
    /// The file has a form that this verb does not write.
    #[error("{} has a form that is not written here; add the line by hand", .0.display())]
    Form(PathBuf),
    /// The node's key stands in a file that this verb does not write.
    #[error("the key of {0} stands in a file below recipients/, and two of one node are a mistake")]
    OtherFile(String),
    /// Nothing of that name.
    #[error("the fleet repo uses no secret `{0}`, and no entry matches such a node")]
    Unknown(String),
}

impl UserError for SecretVerbError {
    fn hint(&self) -> Option<String> {
        match self {
            SecretVerbError::Name(_) => Some("write  team/name".to_owned()),
            SecretVerbError::NoFolder(_) => {
                Some("add to fleet.yaml:  secrets: {sources: {files: {age: secrets/}}}".to_owned())
            }
            SecretVerbError::NotThere(_) => Some("`muster secret set` makes one".to_owned()),
            SecretVerbError::Unknown(_) => Some("`muster secret list` shows those that it uses".to_owned()),
            SecretVerbError::OtherFile(node) => Some(format!("change the line of {node} there by hand")),
            SecretVerbError::Empty => {
                Some("the value comes on standard input, or say --random to `rotate`".to_owned())
            }
            SecretVerbError::NoIdentity(_) => {
                Some("name the file of whoever publishes: --identity FILE".to_owned())
            }
            SecretVerbError::TooLarge => Some(TOO_LARGE_HINT.to_owned()),
            SecretVerbError::UnknownNode(_) => {
                Some("look at the name; for a node that is to come, say --unknown".to_owned())
            }
            SecretVerbError::Key(..) => Some("`muster-agent identity` prints it on the host".to_owned()),
            _ => None,
        }
    }
}

/// Does the verb.
///
/// # Errors
/// When the repo has mistakes, or what is asked cannot be done.
pub async fn run(args: &SecretArgs, screen: Screen) -> Result<Exit, Failure> {
    leave_no_core();
    next_step::remember(args.connect.operator.as_deref());
    let settings = settings(args.repo.clone(), args.identity.as_deref(), args.connect.operator.as_deref());
    match &args.what {
        SecretVerb::Set(set) => set::set(set, &settings, screen),
        SecretVerb::Rotate(rotate) => set::rotate(rotate, &settings, screen),
        SecretVerb::List => list::run(&settings, &args.connect, screen).await,
        SecretVerb::Reach(reach) => reach::run(reach, &settings, &args.connect, screen).await,
        SecretVerb::Trust(trust) => trust_node::run(trust, &settings, screen),
    }
}

/// Where secrets are asked for: the identity named, else the one beside the credentials.
pub fn settings(repo: PathBuf, identity: Option<&Path>, operator: Option<&Path>) -> SecretSettings {
    let named = identity.map(Path::to_owned).or_else(|| std::env::var_os(IDENTITY_ENV).map(PathBuf::from));
    let beside = || match operator {
        Some(operator) => operator.with_file_name(AGE_IDENTITY),
        None => credentials::data_dir().join(AGE_IDENTITY),
    };
    SecretSettings { repo, identity: named.unwrap_or_else(beside), vault_token: None }
}

/// From here on this process has secrets in its memory: nothing of it is written to a core file (SEC-3).
pub fn leave_no_core() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    // Where the kernel refuses, the other of the two still holds.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// How nodes of a fleet stand with a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct SecretReach {
    /// Nodes that can open it.
    open: Vec<String>,
    /// Those of them whose recipient key nobody named: they signed for it with the key that nodes.yaml declares.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    by_statement: Vec<String>,
    /// Nodes that need it and have no recipient key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    blocked: Vec<String>,
    /// Nodes that need it, whose keys nodes.yaml declares, and which the control plane could not be asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unasked: Vec<String>,
    /// Patterns of nodes that need it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    patterns: Vec<String>,
}

impl SecretReach {
    fn add(&mut self, node: &str, standing: RecipientStanding) {
        match standing {
            RecipientStanding::Named => self.open.push(node.to_owned()),
            RecipientStanding::Stated => {
                self.open.push(node.to_owned());
                self.by_statement.push(node.to_owned());
            }
            RecipientStanding::Unasked => self.unasked.push(node.to_owned()),
            RecipientStanding::None => self.blocked.push(node.to_owned()),
        }
    }

    /// The lists of nodes.
    fn nodes_mut(&mut self) -> [&mut Vec<String>; 4] {
        [&mut self.open, &mut self.by_statement, &mut self.blocked, &mut self.unasked]
    }

    /// Whether a node is in one of them.
    fn names(&self, node: &str) -> bool {
        [&self.open, &self.blocked, &self.unasked].iter().any(|nodes| nodes.iter().any(|one| one == node))
    }
}

/// Who can open what, by the secret's name.
fn reach_of(fleet: &Fleet, needs: &SecretNeeds, recipients: &Recipients) -> BTreeMap<String, SecretReach> {
    let specialized = fleet.specialize();
    let mut all: BTreeMap<String, SecretReach> =
        needs.secrets.keys().map(|name| (name.clone(), SecretReach::default())).collect();
    // Who signs for its key is named exactly.
    let by_pattern = fleet.recipients().keys().filter(|name| !specialized.exact.contains_key(&***name));
    let by_pattern = by_pattern.filter_map(|name| Some((name, specialized.node(name)?)));
    for (name, spec) in specialized.exact.iter().chain(by_pattern) {
        let standing = recipients.standing(fleet, name);
        for secret in needs.of_node(spec) {
            all.entry(secret).or_default().add(name, standing);
        }
    }
    for pattern in specialized.patterns.iter() {
        for secret in needs.of_node(&pattern.spec) {
            all.entry(secret).or_default().patterns.push(pattern.pattern.as_str().to_owned());
        }
    }
    all.values_mut().flat_map(SecretReach::nodes_mut).for_each(|nodes| nodes.sort());
    all
}

/// The same as far as the fleet repo alone tells.
fn reach_by_repo(fleet: &Fleet) -> BTreeMap<String, SecretReach> {
    reach_of(fleet, &SecretNeeds::of(fleet.specialize()), &Recipients::default())
}
