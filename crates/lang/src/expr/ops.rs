//! What operators mean. Types never mix silently.

use std::cmp::Ordering;

use super::ast::ExprOp;
use super::val::Val;
use super::version::looks_like_version;
use crate::Value;
use crate::value::MAX_INT;
use crate::value::append;

/// Applies an operator of two values; the error is a message.
pub(super) fn binary(op: ExprOp, left: &Val<'_>, right: &Val<'_>) -> Result<Value, String> {
    match op {
        ExprOp::Equal => equal(left, right).map(Value::Bool),
        ExprOp::NotEqual => equal(left, right).map(|same| Value::Bool(!same)),
        ExprOp::Less => order(op, left, right).map(|order| Value::Bool(order.is_lt())),
        ExprOp::LessEqual => order(op, left, right).map(|order| Value::Bool(order.is_le())),
        ExprOp::Greater => order(op, left, right).map(|order| Value::Bool(order.is_gt())),
        ExprOp::GreaterEqual => order(op, left, right).map(|order| Value::Bool(order.is_ge())),
        ExprOp::In => contains(left, right).map(Value::Bool),
        ExprOp::NotIn => contains(left, right).map(|found| Value::Bool(!found)),
        ExprOp::Concat => concat(left, right),
        ExprOp::Add => add(left, right),
        ExprOp::Subtract | ExprOp::Multiply | ExprOp::Divide | ExprOp::Modulo => arithmetic(op, left, right),
    }
}

fn equal(left: &Val<'_>, right: &Val<'_>) -> Result<bool, String> {
    match (left, right) {
        (Val::Version(a), Val::Version(b)) => Ok(a.order(b).is_eq()),
        (Val::Plain(a), Val::Plain(b)) if a.type_name() == b.type_name() => Ok(a == b),
        _ => Err(format!(
            "{} and {} are never equal; make them the same type with `|int`, `|string` or version()",
            with_article(left),
            with_article(right)
        )),
    }
}

fn order(op: ExprOp, left: &Val<'_>, right: &Val<'_>) -> Result<Ordering, String> {
    if let (Val::Version(a), Val::Version(b)) = (left, right) {
        return Ok(a.order(b));
    }
    match (left.plain(), right.plain()) {
        (Some(Value::Int(a)), Some(Value::Int(b))) => Ok(a.cmp(b)),
        (Some(Value::Str(a)), Some(Value::Str(b))) if looks_like_version(a) && looks_like_version(b) => {
            Err(format!(
                "\"{a}\" {0} \"{b}\" would compare versions as text; write version(a) {0} version(b), or `|int` for numbers",
                op.symbol()
            ))
        }
        (Some(Value::Str(a)), Some(Value::Str(b))) => Ok(a.cmp(b)),
        _ => Err(format!(
            "`{}` cannot order {} and {}; it orders two ints, two strings or two versions",
            op.symbol(),
            with_article(left),
            with_article(right)
        )),
    }
}

fn contains(left: &Val<'_>, right: &Val<'_>) -> Result<bool, String> {
    match (left.plain(), right.plain()) {
        (Some(item), Some(Value::List(items))) => Ok(items.contains(item)),
        (Some(Value::Str(key)), Some(Value::Map(map))) => Ok(map.contains_key(key)),
        (Some(Value::Str(part)), Some(Value::Str(text))) => Ok(text.contains(part.as_str())),
        _ => Err(format!(
            "`in` looks for an item in a list, a key in a map or text in text, not for {} in {}",
            with_article(left),
            with_article(right)
        )),
    }
}

fn concat(left: &Val<'_>, right: &Val<'_>) -> Result<Value, String> {
    let mut out = String::new();
    for operand in [left, right] {
        match operand {
            Val::Plain(value) => append(&mut out, value)?,
            Val::Version(version) => out.push_str(&version.clone().into_text()),
            Val::Undefined(_) => return Err("an undefined value cannot be joined".into()),
        }
    }
    Ok(Value::Str(out))
}

fn add(left: &Val<'_>, right: &Val<'_>) -> Result<Value, String> {
    match (left.plain(), right.plain()) {
        (Some(Value::Int(_)), Some(Value::Int(_))) => arithmetic(ExprOp::Add, left, right),
        (Some(Value::Str(a)), Some(Value::Str(b))) => Ok(Value::Str(format!("{a}{b}"))),
        (Some(Value::List(a)), Some(Value::List(b))) => Ok(Value::List(a.iter().chain(b).cloned().collect())),
        _ => Err(format!(
            "`+` takes two ints, two strings or two lists, not {} and {}; `~` joins values as text",
            with_article(left),
            with_article(right)
        )),
    }
}

fn arithmetic(op: ExprOp, left: &Val<'_>, right: &Val<'_>) -> Result<Value, String> {
    let (Some(Value::Int(a)), Some(Value::Int(b))) = (left.plain(), right.plain()) else {
        return Err(format!(
            "`{}` takes two ints, not {} and {}",
            op.symbol(),
            with_article(left),
            with_article(right)
        ));
    };
    let result = match op {
        ExprOp::Add => a.checked_add(*b),
        ExprOp::Subtract => a.checked_sub(*b),
        ExprOp::Multiply => a.checked_mul(*b),
        _ if *b == 0 => return Err("division by zero".into()),
        // Rounded down, so that `x // n * n + x % n` is x.
        ExprOp::Divide => Some(a.div_euclid(*b) - i64::from(*b < 0 && a.rem_euclid(*b) != 0)),
        _ => Some(a.rem_euclid(*b) + if *b < 0 && a.rem_euclid(*b) != 0 { *b } else { 0 }),
    };
    within(result)
}

/// An integer that every JSON reader keeps.
pub(super) fn within(result: Option<i64>) -> Result<Value, String> {
    match result {
        Some(number) if number.abs() <= MAX_INT => Ok(Value::Int(number)),
        _ => Err(format!("the result is beyond {MAX_INT}")),
    }
}

fn with_article(value: &Val<'_>) -> String {
    let name = value.type_name();
    let article = if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {name}")
}
