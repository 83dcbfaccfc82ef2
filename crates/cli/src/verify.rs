//! `muster verify FILE`: a proof checked with the fleet's root alone; and two hosts' stories compared.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::module::{Module, Params};
use clap::{ArgGroup, Args};
use converge::declared_path::{DeclaredBy, DeclaredBytes, DeclaredPath, DeclaredPathError, declared_path};
use lang::Value;
use model::digest::Hasher;
use model::{Digest, Kind, ObjectKey, canonical};
use serde::Serialize;
use serde::de::DeserializeOwned;
use trust::adopt::takes;
use trust::equivocation::{Contradiction, MAX_SEEN, SeenRecord, Testimony, TestimonyError, contradiction};
use trust::provenance::{
    AnchoredTrust, MAX_PROVENANCE, ProofEvidence, ProofStep, Provenance, ProvenanceError, TrustAnchor,
};
use trust::{PublicKey, TrustDocument};

use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::prove::{PARAMS, declared_text};
use crate::screen::{Mark, Screen};

const AFTER: &str = "\
Asks nobody: all that is believed is the trust document of --trust (trust.json of the control
plane's directory, any version of it), or the fleet's root key of --root-key (its text, or a file
with it). With a root key the file must hold a trust document that the key signed: one after a
rotation, or the first where `muster prove` had the root key at hand.

Each step that holds is printed; at the first that does not the program ends with 1. --bytes
compares a file, as on the host itself.

--equivocation takes what `muster-agent seen --out` wrote on two hosts, or `muster prove --out`.
It ends with 2 when both cannot be honest, and says why; with 0 when both may be.

Examples:
  muster verify motd.json --trust trust.json
  muster verify motd.json --root-key ed25519:6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw=
  muster verify motd.json --trust trust.json --bytes /etc/motd
  muster verify --equivocation web-1.json web-2.json --trust trust.json";

/// Arguments of `muster verify`.
#[derive(Args, Debug)]
#[command(after_help = AFTER, group = ArgGroup::new("anchor").required(true), group = ArgGroup::new("what").required(true))]
pub struct VerifyArgs {
    /// What `muster prove --out` wrote
    #[arg(group = "what")]
    file: Option<PathBuf>,
    /// The fleet's trust document: all else is verified by it
    #[arg(long, value_name = "FILE", group = "anchor")]
    trust: Option<PathBuf>,
    /// A root key of the fleet, as text or in a file: all else is verified by it
    #[arg(long, value_name = "KEY", group = "anchor")]
    root_key: Option<String>,
    /// A file whose bytes are to be those that are proven
    #[arg(long, value_name = "FILE", requires = "file")]
    bytes: Option<PathBuf>,
    /// Compare what two hosts were told
    #[arg(long, num_args = 2, value_names = ["A", "B"], group = "what")]
    equivocation: Option<Vec<PathBuf>>,
}

/// Why something is not verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyProofError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is longer than any that is written.
    #[error("{} is longer than {most} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The most.
        most: u64,
    },
    /// A file holds something else.
    #[error("{} does not hold {what}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
    /// The key cannot be read.
    #[error("{0:?} is neither a key nor a file that holds one")]
    Key(String),
    /// A step does not hold.
    #[error("{step} does not hold: {0}", step = .0.step().as_str())]
    Step(#[from] ProvenanceError),
    /// An object is not what its kind says.
    #[error("resource does not hold: {0} cannot be read")]
    Object(ObjectKey),
    /// The objects do not say what the path holds.
    #[error("resource does not hold: {0}")]
    Declared(#[from] DeclaredPathError),
    /// The proof declares no bytes to compare.
    #[error("bytes does not hold: the release declares no bytes of {0} as a whole")]
    NoBytes(String),
    /// Other bytes are there.
    #[error("bytes does not hold: {} has sha256:{got}, and the release declares {want}", path.display())]
    OtherBytes {
        /// The file.
        path: PathBuf,
        /// Of what is there.
        got: Digest,
        /// As declared.
        want: String,
    },
    /// One side of a comparison says nothing.
    #[error("{} says nothing", path.display())]
    Testimony {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: TestimonyError,
    },
}

impl UserError for VerifyProofError {
    fn hint(&self) -> Option<String> {
        match self {
            VerifyProofError::Step(ProvenanceError::OtherRoot(_)) => Some(
                "verify with the trust document (--trust), or make the proof where the root key is (--root-key)"
                    .to_owned(),
            ),
            VerifyProofError::Step(ProvenanceError::Header { counted: Some(_), .. }) => {
                Some("publish anew, and make another proof".to_owned())
            }
            _ => None,
        }
    }
}

/// What was verified.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VerifiedProof<'a> {
    node: &'a str,
    path: &'a str,
    evidence: Vec<ProofEvidence>,
}

