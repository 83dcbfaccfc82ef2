//! What a resource means once bound: typed, every expression evaluated.

use std::collections::BTreeMap;

use lang::Value;
use model::Digest;

use crate::module::CommandLine;

/// A bound resource's own part, by type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// A regular file.
    File(FileSpec),
    /// A directory.
    Directory(DirectorySpec),
    /// A symbolic link.
    Symlink(SymlinkSpec),
    /// One line in a text file.
    Line(LineSpec),
    /// A command (`exec` or `shell`).
    Exec(ExecSpec),
    /// A custom executor.
    Custom(CustomSpec),
}

impl Spec {
    /// The path that it manages, if its type manages one, and whether anything is to be there.
    pub fn managed(&self) -> Option<(&str, Ensure)> {
        match self {
            Spec::File(spec) => Some((&spec.path, spec.ensure)),
            Spec::Directory(spec) => Some((&spec.path, spec.ensure)),
            Spec::Symlink(spec) => Some((&spec.path, spec.ensure)),
            Spec::Line(spec) => Some((&spec.path, spec.ensure)),
            Spec::Exec(_) | Spec::Custom(_) => None,
        }
    }
}

/// Whether a thing is to be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ensure {
    /// It exists as declared.
    #[default]
    Present,
    /// It does not exist.
    Absent,
}

/// Owner, group and mode; what is absent is left as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// Permission bits, at most 0o7777.
    pub mode: Option<u32>,
    /// User name or number.
    pub owner: Option<String>,
    /// Group name or number.
    pub group: Option<String>,
}

/// The bytes that a file should hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileContent {
    /// Inline or rendered text, with its digest.
    Text {
        /// The bytes.
        text: std::sync::Arc<str>,
        /// SHA-256 of the bytes.
        digest: Digest,
    },
    /// A blob of the module, never rendered.
    Blob {
        /// SHA-256 of the bytes.
        digest: Digest,
        /// Length in bytes.
        size: u64,
    },
}

/// `file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Absolute path under the host root.
    pub path: String,
    /// Present or absent.
    pub ensure: Ensure,
    /// Wanted bytes; `None` leaves the content as it is (the file is made empty if missing).
    pub content: Option<FileContent>,
    /// Wanted ownership.
    pub ownership: Ownership,
    /// Command that must succeed on the new bytes before they become visible; `%s`
    /// stands for the temporary file's path.
    pub validate: Option<CommandLine>,
    /// Keep the previous bytes beside the file as `NAME.muster-backup`.
    pub backup: bool,
}

/// `directory`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectorySpec {
    /// Absolute path.
    pub path: String,
    /// Present or absent (only an empty directory is ever removed unless `recurse`).
    pub ensure: Ensure,
    /// Wanted ownership.
    pub ownership: Ownership,
    /// `state: absent` removes what is inside too.
    pub recurse: bool,
}

/// `symlink`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymlinkSpec {
    /// Absolute path of the link.
    pub path: String,
    /// Present or absent.
    pub ensure: Ensure,
    /// What it points to, as text.
    pub target: String,
}

/// `line`: one line of a text file, the rest kept as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineSpec {
    /// Absolute path of the file.
    pub path: String,
    /// Present or absent.
    pub ensure: Ensure,
    /// The line, without its newline.
    pub line: String,
    /// Regular expression: the last line that matches is replaced (all are, for absent).
    pub matching: Option<String>,
    /// Regular expression: a new line goes after the last line that matches, else at the end.
    pub after: Option<String>,
    /// Make the file when it is missing; otherwise that is a failure.
    pub create: bool,
    /// Wanted ownership.
    pub ownership: Ownership,
}

/// `exec` and `shell`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecSpec {
    /// What to run.
    pub command: CommandLine,
    /// Skip when this path exists.
    pub creates: Option<String>,
    /// Skip when this succeeds.
    pub unless: Option<CommandLine>,
    /// Skip unless this succeeds.
    pub onlyif: Option<CommandLine>,
    /// Run every time, and report a change every time.
    pub always: bool,
    /// Working directory; `/` by default.
    pub cwd: Option<String>,
    /// Extra environment.
    pub environment: BTreeMap<String, String>,
    /// Exit codes that mean success; 0 by default.
    pub returns: Vec<i32>,
    /// User to run as; root by default.
    pub user: Option<String>,
}

/// `custom`: a script that speaks JSON (EXE-2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomSpec {
    /// Where the script is.
    pub script: Script,
    /// `state` of the request.
    pub state: String,
    /// `params` of the request.
    pub params: BTreeMap<String, Value>,
    /// The script understands `dryRun` and may be started by a plan.
    pub dry_run: bool,
}

/// A custom executor's script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Script {
    /// Shipped with the module, pinned by digest.
    Shipped {
        /// Path inside the module, for messages.
        path: String,
        /// SHA-256 of the script.
        digest: Digest,
        /// Length in bytes.
        size: u64,
    },
    /// An absolute path on the host, pinned by digest.
    Host {
        /// The path.
        path: String,
        /// SHA-256 of the script.
        digest: Digest,
    },
}
