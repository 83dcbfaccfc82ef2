//! Evaluation, within a budget.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::ast::{ExprKind, ExprNode, ExprOp};
use super::error::EvalError;
use super::filters::Filter;
use super::predicates::Predicate;
use super::val::Val;
use super::{names, ops};
use crate::nearest::{hint, nearest};
use crate::secret::{is_secret_name, secret_reference};
use crate::{Scope, Value};

/// One byte of a value counts as one; so does each of this many bytes of fixed cost.
const ITEM_BYTES: usize = 32;
/// Bytes that are looked through for one step.
const BYTES_PER_STEP: usize = 256;

/// What an evaluation may still use up.
pub(crate) struct EvalBudget {
    steps: u64,
    bytes: usize,
}

impl EvalBudget {
    pub(crate) fn new(steps: u64, bytes: usize) -> EvalBudget {
        EvalBudget { steps, bytes }
    }

    /// Takes steps; the error is a message.
    pub(crate) fn step(&mut self, steps: u64) -> Result<(), String> {
        self.steps = self.steps.checked_sub(steps).ok_or("it takes too many steps to evaluate")?;
        Ok(())
    }

    fn charge(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or("the values it makes grow too large")?;
        self.step((bytes / BYTES_PER_STEP) as u64)
    }
}

pub(crate) struct Eval<'a, 'b> {
    scope: &'a dyn Scope,
    budget: &'b mut EvalBudget,
}

impl<'a, 'b> Eval<'a, 'b> {
    pub(crate) fn new(scope: &'a dyn Scope, budget: &'b mut EvalBudget) -> Eval<'a, 'b> {
        Eval { scope, budget }
    }

    /// The value of a whole expression.
    pub(crate) fn value(&mut self, node: &'a ExprNode) -> Result<Value, EvalError> {
        match self.defined(node)? {
            Val::Plain(Cow::Owned(value)) => Ok(value),
            Val::Plain(Cow::Borrowed(value)) => {
                self.charge(node, weight(value))?;
                Ok(value.clone())
            }
            Val::Version(version) => Ok(Value::Str(version.into_text())),
            Val::Undefined(error) => Err(error),
        }
    }

    /// The value of a condition.
    pub(crate) fn truth(&mut self, node: &'a ExprNode) -> Result<bool, EvalError> {
        let value = self.defined(node)?;
        value.plain().and_then(Value::as_bool).ok_or_else(|| {
            let found = value.type_name();
            failed(node, format!("a condition must be true or false, and this is a value of type {found}"))
        })
    }

