//! [`Spec::paths`]: what a resource has to do with which paths of its host.
//!
//! One table for all that asks: which resources write one file (E084), what is watched, of which files versions
//! are kept, which file systems a job looks at. A new type is added here.

use std::borrow::Cow;

use super::{Ensure, FSTAB, FileSpec, HOSTNAME, MACHINE_INFO, RepositoryPaths, Spec, TreeSpec, UNIT_FOLDER};

/// What the package manager writes when a package comes or goes.
pub const PACKAGE_DATABASE: &str = "/var/lib/dpkg/status";
/// What users and groups are kept in.
pub const ACCOUNT_FILES: [&str; 4] = ["/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow"];

/// A path of the host, and what a resource has to do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePath<'a> {
    /// The path.
    pub path: Cow<'a, str>,
    /// What the resource has to do with it.
    pub role: PathRole,
}

/// What a resource has to do with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathRole {
    /// It writes this file.
    Written {
        /// What of the file it is the declaration of; `None` where another resource may declare the file too.
        claim: Option<FileClaim>,
        /// Whom the file's content may concern.
        content: WrittenContent,
    },
    /// It declares this directory.
    Directory(BelowDirectory),
    /// It has all that is at this path and below it, and replaces it as a whole.
    Switched,
    /// Everything in this directory counts for it.
    Contents,
    /// Others write this file, and the resource is as declared or not by what it holds.
    Watched,
    /// Its command looks at it.
    Probed,
}

/// What of a file a resource is the declaration of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileClaim {
    /// All of it.
    Whole,
    /// A part, by what that is called: `a line`.
    Part(&'static str),
}

/// Whom the content of a written file may concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenContent {
    /// Everybody, whatever the file's mode: keys that let others in, rules.
    Public,
    /// As the mode says.
    ByMode {
        /// The declared permission bits.
        declared: Option<u32>,
    },
}

/// What a resource does with that which is below its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BelowDirectory {
    /// Nothing.
    LeftAlone,
    /// It looks at it, and writes or removes some of it.
    Managed,
}

