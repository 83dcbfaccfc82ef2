//! [`PublishError`]: why nothing was published, and what to do about it.

use lang::Diagnostics;
use model::{Channel, Timestamp};
use resolve::Tree;
use resolve::release::ReleaseError;
use resolve::secrets::NotSealed;
use tokio::task::JoinError;
use trust::retired::RetiredHeaderError;

use super::publisher::COMMIT_ATTEMPTS;
use super::request::RequestError;
use crate::exit::Exit;
use crate::failure::UserError;
use crate::header::HeaderError;
use crate::lists::ListError;
use crate::operator::OperatorCallError;
use crate::remote::RemoteError;
use crate::screen::{aside, plural};
use crate::secret::SecretError;
use crate::signer::SignError;

/// Why nothing was published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The fleet repo has mistakes.
    #[error("{} in the fleet repo", plural(*.0, "mistake"))]
    Broken(usize),
    /// The control plane did not do what it was asked.
    #[error("the control plane could not be asked")]
    Call(#[from] OperatorCallError),
    /// Lists of tokens and revocations are not published.
    #[error(transparent)]
    Lists(#[from] ListError),
    /// What is published now cannot be read.
    #[error("the release that is published now cannot be read")]
    Remote(#[from] RemoteError),
    /// A secret has no value.
    #[error("a secret that the fleet repo uses has no value; nothing is published")]
    Secret(#[source] SecretError),
    /// The fleet repo uses secrets, and this program was not told where they are.
    #[error("the fleet repo uses secrets, and they are not asked for here")]
    NoSecretSources,
    /// The secrets cannot be sealed.
    #[error("the secrets cannot be sealed")]
    NotSealed(#[source] NotSealed),
    /// The release cannot be built.
    #[error("the release cannot be built")]
    Build(#[from] ReleaseError),
    /// The fleet's nodes do not believe this key.
    #[error("the fleet's nodes do not believe the release key {0}")]
    OtherKey(String),
    /// A header of the control plane is signed by nobody known.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// A header of an earlier release was signed by a key whose signatures of then are rejected.
    #[error(
        "release {seq} was signed at a time from which this fleet rejects signatures: before {limit} a release key \
         may have been stolen"
    )]
    Rejected {
        /// The release.
        seq: u64,
        /// From when on signatures count.
        limit: Timestamp,
    },
    /// A header of an earlier release was signed by no key that the fleet ever believed.
    #[error("release {seq} was signed by no release key that this fleet's trust documents name")]
    NeverBelieved {
        /// The release.
        seq: u64,
    },
    /// A header of an earlier release is dated later than its key was dropped.
    #[error("release {seq} is not believed")]
    SignedAfterDropped {
        /// The release.
        seq: u64,
        /// When it was signed, and when the key was dropped.
        #[source]
        source: RetiredHeaderError,
    },
    /// A header of an earlier release is of another one.
    #[error("the control plane's header of release {seq} for channel {channel} is of another release")]
    OtherHeader {
        /// The channel.
        channel: Channel,
        /// The release.
        seq: u64,
    },
    /// A document cannot be signed.
    #[error("the release cannot be signed")]
    Sign(#[source] SignError),
    /// One key was given twice: its signature counts once.
    #[error("key {0} is given twice; it counts as one signer")]
    SameSigner(String),
    /// Signatures are missing.
    #[error("channel {channel} asks for {need} signatures, and has {have}; {}", open(.others))]
    TooFew {
        /// The channel.
        channel: Channel,
        /// How many it has.
        have: usize,
        /// How many it needs.
        need: usize,
        /// Ids of keys that may sign and did not.
        others: Vec<String>,
    },
    /// What was uploaded for a request to sign was cleaned away since, as nothing pointed to it.
    #[error("what was uploaded for this release is not kept any more: that is for a day")]
    NotKept,
    /// A request to sign cannot be used.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Somebody else published something else after this publisher compared: to go on would undo it unseen.
    #[error("release {0} was published meanwhile, and holds something else")]
    Overtaken(u64),
    /// Others publish the same content again and again, faster than this program.
    #[error("others published {COMMIT_ATTEMPTS} releases meanwhile")]
    Renumbered,
    /// The program is stopping.
    #[error("the upload was stopped")]
    Stopped(#[source] JoinError),
}

fn open(others: &[String]) -> String {
    match others {
        [] => "nobody else may sign".to_owned(),
        others => format!("who may sign too: {}", others.join(", ")),
    }
}

impl PublishError {
    /// Tells the mistakes of a fleet repo.
    pub(crate) fn broken(diagnostics: &Diagnostics, tree: &Tree) -> PublishError {
        aside(resolve::render(diagnostics, tree).trim_end());
        PublishError::Broken(diagnostics.len())
    }
}

impl UserError for PublishError {
    fn exit(&self) -> Exit {
        match self {
            PublishError::OtherKey(_) | PublishError::TooFew { .. } => Exit::Refused,
            _ => Exit::Error,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            PublishError::Lists(error) => error.hint(),
            PublishError::Sign(error) => error.hint(),
            PublishError::Request(error) => error.hint(),
            PublishError::NotKept => {
                Some("make the request anew, and have it signed again: `muster publish --out FILE`".to_owned())
            }
            PublishError::SameSigner(_) => Some("name another signer, or only one: --key FILE".to_owned()),
            PublishError::TooFew { .. } => Some(
                "nothing was published: name each signer (--key A --key B), or sign in steps: `muster publish --out \
                 FILE`, `muster sign FILE --key B`, `muster publish --from FILE`"
                    .to_owned(),
            ),
            PublishError::Broken(_) => {
                Some("`muster help CODE` explains a code; `muster check DIR` shows them again".to_owned())
            }
            PublishError::OtherKey(_) => {
                Some(
                    "`muster key show` names the release keys that count; sign with one of them: --key FILE or \
                     MUSTER_RELEASE_KEY"
                        .to_owned(),
                )
            }
            PublishError::Overtaken(_) => Some(
                "nothing was published: take that change into the fleet repo (`muster diff --repo DIR` shows it), \
                 then publish again"
                    .to_owned(),
            ),
            PublishError::Secret(error) => error.hint(),
            PublishError::Renumbered => Some("publish again".to_owned()),
            PublishError::Header(_) => Some(
                "its key may have been retired (`muster key show`); `muster publish --repo DIR` signs what the repo \
                 declares anew"
                    .to_owned(),
            ),
            PublishError::Rejected { .. }
            | PublishError::NeverBelieved { .. }
            | PublishError::SignedAfterDropped { .. } => Some(
                "`muster key show` names the keys; set the fleet repo back to what that release was made of, then \
                 `muster publish --repo DIR`"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}
