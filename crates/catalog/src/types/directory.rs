//! `directory`: a directory, without what is in it, or with the files of a folder of the module.

use std::collections::BTreeMap;

use lang::Value;
use model::Fields;
use model::collect::CollectInserting;

use super::{
    Ensure, FILE_TIMEOUT_SECS, FORCE, GROUP, InTheWay, MODE, OWNER, Ownership, ResourceSubject, STATE, Spec,
    StateSpec,
};
use crate::module::FileRef;
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short,
};

/// The most files of a tree.
const MAX_TREE_FILES: usize = 5_000;

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "directory",
    summary: "A directory: its mode and its owner. Parents are not made by themselves; declare them. With \
              `source` it holds the files of a folder of the module too, compared by digest; `owner` and \
              `group` then hold for all of them.",
    short: Short::Path,
    attributes: &[
        STATE,
        MODE,
        OWNER,
        GROUP,
        Attribute::new("recurse", FieldKind::Bool, "false", "`state: absent` removes what is inside too"),
        Attribute::new(
            "source",
            FieldKind::Source,
            "",
            "a folder of the module, copied with all that is below it; with `state: absent` its files go",
        ),
        Attribute::new(
            "file_mode",
            FieldKind::Mode,
            "0644",
            "permission bits of the files of `source`; one that is executable in the fleet repo may be \
             executed by everyone who may read it",
        ),
        Attribute::new(
            "purge",
            FieldKind::Bool,
            "false",
            "remove what is in the directory and not in `source`; links are removed, never followed",
        ),
        FORCE,
    ],
    timeout_secs: FILE_TIMEOUT_SECS,
    on_remove: &[Keep, Delete, Restore],
    handler: false,
    guarded: false,
    example: "- directory: /etc/nginx/conf.d\n  mode: \"0755\"\n",
    manages: Manages::Path,
    removal: &[],
    rules,
    bind,
};

/// `directory`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectorySpec {
    /// Absolute path.
    pub path: String,
    /// Present or absent (only an empty directory is ever removed unless `recurse`).
    pub ensure: Ensure,
    /// Declared ownership.
    pub ownership: Ownership,
    /// `state: absent` removes what is inside too.
    pub recurse: bool,
    /// What becomes of something of another kind in its place.
    pub in_the_way: InTheWay,
}

/// `directory` with `source`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeSpec {
    /// Absolute path.
    pub path: String,
    /// Present, or absent: then its files go, and the directories that are empty without them.
    pub ensure: Ensure,
    /// The files by their paths below the directory.
    pub files: BTreeMap<String, FileRef>,
    /// Declared ownership: the mode is that of the directories.
    pub ownership: Ownership,
    /// The mode of the files.
    pub file_mode: Option<u32>,
    /// What is not in the tree is removed.
    pub purge: bool,
}

impl StateSpec for TreeSpec {
    fn ensure(&self) -> Ensure {
        self.ensure
    }

    /// For people. A state of the tree says more of each file (`converge::kinds::tree`).
    fn declared(&self) -> Fields {
        let text = |file: &FileRef| {
            let executable = if file.executable { ", executable" } else { "" };
            format!("sha256:{} ({} bytes{executable})", file.digest.short(), file.size)
        };
        self.files.iter().map(|(path, file)| (format!("./{path}"), text(file))).collect_inserting()
    }

    fn after(&self) -> Vec<ResourceSubject<'_>> {
        self.ownership.accounts()
    }
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    if attributes.contains_key("source") {
        let forced = attributes.contains_key("force").then(|| {
            let message = "`force` does not go with `source`".to_owned();
            AttributeProblem::conflict("force", message, "drop it, and move away by hand what is in the way")
        });
        return forced.into_iter().collect();
    }
    let lone = ["file_mode", "purge"].into_iter().filter(|name| attributes.contains_key(*name));
    lone.map(|name| {
        let message = format!("`{name}` needs `source`");
        AttributeProblem::missing(Some(name), message, "add `source:`, a folder below files/")
    })
    .collect()
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let (path, ensure, ownership) = (given.name(), given.ensure(), given.ownership());
    let Some(source) = given.text("source") else {
        let (recurse, in_the_way) = (given.bool("recurse"), InTheWay::declared(given));
        return Ok(Spec::Directory(DirectorySpec { path, ensure, ownership, recurse, in_the_way }));
    };
    let files: BTreeMap<String, FileRef> = given
        .module_folder(&format!("files/{source}"))
        .map(|(path, file)| (path.to_owned(), *file))
        .collect_inserting();
    if files.is_empty() {
        return Err(format!("files/{source} is no folder of the module that holds files"));
    }
    if files.len() > MAX_TREE_FILES {
        return Err(format!("files/{source} holds more than {MAX_TREE_FILES} files"));
    }
    let (file_mode, purge) = (given.mode("file_mode"), given.bool("purge"));
    Ok(Spec::Tree(TreeSpec { path, ensure, files, ownership, file_mode, purge }))
}
