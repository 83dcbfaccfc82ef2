//! `muster restore`: a control plane's directory from a backup, and `--verify`, which only looks (OPS-6, SCL-4).
//!
//! ```text
//! archive --unpack, verify--> directory beside the old files --inspect the database-->
//!   --mark it as restored--> marker --old files aside--> new files --> marker goes
//! ```
//!
//! Invariants: nothing of the directory changes before the whole backup is verified; no control plane starts on
//! a directory that is half restored; what was there before is moved aside, never deleted.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};

use clap::Args;
use model::{FleetId, Incarnation, Timestamp};
use serde::Serialize;
use server::posture::{self, DATABASE, FLEET_FILES, FoundError, RESTORING, TRUST};
use store::StoreError;
use store::backup::DatabaseSummary;
use trust::TrustDocument;

use super::archive::{self, BackupManifest, ReadBackupError};
use super::left_behind::LeftBehind;
use crate::clock::{bytes, now};
use crate::credentials::data_dir;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::screen::{Screen, plural};

const AFTER: &str = "\
The control plane must not run on the directory. Nodes need nothing: they call again, compare their
objects, send again what the backup lacks, and hold their releases until the next publish, whose number
is above theirs. What happened after the backup and lies on no node is gone: tokens and nodes of then,
objects applied and tasks begun then.

Examples:
  muster restore --verify fleet.backup
  muster restore fleet.backup
  age -d -i KEY fleet.backup.age | muster restore - --data /srv/muster
  muster restore fleet.backup --data /srv/muster --replace    over the same fleet, which is moved aside";

