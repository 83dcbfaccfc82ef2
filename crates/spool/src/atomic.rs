//! Small files, written whole or not at all.

use std::fs::File;
use std::io::{self, Read};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use model::Digest;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::disk::failed;
use crate::error::{Result, SpoolError};
use crate::{Disk, DiskOp, FORMAT, READABLE_FROM};

/// The largest file that a [`StateFile`] reads, in bytes.
pub const MAX_SLOT: u64 = 16 * 1024 * 1024;
/// The most damaged copies of one file that are kept; a further one replaces the newest,
/// so the first evidence stays.
pub const MAX_SET_ASIDE: u32 = 5;

/// The first word of a state file.
const STATE_WORD: &str = "muster-state";
/// Before the number of a directory of state from before formats had numbers.
const EARLIER: &str = "earlier-";

/// How a whole file is written: to a temporary file first, never through a link. The file is as
/// before or has exactly the bytes, after a crash too.
pub struct WholeFile<'a> {
    /// The file.
    pub path: &'a Path,
    /// What the file is called until it is complete.
    pub temporary: PathBuf,
    /// Its mode, which it has before it is visible.
    pub mode: u32,
    /// Whether it may take the place of one that is there.
    pub existing: Existing,
    /// Whether it is on the disk when the write returns.
    pub durable: bool,
    /// Gives the complete file its owner and mode where `mode` is not enough.
    pub dress: &'a dyn Fn(&File) -> io::Result<()>,
}

/// What happens to a file that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It is replaced.
    Replace,
    /// It stays, and the write fails with [`io::ErrorKind::AlreadyExists`].
    Keep,
}

impl<'a> WholeFile<'a> {
    /// A durable file in place of the one that may be there, by way of `NAME.new`.
    pub fn new(path: &'a Path, mode: u32) -> WholeFile<'a> {
        let (temporary, existing) = (beside(path, ".new"), Existing::Replace);
        WholeFile { path, temporary, mode, existing, durable: true, dress: &|_| Ok(()) }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// When the disk refuses; the file is then as before, or already new.
    pub fn write(&self, disk: &Disk, bytes: &[u8]) -> Result<()> {
        if let Err(error) = self.fill(disk, bytes).and_then(|()| self.publish(disk)) {
            // It would be replaced by the next try anyway.
            let _ = disk.unlink(&self.temporary);
            return Err(error);
        }
        if self.durable { disk.sync_parent(self.path) } else { Ok(()) }
    }

    fn fill(&self, disk: &Disk, bytes: &[u8]) -> Result<()> {
        let path = &self.temporary;
        // One left over from a crash may have another mode or owner.
        disk.unlink(path)?;
        let mut file = disk.create(path, self.mode)?;
        disk.write(DiskOp::Write, &mut file, path, bytes)?;
        (self.dress)(&file).map_err(|error| failed(DiskOp::Write, path, error))?;
        if self.durable { disk.sync(&file, path) } else { Ok(()) }
    }

    fn publish(&self, disk: &Disk) -> Result<()> {
        match self.existing {
            Existing::Replace => disk.rename(&self.temporary, self.path),
            Existing::Keep => {
                disk.link(&self.temporary, self.path)?;
                disk.unlink(&self.temporary)
            }
        }
    }
}

/// Writes a file whole and durably, in place of the one that may be there.
///
/// # Errors
/// As [`WholeFile::write`].
pub fn write_file(disk: &Disk, path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    WholeFile::new(path, mode).write(disk, bytes)
}

/// The bytes of a file; `None` when there is none.
///
/// # Errors
/// [`SpoolError::TooLarge`] when it has more than `max` bytes, and those of the disk.
pub fn read_file(path: &Path, max: u64) -> Result<Option<Vec<u8>>> {
    let bytes = read_up_to(path, max.saturating_add(1))?;
    if bytes.as_ref().is_some_and(|bytes| bytes.len() as u64 > max) {
        return Err(SpoolError::TooLarge { what: "a state file", limit: max });
    }
    Ok(bytes)
}

/// The first bytes of a file; `None` when there is none.
pub(crate) fn read_up_to(path: &Path, most: u64) -> Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(DiskOp::Open, path, error)),
    };
    let mut bytes = Vec::new();
    let read = file.take(most).read_to_end(&mut bytes);
    read.map_err(|error| failed(DiskOp::Read, path, error))?;
    Ok(Some(bytes))
}

