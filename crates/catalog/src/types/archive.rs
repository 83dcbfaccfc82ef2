//! `archive`: a directory with what an archive holds.

use std::collections::BTreeMap;

use lang::Value;
use model::{Digest, Fields};

use super::download::{CA, HEADERS};
use super::{
    COMMAND_TIMEOUT_SECS, DownloadFrom, Ensure, GROUP, MODE, OWNER, Ownership, ResourceSubject, STATE, Spec,
    StateSpec,
};
use crate::module::OnRemove::{Delete, Keep};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, is_absent,
};

/// The most leading names that are dropped.
pub(super) const MAX_STRIP: i64 = 16;
/// The name of the archive in a state: which one was unpacked, and how.
pub const ARCHIVE_TEXT: &str = "archive";

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "archive",
    summary: "A directory with what an archive holds: a tar file, plain or compressed with gzip, from the fleet \
              repo or from a URL. The archive is verified by its SHA-256 and read whole before the first file is \
              written. An archive is refused if a name in it leads out of the directory, a link in it points out \
              of it, it holds devices or one name twice, or it unpacks to more than 1 GiB or 200 times its size. \
              What was unpacked is remembered: files that were changed or deleted are put right, files of the \
              archive before go, and files that others made are left alone. Set-id bits and the right of \
              others to write are never taken from an archive.",
    short: Short::Path,
    attributes: &[
        STATE,
        Attribute::new(
            "source",
            FieldKind::Source,
            "",
            "the archive, a file of the module; it or `url` must be given",
        ),
        Attribute::new(
            "url",
            FieldKind::Url,
            "",
            "where the archive is; it is fetched as by `download`, and again when a file has to be put right",
        ),
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
            "only",
            FieldKind::List,
            "",
            "unpack only what one of these globs matches, with all that is below it; names are those after \
             `strip`, and `*` stops at a slash",
        ),
        Attribute::new("exclude", FieldKind::List, "", "do not unpack what one of these globs matches"),
        Attribute { summary: "permission bits of the directories; without it, those in the archive", ..MODE },
        Attribute::new(
            "file_mode",
            FieldKind::Mode,
            "",
            "permission bits of the files; without it, those in the archive. One that is executable in the \
             archive may be executed by everyone who may read it",
        ),
        Attribute { summary: "owning user of all that is unpacked; without it, root", ..OWNER },
        Attribute { summary: "owning group of all that is unpacked; without it, root's", ..GROUP },
    ],
    timeout_secs: COMMAND_TIMEOUT_SECS,
    on_remove: &[Keep, Delete],
    handler: false,
    guarded: false,
    example: "- archive: /opt/tool\n  source: tool-1.4.tar.gz\n  strip: 1\n  exclude: [\"share/doc\"]\n",
    manages: Manages::Path,
    removal: &["owner", "group"],
    rules,
    bind,
};

/// `archive`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveSpec {
    /// Absolute path of the directory.
    pub path: String,
    /// Present, or absent: then what was unpacked goes, and the directories that are empty without it.
    pub ensure: Ensure,
    /// SHA-256 of the archive.
    pub digest: Digest,
    /// Where it is, unless it is a file of the module.
    pub from: Option<DownloadFrom>,
    /// Leading names that are dropped.
    pub strip: usize,
    /// Globs of what is unpacked; everything where there is none.
    pub only: Vec<String>,
    /// Globs of what is not.
    pub exclude: Vec<String>,
    /// Declared ownership: the mode is that of the directories.
    pub ownership: Ownership,
    /// The mode of the files.
    pub file_mode: Option<u32>,
}

impl ArchiveSpec {
    /// Which archive is unpacked, and which part of it.
    pub fn label(&self) -> String {
        let mut label = format!("sha256:{}", self.digest);
        if self.strip > 0 {
            label.push_str(&format!(" strip {}", self.strip));
        }
        for (word, globs) in [("only", &self.only), ("exclude", &self.exclude)] {
            if !globs.is_empty() {
                label.push_str(&format!(" {word} {}", globs.join(" ")));
            }
        }
        label
    }
}

impl StateSpec for ArchiveSpec {
    fn ensure(&self) -> Ensure {
        self.ensure
    }

    fn declared(&self) -> Fields {
        Fields::from([(ARCHIVE_TEXT.to_owned(), self.label())])
    }

    fn after(&self) -> Vec<ResourceSubject<'_>> {
        self.ownership.accounts()
    }
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let all = ["source", "url", "sha256", "headers", "ca_file", "strip", "only", "exclude"];
    origin_rules("archive", &all, attributes)
}

/// The rules between the attributes that say where an archive comes from, for a type that unpacks one. `all` are those
/// that it does not have where it is absent.
pub(super) fn origin_rules(
    kind: &str,
    all: &[&str],
    attributes: &BTreeMap<String, Value>,
) -> Vec<AttributeProblem> {
    let given = |name: &str| attributes.contains_key(name);
    if is_absent(attributes) {
        let conflict = |name: &&str| {
            let article = if kind.starts_with(['a', 'i']) { "an" } else { "a" };
            let message = format!("{article} {kind} that is absent has no `{name}`");
            AttributeProblem::conflict(name, message, "drop it, or drop `state: absent`")
        };
        return all.iter().find(|name| given(name)).map(conflict).into_iter().collect();
    }
    let mut found = Vec::new();
    match (given("source"), given("url")) {
        (false, false) => found.push(AttributeProblem::missing(
            None,
            format!("`{kind}` needs `source` or `url`"),
            "add `source:`, a file below files/, or `url:` and `sha256:`",
        )),
        (true, true) => found.push(AttributeProblem::conflict(
            "url",
            "`source` and `url` exclude each other".to_owned(),
            "keep one of them",
        )),
        (false, true) if !given("sha256") => found.push(AttributeProblem::missing(
            Some("url"),
            "`url` needs `sha256`".to_owned(),
            "add `sha256:`, as `sha256sum` prints it",
        )),
        _ => {}
    }
    if !given("url") && given("source") {
        let lone = ["sha256", "headers", "ca_file"].into_iter().filter(|name| given(name));
        found.extend(lone.map(|name| {
            let message = format!("`{name}` belongs to `url`");
            AttributeProblem::conflict(name, message, "drop it: the release says what `source` holds")
        }));
    }
    found
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let from = given.text("url").map(|url| DownloadFrom::read(given, url));
    let digest = match given.text("source") {
        Some(source) => given.module_file(&format!("files/{source}"))?.digest,
        None => given.digest("sha256").unwrap_or(Digest::ZERO),
    };
    Ok(Spec::Archive(ArchiveSpec {
        path: given.name(),
        ensure: given.ensure(),
        digest,
        from,
        strip: given.int("strip").and_then(|strip| strip.try_into().ok()).unwrap_or(0),
        only: given.list("only").unwrap_or_default(),
        exclude: given.list("exclude").unwrap_or_default(),
        ownership: given.ownership(),
        file_mode: given.mode("file_mode"),
    }))
}
