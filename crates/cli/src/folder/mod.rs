//! [`RepoFolder`]: a fleet repo on disk, read whole and then change by change.
//!
//! Only plain files are read; a symbolic link, a device or a FIFO is refused, so that what is
//! published is what lies in the folder. Names that begin with a dot (`.git`) are not looked at.

mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use resolve::{MAX_FILES, MAX_SHIPPED, RepoFile};
use rustix::fs::OFlags;

pub use watch::{FolderChange, Watch, WatchError};

use crate::failure::UserError;

/// The deepest nesting of folders.
pub const MAX_DEPTH: usize = 32;
/// The most bytes of all files together.
pub const MAX_TOTAL: u64 = 1024 * 1024 * 1024;
/// Fewer files than this are read by one thread.
const PARALLEL_FROM: usize = 256;
/// The bit of a file that its owner may execute, as Git counts it.
const EXECUTABLE: u32 = 0o100;
/// The most paths that one message names.
const NAMED: usize = 10;

/// Files that changed, by path relative to the folder; `None` for one that is gone.
pub type FileChanges = BTreeMap<String, Option<RepoFile>>;

/// Why a folder cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It is not there, or no folder.
    #[error("{} is no folder", .0.display())]
    NoFolder(PathBuf),
    /// A folder cannot be listed.
    #[error("cannot list {}", path.display())]
    List {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Something there is no plain file or folder.
    #[error("only plain files are read; these are not: {}", .0.join(", "))]
    Special(Vec<String>),
    /// A name is not UTF-8.
    #[error("the name {0:?} is not UTF-8")]
    Name(PathBuf),
    /// A file is larger than any that a fleet repo may hold.
    #[error("{} is larger than {} MiB", .0.display(), MAX_SHIPPED / 1024 / 1024)]
    TooLarge(PathBuf),
    /// There are more files than a fleet repo may hold.
    #[error("there are more than {MAX_FILES} files")]
    TooMany,
    /// Folders nest too deep.
    #[error("{} lies deeper than {MAX_DEPTH} folders", .0.display())]
    TooDeep(PathBuf),
    /// All files together are too large.
    #[error("the files hold more than {} MiB together", MAX_TOTAL / 1024 / 1024)]
    TooMuch,
}

impl UserError for FolderError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            FolderError::NoFolder(_) => {
                "name the folder that holds fleet.yaml (--repo DIR; `muster check DIR`)".to_owned()
            }
            FolderError::Special(_) => "put a copy of the file there instead of a link".to_owned(),
            FolderError::Name(_) => "rename it".to_owned(),
            FolderError::TooLarge(_)
            | FolderError::TooMany
            | FolderError::TooDeep(_)
            | FolderError::TooMuch => "is this the fleet repo? name its folder with --repo DIR".to_owned(),
            FolderError::List { .. } | FolderError::Read { .. } => return None,
        })
    }
}

/// What shows that a file is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A fleet repo on disk.
#[derive(Debug)]
pub struct RepoFolder {
    root: PathBuf,
    seen: BTreeMap<String, Stat>,
}

impl RepoFolder {
    /// A folder of which nothing was read yet.
    ///
    /// # Errors
    /// When it is no folder.
    pub fn open(root: &Path) -> Result<RepoFolder, FolderError> {
        if root.is_dir() {
            Ok(RepoFolder { root: root.to_owned(), seen: BTreeMap::new() })
        } else {
            Err(FolderError::NoFolder(root.to_owned()))
        }
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Looks at everything; reads what is not as it was last time.
    ///
    /// # Errors
    /// [`FolderError`]; then all of it counts as not yet read.
    pub fn scan(&mut self) -> Result<FileChanges, FolderError> {
        let mut before = std::mem::take(&mut self.seen);
        let mut scan = FolderScan::default();
        scan.folder(&self.root, "", 0)?;
        if !scan.special.is_empty() {
            return Err(FolderError::Special(scan.special));
        }
        let now = scan.files;
        if now.values().map(|stat| stat.size).sum::<u64>() > MAX_TOTAL {
            return Err(FolderError::TooMuch);
        }
        let changed: Vec<&String> =
            now.iter().filter(|(path, stat)| before.get(*path) != Some(stat)).map(|(path, _)| path).collect();
        let mut changes = read_all(&self.root, &changed)?;
        before.retain(|path, _| !now.contains_key(path));
        changes.extend(before.into_keys().map(|path| (path, None)));
        self.seen = now;
        Ok(changes)
    }

    /// Reads these files again, whatever they look like.
    ///
    /// # Errors
    /// As [`RepoFolder::scan`].
    pub fn reread(&mut self, paths: &BTreeSet<String>) -> Result<FileChanges, FolderError> {
        let mut changes = FileChanges::new();
        for path in paths {
            let full = self.root.join(path);
            match fs::symlink_metadata(&full) {
                Ok(found) if found.is_file() => {
                    changes.insert(path.clone(), Some(read(&full)?));
                    self.seen.insert(path.clone(), stat(&found));
                }
                Ok(found) if found.is_dir() => {}
                Ok(_) => return Err(FolderError::Special(vec![path.clone()])),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.seen.remove(path);
                    changes.insert(path.clone(), None);
                }
                Err(source) => return Err(FolderError::Read { path: full, source }),
            }
        }
        Ok(changes)
    }
}

