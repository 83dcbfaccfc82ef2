//! Params: read by their type from what was written, merged layer by layer (CFG-2).
//!
//! Plain YAML text that is not `true`, `false` or a plain integer stays text, so `1.10`,
//! `0644`, `on` and `no` arrive here as written and mean what the param's type says.
//! A value with `${{ }}` in it is read when it has been evaluated, on the node.

use std::collections::BTreeMap;
use std::sync::Arc;

use lang::value::MAX_INT;
use lang::{EvalError, InterpolatedText, Scope, Unobserved, Value};
use model::collect::CollectInserting;

use crate::duration;
use crate::module::{Merge, Module, ParamDecl, ParamType, Params};
use crate::secrets::{self, SecretPaths};

/// What a param of type `secret` is set to.
pub const SECRET_VALUE: &str = "a secret is set by its name, as in  secret:team/name";
/// What is said of a value that holds a secret, instead of what is wrong with it.
const HIDDEN_MISTAKE: &str = "its value, which holds a secret, is not as it should be";

/// The params of each module of a node.
pub type Resolved = BTreeMap<String, ResolvedParams>;

/// A module's params.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResolvedParams {
    /// Values by param name.
    pub values: BTreeMap<String, Value>,
    /// Params that depend on a trait that nobody has observed yet, with that trait.
    pub unobserved: Unobserved,
    /// The values, or parts of them, that hold a secret, by their paths from the param's name on.
    pub secret: SecretPaths,
    /// Params that are one secret and nothing else, with its name.
    pub whole_secrets: BTreeMap<String, String>,
    /// Params that have no value as they should.
    pub wrong: Vec<ParamError>,
}

/// Why a param has no value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{name}: {why}")]
pub struct ParamError {
    /// Its full name: module, dot, param.
    pub name: String,
    /// What is wrong, and what would be right.
    pub why: String,
}

/// Whether a conditional layer holds on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerState {
    /// Its condition is true.
    Holds,
    /// It is false, or wrong.
    Left,
    /// It depends on this observed trait, which nobody has observed yet.
    Unobserved(String),
}

/// The last step of the precedence ladder, on the node: default < `vars` < each conditional
/// layer that `holds` < `host_vars`, then evaluated over `scope` and read by type.
///
/// `params.vars` already holds the default's part where the param merges (see
/// [`layer`]); `holds` answers `params.conditional` in order, a missing answer is no.
pub fn resolve(
    modules: &BTreeMap<String, Arc<Module>>,
    params: &Params,
    holds: &[LayerState],
    scope: &dyn Scope,
) -> Resolved {
    let host = (&LayerState::Holds, &params.host_vars);
    let conditional = holds.iter().zip(&params.conditional).map(|(state, layer)| (state, &layer.vars));
    let layers: Vec<_> = conditional.chain([host]).collect();
    modules
        .iter()
        .map(|(name, module)| (name.clone(), one(module, params, &layers, scope)))
        .collect_inserting()
}

fn one(
    module: &Module,
    params: &Params,
    layers: &[(&LayerState, &BTreeMap<String, Value>)],
    scope: &dyn Scope,
) -> ResolvedParams {
    let mut out = ResolvedParams::default();
    for (name, decl) in &module.params {
        let full = format!("{}.{name}", module.name);
        let mut value = params.vars.get(&full).or(decl.default.as_ref()).cloned();
        let mut unobserved = None;
        for (state, layer) in layers {
            let Some(later) = layer.get(&full) else { continue };
            match state {
                LayerState::Holds => {
                    value = Some(merge(decl, value.as_ref(), later));
                    // What replaces it makes it known again.
                    unobserved = unobserved.filter(|_| decl.merge != Merge::Replace);
                }
                LayerState::Left => {}
                LayerState::Unobserved(observed) => unobserved = Some(observed.clone()),
            }
        }
        let holds =
            value.as_ref().map(|value| secrets::paths_in(value, name, &|_| false)).unwrap_or_default();
        let hidden = |why: String| if holds.is_empty() { why } else { HIDDEN_MISTAKE.to_owned() };
        if let Some(whole) = value.as_ref().filter(|_| !holds.is_empty()).and_then(secrets::lone_secret) {
            out.whole_secrets.insert(name.clone(), whole);
        }
        let value = match (unobserved, value) {
            (Some(observed), _) => Err(EvalError::Unobserved(observed)),
            (None, Some(value)) => evaluate(&value, scope),
            (None, None) => {
                if decl.required {
                    out.wrong
                        .push(ParamError { name: full, why: "it is required and nothing sets it".into() });
                }
                continue;
            }
        };
        match value {
            Ok(value) => match read(decl, &value) {
                Ok(value) => drop(out.values.insert(name.clone(), value)),
                Err(why) => out.wrong.push(ParamError { name: full, why: hidden(why) }),
            },
            Err(EvalError::Unobserved(observed)) => drop(out.unobserved.insert(name.clone(), observed)),
            Err(error) => out.wrong.push(ParamError { name: full, why: hidden(error.to_string()) }),
        }
        out.secret.extend(holds.iter().map(str::to_owned));
    }
    out
}

