//! What may be synchronized with a node: kinds, folders, and a policy in words (SYN-5).

use model::Fields;
use model::object::{FOREIGN_KINDS, KINDS};
use model::replication::{Mismatch, Mode, ObjectOperation, SyncPolicy};
use model::work::{ActionRefusal, OperationTarget, RefusalCode};

use crate::state_directories::AGENT_STATE;

/// The modes, by their words.
pub const MODES: [(&str, Mode); 3] =
    [("managed", Mode::Managed), ("autonomous", Mode::Autonomous), ("off", Mode::Off)];
/// What to do with an object of another uid, by its word.
pub const MISMATCHES: [(&str, Mismatch); 2] =
    [("recreate", Mismatch::Recreate), ("upsert", Mismatch::Upsert)];
/// The longest name of a kind, in bytes.
pub const MAX_KIND: usize = 63;
/// The longest path of a folder, in bytes.
pub const MAX_FOLDER: usize = 255;

/// Folders in which no file is anybody's manifest: they and all below them are the system's,
/// or do not outlive a restart.
const SYSTEM: [&str; 14] = [
    "/bin", "/boot", "/dev", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr",
    "/var/run", "/var/tmp",
];
/// Folders that hold what is others'; one below them can be the manifests' own.
const SHARED: [&str; 13] = [
    "/etc",
    "/home",
    "/media",
    "/mnt",
    "/opt",
    "/root",
    "/srv",
    "/var",
    "/var/cache",
    "/var/lib",
    "/var/log",
    "/var/opt",
    "/var/spool",
];
/// Why a kind or a folder cannot be synchronized.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsuitable {
    /// Not the name of a kind.
    #[error("it is not a kind: a letter, then letters and digits, at most {MAX_KIND}")]
    NotAKind,
    /// Muster's own.
    #[error("it is one of Muster's own kinds, which only a release or the control plane speaks of")]
    Reserved,
    /// What stands for another kind on a link.
    #[error("it is read as `{0}` on a link; write that")]
    Foreign(&'static str),
    /// Not absolute, or not in its plain form.
    #[error("a folder is an absolute path without `.`, `..`, `//` and a slash at its end")]
    NotAFolder,
    /// The root.
    #[error("`/` holds the whole system")]
    Root,
    /// A system's folder, or below one.
    #[error("`{0}` is the system's")]
    System(&'static str),
    /// A folder that others share.
    #[error("`{0}` itself holds what is others'; name a folder below it")]
    Shared(&'static str),
    /// The agent's own folder.
    #[error("`{AGENT_STATE}` is the agent's own")]
    Own,
}

/// Whether objects of a kind can be synchronized.
///
/// # Errors
/// Why not.
pub fn kind(name: &str) -> Result<(), Unsuitable> {
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic());
    if !first || name.len() > MAX_KIND || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Err(Unsuitable::NotAKind);
    }
    // A host's folders may not tell upper from lower case.
    let reserved = KINDS.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    if let Some((_, kind)) = FOREIGN_KINDS.iter().find(|(foreign, _)| *foreign == name) {
        return Err(Unsuitable::Foreign(kind));
    }
    if reserved { Err(Unsuitable::Reserved) } else { Ok(()) }
}

/// Whether a folder of a host can hold manifests: those that are not in the replica are
/// deleted there.
///
/// # Errors
/// Why not.
pub fn folder(path: &str) -> Result<(), Unsuitable> {
    if path == "/" {
        return Err(Unsuitable::Root);
    }
    let tidy = crate::delegation::argument::tidy_path(path).is_ok_and(|tidy| tidy == path);
    if !tidy || path.len() > MAX_FOLDER {
        return Err(Unsuitable::NotAFolder);
    }
    let within =
        |top: &str| path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if within(AGENT_STATE) {
        return Err(Unsuitable::Own);
    }
    if let Some(system) = SYSTEM.iter().find(|system| within(system)) {
        return Err(Unsuitable::System(system));
    }
    match SHARED.iter().find(|shared| **shared == path) {
        Some(shared) => Err(Unsuitable::Shared(shared)),
        None => Ok(()),
    }
}

/// Whether what a release says of synchronization allows an operation on an object. The control
/// plane asks here before it takes a task in, and the node before it begins one; the node's answer
/// counts (SYN-5).
///
/// # Errors
/// Why not.
pub fn allows(
    policy: Option<&SyncPolicy>,
    operation: ObjectOperation,
    object: &OperationTarget,
) -> Result<(), ActionRefusal> {
    let refused = |code, message: String| Err(ActionRefusal { code, message });
    let Some(policy) = policy.filter(|policy| policy.mode == Mode::Autonomous) else {
        let mode = mode_word(policy.map_or(Mode::Off, |policy| policy.mode));
        let message = format!("only objects of an autonomous node take operations; this one is {mode}");
        return refused(RefusalCode::NotAutonomous, message);
    };
    if !policy.operations.contains(&operation) {
        let message = format!("`sync` of the release does not allow the operation {operation}");
        return refused(RefusalCode::OperationNotAllowed, message);
    }
    if !policy.kinds.contains(&object.kind) {
        let kind: String = object.kind.chars().take(MAX_KIND).collect();
        let message = format!("`sync` of the release does not name the kind {kind:?}");
        return refused(RefusalCode::KindNotSynchronized, message);
    }
    Ok(())
}

/// The name of a mode.
pub fn mode_word(mode: Mode) -> &'static str {
    MODES.iter().find(|(_, known)| *known == mode).map_or("off", |(word, _)| word)
}

/// A policy as named texts, for people.
pub fn fields(policy: &SyncPolicy) -> Fields {
    let mismatch = MISMATCHES.iter().find(|(_, known)| *known == policy.mismatch);
    let mut fields = Fields::from([
        ("mode".to_owned(), mode_word(policy.mode).to_owned()),
        ("kinds".to_owned(), policy.kinds.join(", ")),
        ("mismatch".to_owned(), mismatch.map_or("recreate", |(word, _)| word).to_owned()),
        ("max_delete".to_owned(), format!("{}%", policy.max_delete_percent)),
    ]);
    if !policy.operations.is_empty() {
        let words: Vec<&str> = policy.operations.iter().map(|operation| operation.as_str()).collect();
        fields.insert("operations".to_owned(), words.join(", "));
    }
    fields.extend(policy.folder.clone().map(|folder| ("folder".to_owned(), folder)));
    fields
}
