//! Which of two objects under one name is meant: source uid and mismatch policy (SYN-7).

use std::sync::Arc;

use model::replication::Mismatch;
use serde_json::Value;

/// The uid of a new object, from random bytes: a UUID of version 4.
pub fn uid(random: [u8; 16]) -> Arc<str> {
    let variant = u128::from_be_bytes(random) & !(0xf << 76 | 0b11 << 62) | 0x4 << 76 | 0b10 << 62;
    let hex = format!("{variant:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-").into()
}

/// Annotations that override the policy for one object; the first found counts.
pub const MISMATCH_POLICY: [&str; 2] =
    ["argocd.argoproj.io/source-uid-mismatch-policy", "muster.dev/source-uid-mismatch-policy"];

/// What is here under the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local<'a> {
    /// The source's uid as recorded here; `None` for an object that did not come by
    /// synchronization.
    pub source_uid: Option<&'a str>,
    /// Its content is what came.
    pub same: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is like that already.
    Nothing,
    /// It is not here: create it, and record the uid.
    Create,
    /// The same object with other content: update it.
    Update,
    /// An object that was here before synchronization: make it this one, and record the uid.
    Adopt,
    /// Another object under the name: delete it, then create the one that came.
    Recreate,
    /// Another object under the name: update it in place, and record the new uid.
    Upsert,
}

/// What to do with an object that came, by its uid at the source, and a warning when its annotation is
/// not understood: then the node's policy counts. The manifest is read only for another uid than is
/// recorded here.
pub fn decide(
    local: Option<Local<'_>>,
    uid: &str,
    manifest: &[u8],
    policy: Mismatch,
) -> (Decision, Option<String>) {
    let Some(local) = local else { return (Decision::Create, None) };
    let Some(recorded) = local.source_uid else { return (Decision::Adopt, None) };
    if recorded == uid {
        return (if local.same { Decision::Nothing } else { Decision::Update }, None);
    }
    let manifest: Value = serde_json::from_slice(manifest).unwrap_or_default();
    let (policy, warning) = match mismatch_policy(&manifest) {
        None => (policy, None),
        Some("recreate") => (Mismatch::Recreate, None),
        Some("upsert") => (Mismatch::Upsert, None),
        Some(other) => {
            let other: String = other.chars().take(40).collect();
            let warning =
                format!("mismatch policy {other:?} is not known: recreate or upsert; the node's own counts");
            (policy, Some(warning))
        }
    };
    match policy {
        Mismatch::Recreate => (Decision::Recreate, warning),
        Mismatch::Upsert => (Decision::Upsert, warning),
    }
}

/// Whether a delete is of the object that is here, which has this uid of the source: not one for an
/// older uid that comes late. `here_rev` and `delete_rev` are changes of one incarnation of the
/// source's feed.
pub fn delete_applies(here_uid: Option<&str>, here_rev: u64, deleted_uid: &str, delete_rev: u64) -> bool {
    here_uid == Some(deleted_uid) || delete_rev > here_rev
}

/// The policy that a manifest asks for, as written.
fn mismatch_policy(manifest: &Value) -> Option<&str> {
    let annotations = manifest.get("metadata")?.get("annotations")?;
    MISMATCH_POLICY.iter().find_map(|name| annotations.get(name)?.as_str())
}
