//! `muster key`: keys of a fleet, and the chain of trust documents that says which of them count (IDN-8).

pub(crate) mod file;
mod operator_authority;
pub(crate) mod proven;
mod rotate;
pub(crate) mod show;
mod threshold;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use model::{Channel, Timestamp};
use serde::Serialize;
use server::posture::FoundError;
use spool::SpoolError;
use trust::chain::{ChainError, NextVersionError, SlotName};
use trust::sealing::age::AgeError;
use trust::{KeyAlgorithm, PublicKey, RecipientKey};

use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::screen::Screen;
use crate::signer::{self, SignError, SignerError};
use file::KeyProtection;

const NEW_AFTER: &str = "\
Writes the private half to PATH (0600) and prints the public one. A file that is there stays.

Examples:
  muster key new /media/key/release-2.key
  muster key new root-2.key --algorithm ecdsa-p256
  muster key new release-2.key.age --encrypt-for age1...
  muster key new release-2.key.age --passphrase-file passphrase";

const ROTATE_AFTER: &str = "\
Makes the next version of the trust document, signs it with a root key, and publishes it; nodes
take it up at their next contact, the control plane and enrollment at once. The key before stays
believed as the previous one until `muster key retire`, or is dropped at once with --drop-previous.
In lab posture the new key is made in the control plane's directory, and the one before it is kept
beside it as NAME.previous. --new-chain is for a root key that is lost or stolen: nodes do not
follow that without a new token each.

Examples:
  muster key rotate release
  muster key rotate release --to /media/key/release-2.key --root-key /media/key/root.key
  muster key rotate release --drop-previous --reject-before 2027-03-01T00:00:00Z
  muster key rotate certificate-authority
  muster key rotate operator-authority
  muster key rotate root
  muster key rotate root --new-chain";

const RETIRE_AFTER: &str = "\
Makes a version of the trust document without the previous key. For the release key that is
refused while a channel's release is signed with it: publish first.

Examples:
  muster key retire release
  muster key retire root --root-key /media/key/root.key";

const SHOW_AFTER: &str = "\
Without a file: the chain of trust documents, which keys and thresholds count, and which nodes know so.
With a file: the public half of the key that it stands for, as --to and --signer take it.

Examples:
  muster key show
  muster key show hsm.yaml";

const THRESHOLD_AFTER: &str = "\
Makes the next version of the trust document, signs it with a root key, and publishes it. From then
on a release of the channel counts with N signatures of different signers, at the control plane and
on each node; the release key counts only where it is one of them. Without --signer the signers stay
those of before. A signer is named by its public key, or by a file as `muster key show FILE` takes it.
An agent from before thresholds does not follow such a document, and says so.

Examples:
  muster key threshold stable 2 --signer a.key --signer b.pub --signer ed25519:...
  muster key threshold stable 3
  muster key threshold stable --remove
  muster publish --repo fleet --key a.key --key b.key";

/// Arguments of `muster key`.
#[derive(Args, Debug)]
pub struct KeyArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    what: KeyVerb,
}

#[derive(Debug, Subcommand)]
enum KeyVerb {
    /// Show which keys count, which counted, and which nodes know so; or the public half of one
    #[command(after_help = SHOW_AFTER)]
    Show(ShowArgs),
    /// Make a key
    #[command(after_help = NEW_AFTER)]
    New(NewArgs),
    /// Have nodes believe another key
    #[command(after_help = ROTATE_AFTER)]
    Rotate(RotateArgs),
    /// Have nodes believe the previous key no more
    #[command(after_help = RETIRE_AFTER)]
    Retire(RetireArgs),
    /// Have releases of a channel count with signatures of several people alone
    #[command(after_help = THRESHOLD_AFTER)]
    Threshold(ThresholdArgs),
}

