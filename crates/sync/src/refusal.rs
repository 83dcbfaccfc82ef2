//! Why an object of the other side is never taken: stable codes (SYN-5, SYN-12).

use model::{Digest, Kind};

use crate::frame::{Event, Op};
use crate::mode::{Mode, Role};
use crate::object::{self, MAX_CONTENT};

/// The kind may be synchronized, but not from that side in this mode.
pub const WRONG_SIDE: &str = "wrong-side";
/// The kind is not among those that the release allows.
pub const KIND: &str = "kind-not-allowed";
/// A put without uid.
pub const NO_UID: &str = "no-uid";
/// The content is longer than [`MAX_CONTENT`].
pub const TOO_LARGE: &str = "too-large";
/// The content is not what its stub says.
pub const DIGEST: &str = "digest-mismatch";
/// Another object of the kind has this uid.
pub const UID_TWICE: &str = "uid-twice";
/// A delete names another uid than the object here has, and is not newer than that object.
pub const UID_MISMATCH: &str = "uid-mismatch";
/// The replica has no room: its objects, their bytes or its sections are too many.
pub const TOO_MANY: &str = "too-many";
/// It fails again and again; it is still tried.
pub const FAILS: &str = "fails-for-now";
/// Fetched anew as often as allowed, and it still does not fit.
pub const RECOVERY_FAILED: &str = "recovery-failed";
/// All of these codes. The backend of the objects has others.
pub const ALL: [&str; 11] = [
    WRONG_SIDE,
    KIND,
    NO_UID,
    TOO_LARGE,
    DIGEST,
    UID_TWICE,
    UID_MISMATCH,
    TOO_MANY,
    FAILS,
    RECOVERY_FAILED,
    BAD_NAME,
];
/// The longest name, namespace, kind or uid, in bytes.
pub const MAX_TEXT: usize = 512;
/// A name, namespace, kind or uid is empty where it may not be, or too long.
pub const BAD_NAME: &str = "bad-name";

/// Why a kind may not come from a side; `None` when it may. `kinds` are those that the
/// release declares.
pub fn of_kind(kind: &Kind, from: Role, mode: Mode, kinds: &[Kind]) -> Option<(&'static str, String)> {
    let declared = |kind: &Kind| kinds.contains(kind);
    let action = kind.as_str() == Kind::ACTION;
    let status = object::kind_of_status(kind);
    // Of the `Sync` object alone, which a release declares, a node says how it stands with it.
    let node_status = *kind == model::condition::node_status_key().section.kind;
    let known = action || declared(kind) || node_status || status.as_ref().is_some_and(declared);
    if !known {
        return Some((KIND, format!("kind {kind} is not synchronized with this node")));
    }
    let fits = match (from, mode) {
        (Role::Principal, Mode::Managed) => action || declared(kind),
        (Role::Principal, Mode::Autonomous | Mode::Off) => action,
        (Role::Agent, Mode::Managed) => status.is_some(),
        (Role::Agent, Mode::Autonomous) => !action,
        (Role::Agent, Mode::Off) => false,
    };
    (!fits).then(|| (WRONG_SIDE, format!("kind {kind} does not come from this side in this mode")))
}

/// Why an event can never be applied, judged by itself.
pub fn of_event(event: &Event) -> Option<(&'static str, String)> {
    let key = &event.key;
    let texts = [key.section.kind.as_str(), &*key.name];
    if texts.iter().any(|text| text.is_empty() || text.len() > MAX_TEXT)
        || key.section.namespace.len() > MAX_TEXT
    {
        return Some((
            BAD_NAME,
            "kind and name must have 1 to 512 bytes, a namespace at most 512".to_owned(),
        ));
    }
    let Op::Put { stub, content, .. } = &event.op else { return None };
    if stub.uid.is_empty() {
        return Some((NO_UID, "an object without uid cannot be told from another under its name".to_owned()));
    }
    if stub.uid.len() > MAX_TEXT {
        return Some((BAD_NAME, "a uid has at most 512 bytes".to_owned()));
    }
    if content.len() > MAX_CONTENT {
        return Some((TOO_LARGE, format!("{} bytes, at most {MAX_CONTENT} are taken", content.len())));
    }
    if stub.size != content.len() as u64 || Digest::of(content) != stub.digest {
        return Some((DIGEST, "the content is not what its digest says".to_owned()));
    }
    None
}
