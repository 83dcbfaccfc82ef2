//! `image`: a tree of files that is switched as a whole (ROL-10).
//!
//! ```text
//! /opt/app -> .app.generations/DIGEST         the link, replaced in one step
//! /opt/.app.generations/DIGEST/...            a tree, complete before the link leads to it
//! ```

use std::collections::BTreeMap;

use lang::Value;
use model::{Digest, Fields};

use super::archive::{ArchiveSpec, MAX_STRIP, origin_rules};
use super::download::{CA, HEADERS};
use super::{
    COMMAND_TIMEOUT_SECS, DownloadFrom, Ensure, GROUP, OWNER, Ownership, ResourceSubject, STATE, Spec,
    StateSpec,
};
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short,
};

/// The name of the link's target in a state.
pub const IMAGE_TARGET_TEXT: &str = "link";
/// The name of the trees in a state that are not whole, and that nothing will lead to.
pub const IMAGE_REST_TEXT: &str = "half unpacked";
/// How many trees are kept where `keep` says nothing.
const DEFAULT_KEEP: usize = 3;
/// The fewest trees that are kept: the one in use, and the one before, which a return needs.
const MIN_KEEP: i64 = 2;
/// The most trees that are kept.
const MAX_KEEP: i64 = 16;

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "image",
    summary: "A tree of files that is switched as a whole: the resource's path becomes a symbolic link to a \
              directory with what an archive holds, beside it in `.NAME.generations`. The archive is read, \
              judged and bounded as that of an `archive`; it is unpacked beside what is in use, and the link is \
              replaced in one step once the new tree is complete and on the disk. The trees before are kept, so \
              that a release that is taken back is back at once, without the network. What cannot be unpacked \
              switches nothing, and in a rollout the host goes back to the release before.",
    short: Short::Path,
    attributes: &[
        STATE,
        Attribute::new(
            "source",
            FieldKind::Source,
            "",
            "the archive, a file of the module; it or `url` must be given",
        ),
        Attribute::new("url", FieldKind::Url, "", "where the archive is; it is fetched as by `download`"),
        Attribute::new("sha256", FieldKind::Sha256, "", "the SHA-256 of the archive at `url`"),
        HEADERS,
        CA,
        Attribute::new(
            "strip",
            FieldKind::Int(0, MAX_STRIP),
            "0",
            "leading directories that are dropped from each name; what has no name left is not unpacked",
        ),
        Attribute::new(
            "keep",
            FieldKind::Int(MIN_KEEP, MAX_KEEP),
            "3",
            "how many trees are kept, the one in use included. Of more than 8 GiB the oldest go earlier, but \
             neither the one in use nor the one before",
        ),
        Attribute { summary: "owning user of all that is unpacked; without it, root", ..OWNER },
        Attribute { summary: "owning group of all that is unpacked; without it, root's", ..GROUP },
    ],
    timeout_secs: COMMAND_TIMEOUT_SECS,
    on_remove: &[Keep, Delete, Restore],
    handler: false,
    guarded: false,
    example: "- image: /opt/app\n  source: app-1.4.tar.gz\n  strip: 1\n",
    manages: Manages::Path,
    removal: &["owner", "group"],
    rules,
    bind,
};

/// `image`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSpec {
    /// Absolute path of the link.
    pub path: String,
    /// The directory beside it in which the trees are.
    pub store: String,
    /// The tree that the link is to lead to: an archive unpacked in a directory of `store`.
    pub tree: ArchiveSpec,
    /// How many trees are kept, the one in use included; at least 2.
    pub keep: usize,
}

impl ImageSpec {
    /// What the link to a tree of this name points to: relative, so that it leads to the same below another root.
    pub fn target_of(&self, tree: &str) -> String {
        format!("{}/{tree}", self.store.rsplit('/').next().unwrap_or_default())
    }

    /// What the link is to point to.
    pub fn target(&self) -> String {
        self.target_of(self.tree_name())
    }

    /// The name of the tree in the store.
    pub fn tree_name(&self) -> &str {
        self.tree.path.rsplit('/').next().unwrap_or_default()
    }

    /// Where a tree of the store lies.
    pub fn path_of(&self, tree: &str) -> String {
        format!("{}/{tree}", self.store)
    }

    /// The tree that a link with this target leads to, if it is one of the store.
    pub fn tree_of<'t>(&self, target: &'t str) -> Option<&'t str> {
        let tree = target.strip_prefix(self.store.rsplit('/').next()?)?.strip_prefix('/')?;
        is_tree_name(tree).then_some(tree)
    }
}

/// Whether an entry of a store has the name of a tree; others' are left alone.
pub fn is_tree_name(name: &str) -> bool {
    name.parse::<Digest>().is_ok()
}

/// Whether a directory has the name of those in which the trees of an image are.
pub fn is_image_store(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with('.') && name.ends_with(STORE_END))
}

/// What the name of such a directory ends with.
const STORE_END: &str = ".generations";

/// The directory beside a link in which its trees are; `None` for the root of the host.
pub(super) fn store_of(path: &str) -> Option<String> {
    let (directory, name) = path.rsplit_once('/')?;
    (!name.is_empty()).then(|| format!("{directory}/.{name}{STORE_END}"))
}

impl StateSpec for ImageSpec {
    fn ensure(&self) -> Ensure {
        self.tree.ensure
    }

    fn declared(&self) -> Fields {
        let mut declared = self.tree.declared();
        declared.insert(IMAGE_TARGET_TEXT.to_owned(), self.target());
        declared
    }

    fn after(&self) -> Vec<ResourceSubject<'_>> {
        self.tree.after()
    }
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let all = ["source", "url", "sha256", "headers", "ca_file", "strip", "keep"];
    origin_rules("image", &all, attributes)
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let path = given.name();
    let store = store_of(&path).ok_or("the root of the host cannot be an image")?;
    let from = given.text("url").map(|url| DownloadFrom::read(given, url));
    let digest = match given.text("source") {
        Some(source) => given.module_file(&format!("files/{source}"))?.digest,
        None => given.digest("sha256").unwrap_or(Digest::ZERO),
    };
    let mut tree = ArchiveSpec {
        path: String::new(),
        ensure: given.ensure(),
        digest,
        from,
        strip: given.int("strip").and_then(|strip| strip.try_into().ok()).unwrap_or(0),
        only: Vec::new(),
        exclude: Vec::new(),
        ownership: Ownership { mode: None, owner: given.text("owner"), group: given.text("group") },
        file_mode: None,
    };
    // Another part of the same archive is another tree.
    let name = if tree.strip == 0 { digest } else { Digest::of(tree.label().as_bytes()) };
    tree.path = format!("{store}/{name}");
    let keep = given.int("keep").and_then(|keep| keep.try_into().ok()).unwrap_or(DEFAULT_KEEP);
    Ok(Spec::Image(ImageSpec { path, store, tree, keep }))
}
