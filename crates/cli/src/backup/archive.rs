//! [`BackupManifest`] and the archive that it begins: a tar file, so that every host can look into it.
//!
//! ```text
//! muster-backup.json   format, fleet, when, and of each file its size, mode and digest
//! muster.db            the database as it was at one moment
//! node-ca.key, ...     the files beside it
//! ```
//!
//! Invariant: a file is used only whole, under the digest that the manifest names.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use model::digest::Hasher;
use model::{Digest, FleetId, Timestamp};
use serde::{Deserialize, Serialize};
use server::posture::{DATABASE, FLEET_FILES};
use store::audit::AuditHead;
use tar::{Archive, Builder, EntryType, Header};

use super::DATABASE_MODE;

/// The format that this version writes, and the newest that it reads.
pub(super) const FORMAT: u32 = 1;
/// The manifest's name in the archive.
const MANIFEST: &str = "muster-backup.json";
/// The longest manifest, in bytes.
const MAX_MANIFEST: u64 = 64 * 1024;
/// The bytes of a header in a tar file.
const TAR_HEADER: u64 = 512;
/// Bytes that are copied at once.
const PIECE: usize = 256 * 1024;

/// What a backup says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BackupManifest {
    pub(super) format: u32,
    /// The version of the program that wrote it.
    pub(super) version: String,
    pub(super) fleet: FleetId,
    pub(super) made: Timestamp,
    /// The newest entry of the audit log; absent where an earlier version wrote the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) audit: Option<AuditHead>,
    /// In the order in which they follow.
    pub(super) files: Vec<ManifestFile>,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ManifestFile {
    pub(super) name: String,
    pub(super) mode: u32,
    pub(super) size: u64,
    pub(super) digest: Digest,
}

/// Why a backup cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadBackupError {
    /// It is something else.
    #[error("it is no backup of muster")]
    NoBackup,
    /// A newer version wrote it.
    #[error("it is of format {format}, and this version reads up to format {FORMAT}")]
    Newer {
        /// Its format.
        format: u64,
    },
    /// It ends early.
    #[error("it is cut off: {missing} is not whole in it")]
    CutOff {
        /// The first file that is not whole.
        missing: String,
    },
    /// A file is not what was written.
    #[error("it is damaged: {file} is not what was backed up")]
    Damaged {
        /// The file.
        file: String,
    },
    /// It cannot be read.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    /// A file of it cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Copies all of a reader; gives how many bytes there were, and their digest.
