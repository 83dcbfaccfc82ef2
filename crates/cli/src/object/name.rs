//! [`ObjectRef`]: an object's name as people type it.

use std::str::FromStr;

use server::api::objects::{NO_NAMESPACE, OBJECT, ObjectName, ObjectView};

use crate::operator::{Operator, OperatorCallError};

/// `KIND/NAME` or `KIND/NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: String,
    /// Its namespace, if one was typed; `_` is the empty one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// The text names no object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither KIND/NAME nor KIND/NAMESPACE/NAME")]
pub struct NameError(String);

impl FromStr for ObjectRef {
    type Err = NameError;

    fn from_str(text: &str) -> Result<ObjectRef, NameError> {
        let parts: Vec<&str> = text.split('/').collect();
        let (kind, namespace, name) = match *parts.as_slice() {
            [kind, name] => (kind, None, name),
            [kind, NO_NAMESPACE, name] => (kind, Some(String::new()), name),
            [kind, namespace, name] if !namespace.is_empty() => (kind, Some(namespace.to_owned()), name),
            _ => return Err(NameError(text.to_owned())),
        };
        if kind.is_empty() || name.is_empty() {
            return Err(NameError(text.to_owned()));
        }
        Ok(ObjectRef { kind: kind.to_owned(), namespace, name: name.to_owned() })
    }
}

impl ObjectRef {
    /// What it means of a node, and what else it may mean: without a namespace an object has
    /// none, or the node's name.
    pub fn of(&self, node: &str) -> (ObjectName, Option<ObjectName>) {
        let named = |namespace: &str| ObjectName {
            node: node.to_owned(),
            kind: self.kind.clone(),
            namespace: namespace.to_owned(),
            name: self.name.clone(),
        };
        match &self.namespace {
            Some(namespace) => (named(namespace), None),
            None => (named(""), Some(named(node))),
        }
    }
}

/// The object that is meant.
pub(super) async fn find(
    operator: &Operator,
    node: &str,
    object: &ObjectRef,
) -> Result<ObjectView, OperatorCallError> {
    let (name, other) = object.of(node);
    match (get(operator, name).await, other) {
        (Err(missing), Some(other)) if is_missing(&missing) => match get(operator, other).await {
            Err(error) if is_missing(&error) => Err(missing),
            found => found,
        },
        (found, _) => found,
    }
}

/// There is no such thing.
pub(super) fn is_missing(error: &OperatorCallError) -> bool {
    error.is(wire::Code::NotFound)
}

/// The whole name of an object of a node; one that is not there is taken to have no namespace.
pub(super) async fn resolve(
    operator: &Operator,
    node: &str,
    object: &ObjectRef,
) -> Result<ObjectName, OperatorCallError> {
    let (mut name, other) = object.of(node);
    if other.is_some() {
        match find(operator, node, object).await {
            Ok(view) => name.namespace = view.namespace,
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(name)
}

/// An object with its manifest and status.
///
/// # Errors
/// When the control plane does not answer, or has none.
pub async fn get(operator: &Operator, mut name: ObjectName) -> Result<ObjectView, OperatorCallError> {
    if name.namespace.is_empty() {
        NO_NAMESPACE.clone_into(&mut name.namespace);
    }
    operator.call(&OBJECT, name).await
}

#[cfg(test)]
mod tests {
    use super::ObjectRef;

    #[test]
    fn a_name_has_two_parts_or_three() {
        let two: ObjectRef = "Application/shop".parse().unwrap();
        let (name, other) = two.of("web-1");
        assert_eq!((name.namespace.as_str(), other.unwrap().namespace.as_str()), ("", "web-1"));
        let three: ObjectRef = "Application/team/shop".parse().unwrap();
        let (name, other) = three.of("web-1");
        assert_eq!((name.namespace.as_str(), other), ("team", None));
        let none: ObjectRef = "Application/_/shop".parse().unwrap();
        assert_eq!(none.namespace.as_deref(), Some(""));
        for text in ["shop", "/shop", "Application/", "A//b", "a/b/c/d", ""] {
            assert!(text.parse::<ObjectRef>().is_err(), "{text}");
        }
    }
}
