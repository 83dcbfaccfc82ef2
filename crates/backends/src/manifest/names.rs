//! What may name an object of a manifest: the same for every backend, and safe as the name
//! of a file.

use model::{Kind, ObjectKey, SectionKey};

use super::error::ManifestProblem;
use super::{MAX_KIND, MAX_NAME, MAX_NAMESPACE};

/// The key of these names.
///
/// # Errors
/// When one of them cannot be in a key.
pub(super) fn key(kind: &str, namespace: &str, name: &str) -> Result<ObjectKey, ManifestProblem> {
    check("kind", kind, MAX_KIND)?;
    if !namespace.is_empty() {
        check("metadata.namespace", namespace, MAX_NAMESPACE)?;
    }
    check("metadata.name", name, MAX_NAME)?;
    let kind = Kind::new(kind);
    if kind.authority().is_some() {
        return Err(ManifestProblem::Reserved(kind.to_string()));
    }
    let section = SectionKey { kind, namespace: namespace.into() };
    Ok(ObjectKey { section, name: name.into() })
}

/// Letters, digits and what stands inside names; nothing that means something in a path, a
/// shell or a key's text form. A kind has no colon: that marks the kind of a status.
fn check(field: &'static str, value: &str, limit: usize) -> Result<(), ManifestProblem> {
    let bad = |why| Err(ManifestProblem::bad_name(field, value, why));
    let colon = field == "metadata.name";
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') || (c == ':' && colon);
    if value.len() > limit {
        return bad(match field {
            "metadata.name" => "it is longer than 253 bytes",
            _ => "it is longer than 63 bytes",
        });
    }
    if !value.chars().all(fits) {
        return bad("only letters a to z, digits, `-`, `_` and `.` are in it");
    }
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    if !edge(value.chars().next()) || !edge(value.chars().next_back()) {
        return bad("it begins and ends with a letter or a digit");
    }
    Ok(())
}
