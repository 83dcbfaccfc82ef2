//! [`PathClaim`]: which file of the host a resource is the declaration of, so that no two write one file.

use std::collections::BTreeMap;

use lang::Value;

use super::{Ensure, FSTAB, FileSpec, HOSTNAME, HOSTS, RepositoryPaths, Spec, cron, sudo, sysctl, unit};
use crate::schema::{is_absent, literal};

/// What a resource claims of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathClaim {
    /// All that is at this path.
    Whole(String),
    /// A part of the file at this path.
    Part {
        /// The path.
        path: String,
        /// What the part is called: `a line`.
        what: &'static str,
    },
}

/// What a declaration claims, as far as it is known before it is bound. There is no `name` where that holds
/// an expression.
pub fn declared_claims(
    kind: &str,
    name: Option<&str>,
    attributes: &BTreeMap<String, Value>,
) -> Vec<PathClaim> {
    let named = |paths: &dyn Fn(&str) -> Vec<String>| -> Vec<PathClaim> {
        name.map(paths).unwrap_or_default().into_iter().map(PathClaim::Whole).collect()
    };
    let in_folder = |folder: &str| named(&|name| vec![format!("{folder}/{name}")]);
    let given = |names: &[&str]| names.iter().any(|name| attributes.contains_key(*name));
    let part = |path: &str, what| vec![PathClaim::Part { path: path.to_owned(), what }];
    let edits = |what| literal(attributes, "path").map(|path| part(path, what)).unwrap_or_default();
    match kind {
        // A file of which nothing is said but its owner may have parts that others write.
        "file" if !given(&["content", "source", "template"]) && !is_absent(attributes) => Vec::new(),
        "file" | "download" | "archive" | "directory" | "symlink" => named(&|name| vec![name.to_owned()]),
        "cron" => in_folder(cron::FOLDER),
        "sudo" => in_folder(sudo::FOLDER),
        "repository" => named(&repository_files),
        "hostname" => vec![PathClaim::Whole(HOSTNAME.to_owned())],
        "service" if given(&["unit", "template"]) => named(&|name| {
            let unit = unit::unit_name(name).unwrap_or_else(|_| name.to_owned());
            vec![format!("{}/{unit}", unit::UNIT_FOLDER)]
        }),
        "timer" => named(&|name| {
            let stem = name.strip_suffix(".timer").unwrap_or(name);
            ["timer", "service"].map(|suffix| format!("{}/{stem}.{suffix}", unit::UNIT_FOLDER)).into()
        }),
        "line" => edits("a line"),
        "block" => edits("a block"),
        "ini" => edits("a key"),
        "json" => edits("a value"),
        "ssh_key" => edits("a key"),
        "host" if given(&["path"]) => edits("an entry"),
        "host" => part(HOSTS, "an entry"),
        "mount" => part(FSTAB, "an entry"),
        "sysctl" if given(&["path"]) => edits("a parameter"),
        "sysctl" => part(sysctl::FILE, "a parameter"),
        _ => Vec::new(),
    }
}

impl Spec {
    /// What it claims.
    pub fn path_claims(&self) -> Vec<PathClaim> {
        let part = |path: &str, what| vec![PathClaim::Part { path: path.to_owned(), what }];
        let whole = |path: &str| vec![PathClaim::Whole(path.to_owned())];
        match self {
            Spec::File(FileSpec { content: None, ensure: Ensure::Present, .. }) => Vec::new(),
            Spec::File(spec) => whole(&spec.path),
            Spec::Directory(spec) => whole(&spec.path),
            Spec::Tree(spec) => whole(&spec.path),
            Spec::Archive(spec) => whole(&spec.path),
            Spec::Download(spec) => whole(&spec.path),
            Spec::Symlink(spec) => whole(&spec.path),
            Spec::Sudo(spec) => whole(&spec.path),
            Spec::Unit(spec) => spec.files.values().map(|file| PathClaim::Whole(file.path.clone())).collect(),
            Spec::Line(spec) => part(&spec.path, "a line"),
            Spec::Block(spec) => part(&spec.file.path, "a block"),
            Spec::Ini(spec) => part(&spec.file.path, "a key"),
            Spec::Json(spec) => part(&spec.file.path, "a value"),
            Spec::Host(spec) => part(&spec.path, "an entry"),
            Spec::Mount(_) => part(FSTAB, "an entry"),
            Spec::Sysctl(spec) => part(&spec.path, "a parameter"),
            Spec::Repository(spec) => {
                repository_files(&spec.name).into_iter().map(PathClaim::Whole).collect()
            }
            Spec::Hostname(_) => whole(HOSTNAME),
            Spec::Exec(_)
            | Spec::Custom(_)
            | Spec::Package(_)
            | Spec::User(_)
            | Spec::Group(_)
            | Spec::SshKey(_) => Vec::new(),
        }
    }
}

/// The files that a repository is the declaration of: those that it does not need are removed.
fn repository_files(name: &str) -> Vec<String> {
    let RepositoryPaths { sources, armored_key, binary_key, preferences, one_line: _ } =
        RepositoryPaths::of(name);
    vec![sources, preferences, armored_key, binary_key]
}
