//! `muster backup`: a control plane's directory in one file, while the control plane runs (OPS-6).

mod archive;
pub mod audit;
mod left_behind;
pub mod restore;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use model::{FleetId, Timestamp};
use serde::Serialize;
use server::posture::{self, DATABASE, FLEET_FILES, FilePresence, FoundError, TRUST};
use store::StoreError;
use store::audit::AuditHead;
use tempfile::NamedTempFile;
use trust::TrustDocument;

use self::archive::{BackupManifest, FORMAT, ManifestFile};
use crate::clock::{bytes, now};
use crate::credentials::data_dir;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::screen::{Screen, aside};

/// The mode of the database's file.
const DATABASE_MODE: u32 = 0o600;

const AFTER: &str = "\
The file holds the database and the keys beside it: who has it can run this fleet's control plane.
It is not encrypted; only its owner can read it. Run this on the control plane's host, as root or as
the control plane's user; it goes on meanwhile.

Examples:
  muster backup /var/backups              a new file in that directory
  muster backup --data /srv/muster fleet.backup
  muster backup - | age -r RECIPIENT > fleet.backup.age
  muster restore --verify fleet.backup    see what is in it, and that it is whole";

/// Arguments of `muster backup`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct BackupArgs {
    /// The file to make, a directory to make it in, or - for standard output
    #[arg(value_name = "FILE|DIR")]
    to: PathBuf,
    /// The control plane's directory [default: ./muster-data, or that of the service]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
enum BackupError {
    #[error("{} holds no fleet", .0.display())]
    NoFleet(PathBuf),
    #[error("the control plane's directory cannot be read")]
    Found(#[from] FoundError),
    #[error("a file of every fleet is missing: {}", .0.display())]
    Missing(PathBuf),
    #[error("the database {} cannot be copied", path.display())]
    Database {
        path: PathBuf,
        #[source]
        source: StoreError,
    },
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl UserError for BackupError {
    fn hint(&self) -> Option<String> {
        match self {
            BackupError::NoFleet(_) => {
                Some("run this on the control plane's host, and name its directory: --data DIR".to_owned())
            }
            BackupError::Exists(_) => {
                Some("a backup is never written over: choose another name, or name a directory".to_owned())
            }
            BackupError::Database { source: StoreError::Corrupt(_), .. } => {
                Some("restore the newest backup that `muster restore --verify` finds whole".to_owned())
            }
            BackupError::Read { .. } | BackupError::Found(_) => {
                Some("run this as root or as the user that the control plane runs as".to_owned())
            }
            _ => None,
        }
    }
}

/// A backup that was made.
#[derive(Serialize)]
struct BackupView {
    /// Absent: standard output.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    fleet: FleetId,
    made: Timestamp,
    bytes: u64,
    /// The newest entry of the audit log.
    #[serde(skip_serializing_if = "Option::is_none")]
    audit: Option<AuditHead>,
    files: Vec<ManifestFile>,
}

/// Does the verb.
///
/// # Errors
/// When the directory cannot be read, or the file not be written; no file is made then.
pub fn run(args: &BackupArgs, screen: Screen) -> Result<Exit, Failure> {
    let data = args.data.clone().unwrap_or_else(data_dir);
    if !data.join(TRUST).exists() {
        return Err(BackupError::NoFleet(data).into());
    }
    let trust: TrustDocument = posture::read_json(&data.join(TRUST)).map_err(BackupError::Found)?;
    let made = now();
    if args.to == Path::new("-") {
        let (manifest, _copy, paths) = collect(&data, &data, &trust.fleet, made)?;
        let failed = |source| BackupError::Write { path: args.to.clone(), source };
        archive::write(&manifest, &paths, io::stdout().lock()).map_err(failed)?;
        aside(&format!(
            "a backup of fleet {}; it holds private keys, keep it as you keep those",
            trust.fleet
        ));
        return Ok(Exit::Ok);
    }
    let file = match args.to.is_dir() {
        true => args.to.join(format!("{}-{}.backup", trust.fleet, made.to_string().replace(':', ""))),
        false => args.to.clone(),
    };
    let view = to_file(&data, &file, &trust.fleet, made)?;
    Ok(screen.result(&view, || {
        format!(
            "backed up fleet {} into {}, {}\nit holds private keys, unencrypted: keep it as you keep those\n\
             next: muster restore --verify {}\n",
            view.fleet,
            file.display(),
            bytes(view.bytes),
            model::text::shell_word(&file.display().to_string())
        )
    })?)
}

/// Makes the file, whole or not at all; only its owner can read it.
fn to_file(data: &Path, file: &Path, fleet: &FleetId, made: Timestamp) -> Result<BackupView, BackupError> {
    if file.exists() {
        return Err(BackupError::Exists(file.to_owned()));
    }
    let failed = |source| BackupError::Write { path: file.to_owned(), source };
    let dir = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (manifest, _copy, paths) = collect(data, dir, fleet, made)?;
    let mut out = NamedTempFile::new_in(dir).map_err(failed)?;
    archive::write(&manifest, &paths, out.as_file_mut()).map_err(failed)?;
    out.as_file().sync_all().map_err(failed)?;
    let bytes = out.as_file().metadata().map_err(failed)?.len();
    out.persist_noclobber(file).map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => BackupError::Exists(file.to_owned()),
        _ => failed(error.error),
    })?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
    let BackupManifest { audit, files, .. } = manifest;
    Ok(BackupView { file: Some(file.to_owned()), fleet: fleet.clone(), made, bytes, audit, files })
}

/// Copies the database into a file of `scratch`, which goes with what is returned, and says what the backup is
/// of: the manifest, and where its files lie.
fn collect(
    data: &Path,
    scratch: &Path,
    fleet: &FleetId,
    made: Timestamp,
) -> Result<(BackupManifest, NamedTempFile, Vec<PathBuf>), BackupError> {
    let failed = |source| BackupError::Write { path: scratch.to_owned(), source };
    let database = data.join(DATABASE);
    let copy = NamedTempFile::new_in(scratch).map_err(failed)?;
    let copied = store::backup::copy(&database, copy.path());
    copied.map_err(|source| BackupError::Database { path: database, source })?;
    let audit = store::backup::audit_head(copy.path());
    let audit = audit.map_err(|source| BackupError::Database { path: copy.path().to_owned(), source })?;
    let mut found = vec![(DATABASE, DATABASE_MODE, copy.path().to_owned())];
    for file in FLEET_FILES {
        let path = data.join(file.name);
        match (path.exists(), file.presence) {
            (true, _) => found.push((file.name, file.mode, path)),
            (false, FilePresence::Always) => return Err(BackupError::Missing(path)),
            (false, FilePresence::MayLieElsewhere | FilePresence::Rotated) => {}
        }
    }
    let mut manifest = BackupManifest {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        fleet: fleet.clone(),
        made,
        audit,
        files: Vec::new(),
    };
    let mut paths = Vec::new();
    for (name, mode, path) in found {
        let read = File::open(&path).and_then(|mut file| archive::copy(&mut file, |_| Ok(())));
        let (size, digest) = read.map_err(|source| BackupError::Read { path: path.clone(), source })?;
        manifest.files.push(ManifestFile { name: name.to_owned(), mode, size, digest });
        paths.push(path);
    }
    Ok((manifest, copy, paths))
}
