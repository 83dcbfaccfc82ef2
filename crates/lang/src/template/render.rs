//! Rendering, within a budget.

use std::collections::BTreeMap;

use super::{Loop, MAX_BYTES, MAX_FUEL, MAX_OUTPUT, TemplateItem};
use crate::expr::{Eval, EvalBudget, EvalError, ExprNode, ParseError};
use crate::value::append;
use crate::{Probe, Scope, Value};

/// The name of the loop's own values.
pub(super) const LOOP: &str = "loop";

/// Why a rendering ends early.
pub(super) enum RenderStop {
    Mistake(ParseError),
    /// A part depends on an observed trait that nobody has observed yet.
    Unobserved(String),
}

impl From<ParseError> for RenderStop {
    fn from(mistake: ParseError) -> RenderStop {
        RenderStop::Mistake(mistake)
    }
}

pub(super) fn render(body: &[TemplateItem], size: usize, scope: &dyn Scope) -> Result<String, RenderStop> {
    let mut renderer = Renderer {
        frames: Frames { scope, locals: Vec::new(), mark: 0 },
        budget: EvalBudget::new(MAX_FUEL, MAX_BYTES),
        out: String::with_capacity(size.min(MAX_OUTPUT)),
        at: 0,
        unobserved: None,
    };
    renderer.items(body)?;
    renderer.unobserved.map_or(Ok(renderer.out), |observed| Err(RenderStop::Unobserved(observed)))
}

/// What a name of the template itself stands for, or the trait that it depends on.
type TemplateLocal = Result<Value, String>;

/// What the template itself named, over the names from outside.
struct Frames<'a> {
    scope: &'a dyn Scope,
    locals: Vec<(String, TemplateLocal)>,
    /// Where the locals of the innermost loop begin.
    mark: usize,
}

impl Frames<'_> {
    fn set(&mut self, name: &str, value: TemplateLocal) {
        match self.locals[self.mark..].iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.locals.push((name.to_owned(), value)),
        }
    }

    fn local(&self, name: &str) -> Option<&TemplateLocal> {
        self.locals.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}

impl Scope for Frames<'_> {
    fn root(&self, name: &str) -> Option<&Value> {
        match self.local(name) {
            Some(local) => local.as_ref().ok(),
            None => self.scope.root(name),
        }
    }

    fn probe(&self, _: &Probe) -> Option<bool> {
        None
    }

    fn secret(&self, name: &str) -> Option<&str> {
        self.scope.secret(name)
    }

    fn roots(&self) -> Vec<&str> {
        let locals = self.locals.iter().map(|(name, _)| name.as_str());
        locals.chain(self.scope.roots()).collect()
    }

    fn unobserved(&self, path: &str) -> Option<&str> {
        match self.local(path.split('.').next().unwrap_or_default()) {
            Some(local) => local.as_ref().err().map(String::as_str),
            None => self.scope.unobserved(path),
        }
    }
}

struct Renderer<'a> {
    frames: Frames<'a>,
    budget: EvalBudget,
    out: String,
    /// The last expression's position, for a limit that is met between expressions.
    at: usize,
    /// The first observed trait that was missing.
    unobserved: Option<String>,
}