/// What two sides say.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ComparedStories {
    says: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contradiction: Option<Contradiction>,
}

/// Does the verb.
///
/// # Errors
/// The first step that does not hold.
pub fn run(args: &VerifyArgs, screen: Screen) -> Result<Exit, Failure> {
    let anchor = anchor(args)?;
    if let Some([a, b]) = args.equivocation.as_deref() {
        return compare([a, b], &anchor, screen);
    }
    // One of both is required.
    let path = args.file.clone().unwrap_or_default();
    let provenance: Provenance = read_json(&path, MAX_PROVENANCE, "a proof of `muster prove`")?;
    let mut evidence = Vec::new();
    let verified = verify(&provenance, &anchor, args.bytes.as_deref(), &mut evidence);
    let shown = VerifiedProof { node: provenance.hostname.as_str(), path: &provenance.path, evidence };
    if verified.is_ok() || !screen.is_json() {
        screen.result(&shown, || text(&shown, screen))?;
    }
    verified?;
    Ok(Exit::Ok)
}

fn verify(
    provenance: &Provenance,
    anchor: &TrustAnchor,
    bytes: Option<&Path>,
    evidence: &mut Vec<ProofEvidence>,
) -> Result<(), VerifyProofError> {
    provenance.verify(anchor, &takes, &mut |step| evidence.push(step))?;
    let declared = declared(provenance)?;
    let mut shows = declared_text(&declared, &provenance.path);
    if provenance.traits.is_some() {
        shows.push_str("; it may depend on traits, which are the node's word");
    }
    evidence.push(ProofEvidence { step: ProofStep::Resource, shows });
    let Some(path) = bytes else { return Ok(()) };
    let want = match declared.bytes {
        DeclaredBytes::Digest(digest) => Some(digest),
        DeclaredBytes::Absent => None,
        DeclaredBytes::NotWhole => return Err(VerifyProofError::NoBytes(provenance.path.clone())),
    };
    match (digest_of(path), want) {
        (Err(error), None) if error.kind() == io::ErrorKind::NotFound => {
            evidence.push(ProofEvidence {
                step: ProofStep::Bytes,
                shows: format!("{} is not there", path.display()),
            });
            Ok(())
        }
        (Err(source), _) => Err(VerifyProofError::Read { path: path.to_owned(), source }),
        (Ok(got), Some(want)) if got == want => {
            let shows = format!("{} holds the bytes sha256:{got}", path.display());
            evidence.push(ProofEvidence { step: ProofStep::Bytes, shows });
            Ok(())
        }
        (Ok(got), want) => {
            let want =
                want.map_or_else(|| "that nothing is there".to_owned(), |want| format!("sha256:{want}"));
            Err(VerifyProofError::OtherBytes { path: path.to_owned(), got, want })
        }
    }
}

/// What the objects of a verified proof say of its path, bound anew.
fn declared(provenance: &Provenance) -> Result<DeclaredPath, VerifyProofError> {
    let (mut modules, mut params) = (BTreeMap::new(), None);
    for object in &provenance.objects {
        let key = &object.key;
        let unread = |_| VerifyProofError::Object(key.clone());
        match key.section.kind.as_str() {
            Kind::MODULE => {
                let module: Module = canonical::parse(object.content.as_bytes()).map_err(unread)?;
                modules.insert(key.name.to_string(), Arc::new(module));
            }
            Kind::PARAMS if *key.name == *PARAMS => {
                let read: Params = canonical::parse(object.content.as_bytes()).map_err(unread)?;
                params = Some(read);
            }
            _ => {}
        }
    }
    // Traits that are no map are none.
    let traits: Option<Value> =
        provenance.traits.clone().and_then(|traits| serde_json::from_value(traits).ok());
    let by = DeclaredBy {
        hostname: provenance.hostname.as_str(),
        modules: &modules,
        params: params.as_ref(),
        traits: traits.as_ref(),
    };
    Ok(declared_path(by, &provenance.path)?)
}

