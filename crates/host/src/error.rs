//! What can go wrong on a host, in words that say what to do about it.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// Why a host could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the host root {}", path.display())]
pub struct OpenHostError {
    /// The root.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// An operation on a path that failed. The path is as it was before.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {path}")]
pub struct HostError {
    /// What was attempted.
    pub operation: HostOperation,
    /// The path on the host.
    pub path: String,
    /// Why it failed.
    pub source: PathProblem,
}

/// What is done at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostOperation {
    /// Looking at what is there.
    #[error("look at")]
    Look,
    /// Reading a file.
    #[error("read")]
    Read,
    /// Writing a file.
    #[error("write")]
    Write,
    /// Making a directory.
    #[error("make the directory")]
    MakeDirectory,
    /// Making or changing a symbolic link.
    #[error("make the symlink")]
    MakeSymlink,
    /// Setting mode, owner or group.
    #[error("set mode or owner of")]
    SetOwnership,
    /// Removing what is there.
    #[error("remove")]
    Remove,
    /// Setting a parameter of the kernel.
    #[error("set the kernel parameter")]
    SetParameter,
}

impl HostOperation {
    /// The error of this operation on a path.
    pub(crate) fn failed(self, path: &str) -> impl Fn(PathProblem) -> HostError {
        move |source| HostError { operation: self, path: path.to_owned(), source }
    }
}

/// Why an operation on a path failed.
#[derive(Debug, thiserror::Error)]
pub enum PathProblem {
    /// The path itself cannot be used.
    #[error("not a usable path: {0}")]
    BadPath(&'static str),
    /// A symbolic link on the way could have been made by someone else.
    #[error("the symlink {link} on the way is not followed: {why}")]
    UntrustedLink {
        /// The link's path on the host.
        link: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// More symbolic links than anyone needs.
    #[error("too many symlinks on the way, probably a loop; remove one of them")]
    SymlinkLoop,
    /// The directory that it should be in is missing.
    #[error("the directory that it is in does not exist; declare a `directory` for it")]
    NoParent,
    /// Something on the way is no directory.
    #[error("a part of its path is not a directory")]
    NotDirectory,
    /// A directory stands where a file or link should be.
    #[error("it is a directory; move it away")]
    IsDirectory,
    /// Neither a regular file nor what else the operation allows.
    #[error("it is {0}; it is left alone, remove it by hand")]
    NotRegular(&'static str),
    /// A directory with entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// Nobody waits any more for the job that was about to change it.
    #[error("the run went on without it; nothing was changed")]
    Abandoned,
    /// Another directory has the name that a directory gets which is set aside.
    #[error("{0} beside it is none that this run set aside; look at what it holds and remove it by hand")]
    AsideInTheWay(String),
    /// Another file system is mounted inside what is to be removed.
    #[error("{0} is a mount point; unmount it first")]
    MountPoint(String),
    /// More entries, or deeper, than is handled in one go.
    #[error("there are over {entries} entries or over {depth} levels in it")]
    TooMany {
        /// The bound on entries.
        entries: usize,
        /// The bound on levels.
        depth: usize,
    },
    /// A file beyond the bound.
    #[error("it is larger than {limit} bytes")]
    TooLarge {
        /// The bound.
        limit: u64,
    },
    /// The file has other names, and someone else chose where this one lies.
    #[error(
        "it has other names (hard links) and lies in a directory that others can write; replace it by hand"
    )]
    HardLinks,
    /// Somebody else could have put it there to get it.
    #[error(
        "it belongs to the uid {uid} (mode {mode:04o}) in a place that others choose, and is not given to \
         somebody else; look at what it holds, then chown or remove it by hand"
    )]
    NotToGive {
        /// Whose it is.
        uid: u32,
        /// Its permission bits.
        mode: u32,
    },
    /// The new bytes could not be had.
    #[error("its new content could not be read: {0}")]
    Content(io::Error),
    /// The new bytes are not those that were promised.
    #[error("its new content is not what was declared (other digest); nothing was written")]
    WrongDigest,
    /// The declared validation refused the new bytes.
    #[error("validation failed, nothing was written: {0}")]
    Invalid(String),
    /// The file system is full.
    #[error("no space is left on the file system; free some, the next run tries again")]
    NoSpace,
    /// The quota is used up.
    #[error("the disk quota is used up; the next run tries again")]
    Quota,
    /// The file system is mounted read-only.
    #[error("the file system is read-only; remount it writable")]
    ReadOnly,
    /// The agent may not.
    #[error("permission denied for the agent's user; if that is root, it may be immutable (see lsattr)")]
    Denied,
    /// Anything else.
    #[error("{0}")]
    Io(io::Error),
}

impl PathProblem {
    /// Somebody else could have put the file there to get it, or to keep it.
    pub fn is_not_to_give(&self) -> bool {
        matches!(self, PathProblem::NotToGive { .. })
    }
}

impl From<Errno> for PathProblem {
    fn from(errno: Errno) -> PathProblem {
        match errno {
            Errno::LOOP => PathProblem::SymlinkLoop,
            Errno::NOENT => PathProblem::NoParent,
            Errno::NOTDIR => PathProblem::NotDirectory,
            Errno::ISDIR => PathProblem::IsDirectory,
            Errno::NOTEMPTY | Errno::EXIST => PathProblem::NotEmpty,
            Errno::NOSPC => PathProblem::NoSpace,
            Errno::DQUOT => PathProblem::Quota,
            Errno::ROFS => PathProblem::ReadOnly,
            Errno::ACCESS | Errno::PERM => PathProblem::Denied,
            other => PathProblem::Io(other.into()),
        }
    }
}

impl From<io::Error> for PathProblem {
    fn from(error: io::Error) -> PathProblem {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => PathProblem::Io(error),
        }
    }
}

/// Why a command did not run to its end, other than by its own doing.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The host is rooted and commands are not allowed.
    #[error("commands do not run under a host root unless they are allowed: join with --allow-exec")]
    Rooted,
    /// There is no command.
    #[error("the command is empty")]
    Empty,
    /// The user to run as is not known.
    #[error("there is no user `{0}` on the host")]
    UnknownUser(String),
    /// The accounts could not be read.
    #[error("cannot find the user to run as")]
    FindUser(#[source] HostError),
    /// The working directory cannot be used.
    #[error("cannot use the working directory {path}")]
    ChangeDirectory {
        /// The directory on the host.
        path: String,
        /// Why.
        #[source]
        source: PathProblem,
    },
    /// The bytes are neither a script with a `#!` line nor a program.
    #[error("it is not executable: it has no `#!` line and is no program")]
    NotExecutable,
    /// The program could not be started.
    #[error("cannot start `{program}`: {}", start_text(source))]
    Start {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// There is no thread to stay with it.
    #[error("cannot start a thread for `{program}`")]
    Attend {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its pipes failed.
    #[error("lost contact with `{program}`")]
    Talk {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

fn start_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such program, or not the one after its `#!`".to_owned(),
        io::ErrorKind::PermissionDenied => "it is not executable for the agent's user".to_owned(),
        _ => error.to_string(),
    }
}
