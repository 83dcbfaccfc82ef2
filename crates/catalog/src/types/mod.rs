//! The resource types: each file declares one for `muster check`, the node and the reference,
//! and says what it means once bound.
//!
//! A type is a static [`ResourceType`] (its attributes, rules, example) and a spec: typed, every
//! expression evaluated. A spec of a thing with a state is a [`StateSpec`] too.

mod account;
mod archive;
mod block;
mod claims;
mod cron;
mod custom;
mod directory;
mod download;
mod edited;
mod exec;
mod file;
mod group;
mod host;
mod hostname;
mod image;
mod ini;
mod json;
mod line;
mod mount;
mod nixos;
mod package;
mod paths;
mod repository;
mod service;
mod ssh_key;
mod sudo;
mod switch;
mod symlink;
mod sysctl;
mod timer;
mod unit;
mod user;

use std::sync::Arc;

use model::{Digest, Fields};

pub use archive::{ARCHIVE_TEXT, ArchiveSpec};
pub use block::{BLOCK_BEGIN, BLOCK_END, BlockPosition, BlockSpec};
pub use claims::{PathClaim, declared_claims};
pub use custom::{CustomSpec, Script};
pub use directory::{DirectorySpec, TreeSpec};
pub use download::{DownloadFrom, DownloadSpec};
pub use edited::EditedFile;
pub use exec::ExecSpec;
pub use file::FileSpec;
pub use group::GroupSpec;
pub use host::{HOSTS, HostSpec};
pub use hostname::{HOSTNAME, HostnameSpec, MACHINE_INFO};
pub use image::{IMAGE_REST_TEXT, IMAGE_TARGET_TEXT, ImageSpec, is_image_store, is_tree_name};
pub use ini::{IniSpec, IniValue};
pub use json::JsonSpec;
pub use line::LineSpec;
pub use mount::{FSTAB, MountSpec, MountState};
pub use nixos::{NIXOS_PROFILE_TEXT, NIXOS_RUNNING_TEXT, NIXOS_SWITCH_ENDED, NIXOS_SWITCH_TEXT, NixosSpec};
pub use package::{CACHE_VALID, LOCK_TIMEOUT, PackageSpec, TransactionOptions, WantedPackage};
pub use paths::{
    ACCOUNT_FILES, BelowDirectory, FileClaim, PACKAGE_DATABASE, PathRole, ResourcePath, WrittenContent,
};
pub use repository::{RepositoryPaths, RepositorySigner, RepositorySpec};
pub use ssh_key::{AuthorizedKey, SshKeySpec};
pub use sudo::SudoSpec;
pub use switch::{SWITCH_TEXT, SwitchSpec};
pub use symlink::SymlinkSpec;
pub use sysctl::{SysctlSpec, sysctl_path, sysctl_words};
pub use unit::{
    DROP_IN_PREFIX, DROP_IN_TEXT, ENABLED_TEXT, LOADED_TEXT, MASKED_TEXT, NotifyAction, RUN_TEXT, RunState,
    UNIT_FOLDER, UnitFile, UnitSpec, hears_notifications,
};
pub use user::{PasswordDays, PasswordHash, UserSpec, date_of_days, days_of_date};

use crate::schema::{Attribute, AttributeProblem, FieldKind, ResourceAttributes, ResourceType};

/// Every resource type of this version, in the order of the reference.
pub static TYPES: &[&ResourceType] = &[
    &file::TYPE,
    &directory::TYPE,
    &symlink::TYPE,
    &line::TYPE,
    &block::TYPE,
    &ini::TYPE,
    &json::TYPE,
    &download::TYPE,
    &archive::TYPE,
    &image::TYPE,
    &host::TYPE,
    &repository::TYPE,
    &package::TYPE,
    &user::TYPE,
    &group::TYPE,
    &ssh_key::TYPE,
    &service::TYPE,
    &timer::TYPE,
    &cron::TYPE,
    &sudo::TYPE,
    &sysctl::TYPE,
    &mount::TYPE,
    &hostname::TYPE,
    &exec::EXEC,
    &exec::SHELL,
    &custom::TYPE,
    &switch::TYPE,
    &nixos::TYPE,
];

