//! [`PathClaim`]: which file of the host a resource is the declaration of, so that no two write one file.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lang::Value;

use super::{
    FSTAB, FileClaim, HOSTNAME, HOSTS, PathRole, RepositoryPaths, ResourcePath, Spec, cron, image, sudo,
    sysctl, unit,
};
use crate::own_paths::normalized;
use crate::schema::{is_absent, literal};

/// What a resource claims of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathClaim {
    /// All that is at this path.
    Whole(String),
    /// All that is at this path, and below it: nothing else may be declared there.
    Below(String),
    /// A part of the file at this path.
    Part {
        /// The path.
        path: String,
        /// What the part is called: `a line`.
        what: &'static str,
    },
}

impl PathClaim {
    /// The path.
    pub fn path(&self) -> &str {
        match self {
            PathClaim::Whole(path) | PathClaim::Below(path) | PathClaim::Part { path, .. } => path,
        }
    }

    /// Whether it is of something that lies below this path.
    pub fn lies_below(&self, path: &str) -> bool {
        self.path()
            .strip_prefix(path.trim_end_matches('/'))
            .is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
    }

    /// Of the path in its one form, so that no two ways to write it make two files.
    fn normalized(self) -> PathClaim {
        let tidy = |path: String| match normalized(&path) {
            Cow::Owned(tidy) => tidy,
            Cow::Borrowed(_) => path,
        };
        match self {
            PathClaim::Whole(path) => PathClaim::Whole(tidy(path)),
            PathClaim::Below(path) => PathClaim::Below(tidy(path)),
            PathClaim::Part { path, what } => PathClaim::Part { path: tidy(path), what },
        }
    }
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
    let claims = match kind {
        // A file of which nothing is said but its owner may have parts that others write.
        "file" if !given(&["content", "source", "template"]) && !is_absent(attributes) => Vec::new(),
        "file" | "download" | "archive" | "directory" | "symlink" => named(&|name| vec![name.to_owned()]),
        "image" => {
            let paths = name.map(|name| [Some(name.to_owned()), image::store_of(&normalized(name))]);
            paths.into_iter().flatten().flatten().map(PathClaim::Below).collect()
        }
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
    };
    claims.into_iter().map(PathClaim::normalized).collect()
}

impl Spec {
    /// What it claims. A file in a user's home, which is known on the node alone, is none of it.
    pub fn path_claims(&self) -> Vec<PathClaim> {
        let claim = |path: ResourcePath<'_>| match path.role {
            PathRole::Written { claim: Some(FileClaim::Whole), .. } | PathRole::Directory(_) => {
                Some(PathClaim::Whole(path.path.into_owned()))
            }
            PathRole::Written { claim: Some(FileClaim::Part(what)), .. } => {
                Some(PathClaim::Part { path: path.path.into_owned(), what })
            }
            PathRole::Switched => Some(PathClaim::Below(path.path.into_owned())),
            PathRole::Written { claim: None, .. }
            | PathRole::Contents
            | PathRole::Watched
            | PathRole::Probed => None,
        };
        self.paths(&|_| None).filter_map(claim).map(PathClaim::normalized).collect()
    }
}

/// The files that a repository is the declaration of: those that it does not need are removed.
fn repository_files(name: &str) -> Vec<String> {
    let RepositoryPaths { sources, armored_key, binary_key, preferences, one_line: _ } =
        RepositoryPaths::of(name);
    vec![sources, preferences, armored_key, binary_key]
}
