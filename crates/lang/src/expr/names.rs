//! What an expression refers to, without evaluating it.

use std::collections::BTreeSet;

use super::ast::{Kind, Node};
use super::error::NameUse;
use super::filters::Filter;
use crate::Value;

/// Collects the dotted names below `node`; `guarded` where they need not exist.
pub(crate) fn collect(node: &Node, guarded: bool, found: &mut Vec<NameUse>) {
    if let Some(path) = path(node) {
        found.push(NameUse { path, offset: node.offset, len: node.len, guarded });
        return;
    }
    match &node.kind {
        Kind::Defined { target, .. } => collect(target, true, found),
        Kind::Filter { filter: Filter::Default, args } => {
            for (i, arg) in args.iter().enumerate() {
                collect(arg, guarded || i == 0, found);
            }
        }
        // The known beginning of `list[i].name`.
        Kind::Attr(target, _) => collect(target, guarded, found),
        _ => {
            for child in node.children() {
                collect(child, guarded, found);
            }
        }
    }
}

/// Collects the functions that are called below `node`.
pub(super) fn calls(node: &Node, found: &mut BTreeSet<&'static str>) {
    if let Kind::Predicate { predicate, .. } = &node.kind {
        found.insert(predicate.name());
    }
    for child in node.children() {
        calls(child, found);
    }
}

/// The path, if the node is nothing but one: `a.b`, `a["b"]`.
pub(super) fn path(node: &Node) -> Option<Vec<String>> {
    match &node.kind {
        Kind::Name(name) => Some(vec![name.clone()]),
        Kind::Attr(target, name) => {
            let mut parts = path(target)?;
            parts.push(name.clone());
            Some(parts)
        }
        Kind::Index(target, index) => match &index.kind {
            Kind::Literal(Value::Str(name)) => {
                let mut parts = path(target)?;
                parts.push(name.clone());
                Some(parts)
            }
            _ => None,
        },
        _ => None,
    }
}