    fn defined(&mut self, node: &'a ExprNode) -> Result<Val<'a>, EvalError> {
        match self.eval(node)? {
            Val::Undefined(error) => Err(error),
            value => Ok(value),
        }
    }

    fn eval(&mut self, node: &'a ExprNode) -> Result<Val<'a>, EvalError> {
        self.budget.step(1).map_err(|message| failed(node, message))?;
        match &node.kind {
            ExprKind::Literal(value) => Ok(Val::Plain(Cow::Borrowed(value))),
            ExprKind::Name(name) => self.root(node, name),
            ExprKind::Attr(target, name) => self.attribute(node, target, name),
            ExprKind::Index(target, index) => self.index(node, target, index),
            ExprKind::List(items) => {
                let values = items.iter().map(|item| self.value(item)).collect::<Result<_, _>>()?;
                self.made(node, Value::List(values))
            }
            ExprKind::Map(entries) => {
                let mut map = BTreeMap::new();
                for (key, item) in entries {
                    map.insert(key.clone(), self.value(item)?);
                }
                self.made(node, Value::Map(map))
            }
            ExprKind::Not(target) => Ok(Val::owned(Value::Bool(!self.truth(target)?))),
            ExprKind::Negate(target) => {
                let number = self.defined(target)?.plain().and_then(Value::as_int);
                let number = number.ok_or_else(|| failed(node, "`-` takes an int".into()))?;
                Ok(Val::owned(Value::Int(-number)))
            }
            ExprKind::And(a, b) => Ok(Val::owned(Value::Bool(self.truth(a)? && self.truth(b)?))),
            ExprKind::Or(a, b) => Ok(Val::owned(Value::Bool(self.truth(a)? || self.truth(b)?))),
            ExprKind::Binary(op, a, b) => self.binary(node, *op, a, b),
            ExprKind::If { condition, then, otherwise } => {
                if self.truth(condition)? {
                    self.eval(then)
                } else {
                    self.eval(otherwise)
                }
            }
            ExprKind::Defined { target, negated } => {
                let undefined = matches!(self.eval(target)?, Val::Undefined(_));
                Ok(Val::owned(Value::Bool(undefined == *negated)))
            }
            ExprKind::Filter { filter, args } => self.filter(node, *filter, args),
            ExprKind::Predicate { predicate, args } => self.predicate(node, *predicate, args),
        }
    }

    fn root(&mut self, node: &ExprNode, name: &str) -> Result<Val<'a>, EvalError> {
        let scope = self.scope;
        if let Some(value) = scope.root(name) {
            return Ok(Val::Plain(Cow::Borrowed(value)));
        }
        match scope.unobserved(name) {
            Some(observed) => Err(EvalError::Unobserved(observed.to_owned())),
            None => Ok(undefined(node, &format!("`{name}`"), hint(name, scope.roots()))),
        }
    }

    /// The observed trait that a part of a value depends on, where the part is missing for that.
    fn unobserved(&self, target: &ExprNode, name: &str) -> Option<EvalError> {
        let path = names::path(target)?.join(".") + "." + name;
        self.scope.unobserved(&path).map(|observed| EvalError::Unobserved(observed.to_owned()))
    }

    fn attribute(&mut self, node: &ExprNode, target: &'a ExprNode, name: &str) -> Result<Val<'a>, EvalError> {
        let value = match self.eval(target).map_err(|error| below(error, target, name))? {
            Val::Plain(value) => value,
            Val::Undefined(error) => return Ok(Val::Undefined(error)),
            version @ Val::Version(_) => return Err(no_parts(node, target, version.type_name())),
        };
        let found = match value {
            Cow::Borrowed(Value::Map(map)) => map.get(name).map(Cow::Borrowed).ok_or(Cow::Borrowed(map)),
            Cow::Owned(Value::Map(mut map)) => map.remove(name).map(Cow::Owned).ok_or(Cow::Owned(map)),
            other => return Err(no_parts(node, target, other.type_name())),
        };
        match found {
            Ok(value) => Ok(Val::Plain(value)),
            Err(map) => match self.unobserved(target, name) {
                Some(error) => Err(error),
                None => Ok(undefined(node, &format!("`{}`", described(node)), part_hint(target, name, &map))),
            },
        }
    }

    fn index(
        &mut self,
        node: &ExprNode,
        target: &'a ExprNode,
        index: &'a ExprNode,
    ) -> Result<Val<'a>, EvalError> {
        let key = self.value(index)?;
        if let Value::Str(name) = &key {
            return self.attribute(node, target, name);
        }
        let value = match self.eval(target)? {
            Val::Plain(value) => value,
            Val::Undefined(error) => return Ok(Val::Undefined(error)),
            version @ Val::Version(_) => return Err(no_parts(node, target, version.type_name())),
        };
        let Value::Int(position) = key else {
            return Err(failed(index, format!("an index is an int or a string, not a {}", key.type_name())));
        };
        let found = match value {
            Cow::Borrowed(Value::List(items)) => {
                position_in(items, position).map(|i| Cow::Borrowed(&items[i]))
            }
            Cow::Owned(Value::List(mut items)) => {
                position_in(&items, position).map(|i| Cow::Owned(items.swap_remove(i)))
            }
            other => return Err(no_parts(node, target, other.type_name())),
        };
        Ok(match found {
            Some(value) => Val::Plain(value),
            None => undefined(node, &format!("item {position} of `{}`", described(target)), String::new()),
        })
    }

    fn binary(
        &mut self,
        node: &'a ExprNode,
        op: ExprOp,
        a: &'a ExprNode,
        b: &'a ExprNode,
    ) -> Result<Val<'a>, EvalError> {
        let (left, right) = (self.defined(a)?, self.defined(b)?);
        let looked_at = left.plain().map_or(0, weight) + right.plain().map_or(0, weight);
        // Before the work is done: a result is never larger than what it is made of.
        match op {
            ExprOp::Concat | ExprOp::Add => self.charge(node, looked_at)?,
            _ => self.step(node, (looked_at / BYTES_PER_STEP) as u64)?,
        }
        ops::binary(op, &left, &right).map(Val::owned).map_err(|message| failed(node, message))
    }