impl<'a> ResourcePath<'a> {
    fn new(path: impl Into<Cow<'a, str>>, role: PathRole) -> ResourcePath<'a> {
        ResourcePath { path: path.into(), role }
    }

    /// All of a file, as its mode says.
    fn whole(path: &'a str, declared: Option<u32>) -> ResourcePath<'a> {
        let content = WrittenContent::ByMode { declared };
        ResourcePath::new(path, PathRole::Written { claim: Some(FileClaim::Whole), content })
    }

    /// A part of a file, as its mode says.
    fn part(path: &'a str, what: &'static str, declared: Option<u32>) -> ResourcePath<'a> {
        let content = WrittenContent::ByMode { declared };
        ResourcePath::new(path, PathRole::Written { claim: Some(FileClaim::Part(what)), content })
    }

    /// A file that holds no secret.
    fn public(path: impl Into<Cow<'a, str>>, claim: Option<FileClaim>) -> ResourcePath<'a> {
        ResourcePath::new(path, PathRole::Written { claim, content: WrittenContent::Public })
    }

    fn watched(path: impl Into<Cow<'a, str>>) -> ResourcePath<'a> {
        ResourcePath::new(path, PathRole::Watched)
    }
}

impl Spec {
    /// The paths that the resource has to do with, a directory before what is in it; a path may have several
    /// roles. `home` is a user's home, where that is known: what lies in one is left out else.
    pub fn paths<'a>(
        &'a self,
        home: &dyn Fn(&str) -> Option<String>,
    ) -> Box<dyn Iterator<Item = ResourcePath<'a>> + 'a> {
        let part_of_text = Some(FileClaim::Part("an entry"));
        let paths = match self {
            // Trees may have very many files.
            Spec::Tree(spec) => return Box::new(tree_paths(spec)),
            // A file of which nothing is said but its owner may have parts that others write.
            Spec::File(FileSpec { path, ownership, content: None, ensure: Ensure::Present, .. }) => {
                let content = WrittenContent::ByMode { declared: ownership.mode };
                vec![ResourcePath::new(path, PathRole::Written { claim: None, content })]
            }
            Spec::File(spec) => vec![ResourcePath::whole(&spec.path, spec.ownership.mode)],
            Spec::Download(spec) => vec![ResourcePath::whole(&spec.path, spec.ownership.mode)],
            Spec::Symlink(spec) => vec![ResourcePath::whole(&spec.path, None)],
            Spec::Directory(spec) => {
                let below = if spec.recurse { BelowDirectory::Managed } else { BelowDirectory::LeftAlone };
                vec![ResourcePath::new(&spec.path, PathRole::Directory(below))]
            }
            // Which files an archive has is known once it is unpacked.
            Spec::Archive(spec) => {
                vec![ResourcePath::new(&spec.path, PathRole::Directory(BelowDirectory::Managed))]
            }
            // Which files a tree has is known once it is unpacked.
            Spec::Image(spec) => vec![
                ResourcePath::new(&spec.path, PathRole::Switched),
                ResourcePath::new(&spec.store, PathRole::Switched),
            ],
            Spec::Line(spec) => vec![ResourcePath::part(&spec.path, "a line", spec.ownership.mode)],
            Spec::Block(spec) => {
                vec![ResourcePath::part(&spec.file.path, "a block", spec.file.ownership.mode)]
            }
            Spec::Ini(spec) => vec![ResourcePath::part(&spec.file.path, "a key", spec.file.ownership.mode)],
            Spec::Json(spec) => {
                vec![ResourcePath::part(&spec.file.path, "a value", spec.file.ownership.mode)]
            }
            Spec::Host(spec) => vec![ResourcePath::public(&spec.path, part_of_text)],
            Spec::Mount(_) => vec![ResourcePath::public(FSTAB, part_of_text)],
            Spec::Sysctl(spec) => {
                vec![ResourcePath::public(&spec.path, Some(FileClaim::Part("a parameter")))]
            }
            Spec::Sudo(spec) => vec![ResourcePath::public(&spec.path, Some(FileClaim::Whole))],
            Spec::Hostname(_) => vec![
                ResourcePath::public(HOSTNAME, Some(FileClaim::Whole)),
                ResourcePath::public(MACHINE_INFO, None),
            ],
            Spec::Repository(spec) => {
                // Those that it does not need are removed.
                let RepositoryPaths { sources, armored_key, binary_key, preferences, one_line: _ } =
                    RepositoryPaths::of(&spec.name);
                [sources, preferences, armored_key, binary_key]
                    .map(|path| ResourcePath::public(path, Some(FileClaim::Whole)))
                    .into()
            }
            Spec::SshKey(spec) => {
                let in_home =
                    || Some(format!("{}/.ssh/authorized_keys", home(&spec.user)?.trim_end_matches('/')));
                let path = spec.path.clone().or_else(in_home);
                // The directory's mode and owner count too; and another home is another file.
                let directory = path.as_ref().and_then(|path| Some(path.rsplit_once('/')?.0.to_owned()));
                let keys = path.map(|path| ResourcePath::public(path, Some(FileClaim::Part("a key"))));
                let directory = directory.filter(|path| !path.is_empty()).map(ResourcePath::watched);
                let accounts = ResourcePath::watched(ACCOUNT_FILES[0]);
                directory.into_iter().chain(keys).chain([accounts]).collect()
            }
            Spec::Unit(spec) => {
                let own = ResourcePath::watched(format!("{UNIT_FOLDER}/{}", spec.unit));
                let drop_ins = spec.drop_ins.iter().map(|path| ResourcePath::new(path, PathRole::Contents));
                let files = spec.files.values().map(|file| ResourcePath::whole(&file.path, None));
                [own].into_iter().chain(drop_ins).chain(files).collect()
            }
            Spec::Package(_) => vec![ResourcePath::watched(PACKAGE_DATABASE)],
            Spec::User(_) | Spec::Group(_) => ACCOUNT_FILES.map(ResourcePath::watched).into(),
            Spec::Exec(spec) => {
                let probed = spec.creates.iter().chain(&spec.cwd);
                probed.map(|path| ResourcePath::new(path, PathRole::Probed)).collect()
            }
            Spec::Custom(_) | Spec::Switch(_) | Spec::Nixos(_) => Vec::new(),
        };
        Box::new(paths.into_iter())
    }
}

/// Those of a directory with the files of a folder of the module.
fn tree_paths(spec: &TreeSpec) -> impl Iterator<Item = ResourcePath<'_>> {
    let content = WrittenContent::ByMode { declared: spec.file_mode };
    let purged = |path: String| spec.purge.then(|| ResourcePath::new(path, PathRole::Contents));
    let files = spec.files.keys().flat_map(move |name| {
        let path = format!("{}/{name}", spec.path.trim_end_matches('/'));
        let directory = path.rsplit_once('/').and_then(|(directory, _)| purged(directory.to_owned()));
        directory.into_iter().chain([ResourcePath::new(path, PathRole::Written { claim: None, content })])
    });
    let top = ResourcePath::new(&spec.path, PathRole::Directory(BelowDirectory::Managed));
    [top].into_iter().chain(purged(spec.path.clone())).chain(files)
}