#[derive(Args, Debug)]
struct ShowArgs {
    /// A key file, an age file, a signer file, or a public key
    file: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct ThresholdArgs {
    /// The channel
    channel: Channel,
    /// How many of its signers must sign
    #[arg(required_unless_present = "remove", conflicts_with = "remove", value_parser = clap::value_parser!(u32).range(1..))]
    signatures: Option<u32>,
    /// Who may sign: a public key, or a file that stands for one; all of them, when any is named
    #[arg(long = "signer", value_name = "KEY|FILE", conflicts_with = "remove")]
    signers: Vec<String>,
    /// The channel asks for a release key alone, as channels without a threshold do
    #[arg(long)]
    remove: bool,
    /// The root key that signs the next version [default: root.key beside the operator's credentials]
    #[arg(long, value_name = "FILE")]
    root_key: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct NewArgs {
    /// The file to make
    path: PathBuf,
    /// What the key signs with
    #[arg(long, value_enum, default_value = "ed25519")]
    algorithm: AlgorithmName,
    /// Encrypt it for this age recipient; may be given more than once
    #[arg(long = "encrypt-for", value_name = "AGE1...", conflicts_with = "passphrase_file")]
    recipients: Vec<RecipientKey>,
    /// Encrypt it for the passphrase in the first line of this file
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AlgorithmName {
    Ed25519,
    EcdsaP256,
}

impl From<AlgorithmName> for KeyAlgorithm {
    fn from(name: AlgorithmName) -> KeyAlgorithm {
        match name {
            AlgorithmName::Ed25519 => KeyAlgorithm::Ed25519,
            AlgorithmName::EcdsaP256 => KeyAlgorithm::EcdsaP256,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SlotArg {
    /// The key that signs releases and beacons
    Release,
    /// The key that signs beacons and nothing else; a fleet without one gets it
    Beacon,
    /// The key that signs objects and actions in the control plane's name, and lies beside it; a fleet without
    /// one gets it
    ControlPlane,
    /// The CA of control planes', nodes' and proxies' certificates, which the control plane makes itself
    CertificateAuthority,
    /// The CA of operators' certificates, which the control plane makes itself and alone believes
    OperatorAuthority,
    /// The key that signs tokens and trust documents
    Root,
}

impl SlotArg {
    /// The slot of the trust document; `None` for what no document names.
    fn slot(self) -> Option<SlotName> {
        Some(match self {
            SlotArg::Release => SlotName::Release,
            SlotArg::Beacon => SlotName::Beacon,
            SlotArg::ControlPlane => SlotName::ControlPlane,
            SlotArg::CertificateAuthority => SlotName::CertificateAuthority,
            SlotArg::OperatorAuthority => return None,
            SlotArg::Root => SlotName::Root,
        })
    }
}

#[derive(Args, Debug)]
struct RotateArgs {
    /// Which key
    slot: SlotArg,
    /// The new key: a key file, or a file with its public half as `muster key new` prints it [default:
    /// made in the control plane's directory, where the key before lies there]. The certificate
    /// authority's never leaves the control plane: away from its host, the id of the new key, as its
    /// log there names it
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// The root key that signs the next version [default: root.key beside the operator's credentials]
    #[arg(long, value_name = "FILE", conflicts_with = "new_chain")]
    root_key: Option<PathBuf>,
    /// What was signed before this time counts no more, whichever key signed it
    #[arg(long, value_name = "TIME")]
    reject_before: Option<Timestamp>,
    /// The key before counts no more at once
    #[arg(long)]
    drop_previous: bool,
    /// The root key is lost or stolen: the new one signs for itself, in the control plane's directory, and
    /// every node needs a new token
    #[arg(long)]
    new_chain: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Args, Debug)]
struct RetireArgs {
    /// Which key
    slot: SlotArg,
    /// The root key that signs the next version [default: root.key beside the operator's credentials]
    #[arg(long, value_name = "FILE")]
    root_key: Option<PathBuf>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// Why a key was not made, or nothing was changed about those that count.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FleetKeyError {
    #[error("there is a file at {} already", .0.display())]
    Exists(PathBuf),
    #[error("cannot write the key {}", path.display())]
    Write { path: PathBuf, source: SpoolError },
    #[error("there is no key file at {}", .0.display())]
    NotAKey(PathBuf),
    #[error("the key cannot be used")]
    Key(#[source] FoundError),
    #[error("no key can be made")]
    Random(#[source] FoundError),
    #[error("there is no root key at {}", .0.display())]
    NoRoot(PathBuf),
    #[error("key {key} is no root key of trust document {version}")]
    NotRoot { key: String, version: u64 },
    #[error("no new {0} key is named, and the one that counts does not lie in the control plane's directory")]
    NoNewKey(&'static str),
    #[error("the next version of the trust document cannot be made")]
    Next(#[source] NextVersionError),
    #[error("the next version of the trust document cannot be signed")]
    Sign(#[source] SignError),
    #[error(transparent)]
    FleetSigner(#[from] SignerError),
    #[error("the key cannot be encrypted")]
    Encrypt(#[from] AgeError),
    #[error("channel {0} has no signers yet, and none is named")]
    NoSigners(Channel),
    #[error("channel {channel} points to a release whose key would count no more")]
    StillUsed { channel: Channel },
    #[error(
        "the control plane says that the next certificate authority has the key {id}, and nothing here confirms it"
    )]
    UnseenAuthority { id: String },
    #[error(
        "the certificate authority with the key {id}, which the control plane names, is not the one that lies there"
    )]
    OtherAuthority { id: String },
    #[error("trust document {version}, as the control plane shows it, is not what was signed")]
    OtherTrust { version: u64 },
    #[error("--new-chain is only for the root key")]
    OnlyRoot,
    #[error(
        "the certificate authority of operators is made by the control plane, and no trust document names it: --to, \
         --root-key, --reject-before and --new-chain are not for it"
    )]
    OwnAuthority,
    #[error("{} is no control plane's directory", .0.display())]
    NoDirectory(PathBuf),
    #[error("the trust documents of the control plane's directory cannot be used")]
    Directory(#[source] FoundError),
    #[error("the chain does not lead on so")]
    Chain(#[source] ChainError),
    #[error("the trust document is in the directory, and the control plane did not take it up")]
    NotTakenUp,
    #[error("the trust document is published, and the key files could not be put in place")]
    InPlace(#[source] std::io::Error),
}

impl UserError for FleetKeyError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            FleetKeyError::Exists(_) => "name another file: a key is never written over".to_owned(),
            FleetKeyError::NoRoot(_) => "name the file that holds it: --root-key FILE".to_owned(),
            FleetKeyError::NotRoot { .. } => {
                "nothing was changed; `muster key show` names the root keys that count".to_owned()
            }
            FleetKeyError::NoNewKey(_) => {
                "make one: `muster key new FILE`; then name it: --to FILE".to_owned()
            }
            FleetKeyError::FleetSigner(error) => return error.hint(),
            FleetKeyError::Sign(error) => return error.hint(),
            FleetKeyError::NoSigners(_) => "name each who may sign: --signer KEY".to_owned(),
            FleetKeyError::Next(NextVersionError::Threshold(_) | NextVersionError::SameThreshold(_)) => {
                "nothing was changed; `muster key show` names the signers that count".to_owned()
            }
            FleetKeyError::NotAKey(_) => "make a key: `muster key new FILE`".to_owned(),
            FleetKeyError::Next(NextVersionError::SameKey(_) | NextVersionError::OtherUse { .. }) => {
                "nothing was changed; make another key: `muster key new FILE`".to_owned()
            }
            FleetKeyError::StillUsed { .. } => {
                "nothing was changed; `muster publish` with the current key first".to_owned()
            }
            FleetKeyError::NoDirectory(_) => {
                "run this on the control plane's host, with --operator DIR/operator.json".to_owned()
            }
            FleetKeyError::UnseenAuthority { id } => format!(
                "nothing was changed; look on the control plane's host: its log names the key of the CA that it made. If it is \
                 {id}, say --to {id}; or run this there, with --operator DIR/operator.json"
            ),
            FleetKeyError::OtherAuthority { .. } => {
                "nothing was changed; somebody may answer in the control plane's place: look on its host, whose log names \
                 the key of the CA that it made"
                    .to_owned()
            }
            FleetKeyError::OtherTrust { .. } => {
                "nothing was signed; somebody may answer in the control plane's place, or its trust.json was changed or put \
                 back: compare it with a backup"
                    .to_owned()
            }
            FleetKeyError::NotTakenUp => "see its log; it takes the file up when it starts, too".to_owned(),
            FleetKeyError::InPlace(_) => "the same command again puts them in place".to_owned(),
            _ => return None,
        })
    }
}

#[derive(Serialize)]
struct PublicKeyView<'a> {
    file: &'a Path,
    public: String,
    id: String,
}

fn shown(file: &Path, key: PublicKey, screen: Screen) -> Result<Exit, Failure> {
    let view = PublicKeyView { file, public: key.to_string(), id: key.id() };
    Ok(screen.result(&view, || format!("{}\n", view.public))?)
}

/// Does the verb.
///
/// # Errors
/// When a key cannot be used or made, or the control plane refuses.
pub async fn run(args: &KeyArgs, screen: Screen) -> Result<Exit, Failure> {
    match &args.what {
        KeyVerb::Show(ShowArgs { file: Some(file) }) => shown(file, signer::public(file)?, screen),
        KeyVerb::Show(ShowArgs { file: None }) => show::run(&args.connect, screen).await,
        KeyVerb::New(new) => {
            let protection = match (&new.passphrase_file, new.recipients.as_slice()) {
                (Some(file), _) => KeyProtection::Passphrase(file.clone()),
                (None, []) => KeyProtection::Plain,
                (None, recipients) => KeyProtection::Recipients(recipients.to_vec()),
            };
            shown(&new.path, file::make(&new.path, new.algorithm.into(), &protection)?, screen)
        }
        KeyVerb::Threshold(threshold) => threshold::run(threshold, &args.connect, screen).await,
        KeyVerb::Rotate(rotate) if rotate.new_chain => rotate::new_chain(rotate, &args.connect, screen).await,
        KeyVerb::Rotate(rotate) => rotate::rotate(rotate, &args.connect, screen).await,
        KeyVerb::Retire(retire) => rotate::retire(retire, &args.connect, screen).await,
    }
}
