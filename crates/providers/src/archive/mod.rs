//! `archive` on a host.
//!
//! ```text
//! observe: remembered? the tree that was unpacked, as `directory` looks at one : nothing is there
//! set:     fetch, verify -> read whole: names, digests -> remember as unfinished
//!          -> directories -> files, by their digests -> copies, links -> what is gone -> remember
//! ```
//!
//! Invariants: nothing is written before the whole archive was read and every name in it judged; what
//! may be Muster's is remembered before it is written, so that a run that dies leaves nothing unknown.

mod tar;

use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use catalog::types::{ARCHIVE_TEXT, ArchiveSpec, DownloadFrom, Ensure};
use converge::JobFailure;
use converge::kinds::archive::{self, ArchiveMembers, Unpacked};
use converge::kinds::tree::{TOP, TreeEntry};
use flate2::bufread::MultiGzDecoder;
use host::MAX_FILE;
use model::digest::Hasher;
use model::{Digest, Edit, Fields, PathState};

use self::tar::{TarKind, TarReader};
use crate::download;
use crate::provider::{ChangeTurn, StateChange, StateProvider};
use crate::tree::{FileTree, TreeChange, TreeLook};
use crate::{KeepBytesError, Kinds};

/// What an archive is by its first bytes, where it is no tar file.
const OTHERS: &[(&[u8], &str)] = &[
    (b"\xfd7zXZ\0", "compressed with xz"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"BZh", "compressed with bzip2"),
    (b"PK\x03\x04", "a zip file"),
    (b"7z\xbc\xaf", "a 7z file"),
];
const GZIP: &[u8] = b"\x1f\x8b";
/// How much is read at a time, in bytes.
const CHUNK: usize = 64 * 1024;

impl StateProvider for ArchiveSpec {
    fn observe(&self, kinds: &Kinds) -> Result<Option<Fields>, String> {
        match kinds.look(&self.path)? {
            PathState::Missing | PathState::Directory { .. } => {}
            other => {
                let what = other.what();
                return Err(format!(
                    "{} is not a directory ({what}); it is left alone, move it away",
                    self.path
                ));
            }
        }
        let Some(unpacked) = remembered(kinds, self)? else { return Ok(None) };
        let mut fields = look(kinds, self, &unpacked)?;
        let file = |text: &String| {
            matches!(TreeEntry::read(text), Some(TreeEntry::File { .. } | TreeEntry::Symlink(_)))
        };
        let any = fields.values().any(file);
        fields.extend(unpacked.get_key_value(ARCHIVE_TEXT).map(|(name, text)| (name.clone(), text.clone())));
        Ok((any || self.ensure == Ensure::Present).then_some(fields))
    }

    fn desired(&self, now: Option<&Fields>) -> Result<Option<Fields>, String> {
        archive::desired(self, None, now)
    }

    fn desired_here(&self, kinds: &Kinds, now: Option<&Fields>) -> Result<Option<Fields>, String> {
        archive::desired(self, remembered(kinds, self)?.as_ref(), now)
    }

    fn set(&self, kinds: &Kinds, change: StateChange<'_>) -> Result<Option<String>, JobFailure> {
        let StateChange { now, to, timeout } = change;
        let nothing = Fields::new();
        let now = now.unwrap_or(&nothing);
        let mut change = TreeChange::new(kinds, FileTree::of_archive(self));
        match to {
            None => {
                change.remove_all(&archive::removed(remembered(kinds, self)?.as_ref(), now))?;
                remember(kinds, self, None)?;
            }
            Some(_) if self.ensure == Ensure::Present => unpack(kinds, self, &mut change, timeout)?,
            // What a run changed is put back: the archive itself is not kept.
            Some(to) if to.get(ARCHIVE_TEXT) == now.get(ARCHIVE_TEXT) => change.bring(now, to)?,
            Some(_) => {
                return Err(format!(
                    "{} cannot be put back: the archive that was unpacked before is not kept",
                    self.path
                )
                .into());
            }
        }
        Ok(None)
    }

