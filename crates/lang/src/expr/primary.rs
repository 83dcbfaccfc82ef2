//! The tightest part of the grammar: values, names, calls, parts and filters.

use super::ast::{ExprKind, ExprNode};
use super::error::{EvalError, MAX_BYTES, MAX_STEPS, ParseError};
use super::eval::{Eval, EvalBudget};
use super::filters::Filter;
use super::lex::{Tok, Token};
use super::parse::{KEYWORDS, Parser};
use super::predicates::Predicate;
use crate::nearest::hint;
use crate::{Names, Value};

impl Parser {
    /// A value and what is applied to it: parts, indexes, filters.
    pub(super) fn postfix(&mut self) -> Result<ExprNode, ParseError> {
        let mut node = self.primary()?;
        loop {
            if self.take(&Tok::Sign(".")) {
                let Tok::Name(name) = self.peek().tok.clone() else {
                    return Err(self.unexpected("a name after `.`", Some("an item of a list is `list[0]`")));
                };
                self.at += 1;
                node = self.node(ExprKind::Attr(Box::new(node), name))?;
            } else if self.take(&Tok::Open('[')) {
                let index = self.expression()?;
                self.expect(&Tok::Close(']'), "`]`")?;
                node = self.node(ExprKind::Index(Box::new(node), Box::new(index)))?;
            } else if self.take(&Tok::Sign("|")) {
                node = self.filter(node)?;
            } else {
                return Ok(node);
            }
        }
    }

    fn filter(&mut self, target: ExprNode) -> Result<ExprNode, ParseError> {
        let token = self.next();
        let Tok::Name(name) = &token.tok else {
            self.at = self.at.saturating_sub(1);
            return Err(self.unexpected("a filter after `|`", None));
        };
        let Some(filter) = Filter::named(name) else {
            let message = format!("unknown filter `{name}`{}", hint(name, Filter::names()));
            return Err(ParseError { message, offset: token.offset, len: token.len, help: all_filters() });
        };
        let mut args = vec![target];
        if self.take(&Tok::Open('(')) {
            args.extend(self.arguments()?);
        }
        self.filter_node(filter, args, &token)
    }

    fn filter_node(
        &self,
        filter: Filter,
        args: Vec<ExprNode>,
        token: &Token,
    ) -> Result<ExprNode, ParseError> {
        let (least, most) = filter.arguments();
        if args.len() < least || args.len() > most {
            let message = format!("`{}` is written {}", filter.name(), filter.usage());
            return Err(ParseError::new(message, token.offset, token.len));
        }
        self.node(ExprKind::Filter { filter, args })
    }

    /// Arguments up to the closing parenthesis.
    fn arguments(&mut self) -> Result<Vec<ExprNode>, ParseError> {
        let mut args = Vec::new();
        while !self.take(&Tok::Close(')')) {
            if !args.is_empty() {
                self.expect(&Tok::Sign(","), "`,` or `)`")?;
            }
            args.push(self.expression()?);
        }
        Ok(args)
    }

    fn primary(&mut self) -> Result<ExprNode, ParseError> {
        let token = self.peek().clone();
        match &token.tok {
            Tok::Int(number) => self.literal(Value::Int(*number)),
            Tok::Str(text) => self.literal(Value::Str(text.clone())),
            Tok::Name(name) => self.name(name, &token),
            Tok::Open('(') => {
                self.at += 1;
                let node = self.expression()?;
                self.expect(&Tok::Close(')'), "`)`")?;
                Ok(node)
            }
            Tok::Open('[') => self.list(),
            Tok::Open('{') => self.map(),
            _ => Err(self.unexpected("a value", None)),
        }
    }

    fn literal(&mut self, value: Value) -> Result<ExprNode, ParseError> {
        self.at += 1;
        self.node(ExprKind::Literal(value))
    }

