//! [`Expr`]: the expression language, with Jinja's words.
//!
//! Literals (`80`, `"text"`, `true`, `[1, 2]`, `{"a": 1}`), names and their parts
//! (`params.port`, `vars["my-module"].port`, `list[0]`), `+ - * // %` on integers, `+` on
//! two strings or two lists, `~` to join texts, `== != < <= > >=`, `in`, `not in`, `and`,
//! `or`, `not`, `a if c else b`, `is defined`, filters (`x|upper`) and functions
//! (`version(x)`; every filter is also a function of its operand).
//!
//! Strict on purpose: an undefined name is an error (except before `default` and
//! `is defined`), conditions are bools, types do not mix, and ordering two texts that look
//! like versions is refused, because "1.10" < "1.9" is never what was meant.

mod ast;
mod error;
mod eval;
mod filters;
mod lex;
mod names;
mod ops;
mod parse;
mod predicates;
mod primary;
mod val;
mod version;

use std::fmt;
use std::sync::Arc;

pub(crate) use ast::ExprNode;
pub(crate) use eval::{Eval, EvalBudget};
pub(crate) use lex::{Lexer, Tok, Token};
pub(crate) use names::{collect as collect_names, secrets as collect_secrets};
pub(crate) use parse::{KEYWORDS, Parser, parse_tokens};

pub use error::{EvalError, MAX_BYTES, MAX_DEPTH, MAX_SOURCE, MAX_STEPS, NameUse, ParseError, WindowUse};

use crate::{Scope, SecretUse, Value};

/// A parsed expression. Cheap to clone; keeps its source.
#[derive(Clone)]
pub struct Expr {
    inner: Arc<ParsedExpr>,
}

struct ParsedExpr {
    source: String,
    root: ExprNode,
}

impl Expr {
    /// Parses a source of at most [`MAX_SOURCE`] bytes, nested at most [`MAX_DEPTH`] deep.
    /// Unknown functions and filters are errors here, not later.
    pub fn parse(source: &str) -> Result<Expr, ParseError> {
        let root = parse::parse(source)?;
        Ok(Expr { inner: Arc::new(ParsedExpr { source: source.to_owned(), root }) })
    }

    /// Evaluates within [`MAX_STEPS`] and [`MAX_BYTES`].
    pub fn eval(&self, scope: &dyn Scope) -> Result<Value, EvalError> {
        let mut budget = EvalBudget::new(MAX_STEPS, MAX_BYTES);
        Eval::new(scope, &mut budget).value(&self.inner.root)
    }

    /// Evaluates a condition: anything but a bool is an error.
    pub fn eval_bool(&self, scope: &dyn Scope) -> Result<bool, EvalError> {
        match self.eval(scope)? {
            Value::Bool(value) => Ok(value),
            other => Err(EvalError::Failed {
                message: format!("a condition must be true or false, and this is a {}", other.type_name()),
                offset: 0,
                len: self.source().len(),
            }),
        }
    }

    /// The dotted names used, in the order of the source.
    pub fn names(&self) -> Vec<NameUse> {
        let mut found = Vec::new();
        names::collect(&self.inner.root, false, &mut found);
        found
    }

    /// The functions used, node-side predicates included (`changed` without parentheses
    /// too); each once, sorted. Filters in their function form are not among them.
    pub fn calls(&self) -> Vec<&'static str> {
        let mut found = std::collections::BTreeSet::new();
        names::calls(&self.inner.root, &mut found);
        found.into_iter().collect()
    }

    /// The windows that the expression asks for, in the order of the source.
    pub fn windows(&self) -> Vec<WindowUse> {
        let mut found = Vec::new();
        names::windows(&self.inner.root, &mut found);
        found
    }

    /// The secrets that it uses, in the order of the source.
    pub fn secrets(&self) -> Vec<SecretUse> {
        let mut found = Vec::new();
        names::secrets(&self.inner.root, &mut found);
        found
    }

    /// The name of the secret that the expression is, where it is nothing else.
    pub fn lone_secret(&self) -> Option<&str> {
        names::secret(&self.inner.root)
    }

    /// The dotted path that the expression is, where it is nothing else.
    pub fn lone_path(&self) -> Option<Vec<String>> {
        names::path(&self.inner.root)
    }

    /// The source as written.
    pub fn source(&self) -> &str {
        &self.inner.source
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.source())
    }
}

impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expr({:?})", self.source())
    }
}

impl PartialEq for Expr {
    fn eq(&self, other: &Expr) -> bool {
        self.source() == other.source()
    }
}

impl Eq for Expr {}