/// A bound resource's own part, by type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// A regular file.
    File(FileSpec),
    /// A directory.
    Directory(DirectorySpec),
    /// A directory with the files of a folder of the module.
    Tree(TreeSpec),
    /// A file whose bytes come from a URL.
    Download(DownloadSpec),
    /// A directory with what an archive holds.
    Archive(ArchiveSpec),
    /// A tree of files that is switched as a whole.
    Image(ImageSpec),
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
    /// A source of packages.
    Repository(RepositorySpec),
    /// A package.
    Package(PackageSpec),
    /// A user.
    User(UserSpec),
    /// A group.
    Group(GroupSpec),
    /// Public keys of a user.
    SshKey(SshKeySpec),
    /// A unit of systemd (`service` or `timer`).
    Unit(UnitSpec),
    /// A rule of sudo.
    Sudo(SudoSpec),
    /// A kernel parameter.
    Sysctl(SysctlSpec),
    /// A mount point.
    Mount(MountSpec),
    /// The host's name.
    Hostname(HostnameSpec),
    /// A block of lines in a text file.
    Block(BlockSpec),
    /// A key of an INI file.
    Ini(IniSpec),
    /// Values in a JSON file.
    Json(JsonSpec),
    /// Something that a pair of commands switches.
    Switch(SwitchSpec),
    /// The system of a NixOS host.
    Nixos(NixosSpec),
}

/// A resource that is a thing of the host with a state: observed, compared and set as named texts.
pub trait StateSpec {
    /// Whether it is to be there.
    fn ensure(&self) -> Ensure;

    /// What is declared of it, as texts by the names of its attributes; nothing that is left as it is.
    fn declared(&self) -> Fields;

    /// The text file of which it is a part.
    fn edited_file(&self) -> Option<&EditedFile> {
        None
    }

    /// Paths other than its own that must be right before it: the file that it edits, for one.
    fn needs(&self) -> Vec<&str> {
        self.edited_file().map(|file| file.path.as_str()).into_iter().collect()
    }

    /// Other things that must be right before it, where they are declared: its user, its package.
    fn after(&self) -> Vec<ResourceSubject<'_>> {
        self.edited_file().map(|file| file.ownership.accounts()).unwrap_or_default()
    }

    /// Types of which every resource comes before it.
    fn after_types(&self) -> &'static [&'static str] {
        &[]
    }

    /// With which others it is applied in one go, where nothing orders them against each other.
    fn together(&self) -> Option<Together> {
        None
    }
}

/// What of the host a resource is about. Two resources with one subject are about the same thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceSubject<'a> {
    /// What is at this path.
    Path(&'a str),
    /// A thing of a type, by its name.
    Named {
        /// The resource type.
        kind: &'a str,
        /// The resource's name.
        name: &'a str,
    },
}

/// What is applied in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Together {
    /// Packages, in one transaction of the package manager.
    Packages,
}

impl Spec {
    /// The path that it manages, if its type manages one, and whether anything is to be there.
    pub fn managed(&self) -> Option<(&str, Ensure)> {
        match self {
            Spec::File(spec) => Some((&spec.path, spec.ensure)),
            Spec::Directory(spec) => Some((&spec.path, spec.ensure)),
            Spec::Tree(spec) => Some((&spec.path, spec.ensure)),
            Spec::Download(spec) => Some((&spec.path, spec.ensure)),
            Spec::Archive(spec) => Some((&spec.path, spec.ensure)),
            Spec::Image(spec) => Some((&spec.path, spec.tree.ensure)),
            Spec::Symlink(spec) => Some((&spec.path, spec.ensure)),
            Spec::Line(spec) => Some((&spec.path, spec.ensure)),
            Spec::Exec(_)
            | Spec::Custom(_)
            | Spec::Host(_)
            | Spec::Repository(_)
            | Spec::Package(_)
            | Spec::User(_)
            | Spec::Group(_)
            | Spec::SshKey(_)
            | Spec::Unit(_)
            | Spec::Sudo(_)
            | Spec::Sysctl(_)
            | Spec::Mount(_)
            | Spec::Hostname(_)
            | Spec::Block(_)
            | Spec::Ini(_)
            | Spec::Json(_)
            | Spec::Switch(_)
            | Spec::Nixos(_) => None,
        }
    }