fn compare(paths: [&PathBuf; 2], anchor: &TrustAnchor, screen: Screen) -> Result<Exit, Failure> {
    let [a, b] = [testimony(paths[0])?, testimony(paths[1])?];
    // Whichever leads further.
    let documents = if a.trust().len() >= b.trust().len() { a.trust() } else { b.trust() };
    let trust = match anchor {
        TrustAnchor::Document(document) if documents.is_empty() => AnchoredTrust::of((**document).clone()),
        anchor => AnchoredTrust::reach(anchor, documents).map_err(VerifyProofError::Step)?,
    };
    let said = |testimony: &Testimony, path: &Path| {
        let verified = testimony.verify(&trust);
        verified.map_err(|source| VerifyProofError::Testimony { path: path.to_owned(), source })
    };
    let (a, b) = (said(&a, paths[0])?, said(&b, paths[1])?);
    let compared = ComparedStories { says: vec![a.says(), b.says()], contradiction: contradiction(&a, &b) };
    screen.result(&compared, || {
        let mut out: String = compared.says.iter().map(|says| format!("{says}\n")).collect();
        out.push_str(&match &compared.contradiction {
            Some(found) => format!("{}: {found}\n", screen.mark(Mark::Bad, "CONTRADICTION")),
            None => "no contradiction: both may have been told the truth\n".to_owned(),
        });
        out
    })?;
    Ok(if compared.contradiction.is_some() { Exit::Differences } else { Exit::Ok })
}

fn testimony(path: &Path) -> Result<Testimony, VerifyProofError> {
    const WHAT: &str = "what `muster-agent seen` or `muster prove` wrote";
    let parse = |source| VerifyProofError::Parse { path: path.to_owned(), what: WHAT, source };
    let bytes = read(path, MAX_PROVENANCE)?;
    // A proof is longer than what a node exports, and has no such field.
    let is_seen = bytes.len() as u64 <= MAX_SEEN
        && serde_json::from_slice::<serde_json::Value>(&bytes).map_err(parse)?.get("seen").is_some();
    Ok(match is_seen {
        true => Testimony::Seen(Box::new(serde_json::from_slice::<SeenRecord>(&bytes).map_err(parse)?)),
        false => Testimony::Provenance(Box::new(serde_json::from_slice(&bytes).map_err(parse)?)),
    })
}

fn anchor(args: &VerifyArgs) -> Result<TrustAnchor, VerifyProofError> {
    if let Some(path) = &args.trust {
        let document: TrustDocument = read_json(path, MAX_SEEN, "a trust document")?;
        return Ok(TrustAnchor::Document(Box::new(document)));
    }
    // One of both is required.
    let text = args.root_key.clone().unwrap_or_default();
    let key = text.parse::<PublicKey>().ok();
    let key = key.or_else(|| crate::signer::public(Path::new(&text)).ok());
    Ok(TrustAnchor::RootKey(key.ok_or(VerifyProofError::Key(text))?))
}

fn read_json<T: DeserializeOwned>(path: &Path, most: u64, what: &'static str) -> Result<T, VerifyProofError> {
    let bytes = read(path, most)?;
    serde_json::from_slice(&bytes).map_err(|source| VerifyProofError::Parse {
        path: path.to_owned(),
        what,
        source,
    })
}

fn read(path: &Path, most: u64) -> Result<Vec<u8>, VerifyProofError> {
    let failed = |source| VerifyProofError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > most {
        return Err(VerifyProofError::TooLong { path: path.to_owned(), most });
    }
    Ok(bytes)
}

fn digest_of(path: &Path) -> io::Result<Digest> {
    let (mut file, mut hasher) = (File::open(path)?, Hasher::new());
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            read => hasher.update(buffer.get(..read).unwrap_or_default()),
        }
    }
}

fn text(shown: &VerifiedProof<'_>, screen: Screen) -> String {
    let ok = screen.mark(Mark::Good, "ok");
    let line =
        |ProofEvidence { step, shows }: &ProofEvidence| format!("{ok}  {:<10} {shows}\n", step.as_str());
    let lines: String = shown.evidence.iter().map(line).collect();
    format!("{} on {}\n{lines}", screen.mark(Mark::Bold, shown.path), shown.node)
}
