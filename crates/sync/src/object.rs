//! What a synchronized object consists of.

use model::{Kind, ObjectKey};

/// The largest content of a synchronized object, in bytes; it travels inside its event.
pub const MAX_CONTENT: usize = 1024 * 1024;
/// What a status' kind has after the kind of its object: a status is an object of its own,
/// in the set of the side that observes it (the status subresource).
const STATUS: &str = ":status";

/// The key of an object's status.
pub fn status_key(object: &ObjectKey) -> ObjectKey {
    let mut key = object.clone();
    key.section.kind = Kind::new(&format!("{}{STATUS}", object.section.kind));
    key
}

/// Whether a kind is that of a status.
pub fn is_status(kind: &Kind) -> bool {
    kind.as_str().ends_with(STATUS)
}

/// The kind whose statuses a kind holds; `None` for a kind that is none of statuses.
pub fn kind_of_status(kind: &Kind) -> Option<Kind> {
    kind.as_str().strip_suffix(STATUS).map(Kind::new)
}