/// Puts a layer's value on what earlier layers gave. The first value of a param that
/// merges meets the default, so that later layers need only what this returns.
pub fn layer(decl: &ParamDecl, earlier: Option<&Value>, later: &Value) -> Value {
    merge(decl, earlier.or(decl.default.as_ref()), later)
}

/// How a later value meets an earlier one, by the param's merge strategy.
pub fn merge(decl: &ParamDecl, earlier: Option<&Value>, later: &Value) -> Value {
    let Some(earlier) = earlier else { return later.clone() };
    match (decl.merge, earlier, later) {
        (Merge::Deep, _, _) => deep(earlier, later),
        (Merge::Append, Value::List(first), Value::List(rest)) => {
            Value::List(first.iter().chain(rest).cloned().collect())
        }
        (Merge::Unique, Value::List(first), Value::List(rest)) => {
            let mut seen = std::collections::BTreeSet::new();
            Value::List(first.iter().chain(rest).filter(|item| seen.insert(*item)).cloned().collect())
        }
        (Merge::Replace | Merge::Append | Merge::Unique, _, _) => later.clone(),
    }
}

fn deep(earlier: &Value, later: &Value) -> Value {
    match (earlier, later) {
        (Value::Map(old), Value::Map(new)) => {
            let mut out = old.clone();
            for (key, value) in new {
                let value = out.get(key).map_or_else(|| value.clone(), |old| deep(old, value));
                out.insert(key.clone(), value);
            }
            Value::Map(out)
        }
        _ => later.clone(),
    }
}

/// Whether a value holds `${{`, at any depth, and is therefore evaluated on the node.
pub fn is_dynamic(value: &Value) -> bool {
    match value {
        Value::Str(text) => !InterpolatedText::is_literal(text),
        Value::List(items) => items.iter().any(is_dynamic),
        Value::Map(map) => map.values().any(is_dynamic),
        Value::Bool(_) | Value::Int(_) => false,
    }
}

/// Evaluates every `${{ }}` in a value.
///
/// # Errors
/// The first mistake; where there is none, the first trait that is not observed.
pub fn evaluate(value: &Value, scope: &dyn Scope) -> Result<Value, EvalError> {
    match value {
        Value::Str(text) if !InterpolatedText::is_literal(text) => InterpolatedText::parse(text)?.eval(scope),
        Value::List(items) => {
            let mut out = Vec::with_capacity(items.len());
            let each = items.iter().map(|item| evaluate(item, scope).map(|value| out.push(value)));
            all(each)?;
            Ok(Value::List(out))
        }
        Value::Map(map) => {
            let mut out = Vec::with_capacity(map.len());
            let each = map
                .iter()
                .map(|(key, item)| evaluate(item, scope).map(|value| out.push((key.clone(), value))));
            all(each)?;
            Ok(Value::Map(out.into_iter().collect_inserting()))
        }
        Value::Bool(_) | Value::Int(_) | Value::Str(_) => Ok(value.clone()),
    }
}

/// The first mistake of several evaluations: what is not observed hides none.
fn all(each: impl Iterator<Item = Result<(), EvalError>>) -> Result<(), EvalError> {
    let mut unobserved = Ok(());
    for one in each {
        match one {
            Err(error @ EvalError::Unobserved(_)) => unobserved = unobserved.and(Err(error)),
            other => other?,
        }
    }
    unobserved
}

/// Reads a value by the param's type. Reading what was read changes nothing.
///
/// # Errors
/// What is wrong and what would be right, in one sentence.
pub fn read(decl: &ParamDecl, value: &Value) -> Result<Value, String> {
    match decl.kind {
        ParamType::Bool => bool(value).map(Value::Bool),
        ParamType::Int => int(value).and_then(|int| within(int, decl.min, decl.max)),
        ParamType::Port => int(value)
            .and_then(|int| {
                within(int, Some(decl.min.unwrap_or(1).max(1)), Some(decl.max.unwrap_or(65535).min(65535)))
            })
            .map_err(|why| format!("{why} (a port is a number from 1 to 65535)")),
        ParamType::String => text(value).map(Value::Str),
        ParamType::Path => text(value).and_then(|text| path(&text).map(|()| Value::Str(text))),
        ParamType::Version => text(value).and_then(version),
        ParamType::Duration => {
            let text = text(value)?;
            duration::parse(&text)?;
            Ok(Value::Str(text))
        }
        ParamType::Enum => one_of(decl, value),
        ParamType::List => match value {
            Value::List(_) => Ok(value.clone()),
            other => Err(format!("a list is needed, and this is a {}; write [{other}]", other.type_name())),
        },
        ParamType::Map => match value {
            Value::Map(_) => Ok(value.clone()),
            other => Err(format!("a map is needed, and this is a {}", other.type_name())),
        },
        ParamType::Secret => match value {
            // What is literal was refused when it was written.
            Value::Str(text) => Ok(Value::Str(text.clone())),
            other => Err(format!("{SECRET_VALUE}, and this is a {}", other.type_name())),
        },
    }
}