    fn name(&mut self, name: &str, token: &Token) -> Result<ExprNode, ParseError> {
        match name {
            "true" | "True" => return self.literal(Value::Bool(true)),
            "false" | "False" => return self.literal(Value::Bool(false)),
            "none" | "None" | "null" => {
                return Err(self.unexpected("a value", Some("there is no null; ask `is defined`")));
            }
            _ if KEYWORDS.contains(&name) => return Err(self.unexpected("a value", None)),
            _ => {}
        }
        self.at += 1;
        if self.take(&Tok::Open('(')) {
            let args = self.arguments()?;
            return self.call(name, args, token);
        }
        if name == "changed" {
            return self.node(ExprKind::Predicate { predicate: Predicate::Changed, args: Vec::new() });
        }
        self.node(ExprKind::Name(name.to_owned()))
    }

    fn call(&mut self, name: &str, args: Vec<ExprNode>, token: &Token) -> Result<ExprNode, ParseError> {
        let wrong = |message: String, help: Option<String>| {
            Err(ParseError { message, offset: token.offset, len: token.len, help })
        };
        if let Some(predicate) = Predicate::named(name) {
            if let Err(message) = predicate.takes(args.len()) {
                return wrong(message, None);
            }
            let node = self.node_from(ExprKind::Predicate { predicate, args }, token.offset)?;
            return constant(predicate, node);
        }
        if let Some(filter) = Filter::named(name) {
            let mut node = self.filter_node(filter, args, token)?;
            (node.offset, node.len) = (token.offset, self.previous_end() - token.offset);
            return Ok(node);
        }
        let known = Filter::names().chain(Predicate::ALL.into_iter().map(Predicate::name));
        wrong(format!("unknown function `{name}`{}", hint(name, known)), all_filters())
    }

    fn list(&mut self) -> Result<ExprNode, ParseError> {
        let start = self.next().offset;
        let mut items = Vec::new();
        while !self.take(&Tok::Close(']')) {
            if !items.is_empty() {
                self.expect(&Tok::Sign(","), "`,` or `]`")?;
                if self.take(&Tok::Close(']')) {
                    break;
                }
            }
            items.push(self.expression()?);
        }
        self.node_from(ExprKind::List(items), start)
    }

    fn map(&mut self) -> Result<ExprNode, ParseError> {
        let start = self.next().offset;
        let mut entries: Vec<(String, ExprNode)> = Vec::new();
        while !self.take(&Tok::Close('}')) {
            if !entries.is_empty() {
                self.expect(&Tok::Sign(","), "`,` or `}`")?;
                if self.take(&Tok::Close('}')) {
                    break;
                }
            }
            let Tok::Str(key) = self.peek().tok.clone() else {
                return Err(self.unexpected("a quoted key", Some("write {\"key\": value}")));
            };
            if entries.iter().any(|(known, _)| *known == key) {
                return Err(self.unexpected("another key", Some("each key stands once")));
            }
            self.at += 1;
            self.expect(&Tok::Sign(":"), "`:`")?;
            entries.push((key, self.expression()?));
        }
        self.node_from(ExprKind::Map(entries), start)
    }
}

fn all_filters() -> Option<String> {
    Some(format!("there are: {}", Filter::names().collect::<Vec<_>>().join(", ")))
}

/// A predicate whose arguments are known is read now, so that a wrong one is a mistake where it
/// is written and not on the node. What a secret is nobody knows but the node.
fn constant(predicate: Predicate, node: ExprNode) -> Result<ExprNode, ParseError> {
    if predicate == Predicate::Secret || !is_constant(&node) {
        return Ok(node);
    }
    let (names, mut budget) = (Names::new(), EvalBudget::new(MAX_STEPS, MAX_BYTES));
    match Eval::new(&names, &mut budget).value(&node) {
        Err(EvalError::Failed { message, .. }) => Err(ParseError::new(message, node.offset, node.len)),
        _ => Ok(node),
    }
}

fn is_constant(node: &ExprNode) -> bool {
    match &node.kind {
        ExprKind::Literal(_) => true,
        ExprKind::Negate(_) | ExprKind::List(_) | ExprKind::Predicate { .. } => {
            node.children().into_iter().all(is_constant)
        }
        _ => false,
    }
}
