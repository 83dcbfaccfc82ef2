//! The resource types: each file declares one for `muster check`, the node and the reference,
//! and says what it means once bound.
//!
//! A type is a static [`ResourceType`] (its attributes, rules, example) and a spec: typed, every
//! expression evaluated. A spec of a thing with a state is a [`StateSpec`] too.

mod account;
mod custom;
mod directory;
mod exec;
mod file;
mod group;
mod host;
mod hostname;
mod line;
mod mount;
mod ssh_key;
mod sudo;
mod symlink;
mod sysctl;
mod user;

use std::sync::Arc;

use model::{Digest, Fields};

pub use custom::{CustomSpec, Script};
pub use directory::DirectorySpec;
pub use exec::ExecSpec;
pub use file::FileSpec;
pub use group::GroupSpec;
pub use host::{HOSTS, HostSpec};
pub use hostname::HostnameSpec;
pub use line::LineSpec;
pub use mount::{FSTAB, MountSpec, MountState};
pub use ssh_key::{AuthorizedKey, SshKeySpec};
pub use sudo::SudoSpec;
pub use symlink::SymlinkSpec;
pub use sysctl::{SysctlSpec, sysctl_path, sysctl_words};
pub use user::{PasswordDays, PasswordHash, UserSpec, date_of_days, days_of_date};

use crate::schema::{Attribute, AttributeProblem, FieldKind, ResourceType};

/// Every resource type of this version, in the order of the reference.
pub static TYPES: &[&ResourceType] = &[
    &file::TYPE,
    &directory::TYPE,
    &symlink::TYPE,
    &line::TYPE,
    &host::TYPE,
    &user::TYPE,
    &group::TYPE,
    &ssh_key::TYPE,
    &sudo::TYPE,
    &sysctl::TYPE,
    &mount::TYPE,
    &hostname::TYPE,
    &exec::EXEC,
    &exec::SHELL,
    &custom::TYPE,
];

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
    /// An entry of the hosts file.
    Host(HostSpec),
    /// A user.
    User(UserSpec),
    /// A group.
    Group(GroupSpec),
    /// Public keys of a user.
    SshKey(SshKeySpec),
    /// A rule of sudo.
    Sudo(SudoSpec),
    /// A kernel parameter.
    Sysctl(SysctlSpec),
    /// A mount point.
    Mount(MountSpec),
    /// The host's name.
    Hostname(HostnameSpec),
}

/// A resource that is a thing of the host with a state: observed, compared and set as named texts.
pub trait StateSpec {
    /// Whether it is to be there.
    fn ensure(&self) -> Ensure;

    /// What is declared of it, as texts by the names of its attributes; nothing that is left as it is.
    fn declared(&self) -> Fields;

    /// Paths other than its own that must be right before it: the file that it edits, for one.
    fn needs(&self) -> Vec<&str> {
        Vec::new()
    }
}

impl Spec {
    /// The path that it manages, if its type manages one, and whether anything is to be there.
    pub fn managed(&self) -> Option<(&str, Ensure)> {
        match self {
            Spec::File(spec) => Some((&spec.path, spec.ensure)),
            Spec::Directory(spec) => Some((&spec.path, spec.ensure)),
            Spec::Symlink(spec) => Some((&spec.path, spec.ensure)),
            Spec::Line(spec) => Some((&spec.path, spec.ensure)),
            _ => None,
        }
    }

    /// The spec as that of a thing with a state, if its type is one.
    pub fn state(&self) -> Option<&dyn StateSpec> {
        match self {
            Spec::Host(spec) => Some(spec),
            Spec::User(spec) => Some(spec),
            Spec::Group(spec) => Some(spec),
            Spec::SshKey(spec) => Some(spec),
            Spec::Sudo(spec) => Some(spec),
            Spec::Sysctl(spec) => Some(spec),
            Spec::Mount(spec) => Some(spec),
            Spec::Hostname(spec) => Some(spec),
            Spec::File(_)
            | Spec::Directory(_)
            | Spec::Symlink(_)
            | Spec::Line(_)
            | Spec::Exec(_)
            | Spec::Custom(_) => None,
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
        text: Arc<str>,
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

impl FileContent {
    /// Inline or rendered text.
    pub fn text(text: impl Into<Arc<str>>) -> FileContent {
        let text = text.into();
        FileContent::Text { digest: Digest::of(text.as_bytes()), text }
    }
}

/// Attributes that several types have.
const STATE: Attribute = Attribute::new(
    "state",
    FieldKind::Word(&["present", "absent"]),
    "present",
    "`absent` removes it on purpose",
);
const MODE: Attribute =
    Attribute::new("mode", FieldKind::Mode, "", "permission bits; without it they are left as they are");
const OWNER: Attribute =
    Attribute::new("owner", FieldKind::Account, "", "owning user; without it, left as it is");
const GROUP: Attribute =
    Attribute::new("group", FieldKind::Account, "", "owning group; without it, left as it is");
/// Seconds that a command may take where `timeout:` says nothing.
const COMMAND_TIMEOUT_SECS: u32 = 600;
/// Seconds that work on a file may take where `timeout:` says nothing.
const FILE_TIMEOUT_SECS: u32 = 60;

/// The rules of a type whose attributes have none between them.
fn no_rules(_: &std::collections::BTreeMap<String, lang::Value>) -> Vec<AttributeProblem> {
    Vec::new()
}