    fn turn(&self) -> ChangeTurn {
        ChangeTurn::Archive
    }

    fn works_below_root(&self) -> bool {
        true
    }

    fn remark(&self, kinds: &Kinds) -> Option<String> {
        let new = remembered(kinds, self).is_ok_and(|unpacked| unpacked.is_none());
        let full = || matches!(kinds.look(&self.path), Ok(PathState::Directory { empty: false, .. }));
        let words =
            "cannot be undone: files in it that have the names of files of the archive are overwritten";
        (self.ensure == Ensure::Present && new && full()).then(|| words.to_owned())
    }

    fn note(&self, edit: &Edit<Fields>) -> Option<String> {
        archive::note(edit)
    }

    fn shown(&self, edit: Edit<Fields>) -> Edit<Fields> {
        converge::kinds::tree::shown(edit)
    }
}

pub(crate) fn remembered(kinds: &Kinds, spec: &ArchiveSpec) -> Result<Option<Fields>, String> {
    let found = kinds.blobs.unpacked(&spec.path);
    found.map_err(|error| format!("cannot read what was unpacked in {}: {error}", spec.path))
}

impl Kinds {
    /// The names of what an archive unpacked in a directory, as far as that can be read.
    pub fn unpacked(&self, path: &str) -> Vec<String> {
        let found = self.blobs.unpacked(path).ok().flatten().unwrap_or_default();
        found.keys().filter_map(|name| name.strip_prefix(TOP)?.strip_prefix('/')).map(str::to_owned).collect()
    }
}

fn remember(kinds: &Kinds, spec: &ArchiveSpec, unpacked: Option<&Fields>) -> Result<(), String> {
    let done = kinds.blobs.keep_unpacked(&spec.path, unpacked);
    done.map_err(|error| format!("cannot write down what is unpacked in {}: {error}", spec.path))
}

/// What there is of an archive's names.
fn look(kinds: &Kinds, spec: &ArchiveSpec, unpacked: &Fields) -> Result<Fields, String> {
    let names = unpacked.keys().filter(|name| *name != ARCHIVE_TEXT).map(String::as_str);
    TreeLook::new(kinds, FileTree::of_archive(spec)).at(names)
}

fn unpack(
    kinds: &Kinds,
    spec: &ArchiveSpec,
    change: &mut TreeChange<'_>,
    timeout: Duration,
) -> Result<(), String> {
    let size = fetch(kinds, spec, timeout)?;
    let whole = |error: io::Error| unreadable(spec, &error);
    let Unpacked { state: mut unpacked, copies } = read(kinds, spec, size).map_err(whole)?;
    let before = remembered(kinds, spec)?;
    let now = look(kinds, spec, &unpacked)?;
    let made = now.get(TOP).and_then(|text| TreeEntry::read(text)) == Some(TreeEntry::Absent);
    if made || before.as_ref().is_some_and(|before| before.contains_key(TOP)) {
        archive::made(&mut unpacked);
    }
    let to = archive::wanted(spec, &unpacked, Some(&now))?;
    remember(kinds, spec, Some(&archive::unfinished(before.as_ref(), &unpacked)))?;

    let entry = |fields: &Fields, name: &str| {
        fields.get(name).and_then(|text| TreeEntry::read(text)).unwrap_or(TreeEntry::Absent)
    };
    let differs = |name: &str| now.get(name) != to.get(name);
    let mut later = Vec::new();
    for (name, text) in to.iter().filter(|(name, _)| differs(name)) {
        match TreeEntry::read(text) {
            Some(to @ TreeEntry::Directory(_)) => change.put(name, &entry(&now, name), &to)?,
            Some(to @ TreeEntry::File { .. }) if has_bytes(&entry(&now, name), &to) => {
                change.put(name, &entry(&now, name), &to)?;
            }
            Some(link @ TreeEntry::Symlink(_)) => later.push((name, link)),
            _ => {}
        }
    }
    let members = ArchiveMembers::new(spec);
    let mut tar = open(kinds, spec, size).map_err(whole)?;
    while let Some(member) = tar.next().map_err(whole)? {
        let name = members.name(&member.name).map_err(|error| error.to_string())?;
        let Some(name) = name.filter(|name| member.kind == TarKind::File && differs(name)) else { continue };
        let (now, to) = (entry(&now, &name), entry(&to, &name));
        if !has_bytes(&now, &to) {
            change.put_bytes(&name, &now, &to, &mut tar)?;
        }
    }
    for (name, first) in copies.iter().filter(|(name, _)| differs(name)) {
        let (now, to) = (entry(&now, name), entry(&to, name));
        if !has_bytes(&now, &to) {
            let path = change.path_of(first);
            let file = kinds.host.open_file(&path).map_err(|error| model::text::chain(&error))?;
            let mut file = file.ok_or_else(|| format!("{path} went away while it was unpacked"))?;
            change.put_bytes(name, &now, &to, &mut file)?;
        }
    }
    for (name, link) in later {
        change.put(name, &entry(&now, name), &link)?;
    }
    // What only the archive before held.
    if let Some(before) = &before {
        let mut gone = look(kinds, spec, before)?;
        gone.retain(|name, _| name != TOP && !unpacked.contains_key(name));
        change.remove_all(&gone)?;
    }
    remember(kinds, spec, Some(&unpacked))
}