/// The text that was written; an integer or a bool is given back as it stood in the file.
///
/// # Errors
/// For a list or a map.
pub fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::Str(_) | Value::Int(_) | Value::Bool(_) => Ok(value.to_string()),
        Value::List(_) | Value::Map(_) => {
            Err(format!("a text is needed, and this is a {}", value.type_name()))
        }
    }
}

/// A bool: true/false, yes/no, on/off.
///
/// # Errors
/// For anything else.
pub fn bool(value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(bool) => Ok(*bool),
        Value::Str(text) if matches!(text.as_str(), "true" | "yes" | "on") => Ok(true),
        Value::Str(text) if matches!(text.as_str(), "false" | "no" | "off") => Ok(false),
        other => Err(format!(
            "`{other}` is neither true nor false; write true or false (yes, no, on and off do too)"
        )),
    }
}

/// A whole number in decimal, without leading zeros.
///
/// # Errors
/// For anything else.
pub fn int(value: &Value) -> Result<i64, String> {
    match value {
        Value::Int(int) => Ok(*int),
        Value::Str(text) => plain_int(text).ok_or_else(|| {
            let digits = text.strip_prefix('0').is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
            let hint = if digits { "; drop the leading zero, or declare the param as a string" } else { "" };
            format!("`{text}` is not a whole number{hint}")
        }),
        other => Err(format!("a whole number is needed, and this is a {}", other.type_name())),
    }
}

/// Reads `text` as an integer if it is one in its only form: decimal, no sign but `-`, no
/// leading zero, within 2^53 - 1.
pub fn plain_int(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = !digits.is_empty()
        && digits.len() <= 16
        && digits.bytes().all(|b| b.is_ascii_digit())
        && (digits == "0" && digits.len() == text.len() || !digits.starts_with('0'));
    let int: i64 = if plain { text.parse().ok()? } else { return None };
    (-MAX_INT..=MAX_INT).contains(&int).then_some(int)
}

fn within(int: i64, min: Option<i64>, max: Option<i64>) -> Result<Value, String> {
    match (min, max) {
        (Some(min), _) if int < min => Err(format!("{int} is less than {min}, the smallest value allowed")),
        (_, Some(max)) if int > max => Err(format!("{int} is more than {max}, the largest value allowed")),
        _ => Ok(Value::Int(int)),
    }
}

/// An absolute path without `.` and `..` parts.
///
/// # Errors
/// What is wrong with it.
pub fn path(text: &str) -> Result<(), String> {
    if !text.starts_with('/') {
        return Err(format!("`{text}` is not an absolute path; it must begin with /"));
    }
    if text.contains('\0') {
        return Err("a path holds no NUL".into());
    }
    let may_have_dots = text.as_bytes().windows(2).any(|pair| pair == b"/.");
    if may_have_dots && text.split('/').any(|part| part == ".." || part == ".") {
        return Err(format!("`{text}` has a . or .. part; write the path it means"));
    }
    Ok(())
}

fn version(text: String) -> Result<Value, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || ".+:~-_".contains(c);
    let starts = text.strip_prefix('v').unwrap_or(&text).starts_with(|c: char| c.is_ascii_digit());
    if starts && text.chars().all(fits) {
        Ok(Value::Str(text))
    } else {
        Err(format!("`{text}` is not a version such as 1.10 or 2.4.1-3"))
    }
}

fn one_of(decl: &ParamDecl, value: &Value) -> Result<Value, String> {
    let text = text(value)?;
    decl.values.iter().find(|allowed| allowed.to_string() == text).cloned().ok_or_else(|| {
        let all: Vec<String> = decl.values.iter().map(Value::to_string).collect();
        let hint = lang::nearest(&text, all.iter().map(String::as_str))
            .map(|name| format!("; did you mean {name}?"));
        format!("`{text}` is not one of {}{}", all.join(", "), hint.unwrap_or_default())
    })
}
