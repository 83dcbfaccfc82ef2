//! `muster closure`: closures of NixOS for nodes that reach no cache (ROL-9).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use data_encoding::BASE64;
use serde::Serialize;
use server::api::closures::{ClosurePiece, ClosureProgress, PUT_CLOSURE};
use trust::nix::{
    ClosureOrder, ClosureOrderError, MAX_NARINFO, NarCompression, NarInfo, NarInfoError, StorePath,
};

use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::operator::Operator;
use crate::screen::{Screen, aside, plural};

/// How much of an archive goes in one request, in bytes.
const PIECE: u64 = 4 * 1024 * 1024;
/// An archive of more bytes than this is named before it goes: it may take a while.
const NAMED_FROM: u64 = 64 * 1024 * 1024;

const AFTER: &str = "\
The folder is a binary cache with archives that are not packed, as this makes it where the closure
is, with the signatures that nodes want:
  nix copy --to 'file:///srv/cache?compression=none' /nix/store/HASH-NAME
What the control plane has already is not sent again, and what broke off goes on. A node gets a
closure from here when its release names it and no cache gives it; two weeks after no node's
release names it any more, or after it was uploaded, it goes. At most 16 GiB for one path, 256 GiB
for all; they are not part of backups.

Examples:
  muster closure upload /nix/store/HASH-nixos-system-web-1-25.11 --from /srv/cache";

/// Arguments of `muster closure`.
#[derive(Args, Debug)]
pub struct ClosureArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    what: ClosureVerb,
}

#[derive(Debug, Subcommand)]
enum ClosureVerb {
    /// Upload a closure to the control plane, for nodes that reach no cache
    #[command(after_help = AFTER)]
    Upload(UploadArgs),
}

#[derive(Args, Debug)]
struct UploadArgs {
    /// The path, /nix/store/HASH-NAME
    path: String,
    /// The folder with the binary cache
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
}

