//! `foreach`: one resource for each item of a list or a map (CFG-7).
//!
//! ```text
//! foreach: ${{ params.users }} -> items, within the bounds -> a scope with item and key -> bind
//! ```
//!
//! A loop over nothing is no resource. One whose items cannot be had is a single resource that
//! carries the error, so that nothing which an earlier loop made is taken for gone.

use std::sync::Arc;

use catalog::module::{DeclaredResource, MAX_LOOP_ITEMS};
use catalog::params::evaluate;
use catalog::secrets::SecretPaths;
use lang::{InterpolatedText, Value};

use super::resource::Binder;
use super::{BindError, BindMistake, BindPart, BoundResource};
use crate::When;
use crate::condition::{LoopItem, ModuleScope};

/// The most items of all loops of a node.
pub const MAX_NODE_ITEMS: usize = 50_000;
/// The most bytes that the names, attributes and templates of all loops of a node come to.
pub const MAX_LOOP_BYTES: usize = 32 * 1024 * 1024;
/// The most pairs of resources that references from or to loops of a node stand for.
pub const MAX_LOOP_PAIRS: usize = 200_000;

/// What the loops of a node may still use up.
#[derive(Debug)]
pub(super) struct LoopBudget {
    items: usize,
    bytes: usize,
}

impl Default for LoopBudget {
    fn default() -> LoopBudget {
        LoopBudget { items: MAX_NODE_ITEMS, bytes: MAX_LOOP_BYTES }
    }
}

impl LoopBudget {
    fn items(&mut self, count: usize) -> Result<(), String> {
        if count > MAX_LOOP_ITEMS {
            return Err(format!("it goes over {count} items, and at most {MAX_LOOP_ITEMS} are allowed"));
        }
        let left = self.items.checked_sub(count);
        self.items =
            left.ok_or_else(|| format!("the loops of a node have at most {MAX_NODE_ITEMS} items"))?;
        Ok(())
    }

    fn bytes(&mut self, count: usize) -> Result<(), String> {
        let left = self.bytes.checked_sub(count);
        self.bytes = left.ok_or_else(|| {
            format!("the resources of a node's loops take more than {MAX_LOOP_BYTES} bytes")
        })?;
        Ok(())
    }
}

impl Binder<'_> {
    /// The resources that a declaration stands for: one, or with `foreach` one for each item.
    pub(super) fn expand(&mut self, declared: &DeclaredResource) -> Vec<Arc<BoundResource>> {
        let scope = Arc::clone(self.scope);
        let Some(over) = &declared.foreach else {
            return vec![Arc::new(self.bind(declared, &scope))];
        };
        self.each(declared, over, &scope).unwrap_or_else(|error| {
            self.unnamed = true;
            vec![Arc::new(self.unlooped(declared, error))]
        })
    }

    fn each(
        &mut self,
        declared: &DeclaredResource,
        declared_over: &Value,
        scope: &ModuleScope,
    ) -> Result<Vec<Arc<BoundResource>>, BindError> {
        let over = evaluate(declared_over, &scope.names())
            .map_err(|error| BindError::of(BindPart::Foreach, error))?;
        let items = items(over, &looped_secrets(declared_over, scope)).map_err(of_loop)?;
        self.budget.items(items.len()).map_err(of_loop)?;
        let mut bound = Vec::with_capacity(items.len());
        for item in items {
            let made = self.made;
            let resource = self.bind(declared, &Arc::new(scope.with_item(item)));
            self.budget.bytes(resource.name.len() + self.made - made).map_err(of_loop)?;
            bound.push(Arc::new(resource));
        }
        Ok(bound)
    }

    /// What stands for a loop whose items are not known. Where `when` is false without them it
    /// is not wanted, and no failure.
    fn unlooped(&mut self, declared: &DeclaredResource, error: BindError) -> BoundResource {
        let scope = Arc::clone(self.scope);
        let when = match When::decide(declared.when.as_deref(), &scope) {
            // The reason may be the missing item.
            When::Failed(_) => When::Always,
            decided => decided,
        };
        let mut resource = self.bind(declared, &scope);
        (resource.when, resource.spec) = (when, Err(error));
        resource
    }
}

/// A mistake of `foreach:`.
fn of_loop(message: String) -> BindError {
    let mistake = BindMistake { part: BindPart::Foreach, message, place: None };
    BindError { mistakes: vec![mistake], ..BindError::default() }
}

/// What of the items holds a secret, by paths from the list or map on: where that is a param or a var as it is, the
/// parts that do; else all of it, if anything.
fn looped_secrets(over: &Value, scope: &ModuleScope) -> SecretPaths {
    let parts = scope.secret_parts(over, "");
    if parts.is_empty() {
        return parts;
    }
    let text = over.as_str().and_then(|text| InterpolatedText::parse(text).ok());
    match text.as_ref().and_then(InterpolatedText::lone).and_then(lang::Expr::lone_path) {
        Some(path) => match path.first().map(String::as_str) {
            Some("params") => scope.secret.from(&path.join(".")),
            Some("vars") => scope.shared.secret.from(&path.join(".")),
            _ => parts,
        },
        // Written out in the declaration: `.0.password`.
        None if over.as_str().is_none() => parts.from(""),
        None => parts,
    }
}

/// The items of a list or a map, with their keys.
fn items(over: Value, secret: &SecretPaths) -> Result<Vec<LoopItem>, String> {
    let whole = secret.iter().any(str::is_empty);
    let of = |key: &str| {
        let mut paths = SecretPaths::default();
        if whole {
            paths.extend(["item".to_owned(), "key".to_owned()]);
        } else {
            paths.extend(secret.from(key).below("item").iter().map(str::to_owned));
        }
        paths
    };
    match over {
        Value::List(items) => {
            let keyed = items.into_iter().enumerate();
            let keyed = keyed.map(|(key, item)| LoopItem {
                secret: of(&key.to_string()),
                key: Value::Int(i64::try_from(key).unwrap_or(i64::MAX)),
                item,
            });
            Ok(keyed.collect())
        }
        Value::Map(map) => Ok(map
            .into_iter()
            .map(|(key, item)| LoopItem { secret: of(&key), key: Value::Str(key), item })
            .collect()),
        other => Err(format!("it goes over a list or a map, and this is a {}", other.type_name())),
    }
}