/// What a [`StateFile`] held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded<T> {
    /// The value; `None` when there was none, or only a damaged one.
    pub value: Option<T>,
    /// Where the damaged file was put, if there was one.
    pub set_aside: Option<PathBuf>,
}

/// What is in a [`StateFile`], without anything done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeekedFile<T> {
    /// There is none.
    Absent,
    /// The value.
    Value(T),
    /// It cannot be read.
    Damaged,
}

/// How a state file was found.
enum StateFileCondition {
    Absent,
    Sound,
    Damaged,
}

/// One value in one file: a line `muster-state FORMAT READABLE-FROM SHA256`, then the value as
/// JSON. The digest is of the line up to it and of the JSON.
#[derive(Debug, Clone)]
pub struct StateFile<T> {
    disk: Disk,
    path: PathBuf,
    mode: u32,
    value: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> StateFile<T> {
    /// The slot at a path, whose file has this mode.
    pub fn new(disk: &Disk, path: impl Into<PathBuf>, mode: u32) -> StateFile<T> {
        StateFile { disk: disk.clone(), path: path.into(), mode, value: PhantomData }
    }

    /// Reads the value. A damaged file is set aside as `NAME.corrupt-N` (LIF-10).
    ///
    /// # Errors
    /// [`SpoolError::TooNew`] when a newer version wrote what this one cannot read, and
    /// [`SpoolError::Unnumbered`] when one did from before formats had numbers; the file is left
    /// as it is (LIF-4). Those of the disk.
    pub fn load(&self) -> Result<Loaded<T>> {
        let mut value = None;
        let set_aside = load_json(&self.disk, &self.path, &mut |json| {
            value = serde_json::from_slice(json).ok();
            value.is_some()
        })?;
        Ok(Loaded { value, set_aside })
    }

    /// Reads the value and leaves a damaged file where it is: for a process that does not have the directory.
    ///
    /// # Errors
    /// As [`StateFile::load`].
    pub fn peek(&self) -> Result<PeekedFile<T>> {
        let mut value = None;
        let found = read_json(&self.path, &mut |json| {
            value = serde_json::from_slice(json).ok();
            value.is_some()
        })?;
        Ok(match (found, value) {
            (StateFileCondition::Absent, _) => PeekedFile::Absent,
            (StateFileCondition::Sound, Some(value)) => PeekedFile::Value(value),
            (StateFileCondition::Sound | StateFileCondition::Damaged, _) => PeekedFile::Damaged,
        })
    }

    /// Replaces the value; durable when it returns.
    ///
    /// # Errors
    /// When the disk refuses; the value before is then still there, or already the new one.
    pub fn store(&self, value: &T) -> Result<()> {
        let json = serde_json::to_vec(value)
            .map_err(|source| SpoolError::Encode { what: "a state file", source })?;
        store_json(&self.disk, &self.path, &json, self.mode)
    }

    /// Removes the value; durable when it returns.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn clear(&self) -> Result<()> {
        self.disk.unlink(&self.path)?;
        self.disk.sync_parent(&self.path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Gives the JSON of a state file to `take`, which says whether it could read it; returns where a damaged file
/// was put. What has no type is not in [`StateFile`], so that it is compiled once.
fn load_json(disk: &Disk, path: &Path, take: &mut dyn FnMut(&[u8]) -> bool) -> Result<Option<PathBuf>> {
    match read_json(path, take)? {
        StateFileCondition::Absent | StateFileCondition::Sound => Ok(None),
        StateFileCondition::Damaged => set_aside(disk, path).map(Some),
    }
}

/// The same, and leaves a damaged file where it is.
fn read_json(path: &Path, take: &mut dyn FnMut(&[u8]) -> bool) -> Result<StateFileCondition> {
    let bytes = match read_file(path, MAX_SLOT) {
        Ok(None) => return Ok(StateFileCondition::Absent),
        Ok(Some(bytes)) => bytes,
        // Far from anything that was ever written here.
        Err(SpoolError::TooLarge { .. }) => Vec::new(),
        Err(error) => return Err(error),
    };
    if let Some((format, readable_from, json)) = open_envelope(&bytes) {
        let is_read = readable_from <= FORMAT && take(json);
        if readable_from > FORMAT || (format > FORMAT && !is_read) {
            let needed = if readable_from > FORMAT { readable_from } else { format };
            return Err(SpoolError::TooNew { path: path.to_owned(), format, needed });
        }
        if is_read {
            return Ok(StateFileCondition::Sound);
        }
    }
    match is_unnumbered(&bytes) {
        true => Err(SpoolError::Unnumbered { path: path.to_owned() }),
        false => Ok(StateFileCondition::Damaged),
    }
}

/// Replaces the JSON of a state file.
fn store_json(disk: &Disk, path: &Path, json: &[u8], mode: u32) -> Result<()> {
    let head = format!("{STATE_WORD} {FORMAT} {READABLE_FROM} ");
    let digest = Digest::of_parts([head.as_bytes(), json]);
    let mut bytes = format!("{head}{digest}\n").into_bytes();
    bytes.extend_from_slice(json);
    if bytes.len() as u64 > MAX_SLOT {
        return Err(SpoolError::TooLarge { what: "a state file", limit: MAX_SLOT });
    }
    write_file(disk, path, &bytes, mode)
}

/// Format, readable-from and JSON of a state file; `None` when it is not what was written.
fn open_envelope(bytes: &[u8]) -> Option<(u32, u32, &[u8])> {
    let newline = bytes.iter().position(|byte| *byte == b'\n')?;
    let (line, json) = (std::str::from_utf8(&bytes[..newline]).ok()?, &bytes[newline + 1..]);
    let (head, digest) = line.split_at(line.rfind(' ')? + 1);
    let mut words = head.trim_end().split(' ');
    let (STATE_WORD, format, readable_from) = (words.next()?, words.next()?, words.next()?) else {
        return None;
    };
    let is_sound = Digest::of_parts([head.as_bytes(), json]) == digest.parse::<Digest>().ok()?;
    if !is_sound {
        return None;
    }
    Some((format.parse().ok()?, readable_from.parse().ok()?, json))
}

/// A state file from before formats had numbers: a line with the digest of the rest alone.
fn is_unnumbered(bytes: &[u8]) -> bool {
    let Some(newline) = bytes.iter().position(|byte| *byte == b'\n') else { return false };
    let digest = std::str::from_utf8(&bytes[..newline]).ok().and_then(|line| line.parse().ok());
    digest.is_some_and(|digest: Digest| Digest::of(&bytes[newline + 1..]) == digest)
}

/// Moves everything in a directory but `keep` to a directory in it, `earlier-1`, `earlier-2` and
/// so on; returns which. For state from before formats had numbers.
///
/// # Errors
/// When the disk refuses; the rest is moved by another call then.
pub fn set_aside_earlier(disk: &Disk, directory: &Path, keep: &[&str]) -> Result<PathBuf> {
    let numbers = (1..).map(|number: u64| directory.join(format!("{EARLIER}{number}")));
    // There is always a number that was not used.
    let aside = numbers.into_iter().find(|path| !path.exists()).unwrap_or_default();
    disk.make_dir(&aside)?;
    let read = |error| failed(DiskOp::Read, directory, error);
    for entry in std::fs::read_dir(directory).map_err(read)? {
        let name = entry.map_err(read)?.file_name();
        let is_kept = name.to_str().is_some_and(|name| keep.contains(&name) || name.starts_with(EARLIER));
        if !is_kept {
            disk.rename(&directory.join(&name), &aside.join(&name))?;
        }
    }
    disk.sync_dir(&aside)?;
    disk.sync_dir(directory)?;
    Ok(aside)
}

/// Moves a damaged file out of the way, to `NAME.corrupt-N`; returns where it is now.
pub(crate) fn set_aside(disk: &Disk, path: &Path) -> Result<PathBuf> {
    let aside = free_name(path);
    disk.rename(path, &aside)?;
    disk.sync_parent(path)?;
    tracing::warn!(path = %path.display(), aside = %aside.display(), "a damaged file was set aside");
    Ok(aside)
}

/// The name under which a damaged copy of a file is kept.
pub(crate) fn free_name(path: &Path) -> PathBuf {
    let mut names = (1..=MAX_SET_ASIDE).map(|n| beside(path, &format!(".corrupt-{n}")));
    let last = beside(path, &format!(".corrupt-{MAX_SET_ASIDE}"));
    names.find(|name| !name.exists()).unwrap_or(last)
}

/// The path with something at the end of its name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
