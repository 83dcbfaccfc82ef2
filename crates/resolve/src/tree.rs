//! [`Tree`]: the files of a fleet repo, and what each path is for.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::decl::admission::{REVOCATIONS_FILE, TOKENS_FILE};
use crate::decl::nodes::hostname;

/// The files of a fleet repo, by path relative to its top (`modules/nginx/module.yaml`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Files by path.
    pub files: BTreeMap<String, RepoFile>,
}

/// A file of a fleet repo; it is used as its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoFile {
    /// Its bytes.
    pub bytes: Arc<[u8]>,
    /// Its owner may execute it.
    pub executable: bool,
}

impl<T: Into<Arc<[u8]>>> From<T> for RepoFile {
    /// A file that nobody executes.
    fn from(bytes: T) -> RepoFile {
        RepoFile { bytes: bytes.into(), executable: false }
    }
}

impl std::ops::Deref for RepoFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The most files of a fleet repo.
pub const MAX_FILES: usize = 400_000;
/// The largest file that a module ships, in bytes.
pub const MAX_SHIPPED: usize = 64 * 1024 * 1024;

impl Tree {
    /// A tree of texts, for tests and examples.
    pub fn of<'t>(files: impl IntoIterator<Item = (&'t str, &'t str)>) -> Tree {
        let files = files.into_iter().map(|(path, text)| (path.to_owned(), text.as_bytes().into()));
        Tree { files: files.collect() }
    }
}

/// What a path is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileKind<'p> {
    Fleet,
    Nodes,
    Groups,
    /// Keys of nodes that secrets are sealed for.
    Recipients,
    /// How releases reach their nodes.
    Rollouts,
    Host(&'p str),
    Role(&'p str),
    Environments,
    Tokens,
    Revocations,
    Environment(&'p str),
    Module(&'p str),
    Template {
        module: &'p str,
        name: &'p str,
    },
    /// A file or executor; `path` is relative to the module.
    Shipped {
        module: &'p str,
        path: &'p str,
    },
    /// Nothing of Muster's: a README, a hidden file, another folder.
    Other,
    /// Meant for Muster, and at no path that it reads.
    Misplaced {
        message: String,
        help: String,
    },
}

const TOP_FILES: [&str; 8] = [
    "fleet.yaml",
    "nodes.yaml",
    "groups.yaml",
    "environments.yaml",
    "recipients.yaml",
    "rollouts.yaml",
    TOKENS_FILE,
    REVOCATIONS_FILE,
];
const FOLDERS: [&str; 6] = ["nodes", "hosts", "roles", "environments", "modules", "recipients"];

/// Says what a path is for.
pub(crate) fn kind(path: &str) -> FileKind<'_> {
    let parts: Vec<&str> = path.split('/').collect();
    if parts.iter().any(|part| part.starts_with('.')) {
        return FileKind::Other;
    }
    match parts.as_slice() {
        [file] => top(file),
        ["modules", module, rest @ ..] => in_module(path, module, rest),
        [folder, file] if FOLDERS.contains(folder) => in_folder(folder, file),
        [folder, .., file] if FOLDERS.contains(folder) && is_yaml(file) => FileKind::Misplaced {
            message: format!("{folder}/ holds no folders"),
            help: format!("move it to {folder}/{file}"),
        },
        [folder, .., file] if is_yaml(file) => match lang::nearest(folder, FOLDERS) {
            Some(near) => FileKind::Misplaced {
                message: format!("no folder `{folder}/` is read"),
                help: format!("did you mean `{near}/`?"),
            },
            None => FileKind::Other,
        },
        _ => FileKind::Other,
    }
}

fn is_yaml(file: &str) -> bool {
    file.ends_with(".yaml") || file.ends_with(".yml")
}

fn top(file: &str) -> FileKind<'_> {
    match file {
        "fleet.yaml" => FileKind::Fleet,
        "nodes.yaml" => FileKind::Nodes,
        "groups.yaml" => FileKind::Groups,
        "recipients.yaml" => FileKind::Recipients,
        "rollouts.yaml" => FileKind::Rollouts,
        "environments.yaml" => FileKind::Environments,
        TOKENS_FILE => FileKind::Tokens,
        REVOCATIONS_FILE => FileKind::Revocations,
        _ if is_yaml(file) => {
            let help = match lang::nearest(file, TOP_FILES) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("at the top there are {}", TOP_FILES.join(", ")),
            };
            FileKind::Misplaced { message: format!("no file `{file}` is read"), help }
        }
        _ => FileKind::Other,
    }
}

fn in_folder<'p>(folder: &str, file: &'p str) -> FileKind<'p> {
    let Some(name) = file.strip_suffix(".yaml") else {
        if let Some(name) = file.strip_suffix(".yml") {
            return FileKind::Misplaced {
                message: "only names that end in .yaml are read".into(),
                help: format!("call it {name}.yaml"),
            };
        }
        return FileKind::Other;
    };
    match folder {
        "nodes" => FileKind::Nodes,
        "recipients" => FileKind::Recipients,
        "roles" => FileKind::Role(name),
        "environments" => FileKind::Environment(name),
        "hosts" => FileKind::Host(name),
        _ => FileKind::Misplaced {
            message: "a module is a folder".into(),
            help: format!("move it to modules/{name}/module.yaml"),
        },
    }
}

fn in_module<'p>(path: &'p str, module: &'p str, rest: &[&'p str]) -> FileKind<'p> {
    let below =
        |folder: &str| path.get("modules/".len() + module.len() + 1 + folder.len() + 1..).unwrap_or_default();
    match rest {
        [] => in_folder("modules", module),
        ["module.yaml"] => FileKind::Module(module),
        ["templates", _, ..] => FileKind::Template { module, name: below("templates") },
        ["files" | "executors", _, ..] => FileKind::Shipped {
            module,
            path: path.get("modules/".len() + module.len() + 1..).unwrap_or_default(),
        },
        [file] if is_yaml(file) => FileKind::Misplaced {
            message: format!("a module has no `{file}`"),
            help: format!("its declaration is modules/{module}/module.yaml"),
        },
        [folder, _, ..] => match lang::nearest(folder, ["templates", "files", "executors"]) {
            Some(near) => FileKind::Misplaced {
                message: format!("a module has no folder `{folder}/`"),
                help: format!("did you mean `{near}/`?"),
            },
            None => FileKind::Other,
        },
        _ => FileKind::Other,
    }
}

/// Why the name in a host file's path is no hostname.
pub(crate) fn host_problem(name: &str) -> Option<String> {
    hostname(name).err().map(|why| format!("`{name}` is not a hostname: {why}"))
}
