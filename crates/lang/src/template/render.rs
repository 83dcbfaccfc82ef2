//! Rendering, within a budget.

use std::collections::BTreeMap;

use super::{Loop, MAX_BYTES, MAX_FUEL, MAX_OUTPUT, TemplateItem};
use crate::expr::{Eval, EvalBudget, EvalError, ExprNode, ParseError};
use crate::value::append;
use crate::{Probe, Scope, Value};

/// The name of the loop's own values.
pub(super) const LOOP: &str = "loop";

pub(super) fn render(
    body: &[TemplateItem],
    size: usize,
    roots: &[(&str, &Value)],
) -> Result<String, ParseError> {
    let mut renderer = Renderer {
        frames: Frames { roots, locals: Vec::new(), mark: 0 },
        budget: EvalBudget::new(MAX_FUEL, MAX_BYTES),
        out: String::with_capacity(size.min(MAX_OUTPUT)),
        at: 0,
    };
    renderer.items(body)?;
    Ok(renderer.out)
}

/// What the template itself named, over the roots.
struct Frames<'a> {
    roots: &'a [(&'a str, &'a Value)],
    locals: Vec<(String, Value)>,
    /// Where the locals of the innermost loop begin.
    mark: usize,
}

impl Frames<'_> {
    fn set(&mut self, name: &str, value: Value) {
        match self.locals[self.mark..].iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.locals.push((name.to_owned(), value)),
        }
    }
}

impl Scope for Frames<'_> {
    fn root(&self, name: &str) -> Option<&Value> {
        let local = self.locals.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value);
        local.or_else(|| self.roots.iter().find(|(known, _)| *known == name).map(|(_, value)| *value))
    }

    fn probe(&self, _: &Probe) -> Option<bool> {
        None
    }

    fn roots(&self) -> Vec<&str> {
        let locals = self.locals.iter().map(|(name, _)| name.as_str());
        locals.chain(self.roots.iter().map(|(name, _)| *name)).collect()
    }
}

struct Renderer<'a> {
    frames: Frames<'a>,
    budget: EvalBudget,
    out: String,
    /// The last expression's position, for a limit that is met between expressions.
    at: usize,
}

impl Renderer<'_> {
    fn items(&mut self, items: &[TemplateItem]) -> Result<(), ParseError> {
        for item in items {
            self.budget.step(1).map_err(|message| self.here(message))?;
            match item {
                TemplateItem::Text(text) => self.out.push_str(text),
                TemplateItem::Print(piece) => {
                    let value = self.value(piece)?;
                    append(&mut self.out, &value)
                        .map_err(|message| ParseError::new(message, piece.offset, piece.len))?;
                }
                TemplateItem::Set { name, value } => {
                    let value = self.value(value)?;
                    self.frames.set(name, value);
                }
                TemplateItem::If { branches, otherwise } => self.choose(branches, otherwise)?,
                TemplateItem::For(each) => self.repeat(each)?,
            }
            if self.out.len() > MAX_OUTPUT {
                return Err(self.here(format!("the output grows beyond {MAX_OUTPUT} bytes")));
            }
        }
        Ok(())
    }

    fn choose(
        &mut self,
        branches: &[(ExprNode, Vec<TemplateItem>)],
        otherwise: &[TemplateItem],
    ) -> Result<(), ParseError> {
        for (condition, body) in branches {
            if self.truth(condition)? {
                return self.items(body);
            }
        }
        self.items(otherwise)
    }

    fn repeat(&mut self, each: &Loop) -> Result<(), ParseError> {
        let rounds = self.rounds(each)?;
        if rounds.is_empty() {
            return self.items(&each.otherwise);
        }
        let length = rounds.len();
        let outer = std::mem::replace(&mut self.frames.mark, self.frames.locals.len());
        for (index, values) in rounds.into_iter().enumerate() {
            for (name, value) in each.targets.iter().zip(values) {
                self.frames.set(name, value);
            }
            self.frames.set(LOOP, loop_value(index, length));
            self.items(&each.body)?;
            self.frames.locals.truncate(self.frames.mark);
        }
        self.frames.mark = outer;
        Ok(())
    }

    /// The values of the targets, round by round, those that `if` refuses left out.
    fn rounds(&mut self, each: &Loop) -> Result<Vec<Vec<Value>>, ParseError> {
        let over = self.value(&each.over)?;
        let all = unpack(over, each.targets.len()).map_err(|message| self.here(message))?;
        let Some(only_if) = &each.only_if else {
            return Ok(all);
        };
        let outer = std::mem::replace(&mut self.frames.mark, self.frames.locals.len());
        let mut chosen = Vec::new();
        for values in all {
            for (name, value) in each.targets.iter().zip(&values) {
                self.frames.set(name, value.clone());
            }
            if self.truth(only_if)? {
                chosen.push(values);
            }
            self.frames.locals.truncate(self.frames.mark);
        }
        self.frames.mark = outer;
        Ok(chosen)
    }

    fn value(&mut self, piece: &ExprNode) -> Result<Value, ParseError> {
        self.at = piece.offset;
        Eval::new(&self.frames, &mut self.budget).value(piece).map_err(|error| moved(error, piece))
    }

    fn truth(&mut self, piece: &ExprNode) -> Result<bool, ParseError> {
        self.at = piece.offset;
        Eval::new(&self.frames, &mut self.budget).truth(piece).map_err(|error| moved(error, piece))
    }

    fn here(&self, message: String) -> ParseError {
        ParseError::new(message, self.at, 1)
    }
}

fn unpack(over: Value, targets: usize) -> Result<Vec<Vec<Value>>, String> {
    match (over, targets) {
        (Value::List(items), 1) => Ok(items.into_iter().map(|item| vec![item]).collect()),
        (Value::Map(map), 1) => Ok(map.into_keys().map(|key| vec![Value::Str(key)]).collect()),
        (Value::Map(map), 2) => {
            Ok(map.into_iter().map(|(key, value)| vec![Value::Str(key), value]).collect())
        }
        (Value::List(items), _) => items
            .into_iter()
            .map(|item| match item {
                Value::List(parts) if parts.len() == targets => Ok(parts),
                _ => Err(format!("each item must be a list of {targets} to be unpacked")),
            })
            .collect(),
        (other, _) => {
            Err(format!("`for` goes over a list or a map, not a value of type {}", other.type_name()))
        }
    }
}

fn loop_value(index: usize, length: usize) -> Value {
    let int = |n: usize| Value::Int(i64::try_from(n).unwrap_or(i64::MAX));
    let entries = [
        ("first", Value::Bool(index == 0)),
        ("index", int(index + 1)),
        ("index0", int(index)),
        ("last", Value::Bool(index + 1 == length)),
        ("length", int(length)),
    ];
    Value::Map(BTreeMap::from(entries.map(|(name, value)| (name.to_owned(), value))))
}

fn moved(error: EvalError, piece: &ExprNode) -> ParseError {
    match error {
        EvalError::Failed { message, offset, len } => ParseError::new(message, offset, len),
        needs @ EvalError::Needs(_) => ParseError::new(needs.to_string(), piece.offset, piece.len),
    }
}