/// Why a closure is not uploaded.
#[derive(Debug, thiserror::Error)]
enum UploadClosureError {
    #[error(transparent)]
    Path(#[from] trust::nix::StorePathError),
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} cannot be used", path.display())]
    Info { path: PathBuf, source: NarInfoError },
    #[error("{} is of {is}, and not of {wanted}", path.display())]
    Other { path: PathBuf, is: StorePath, wanted: StorePath },
    #[error("the archive of {0} is packed")]
    Packed(StorePath),
    #[error(transparent)]
    Order(#[from] ClosureOrderError),
    #[error("{} has other than the {wanted} bytes that its narinfo says", path.display())]
    Length { path: PathBuf, wanted: u64 },
}

impl UserError for UploadClosureError {
    fn hint(&self) -> Option<String> {
        match self {
            UploadClosureError::Packed(path) => {
                Some(format!("make the folder with `nix copy --to 'file:///DIR?compression=none' {path}`"))
            }
            UploadClosureError::Read { source, .. }
                if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                Some(
                "--from names the folder of a binary cache, with HASH.narinfo of the path and of all that it needs, and nar/"
                        .to_owned(),
                )
            }
            _ => None,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UploadedClosure {
    closure: StorePath,
    paths: usize,
    sent: usize,
    bytes: u64,
    /// The names of the keys that signed every path. Nodes verify that; nothing here does.
    signed_by: BTreeSet<String>,
}

/// The names of the keys by which all of these paths say to be signed.
fn signers(infos: &[NarInfo]) -> BTreeSet<String> {
    let of = |info: &NarInfo| info.signers().map(str::to_owned).collect::<BTreeSet<_>>();
    infos.iter().map(of).reduce(|all, one| &all & &one).unwrap_or_default()
}

/// Does the verb.
///
/// # Errors
/// When the folder cannot be read, or the control plane refuses.
pub async fn run(args: &ClosureArgs, screen: Screen) -> Result<Exit, Failure> {
    let ClosureVerb::Upload(UploadArgs { path, from }) = &args.what;
    let closure: StorePath = path.trim_end_matches('/').parse().map_err(UploadClosureError::Path)?;
    let infos = walk(from, &closure)?;
    let operator = args.connect.dial().await?;
    let mut uploaded =
        UploadedClosure { closure, paths: infos.len(), sent: 0, bytes: 0, signed_by: signers(&infos) };
    for info in &infos {
        let sent = upload(&operator, from, info).await?;
        uploaded.sent += usize::from(sent > 0);
        uploaded.bytes += sent;
    }
    screen.result(&uploaded, || show(&uploaded))?;
    Ok(Exit::Ok)
}

fn show(uploaded: &UploadedClosure) -> String {
    let UploadedClosure { closure, paths, sent, bytes, signed_by } = uploaded;
    let paths = plural(*paths, "path");
    let signed = if signed_by.is_empty() {
        "no key signed all of them: nodes take none that is not signed by one of their `cache_keys`"
            .to_owned()
    } else {
        let names = signed_by.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        format!("signed by {names}, which nodes verify by their `cache_keys`")
    };
    format!(
        "{closure}\n{paths}, {sent} of them sent now ({bytes} bytes), each with what it needs\n{signed}\n"
    )
}

/// What the closure consists of, from below.
fn walk(from: &Path, closure: &StorePath) -> Result<Vec<NarInfo>, UploadClosureError> {
    let mut order = ClosureOrder::of(closure.clone());
    let mut known = BTreeSet::new();
    loop {
        let asked = order.next_asked();
        if asked.is_empty() {
            break;
        }
        for path in asked {
            let info = read(from, &path)?;
            known.insert(path);
            order.found(info)?;
        }
    }
    Ok(order.finish(|path| known.contains(path))?)
}

fn read(from: &Path, wanted: &StorePath) -> Result<NarInfo, UploadClosureError> {
    let path = from.join(format!("{}.narinfo", wanted.hash()));
    let failed = |source| UploadClosureError::Read { path: path.clone(), source };
    let mut text = String::new();
    let file = File::open(&path).map_err(failed)?;
    file.take(MAX_NARINFO as u64 + 1).read_to_string(&mut text).map_err(failed)?;
    let info: NarInfo =
        text.parse().map_err(|source| UploadClosureError::Info { path: path.clone(), source })?;
    if info.path != *wanted {
        return Err(UploadClosureError::Other { path, is: info.path, wanted: wanted.clone() });
    }
    if info.compression != NarCompression::None {
        return Err(UploadClosureError::Packed(info.path));
    }
    Ok(info)
}

/// Sends what the control plane lacks of a path; gives how many bytes.
async fn upload(operator: &Operator, from: &Path, info: &NarInfo) -> Result<u64, Failure> {
    let put = async |at: u64, bytes: &[u8]| {
        let piece = ClosurePiece { narinfo: info.to_string(), from: at, bytes: BASE64.encode(bytes) };
        operator.call(&PUT_CLOSURE, piece).await
    };
    let mut progress: ClosureProgress = put(0, &[]).await?;
    let mut sent = 0;
    let left = info.nar_size.saturating_sub(progress.held);
    if !progress.whole && left > NAMED_FROM {
        aside(&format!("{}: {} MiB", info.path, left >> 20));
    }
    while !progress.whole {
        let piece = piece(&from.join(&info.url), progress.held, info.nar_size)?;
        let next = put(progress.held, &piece).await?;
        sent += piece.len() as u64;
        progress = next;
    }
    Ok(sent)
}

/// The next bytes of an archive; at least one.
fn piece(path: &Path, from: u64, size: u64) -> Result<Vec<u8>, UploadClosureError> {
    let failed = |source| UploadClosureError::Read { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    if length != size || from >= size {
        return Err(UploadClosureError::Length { path: path.to_owned(), wanted: size });
    }
    file.seek(SeekFrom::Start(from)).map_err(failed)?;
    let mut piece = Vec::new();
    file.take(PIECE).read_to_end(&mut piece).map_err(failed)?;
    Ok(piece)
}