/// What a walk found.
#[derive(Default)]
struct FolderScan {
    files: BTreeMap<String, Stat>,
    special: Vec<String>,
}

impl FolderScan {
    fn folder(&mut self, path: &Path, relative: &str, depth: usize) -> Result<(), FolderError> {
        if depth > MAX_DEPTH {
            return Err(FolderError::TooDeep(path.to_owned()));
        }
        let failed = |source| FolderError::List { path: path.to_owned(), source };
        for entry in fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| FolderError::Name(entry.path()))?;
            if name.starts_with('.') {
                continue;
            }
            let relative = if relative.is_empty() { name.to_owned() } else { format!("{relative}/{name}") };
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                self.folder(&entry.path(), &relative, depth + 1)?;
            } else if !kind.is_file() {
                if self.special.len() < NAMED {
                    self.special.push(relative);
                }
            } else if is_read(&relative) {
                self.files.insert(relative, stat(&entry.metadata().map_err(failed)?));
                if self.files.len() > MAX_FILES {
                    return Err(FolderError::TooMany);
                }
            }
        }
        Ok(())
    }
}

/// Whether Muster could mean this file: everything of modules, and YAML elsewhere, so that
/// one at a wrong path is named.
fn is_read(path: &str) -> bool {
    path.starts_with("modules/") || path.ends_with(".yaml") || path.ends_with(".yml")
}

fn stat(found: &fs::Metadata) -> Stat {
    Stat {
        inode: found.ino(),
        size: found.len(),
        modified: (found.mtime(), found.mtime_nsec()),
        changed: (found.ctime(), found.ctime_nsec()),
    }
}

/// Reads files, on several threads where there are many.
fn read_all(root: &Path, paths: &[&String]) -> Result<FileChanges, FolderError> {
    let one = |path: &&String| Ok(((*path).clone(), Some(read(&root.join(path))?)));
    if paths.len() < PARALLEL_FROM {
        return paths.iter().map(one).collect();
    }
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let parts: Vec<Result<Vec<_>, FolderError>> = thread::scope(|scope| {
        let part = |paths| scope.spawn(move || <[&String]>::iter(paths).map(one).collect());
        let started: Vec<_> = paths.chunks(paths.len().div_ceil(threads)).map(part).collect();
        let ended = started.into_iter().map(|thread| match thread.join() {
            Ok(read) => read,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect()
    });
    let mut changes = FileChanges::new();
    for part in parts {
        changes.extend(part?);
    }
    Ok(changes)
}

/// Reads one plain file; never through a link that took its place meanwhile.
fn read(path: &Path) -> Result<RepoFile, FolderError> {
    let failed = |source| FolderError::Read { path: path.to_owned(), source };
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags.cast_signed()).open(path).map_err(failed)?;
    let executable = file.metadata().map_err(failed)?.mode() & EXECUTABLE != 0;
    let mut bytes = Vec::new();
    file.take(MAX_SHIPPED as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > MAX_SHIPPED {
        return Err(FolderError::TooLarge(path.to_owned()));
    }
    Ok(RepoFile { bytes: bytes.into(), executable })
}