    /// The spec as that of a thing with a state, if its type is one.
    pub fn state(&self) -> Option<&dyn StateSpec> {
        match self {
            Spec::Tree(spec) => Some(spec),
            Spec::Archive(spec) => Some(spec),
            Spec::Image(spec) => Some(spec),
            Spec::Host(spec) => Some(spec),
            Spec::Repository(spec) => Some(spec),
            Spec::Package(spec) => Some(spec),
            Spec::User(spec) => Some(spec),
            Spec::Group(spec) => Some(spec),
            Spec::SshKey(spec) => Some(spec),
            Spec::Unit(spec) => Some(spec),
            Spec::Sudo(spec) => Some(spec),
            Spec::Sysctl(spec) => Some(spec),
            Spec::Mount(spec) => Some(spec),
            Spec::Hostname(spec) => Some(spec),
            Spec::Block(spec) => Some(spec),
            Spec::Ini(spec) => Some(spec),
            Spec::Json(spec) => Some(spec),
            Spec::Switch(spec) => Some(spec),
            Spec::Nixos(spec) => Some(spec),
            Spec::File(_)
            | Spec::Directory(_)
            | Spec::Download(_)
            | Spec::Symlink(_)
            | Spec::Line(_)
            | Spec::Exec(_)
            | Spec::Custom(_) => None,
        }
    }
}

/// Whether resources of a type are parts of a generation that are switched as a whole or not at all: where one of them
/// fails, the switch to its release has failed, and no probe has to find that out (ROL-10).
pub fn is_switched_whole(kind: &str) -> bool {
    [image::TYPE.name, switch::TYPE.name, nixos::TYPE.name].contains(&kind)
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

impl Ownership {
    /// The user and the group, which must be there before.
    pub fn accounts(&self) -> Vec<ResourceSubject<'_>> {
        let user = self.owner.iter().map(|name| ResourceSubject::Named { kind: "user", name });
        user.chain(self.group.iter().map(|name| ResourceSubject::Named { kind: "group", name })).collect()
    }
}

/// The bytes that a file should hold.
#[derive(Clone, PartialEq, Eq)]
pub enum FileContent {
    /// Inline or rendered text, with its digest.
    Text {
        /// The bytes.
        text: Arc<str>,
        /// SHA-256 of the bytes.
        digest: Digest,
    },
    /// A secret that is no text, with its digest.
    Bytes {
        /// The bytes.
        bytes: Arc<[u8]>,
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

    /// A secret that is no text.
    pub fn bytes(bytes: impl Into<Arc<[u8]>>) -> FileContent {
        let bytes = bytes.into();
        FileContent::Bytes { digest: Digest::of(&bytes), bytes }
    }

    /// SHA-256 of the bytes.
    pub fn digest(&self) -> Digest {
        match self {
            FileContent::Text { digest, .. }
            | FileContent::Bytes { digest, .. }
            | FileContent::Blob { digest, .. } => *digest,
        }
    }
}

/// Without the bytes, which may hold secrets.
impl std::fmt::Debug for FileContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FileContent::Text { text, .. } => write!(f, "Text({} bytes)", text.len()),
            FileContent::Bytes { bytes, .. } => write!(f, "Bytes({} bytes)", bytes.len()),
            FileContent::Blob { digest, size } => write!(f, "Blob({}, {size} bytes)", digest.short()),
        }
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
/// What becomes of a thing of another kind that stands in the place of a file, a link or a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InTheWay {
    /// It stays, and the resource fails.
    #[default]
    Stays,
    /// It is replaced unless it is a directory with something in it: Muster made it, and another type is
    /// declared there now.
    OwnIsReplaced,
    /// It is replaced: `force: true`.
    Replaced,
}

impl InTheWay {
    fn declared(given: &ResourceAttributes<'_>) -> InTheWay {
        if given.bool("force") { InTheWay::Replaced } else { InTheWay::Stays }
    }

    /// Whether a file or a link may be replaced.
    pub fn replaces(self) -> bool {
        self != InTheWay::Stays
    }

    /// Whether a directory may be replaced.
    pub fn replaces_directory(self, empty: bool) -> bool {
        self == InTheWay::Replaced || (empty && self == InTheWay::OwnIsReplaced)
    }
}

const FORCE: Attribute = Attribute::new(
    "force",
    FieldKind::Bool,
    "false",
    "replace what stands in its place and is of another kind: a directory goes with all that is in it; \
     never a device or a socket, nor a directory of the system such as `/etc` or `/usr/lib`. What Muster \
     itself made there for another type goes without it, a directory while it is empty",
);
/// Seconds that a command may take where `timeout:` says nothing.
const COMMAND_TIMEOUT_SECS: u32 = 600;
/// Seconds that work on a file may take where `timeout:` says nothing.
const FILE_TIMEOUT_SECS: u32 = 60;

/// The rules of a type whose attributes have none between them.
fn no_rules(_: &std::collections::BTreeMap<String, lang::Value>) -> Vec<AttributeProblem> {
    Vec::new()
}
