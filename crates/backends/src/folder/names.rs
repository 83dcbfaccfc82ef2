//! Which names count in a folder, and which are given there.

use model::{Digest, ObjectKey};

use crate::manifest::Format;

/// What the name of a status adds to that of its manifest.
const STATUS: &str = ".status.json";
/// What the name of an operation adds to that of its object's manifest.
const OPERATION: &str = ".operation.json";
/// What hides a file that is being written; no other program writes such names.
const TEMPORARY: &str = ".muster-new";
/// Names of objects longer than this, in bytes, are shortened to a digest in file names:
/// with all that is added, 255 bytes are the most that a file system takes.
const MAX_STEM: usize = 160;

/// What a file is, by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FileRole {
    /// It holds manifests.
    Manifests(Format),
    /// It holds the status of an object.
    #[default]
    Status,
}

/// What the file at a path is; `None` when it is nothing here.
pub(crate) fn role(path: &str) -> Option<FileRole> {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    if name.starts_with('.') || name.ends_with(OPERATION) {
        None
    } else if name.ends_with(STATUS) {
        Some(FileRole::Status)
    } else {
        let (stem, suffix) = name.rsplit_once('.')?;
        let format = match suffix {
            "yaml" | "yml" => Format::Yaml,
            "json" => Format::Json,
            _ => return None,
        };
        (!stem.is_empty()).then_some(FileRole::Manifests(format))
    }
}

/// Whether a name is one under which a file is being written, or was when the writer died.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(TEMPORARY)
}

/// The name under which a file is made ready.
pub(crate) fn temporary(name: &str) -> String {
    // The digest keeps it within what a file system takes, and apart from other names.
    format!(".{}{TEMPORARY}", Digest::of(name.as_bytes()).short())
}

/// Where an object goes that has no file yet; `attempt` above 0 where that path is taken.
pub(crate) fn path_for(key: &ObjectKey, format: Format, attempt: usize) -> String {
    let kind = key.section.kind.as_str().to_ascii_lowercase();
    let namespace = if key.section.namespace.is_empty() { "_" } else { &key.section.namespace };
    let short = Digest::of(key.to_string().as_bytes()).short();
    let stem = match attempt {
        0 => short_name(&key.name),
        1 => format!("{}-{short}", short_name(&key.name)),
        more => format!("{}-{short}-{more}", short_name(&key.name)),
    };
    let suffix = match format {
        Format::Yaml => "yaml",
        Format::Json => "json",
    };
    format!("{kind}/{namespace}/{stem}.{suffix}")
}

/// Where the status of an object may lie, the path where it is written first: beside its
/// file, and named after the object where the file holds several, or has held.
pub(crate) fn statuses(file: &str, key: &ObjectKey, alone: bool) -> Vec<String> {
    beside(file, key, alone, STATUS)
}

/// Where an operation on an object may lie, in the same way.
pub(crate) fn operations(file: &str, key: &ObjectKey, alone: bool) -> Vec<String> {
    beside(file, key, alone, OPERATION)
}

fn beside(file: &str, key: &ObjectKey, alone: bool, suffix: &str) -> Vec<String> {
    let kind = key.section.kind.as_str().to_ascii_lowercase();
    let namespace = if key.section.namespace.is_empty() { "_" } else { &key.section.namespace };
    let long = format!("{file}.{kind}.{namespace}.{}{suffix}", short_name(&key.name));
    if alone { vec![format!("{file}{suffix}"), long] } else { vec![long] }
}

fn short_name(name: &str) -> String {
    if name.len() <= MAX_STEM {
        return name.to_owned();
    }
    // Names of objects are ASCII.
    format!("{}-{}", name.get(..MAX_STEM - 16).unwrap_or_default(), Digest::of(name.as_bytes()).short())
}
