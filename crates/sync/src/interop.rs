//! The inventory checksum of the source document's resync, and which side holds the truth (SYN-6).

use model::digest::Hasher;
use model::{Digest, ObjectKey};

use crate::mode::{Mode, Role};

/// The inventory checksum: SHA-256 over the sorted `kind/name/uid`, joined without a sign in
/// between. The namespace is left out, as it may differ between the sides.
pub fn inventory_checksum<'a>(objects: impl Iterator<Item = (&'a ObjectKey, &'a str)>) -> Digest {
    let mut lines: Vec<String> =
        objects.map(|(key, uid)| format!("{}/{}/{}", key.section.kind, key.name, uid)).collect();
    lines.sort_unstable();
    let mut hasher = Hasher::new();
    for line in &lines {
        hasher.update(line.as_bytes());
    }
    hasher.finish()
}

/// Who holds the truth of a node's objects; `None` when none are synchronized.
pub fn source(mode: Mode) -> Option<Role> {
    match mode {
        Mode::Off => None,
        Mode::Managed => Some(Role::Principal),
        Mode::Autonomous => Some(Role::Agent),
    }
}
