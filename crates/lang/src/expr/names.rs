//! What an expression refers to, without evaluating it.

use std::collections::BTreeSet;

use super::ast::{ExprKind, ExprNode};
use super::error::{NameUse, WindowUse};
use super::filters::Filter;
use super::predicates::Predicate;
use crate::{SecretUse, Value};

/// Collects the dotted names below `node`; `guarded` where they need not exist.
pub(crate) fn collect(node: &ExprNode, guarded: bool, found: &mut Vec<NameUse>) {
    if let Some(path) = path(node) {
        found.push(NameUse { path, offset: node.offset, len: node.len, guarded });
        return;
    }
    match &node.kind {
        ExprKind::Defined { target, .. } => collect(target, true, found),
        ExprKind::Filter { filter: Filter::Default, args } => {
            for (i, arg) in args.iter().enumerate() {
                collect(arg, guarded || i == 0, found);
            }
        }
        // The known beginning of `list[i].name`.
        ExprKind::Attr(target, _) => collect(target, guarded, found),
        _ => {
            for child in node.children() {
                collect(child, guarded, found);
            }
        }
    }
}

/// Collects the functions that are called below `node`.
pub(super) fn calls(node: &ExprNode, found: &mut BTreeSet<&'static str>) {
    if let ExprKind::Predicate { predicate, .. } = &node.kind {
        found.insert(predicate.name());
    }
    for child in node.children() {
        calls(child, found);
    }
}

/// Collects the windows that are asked for below `node`.
pub(super) fn windows(node: &ExprNode, found: &mut Vec<WindowUse>) {
    if let ExprKind::Predicate { predicate: Predicate::InWindow, args } = &node.kind {
        let name = match args.first().map(|arg| &arg.kind) {
            Some(ExprKind::Literal(Value::Str(name))) => Some(name.clone()),
            _ => None,
        };
        found.push(WindowUse { name, offset: node.offset, len: node.len });
    }
    for child in node.children() {
        windows(child, found);
    }
}

/// Collects the secrets that are used below `node`.
pub(crate) fn secrets(node: &ExprNode, found: &mut Vec<SecretUse>) {
    if let ExprKind::Predicate { predicate: Predicate::Secret, .. } = &node.kind {
        let name = secret(node).map(str::to_owned);
        found.push(SecretUse { name, offset: node.offset, len: node.len });
    }
    for child in node.children() {
        secrets(child, found);
    }
}

/// The name of the secret that the node is, where it is nothing else and says it in full.
pub(super) fn secret(node: &ExprNode) -> Option<&str> {
    let ExprKind::Predicate { predicate: Predicate::Secret, args } = &node.kind else { return None };
    match args.first().map(|arg| &arg.kind) {
        Some(ExprKind::Literal(Value::Str(name))) => Some(name),
        _ => None,
    }
}

/// The path, if the node is nothing but one: `a.b`, `a["b"]`.
pub(super) fn path(node: &ExprNode) -> Option<Vec<String>> {
    match &node.kind {
        ExprKind::Name(name) => Some(vec![name.clone()]),
        ExprKind::Attr(target, name) => {
            let mut parts = path(target)?;
            parts.push(name.clone());
            Some(parts)
        }
        ExprKind::Index(target, index) => match &index.kind {
            ExprKind::Literal(Value::Str(name)) => {
                let mut parts = path(target)?;
                parts.push(name.clone());
                Some(parts)
            }
            _ => None,
        },
        _ => None,
    }
}