impl Renderer<'_> {
    fn items(&mut self, items: &[TemplateItem]) -> Result<(), ParseError> {
        for item in items {
            self.budget.step(1).map_err(|message| self.here(message))?;
            match item {
                TemplateItem::Text(text) => self.out.push_str(text),
                TemplateItem::Print(piece) => {
                    if let Ok(value) = self.value(piece)? {
                        append(&mut self.out, &value)
                            .map_err(|message| ParseError::new(message, piece.offset, piece.len))?;
                    }
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
        for (at, (condition, body)) in branches.iter().enumerate() {
            match self.truth(condition)? {
                Ok(true) => return self.items(body),
                Ok(false) => {}
                Err(observed) => {
                    let rest = branches[at..].iter().map(|(_, body)| body.as_slice());
                    return self.every(rest.chain([otherwise]), &observed);
                }
            }
        }
        self.items(otherwise)
    }

    /// Renders each of several bodies of which nobody knows which one counts. What one of them names is
    /// not known after it.
    fn every<'t>(
        &mut self,
        bodies: impl Iterator<Item = &'t [TemplateItem]>,
        observed: &str,
    ) -> Result<(), ParseError> {
        let before = self.frames.locals.clone();
        let mut named = Vec::new();
        for body in bodies {
            self.items(body)?;
            let locals = std::mem::replace(&mut self.frames.locals, before.clone());
            named.extend(locals.into_iter().filter(|local| !before.contains(local)).map(|(name, _)| name));
        }
        named.iter().for_each(|name| self.frames.set(name, Err(observed.to_owned())));
        Ok(())
    }

    fn repeat(&mut self, each: &Loop) -> Result<(), ParseError> {
        let rounds = match self.rounds(each)? {
            Ok(rounds) if rounds.is_empty() => return self.items(&each.otherwise),
            Ok(rounds) => rounds.into_iter().map(|values| values.into_iter().map(Ok).collect()).collect(),
            // One round over what is not known.
            Err(observed) => vec![vec![Err(observed); each.targets.len()]],
        };
        let length = rounds.len();
        let outer = std::mem::replace(&mut self.frames.mark, self.frames.locals.len());
        for (index, values) in rounds.into_iter().enumerate() {
            let values: Vec<TemplateLocal> = values;
            for (name, value) in each.targets.iter().zip(values) {
                self.frames.set(name, value);
            }
            self.frames.set(LOOP, Ok(loop_value(index, length)));
            self.items(&each.body)?;
            self.frames.locals.truncate(self.frames.mark);
        }
        self.frames.mark = outer;
        Ok(())
    }

    /// The values of the targets, round by round, those that `if` refuses left out; or the trait that they
    /// depend on.
    fn rounds(&mut self, each: &Loop) -> Result<Result<Vec<Vec<Value>>, String>, ParseError> {
        let over = match self.value(&each.over)? {
            Ok(over) => over,
            Err(observed) => return Ok(Err(observed)),
        };
        let all = unpack(over, each.targets.len()).map_err(|message| self.here(message))?;
        let Some(only_if) = &each.only_if else {
            return Ok(Ok(all));
        };
        let outer = std::mem::replace(&mut self.frames.mark, self.frames.locals.len());
        let mut chosen = Vec::new();
        for values in all {
            for (name, value) in each.targets.iter().zip(&values) {
                self.frames.set(name, Ok(value.clone()));
            }
            // Whether a round counts may not be known: it is looked at then.
            if self.truth(only_if)?.unwrap_or(true) {
                chosen.push(values);
            }
            self.frames.locals.truncate(self.frames.mark);
        }
        self.frames.mark = outer;
        Ok(Ok(chosen))
    }

    fn value(&mut self, piece: &ExprNode) -> Result<TemplateLocal, ParseError> {
        self.at = piece.offset;
        let value = Eval::new(&self.frames, &mut self.budget).value(piece);
        self.known(value, piece)
    }

    fn truth(&mut self, piece: &ExprNode) -> Result<Result<bool, String>, ParseError> {
        self.at = piece.offset;
        let truth = Eval::new(&self.frames, &mut self.budget).truth(piece);
        self.known(truth, piece)
    }

    /// Takes note of what is not observed.
    fn known<T>(
        &mut self,
        evaluated: Result<T, EvalError>,
        piece: &ExprNode,
    ) -> Result<Result<T, String>, ParseError> {
        match evaluated {
            Ok(value) => Ok(Ok(value)),
            Err(EvalError::Unobserved(observed)) => {
                self.unobserved.get_or_insert_with(|| observed.clone());
                Ok(Err(observed))
            }
            Err(EvalError::Failed { message, offset, len }) => Err(ParseError::new(message, offset, len)),
            Err(needs @ EvalError::Needs(_)) => {
                Err(ParseError::new(needs.to_string(), piece.offset, piece.len))
            }
        }
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