pub(super) fn copy(
    from: &mut impl Read,
    mut to: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<(u64, Digest)> {
    let (mut hasher, mut size, mut piece) = (Hasher::new(), 0, vec![0; PIECE]);
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok((size, hasher.finish())),
            Ok(count) => {
                hasher.update(&piece[..count]);
                to(&piece[..count])?;
                size += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes an archive of a manifest and the files that it names, from these paths.
pub(super) fn write(manifest: &BackupManifest, paths: &[PathBuf], out: impl Write) -> io::Result<()> {
    let mut archive = Builder::new(out);
    let header = |size, mode| {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(size);
        header.set_mode(mode);
        header.set_mtime(u64::try_from(manifest.made.0 / 1000).unwrap_or(0));
        header
    };
    let text = serde_json::to_vec_pretty(manifest)?;
    archive.append_data(&mut header(text.len() as u64, 0o644), MANIFEST, text.as_slice())?;
    for (file, path) in manifest.files.iter().zip(paths) {
        let content = File::open(path)?.take(file.size);
        archive.append_data(&mut header(file.size, file.mode), &file.name, content)?;
    }
    archive.into_inner()?.flush()
}

/// Reads an archive, verifies it, and writes its files into a directory.
///
/// # Errors
/// [`ReadBackupError`]; what was written so far is not to be used.
pub(super) fn unpack(from: impl Read, dir: &Path) -> Result<BackupManifest, ReadBackupError> {
    let mut from = from;
    let beginning = beginning(&mut from).map_err(ReadBackupError::Read)?;
    let mut archive = Archive::new(beginning.as_slice().chain(from));
    let mut entries = archive.entries().map_err(ReadBackupError::Read)?;
    let manifest = {
        let mut first = match entries.next() {
            Some(Ok(first)) if first.path().is_ok_and(|path| path == Path::new(MANIFEST)) => first,
            _ => return Err(no_manifest(&beginning)),
        };
        let mut text = String::new();
        let (size, read) = (first.size(), first.by_ref().take(MAX_MANIFEST).read_to_string(&mut text));
        if size <= MAX_MANIFEST && (read.is_err() || (text.len() as u64) < size) {
            return Err(ReadBackupError::CutOff { missing: MANIFEST.to_owned() });
        }
        manifest(&text)?
    };
    for file in &manifest.files {
        let cut_off = || ReadBackupError::CutOff { missing: file.name.clone() };
        let damaged = || ReadBackupError::Damaged { file: file.name.clone() };
        let mut entry = entries.next().ok_or_else(cut_off)?.map_err(|_| cut_off())?;
        let is_this = entry.path().is_ok_and(|path| path == Path::new(&file.name));
        if !is_this || entry.size() != file.size {
            return Err(damaged());
        }
        let path = dir.join(&file.name);
        let unwritten = |source| ReadBackupError::Write { path: path.clone(), source };
        let mut options = OpenOptions::new();
        let mut out = options.create_new(true).write(true).mode(file.mode).open(&path).map_err(unwritten)?;
        let mut failed = None;
        let copied =
            copy(&mut entry, |piece| out.write_all(piece).inspect_err(|error| failed = Some(error.kind())));
        let (size, digest) = match (copied, failed) {
            (Err(source), Some(_)) => return Err(unwritten(source)),
            (Err(_), None) => return Err(cut_off()),
            (Ok(copied), _) => copied,
        };
        if size < file.size {
            return Err(cut_off());
        }
        if digest != file.digest {
            return Err(damaged());
        }
        out.sync_all().map_err(unwritten)?;
    }
    Ok(manifest)
}

/// The first header of an archive, as far as it is there.
fn beginning(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut beginning = Vec::new();
    from.take(TAR_HEADER).read_to_end(&mut beginning)?;
    Ok(beginning)
}

/// What a file is whose first header is not that of a manifest: a part of a backup, a damaged one, or none.
fn no_manifest(beginning: &[u8]) -> ReadBackupError {
    let name = &beginning[..beginning.len().min(MANIFEST.len())];
    let (file, is_whole) = (MANIFEST.to_owned(), beginning.len() as u64 == TAR_HEADER);
    match MANIFEST.as_bytes().starts_with(name) {
        true if is_whole => ReadBackupError::Damaged { file },
        true => ReadBackupError::CutOff { missing: file },
        false => ReadBackupError::NoBackup,
    }
}

/// Reads a manifest. Its format is looked at before the rest.
fn manifest(text: &str) -> Result<BackupManifest, ReadBackupError> {
    let damaged = |_| ReadBackupError::Damaged { file: MANIFEST.to_owned() };
    let value: serde_json::Value = serde_json::from_str(text).map_err(damaged)?;
    match value.get("format").and_then(serde_json::Value::as_u64) {
        Some(format) if format > u64::from(FORMAT) => return Err(ReadBackupError::Newer { format }),
        Some(_) => {}
        None => return Err(ReadBackupError::NoBackup),
    }
    let manifest: BackupManifest = serde_json::from_value(value).map_err(|_| ReadBackupError::NoBackup)?;
    // Only what a fleet has, and with no other mode: a file of another name could take the place of anything.
    let is_known = |file: &ManifestFile| {
        let mode = FLEET_FILES.iter().find(|known| known.name == file.name).map(|known| known.mode);
        mode.or((file.name == DATABASE).then_some(DATABASE_MODE)) == Some(file.mode)
    };
    if manifest.files.iter().all(is_known) { Ok(manifest) } else { Err(ReadBackupError::NoBackup) }
}