fn unreadable(spec: &ArchiveSpec, error: &io::Error) -> String {
    format!("the archive {} is not unpacked: {error}", spec.digest.short())
}

/// The names of the files that are there, hold other bytes than the archive and are not of the one that was
/// unpacked before: those that unpacking it overwrites, where that was not done yet.
pub(crate) fn overwritten(
    kinds: &Kinds,
    spec: &ArchiveSpec,
    timeout: Duration,
) -> Result<Vec<String>, String> {
    let before = remembered(kinds, spec)?.unwrap_or_default();
    let is_unpacked = before.get(ARCHIVE_TEXT) == Some(&spec.label());
    if spec.ensure == Ensure::Absent || is_unpacked {
        return Ok(Vec::new());
    }
    let PathState::Directory { empty: false, .. } = kinds.look(&spec.path)? else { return Ok(Vec::new()) };
    let size = fetch(kinds, spec, timeout)?;
    let unpacked = read(kinds, spec, size).map_err(|error| unreadable(spec, &error))?.state;
    let now = look(kinds, spec, &unpacked)?;
    let entry =
        |text: Option<&String>| text.and_then(|text| TreeEntry::read(text)).unwrap_or(TreeEntry::Absent);
    let is_overwritten = |name: &str, now: &TreeEntry| {
        matches!(now, TreeEntry::File { .. })
            && !before.contains_key(name)
            && !has_bytes(now, &entry(unpacked.get(name)))
    };
    let names = now.iter().filter(|(name, text)| is_overwritten(name, &entry(Some(text))));
    Ok(names.map(|(name, _)| name.clone()).collect())
}

/// What is there holds the wanted bytes.
fn has_bytes(now: &TreeEntry, to: &TreeEntry) -> bool {
    matches!((now, to), (TreeEntry::File { digest: is, .. }, TreeEntry::File { digest, .. }) if is == digest)
}

/// Sees to it that the archive is in the store, and verifies it; gives its length.
fn fetch(kinds: &Kinds, spec: &ArchiveSpec, timeout: Duration) -> Result<u64, String> {
    match (kinds.blobs.open(&spec.digest), &spec.from) {
        (Ok(mut kept), _) => {
            let (is, size) = digest_of(&mut kept).map_err(|error| error.to_string())?;
            if is == spec.digest {
                return Ok(size);
            }
            Err(format!("the archive {} is damaged where the agent keeps it", spec.digest.short()))
        }
        (Err(_), None) => kinds.blob(&spec.digest).map(|_| 0),
        (Err(_), Some(from)) => download(kinds, spec, from, timeout),
    }
}