/// Arguments of `muster restore`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct RestoreArgs {
    /// The backup, or - for standard input
    file: PathBuf,
    /// The directory of the control plane to be; empty, or not there [default: ./muster-data, or that of the service]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Restore nothing: say what the backup holds, and whether it is whole. Needs room for it below TMPDIR
    #[arg(long, conflicts_with_all = ["data", "replace"])]
    verify: bool,
    /// Take the place of the same fleet, whose files are moved into a directory beside
    #[arg(long)]
    replace: bool,
}

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
enum RestoreError {
    #[error("{} is not to be used", file.display())]
    Backup {
        file: PathBuf,
        #[source]
        source: ReadBackupError,
    },
    #[error("cannot open {}", file.display())]
    Open {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the backup's {name} is missing")]
    Incomplete { name: &'static str },
    #[error("the backup's database cannot be used")]
    Database(#[source] StoreError),
    #[error("the backup's database is corrupt: {}", .0.join("; "))]
    Corrupt(Vec<String>),
    #[error("the backup is of fleet {manifest}, its {what} of fleet {other}")]
    Mixed { manifest: FleetId, what: &'static str, other: String },
    #[error("the backup's keys cannot be used")]
    Keys(#[source] FoundError),
    #[error("a control plane runs on {}", .0.display())]
    InUse(PathBuf),
    #[error("the control plane's directory {} cannot be locked", dir.display())]
    Lock {
        dir: PathBuf,
        #[source]
        source: StoreError,
    },
    #[error("{} holds fleet {there}, the backup is of fleet {backup}", dir.display())]
    OtherFleet { dir: PathBuf, there: FleetId, backup: FleetId },
    #[error("{} holds fleet {there} already", dir.display())]
    HoldsFleet { dir: PathBuf, there: FleetId },
    #[error("{} holds parts of a fleet, without its {TRUST}", .0.display())]
    Parts(PathBuf),
    #[error("cannot {what} {}", path.display())]
    Disk {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl UserError for RestoreError {
    fn exit(&self) -> Exit {
        match self {
            RestoreError::OtherFleet { .. } | RestoreError::HoldsFleet { .. } | RestoreError::InUse(_) => {
                Exit::Refused
            }
            _ => Exit::Error,
        }
    }

    fn hint(&self) -> Option<String> {
        let text = match self {
            RestoreError::Backup { source: ReadBackupError::Newer { .. }, .. }
            | RestoreError::Database(StoreError::Schema(_)) => {
                "restore it with the muster that wrote it, or a newer one"
            }
            RestoreError::Backup { source: ReadBackupError::Write { .. }, .. } => {
                "--verify needs room for the backup below TMPDIR, a restore in the directory itself"
            }
            RestoreError::Backup { .. } | RestoreError::Corrupt(_) | RestoreError::Incomplete { .. } => {
                "nothing was changed; use an earlier backup"
            }
            RestoreError::InUse(_) => "stop it first: systemctl stop muster",
            RestoreError::OtherFleet { .. } => "restore into an empty directory",
            RestoreError::HoldsFleet { .. } => {
                "restore into an empty directory; or over the same fleet with --replace: its files are moved aside, \
                 and what happened after the backup and lies on no node is gone"
            }
            RestoreError::Parts(_) => "move them away first",
            _ => return None,
        };
        Some(text.to_owned())
    }
}

/// What a backup holds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RestoreView {
    fleet: FleetId,
    made: Timestamp,
    version: String,
    bytes: u64,
    files: Vec<String>,
    database: DatabaseSummary,
    /// Where it was restored; absent when it was only verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<PathBuf>,
    /// Where the files are that were there before.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced: Option<PathBuf>,
    /// What is newer there than in the backup.
    #[serde(skip_serializing_if = "LeftBehind::is_nothing")]
    left_behind: LeftBehind,
}

/// Does the verb.
///
/// # Errors
/// When the backup is not whole or not to be used, or the directory is not free for it.
pub fn run(args: &RestoreArgs, screen: Screen) -> Result<Exit, Failure> {
    let view = match args.verify {
        true => verify(&args.file)?,
        false => restore(&args.file, &args.data.clone().unwrap_or_else(data_dir), args.replace)?,
    };
    Ok(screen.result(&view, || text(&view))?)
}

fn verify(file: &Path) -> Result<RestoreView, RestoreError> {
    let temp = std::env::temp_dir();
    let unpacked = tempfile::tempdir().map_err(disk("make a directory in", &temp))?;
    let (manifest, database) = unpack(file, unpacked.path())?;
    Ok(view(manifest, database, None, None))
}

fn restore(file: &Path, dir: &Path, replace: bool) -> Result<RestoreView, RestoreError> {
    let absent: Vec<&Path> = dir.ancestors().take_while(|path| !is_there(path)).collect();
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(disk("make", dir))?;
    restore_alone(file, dir, replace, &absent)
}

/// Restores under the lock of the directory. Where that fails, what was absent before is removed again.
fn restore_alone(
    file: &Path,
    dir: &Path,
    replace: bool,
    absent: &[&Path],
) -> Result<RestoreView, RestoreError> {
    let _held = store::backup::hold(&dir.join(DATABASE)).map_err(|source| match source {
        // Another restore may have found the directory absent, too: its lock is not ours to remove.
        StoreError::InUse => RestoreError::InUse(dir.to_owned()),
        source => RestoreError::Lock { dir: dir.to_owned(), source },
    })?;
    restore_into(file, dir, replace).inspect_err(|_| {
        if !absent.is_empty() {
            // While the lock is held: nobody else has it.
            let _ = fs::remove_file(dir.join(format!("{DATABASE}.lock")));
        }
        // Only what is empty goes.
        absent.iter().for_each(|path| drop(fs::remove_dir(path)));
    })
}

/// The last of the ancestors of a relative path is empty, and stands for the directory that the process is in.
fn is_there(path: &Path) -> bool {
    path.as_os_str().is_empty() || path.exists()
}

fn restore_into(file: &Path, dir: &Path, replace: bool) -> Result<RestoreView, RestoreError> {
    let there = fleet_of(dir)?;
    if let Some(there) = there.clone().filter(|_| !replace) {
        // Before a long backup is read; of which fleet that is, is not known yet.
        return Err(RestoreError::HoldsFleet { dir: dir.to_owned(), there });
    }
    let unpacked =
        tempfile::Builder::new().prefix(".restore-").tempdir_in(dir).map_err(disk("write into", dir))?;
    let (manifest, database) = unpack(file, unpacked.path())?;
    if let Some(there) = there.filter(|there| *there != manifest.fleet) {
        return Err(RestoreError::OtherFleet { dir: dir.to_owned(), there, backup: manifest.fleet });
    }
    store::backup::restored(&unpacked.path().join(DATABASE), &fresh_incarnation()?, now())
        .map_err(RestoreError::Database)?;
    let replaced = put_in_place(&manifest, unpacked.path(), dir)?;
    let left_behind = replaced.as_deref().map(|aside| LeftBehind::of(aside, dir)).unwrap_or_default();
    Ok(RestoreView { left_behind, ..view(manifest, database, Some(dir.to_owned()), replaced) })
}

/// The fleet that a directory holds; `None` when it holds none, or what a restore left that was cut off.
fn fleet_of(dir: &Path) -> Result<Option<FleetId>, RestoreError> {
    if dir.join(TRUST).exists() {
        let trust: TrustDocument = posture::read_json(&dir.join(TRUST)).map_err(RestoreError::Keys)?;
        return Ok(Some(trust.fleet));
    }
    let parts = FLEET_FILES.iter().map(|file| file.name).chain([DATABASE]);
    match dir.join(RESTORING).exists() || parts.into_iter().all(|name| !dir.join(name).exists()) {
        true => Ok(None),
        false => Err(RestoreError::Parts(dir.to_owned())),
    }
}

/// Unpacks a backup and judges all of it.
fn unpack(file: &Path, dir: &Path) -> Result<(BackupManifest, DatabaseSummary), RestoreError> {
    let from: Box<dyn Read> = match file == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => {
            let opened = File::open(file);
            Box::new(opened.map_err(|source| RestoreError::Open { file: file.to_owned(), source })?)
        }
    };
    let read = archive::unpack(BufReader::new(from), dir);
    let manifest = read.map_err(|source| RestoreError::Backup { file: file.to_owned(), source })?;
    let mut needed = FLEET_FILES.iter().filter(|file| file.presence == posture::FilePresence::Always);
    let named = |name: &str| manifest.files.iter().any(|file| file.name == name);
    if let Some(missing) = needed.find(|file| !named(file.name)) {
        return Err(RestoreError::Incomplete { name: missing.name });
    }
    if !named(DATABASE) {
        return Err(RestoreError::Incomplete { name: DATABASE });
    }
    let mixed = |what, other: String| RestoreError::Mixed { manifest: manifest.fleet.clone(), what, other };
    // As the control plane will: every key is read.
    let founded = posture::open(dir, None, now()).map_err(RestoreError::Keys)?;
    if founded.trust.fleet != manifest.fleet {
        return Err(mixed(TRUST, founded.trust.fleet.to_string()));
    }
    let database = store::backup::inspect(&dir.join(DATABASE)).map_err(RestoreError::Database)?;
    if database.fleet.as_ref() != Some(&manifest.fleet) {
        let other = database.fleet.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
        return Err(mixed("database", other));
    }
    match database.problems.is_empty() {
        true => Ok((manifest, database)),
        false => Err(RestoreError::Corrupt(database.problems)),
    }
}

/// Moves what is there aside and the backup's files into its place. A control plane refuses the directory in
/// between; another restore goes on from there.
fn put_in_place(manifest: &BackupManifest, from: &Path, dir: &Path) -> Result<Option<PathBuf>, RestoreError> {
    let marker = dir.join(RESTORING);
    File::create(&marker).and_then(|file| file.sync_all()).map_err(disk("write", &marker))?;
    sync(dir)?;
    let beside = ["muster.db-wal", "muster.db-shm", DATABASE];
    let old = FLEET_FILES.iter().map(|file| file.name).rev().chain(beside);
    let old: Vec<&str> = old.filter(|name| dir.join(name).exists()).collect();
    let aside = dir.join(format!("replaced-{}", now().to_string().replace(':', "")));
    if !old.is_empty() {
        DirBuilder::new().mode(0o700).create(&aside).map_err(disk("make", &aside))?;
    }
    for name in &old {
        fs::rename(dir.join(name), aside.join(name)).map_err(disk("move away", &dir.join(name)))?;
    }
    // A service's directory is its user's, whoever restores it.
    let owner = fs::metadata(dir).map_err(disk("look at", dir))?;
    let mine = rustix::process::geteuid().as_raw();
    if owner.uid() != mine {
        // The lock that this restore holds was made by whoever restores.
        let made = [dir.join(format!("{DATABASE}.lock")), aside.clone()];
        for path in made.iter().filter(|path| path.exists()) {
            chown(path, Some(owner.uid()), Some(owner.gid())).map_err(disk("give away", path))?;
        }
    }
    for file in &manifest.files {
        let (new, path) = (from.join(&file.name), dir.join(&file.name));
        if owner.uid() != mine {
            chown(&new, Some(owner.uid()), Some(owner.gid())).map_err(disk("give away", &new))?;
        }
        fs::rename(&new, &path).map_err(disk("put into its place", &path))?;
    }
    sync(dir)?;
    fs::remove_file(&marker).map_err(disk("remove", &marker))?;
    sync(dir)?;
    Ok((!old.is_empty()).then_some(aside))
}

fn sync(dir: &Path) -> Result<(), RestoreError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(disk("write", dir))
}

fn disk(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RestoreError {
    let path = path.to_owned();
    move |source| RestoreError::Disk { what, path, source }
}

fn fresh_incarnation() -> Result<Incarnation, RestoreError> {
    posture::fresh_incarnation().map_err(RestoreError::Keys)
}

fn view(
    manifest: BackupManifest,
    database: DatabaseSummary,
    data: Option<PathBuf>,
    replaced: Option<PathBuf>,
) -> RestoreView {
    RestoreView {
        bytes: manifest.files.iter().map(|file| file.size).sum(),
        files: manifest.files.into_iter().map(|file| file.name).collect(),
        fleet: manifest.fleet,
        made: manifest.made,
        version: manifest.version,
        database,
        data,
        replaced,
        left_behind: LeftBehind::default(),
    }
}

fn text(view: &RestoreView) -> String {
    let RestoreView { fleet, made, version, files, database, .. } = view;
    let count = |count: u64, noun| plural(usize::try_from(count).unwrap_or(usize::MAX), noun);
    let mut out = format!(
        "a whole backup of fleet {fleet}, made {made} by muster {version}, {}\n{}, {}, newest release {}, {}, {}, {}\n\
         files: {}\n",
        bytes(view.bytes),
        count(database.nodes, "node"),
        count(database.releases, "release"),
        database.seq,
        count(database.objects, "object"),
        count(database.open_tasks, "open task"),
        count(database.facts, "fact"),
        files.join(", "),
    );
    if let Some(replaced) = &view.replaced {
        out.push_str(&format!("what was there before is in {}\n", replaced.display()));
        if let Some(data) = &view.data {
            out.push_str(&view.left_behind.text(replaced, data));
        }
    }
    if let Some(data) = &view.data {
        out.push_str(&format!(
            "restored into {}\nnext: start the control plane with its options of before, wait until the nodes have \
             called,\nthen `muster publish --repo DIR`: it makes a release above those that nodes hold\n",
            data.display()
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// OPS-6: of two restores that both found the directory absent, the one that comes second takes nothing of the first.
    #[test]
    fn a_restore_that_comes_second_leaves_the_lock_of_the_first() {
        let temp = tempfile::tempdir().unwrap();
        let (dir, file) = (temp.path().join("data"), temp.path().join("none.backup"));
        fs::create_dir(&dir).unwrap();
        let lock = dir.join(format!("{DATABASE}.lock"));
        let first = store::backup::hold(&dir.join(DATABASE)).unwrap();
        let second = restore_alone(&file, &dir, false, &[&dir]);
        assert!(matches!(second, Err(RestoreError::InUse(_))));
        assert!(lock.exists());
        drop(first);
        let alone = restore_alone(&file, &dir, false, &[&dir]);
        assert!(matches!(alone, Err(RestoreError::Open { .. })));
        assert!(!dir.exists(), "what it made is gone");
    }
}
