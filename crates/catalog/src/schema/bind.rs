//! From evaluated attributes to a typed [`Spec`].

use std::collections::BTreeMap;

use lang::Value;
use model::Digest;

use super::attributes::{BindContext, ResourceAttributes, refuse};
use crate::module::FileRef;
use crate::types::Spec;

/// Reads evaluated attributes into what the type means.
///
/// # Errors
/// Every mistake in one text.
pub fn bind(
    kind: &str,
    name: &str,
    attributes: &BTreeMap<String, Value>,
    context: &BindContext<'_>,
) -> Result<Spec, String> {
    let kind = refuse(kind, name, attributes)?;
    (kind.bind)(&ResourceAttributes::read(kind, name, attributes, context)?)
}

/// Reads what the ledger kept of a resource that left the set (`ResourceType::removal`) as the
/// declaration that it is absent.
///
/// # Errors
/// When this version cannot read it: another version wrote it.
pub fn bind_removal(kind: &str, name: &str, kept: &BTreeMap<String, Value>) -> Result<Spec, String> {
    let mut attributes = kept.clone();
    let mut files = BTreeMap::new();
    let absent = super::find(kind).and_then(|kind| kind.attribute("state"));
    if absent.is_some() {
        attributes.insert("state".to_owned(), Value::from("absent"));
    }
    // A script of a module: its digest stands for the module, which may be gone.
    if let Some(script) = attributes.get("script").and_then(Value::as_str).map(str::to_owned)
        && !script.starts_with('/')
        && let Some(digest) = attributes.remove("sha256")
    {
        let digest: Digest = digest.to_string().parse().map_err(|_| "its script's hash cannot be read")?;
        files.insert(script, FileRef { digest, size: 0, executable: false });
    }
    // The files of a tree: of what is to go, the paths are enough.
    if let (Some(Value::List(paths)), Some(source)) =
        (attributes.remove("tree"), attributes.get("source").and_then(Value::as_str))
    {
        let file = FileRef { digest: Digest::ZERO, size: 0, executable: false };
        files.extend(paths.iter().map(|path| (format!("files/{source}/{path}"), file)));
    }
    bind(kind, name, &attributes, &BindContext { files: &files, rendered: None })
}