fn download(
    kinds: &Kinds,
    spec: &ArchiveSpec,
    from: &DownloadFrom,
    timeout: Duration,
) -> Result<u64, String> {
    let mut fetched = download::fetch(kinds, from, model::object::MAX_BLOB, timeout)?;
    let kept = kinds.blobs.keep(&mut fetched, &spec.digest);
    let (is, bytes) = fetched.finish();
    match kept {
        Ok(()) => Ok(bytes),
        Err(KeepBytesError::WrongDigest) => Err(format!(
            "what {} gave is sha256:{is} ({bytes} bytes) and not the declared sha256:{}; nothing was unpacked",
            from.url, spec.digest
        )),
        Err(KeepBytesError::Failed(error)) => Err(format!("cannot keep what {} gives: {error}", from.url)),
    }
}

/// Reads an archive whole and judges it.
fn read(kinds: &Kinds, spec: &ArchiveSpec, size: u64) -> io::Result<Unpacked> {
    let mut members = ArchiveMembers::new(spec);
    let mut tar = open(kinds, spec, size)?;
    while let Some(member) = tar.next()? {
        let name = &member.name;
        match &member.kind {
            TarKind::Directory => members.directory(name, member.mode),
            TarKind::Symlink(target) => members.symlink(name, target),
            TarKind::HardLink(target) => members.hard_link(name, target),
            TarKind::Other => Err(archive::ArchiveProblem::Special(name.clone())),
            TarKind::File if member.size > MAX_FILE => {
                return Err(io::Error::other(format!("`{name}` has over {} MiB", MAX_FILE >> 20)));
            }
            TarKind::File => {
                let (digest, got) = digest_of(&mut tar)?;
                if got < member.size {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                members.file(name, member.mode, digest, got)
            }
        }
        .map_err(io::Error::other)?;
    }
    members.finish().map_err(io::Error::other)
}

/// Opens an archive of this length.
fn open(kinds: &Kinds, spec: &ArchiveSpec, size: u64) -> io::Result<TarReader<Box<dyn Read>>> {
    let mut packed = BufReader::with_capacity(CHUNK, kinds.blobs.open(&spec.digest)?);
    let head = packed.fill_buf()?;
    if let Some((_, what)) = OTHERS.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err(io::Error::other(format!("it is {what}, which is not read; make it a .tar.gz")));
    }
    let left = archive::unpacked_limit(size);
    let stop = kinds.host.clone();
    let bounded = |from: Box<dyn Read>| -> Box<dyn Read> {
        Box::new(UnpackedBytes { from, left, limit: left, stops: Box::new(move || stop.is_cancelled()) })
    };
    let unpacked: Box<dyn Read> = match head.starts_with(GZIP) {
        true => bounded(Box::new(MultiGzDecoder::new(packed))),
        false => bounded(Box::new(packed)),
    };
    Ok(TarReader::new(unpacked))
}

/// What may be unpacked of an archive; it ends when the agent stops.
struct UnpackedBytes {
    from: Box<dyn Read>,
    left: u64,
    limit: u64,
    stops: Box<dyn Fn() -> bool>,
}

impl Read for UnpackedBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.stops)() {
            return Err(io::Error::other("the agent is stopping"));
        }
        let count = self.from.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            let limit = self.limit >> 20;
            io::Error::other(format!("it unpacks to more than {limit} MiB, which is too much for its size"))
        })?;
        Ok(count)
    }
}

/// Digest and length of all that is left.
fn digest_of(from: &mut dyn Read) -> io::Result<(Digest, u64)> {
    let (mut hasher, mut size) = (Hasher::new(), 0);
    let mut buffer = vec![0; CHUNK];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok((hasher.finish(), size)),
            count => {
                hasher.update(&buffer[..count]);
                size += count as u64;
            }
        }
    }
}