    fn filter(
        &mut self,
        node: &'a ExprNode,
        filter: Filter,
        args: &'a [ExprNode],
    ) -> Result<Val<'a>, EvalError> {
        if let (Filter::Default, [target, fallback]) = (filter, args) {
            return match self.eval(target)? {
                Val::Undefined(_) => self.defined(fallback),
                value => Ok(value),
            };
        }
        let mut values = Vec::with_capacity(args.len());
        for arg in args {
            values.push(self.defined(arg)?);
        }
        self.charge(node, filter_cost(filter, &values))?;
        match filter.apply(values).map_err(|message| failed(node, message))? {
            Some(value) => Ok(value),
            None => {
                Ok(undefined(node, &format!("the {} item of an empty list", filter.name()), String::new()))
            }
        }
    }

    fn predicate(
        &mut self,
        node: &'a ExprNode,
        predicate: Predicate,
        args: &'a [ExprNode],
    ) -> Result<Val<'a>, EvalError> {
        if predicate == Predicate::Secret {
            return self.secret(node, args);
        }
        let values = args.iter().map(|arg| self.value(arg)).collect::<Result<_, _>>()?;
        let probe = predicate.probe(values).map_err(|message| failed(node, message))?;
        match self.scope.probe(&probe) {
            Some(answer) => Ok(Val::owned(Value::Bool(answer))),
            None => Err(EvalError::Needs(probe)),
        }
    }

    fn secret(&mut self, node: &'a ExprNode, args: &'a [ExprNode]) -> Result<Val<'a>, EvalError> {
        let name = match args.first().map(|arg| self.value(arg)).transpose()? {
            Some(Value::Str(name)) if is_secret_name(&name) => name,
            _ => {
                return Err(failed(
                    node,
                    "`secret` takes the name of a secret, such as \"team/name\"".into(),
                ));
            }
        };
        let Some(text) = self.scope.secret(&name) else {
            return Err(EvalError::Unobserved(secret_reference(&name)));
        };
        self.made(node, Value::Str(text.to_owned()))
    }

    fn made(&mut self, node: &ExprNode, value: Value) -> Result<Val<'a>, EvalError> {
        self.charge(node, weight(&value))?;
        Ok(Val::owned(value))
    }

    fn charge(&mut self, node: &ExprNode, bytes: usize) -> Result<(), EvalError> {
        self.budget.charge(bytes).map_err(|message| failed(node, message))
    }

    fn step(&mut self, node: &ExprNode, steps: u64) -> Result<(), EvalError> {
        self.budget.step(steps).map_err(|message| failed(node, message))
    }
}

/// The bytes that a filter may make, an upper bound known before it runs.
fn filter_cost(filter: Filter, values: &[Val<'_>]) -> usize {
    let size = |i: usize| values.get(i).and_then(Val::plain).map_or(0, weight);
    let items = values.first().and_then(Val::plain).map_or(0, |value| match value {
        Value::Str(text) => text.len(),
        Value::List(items) => items.len(),
        Value::Bool(_) | Value::Int(_) | Value::Map(_) => 1,
    });
    match filter {
        Filter::Length | Filter::First | Filter::Last | Filter::Version => 0,
        Filter::Split => size(0).saturating_add(items.saturating_mul(ITEM_BYTES)),
        Filter::Replace => size(0).saturating_add(items.saturating_mul(size(2).saturating_sub(ITEM_BYTES))),
        Filter::Join => size(0).saturating_add(items.saturating_mul(size(1))),
        // A letter may become three, an escaped one six.
        Filter::Upper | Filter::Lower => size(0).saturating_mul(3),
        Filter::Tojson => size(0).saturating_mul(6),
        _ => size(0),
    }
}

/// How many bytes a value counts as.
fn weight(value: &Value) -> usize {
    ITEM_BYTES
        + match value {
            Value::Bool(_) | Value::Int(_) => 0,
            Value::Str(text) => text.len(),
            Value::List(items) => items.iter().map(weight).sum(),
            Value::Map(map) => map.iter().map(|(key, value)| key.len() + weight(value)).sum(),
        }
}

/// Names the trait itself where a part of what is not observed is meant: `traits.os.family`.
fn below(error: EvalError, target: &ExprNode, name: &str) -> EvalError {
    match error {
        EvalError::Unobserved(observed)
            if names::path(target).is_some_and(|path| path.join(".") == observed) =>
        {
            EvalError::Unobserved(format!("{observed}.{name}"))
        }
        error => error,
    }
}

fn position_in(items: &[Value], position: i64) -> Option<usize> {
    let length = i64::try_from(items.len()).ok()?;
    let position = if position < 0 { position + length } else { position };
    usize::try_from(position).ok().filter(|i| *i < items.len())
}

/// A hint that names the whole path, to be copied as it is.
fn part_hint(target: &ExprNode, name: &str, map: &BTreeMap<String, Value>) -> String {
    let found = nearest(name, map.keys().map(String::as_str));
    let path = names::path(target).map(|path| path.join(".") + ".").unwrap_or_default();
    found.map(|found| format!("; did you mean `{path}{found}`?")).unwrap_or_default()
}

/// How a message calls the value of a node.
fn described(node: &ExprNode) -> String {
    names::path(node).map_or_else(|| "this value".to_owned(), |path| path.join("."))
}

fn undefined<'a>(node: &ExprNode, what: &str, hint: String) -> Val<'a> {
    Val::Undefined(failed(node, format!("{what} is not defined{hint}")))
}

fn no_parts(node: &ExprNode, target: &ExprNode, found: &str) -> EvalError {
    failed(node, format!("`{}` is a value of type {found} and has no such part", described(target)))
}

fn failed(node: &ExprNode, message: String) -> EvalError {
    EvalError::Failed { message, offset: node.offset, len: node.len }
}
