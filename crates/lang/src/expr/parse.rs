//! From tokens to a tree.

use super::ast::{ExprKind, ExprNode, ExprOp};
use super::error::{MAX_DEPTH, MAX_SOURCE, ParseError};
use super::lex::{Lexer, Tok, Token};

/// Words that are no names.
pub(crate) const KEYWORDS: [&str; 12] =
    ["and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "True", "False"];

pub(super) fn parse(source: &str) -> Result<ExprNode, ParseError> {
    if source.len() > MAX_SOURCE {
        let message = format!("the expression is longer than {MAX_SOURCE} bytes");
        return Err(ParseError::new(message, 0, 1));
    }
    let mut lexer = Lexer::new(source);
    let mut tokens = Vec::new();
    loop {
        let token = lexer.next()?;
        let end = token.tok == Tok::End;
        tokens.push(token);
        if end {
            break;
        }
    }
    parse_tokens(tokens)
}

/// Parses tokens that end with [`Tok::End`]; all of them must belong to the expression.
pub(crate) fn parse_tokens(tokens: Vec<Token>) -> Result<ExprNode, ParseError> {
    let mut parser = Parser::new(tokens);
    let node = parser.expression()?;
    parser.finish()?;
    Ok(node)
}

pub(crate) struct Parser {
    tokens: Vec<Token>,
    pub(super) at: usize,
    nesting: usize,
}

/// How tightly an operator of two operands binds; higher is tighter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Or,
    And,
    Compare,
    Concat,
    Sum,
    Product,
}

impl Level {
    fn tighter(self) -> Option<Level> {
        match self {
            Level::Or => Some(Level::And),
            Level::And => Some(Level::Compare),
            Level::Compare => Some(Level::Concat),
            Level::Concat => Some(Level::Sum),
            Level::Sum => Some(Level::Product),
            Level::Product => None,
        }
    }
}

impl Parser {
    /// Over tokens that end with [`Tok::End`].
    pub(crate) fn new(tokens: Vec<Token>) -> Parser {
        Parser { tokens, at: 0, nesting: 0 }
    }

    /// An expression, its conditional form included.
    pub(crate) fn expression(&mut self) -> Result<ExprNode, ParseError> {
        self.nested(|parser| {
            let then = parser.binary(Level::Or)?;
            if !parser.take_word("if") {
                return Ok(then);
            }
            let condition = parser.binary(Level::Or)?;
            if !parser.take_word("else") {
                return Err(parser.unexpected("`else`", Some("write `a if condition else b`")));
            }
            let otherwise = parser.expression()?;
            let kind = ExprKind::If {
                condition: Box::new(condition),
                then: Box::new(then),
                otherwise: Box::new(otherwise),
            };
            parser.node(kind)
        })
    }

    /// An operand of `for ... in`: no conditional form, so that a following `if` is a filter.
    pub(crate) fn condition(&mut self) -> Result<ExprNode, ParseError> {
        self.nested(|parser| parser.binary(Level::Or))
    }

    /// Nothing may follow.
    pub(crate) fn finish(&mut self) -> Result<(), ParseError> {
        match &self.peek().tok {
            Tok::End => Ok(()),
            Tok::Sign("=") => Err(self.unexpected("an operator", Some("`==` compares"))),
            Tok::Sign("&&") => Err(self.unexpected("an operator", Some("write `and`"))),
            Tok::Sign("||") => Err(self.unexpected("an operator", Some("write `or`"))),
            Tok::Sign("/") => {
                Err(self
                    .unexpected("an operator", Some("`//` divides whole numbers; there are no fractions")))
            }
            Tok::Open('(') => {
                Err(self.unexpected("an operator", Some("values have no methods; write `x|upper`")))
            }
            _ => Err(self.unexpected("an operator or the end", None)),
        }
    }

    pub(crate) fn peek(&self) -> &Token {
        // The tokens end with `End`, and nothing steps past it.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    pub(crate) fn next(&mut self) -> Token {
        let token = self.peek().clone();
        if token.tok != Tok::End {
            self.at += 1;
        }
        token
    }

    pub(crate) fn take_word(&mut self, word: &str) -> bool {
        let found = matches!(&self.peek().tok, Tok::Name(name) if name == word);
        if found {
            self.at += 1;
        }
        found
    }

    pub(crate) fn take(&mut self, tok: &Tok) -> bool {
        let found = self.peek().tok == *tok;
        if found && *tok != Tok::End {
            self.at += 1;
        }
        found
    }

    pub(crate) fn expect(&mut self, tok: &Tok, what: &str) -> Result<(), ParseError> {
        if self.take(tok) { Ok(()) } else { Err(self.unexpected(what, None)) }
    }

    /// An error at the next token, which should have been `wanted`.
    pub(crate) fn unexpected(&self, wanted: &str, help: Option<&str>) -> ParseError {
        let token = self.peek();
        let found = match &token.tok {
            Tok::Name(name) => format!("`{name}`"),
            Tok::Int(number) => number.to_string(),
            Tok::Str(_) => "a text".to_owned(),
            Tok::Sign(sign) => format!("`{sign}`"),
            Tok::Open(c) | Tok::Close(c) => format!("`{c}`"),
            Tok::End => "the end".to_owned(),
        };
        ParseError {
            message: format!("expected {wanted}, found {found}"),
            offset: token.offset,
            len: token.len.max(1),
            help: help.map(str::to_owned),
        }
    }

    fn nested(
        &mut self,
        parse: impl FnOnce(&mut Parser) -> Result<ExprNode, ParseError>,
    ) -> Result<ExprNode, ParseError> {
        if self.nesting >= MAX_DEPTH {
            return Err(self.too_deep(self.peek().offset));
        }
        self.nesting += 1;
        let node = parse(self);
        self.nesting -= 1;
        node
    }

    fn too_deep(&self, offset: usize) -> ParseError {
        let message = format!("the expression is nested more than {MAX_DEPTH} deep");
        ParseError::new(message, offset, 1)
    }

    /// A node that spans its children and ends before the next token.
    pub(super) fn node(&self, kind: ExprKind) -> Result<ExprNode, ParseError> {
        let mut node = ExprNode { kind, offset: 0, len: 0, depth: 1 };
        let children = node.children();
        let first = children.iter().map(|child| child.offset).min();
        let depth = children.iter().map(|child| child.depth).max().unwrap_or(0) + 1;
        let offset = first.unwrap_or_else(|| self.previous_offset());
        if depth > MAX_DEPTH {
            return Err(self.too_deep(offset));
        }
        (node.offset, node.len, node.depth) = (offset, self.previous_end().saturating_sub(offset), depth);
        Ok(node)
    }

    pub(super) fn node_from(&self, kind: ExprKind, offset: usize) -> Result<ExprNode, ParseError> {
        let mut node = self.node(kind)?;
        (node.offset, node.len) = (offset, self.previous_end().saturating_sub(offset));
        Ok(node)
    }

    fn previous_offset(&self) -> usize {
        self.tokens[self.at.saturating_sub(1)].offset
    }

    pub(super) fn previous_end(&self) -> usize {
        let token = &self.tokens[self.at.saturating_sub(1)];
        token.offset + token.len
    }

    fn binary(&mut self, level: Level) -> Result<ExprNode, ParseError> {
        if level == Level::Compare {
            return self.comparison();
        }
        let mut left = self.tighter(level)?;
        while let Some(op) = self.operator(level) {
            let right = self.tighter(level)?;
            let (left_box, right_box) = (Box::new(left), Box::new(right));
            left = self.node(match op {
                ParsedOperator::And => ExprKind::And(left_box, right_box),
                ParsedOperator::Or => ExprKind::Or(left_box, right_box),
                ParsedOperator::Op(op) => ExprKind::Binary(op, left_box, right_box),
            })?;
        }
        Ok(left)
    }

    fn tighter(&mut self, level: Level) -> Result<ExprNode, ParseError> {
        match level.tighter() {
            Some(level) => self.binary(level),
            None => self.unary(),
        }
    }

    fn operator(&mut self, level: Level) -> Option<ParsedOperator> {
        let op = match (level, &self.peek().tok) {
            (Level::Or, Tok::Name(word)) if word == "or" => ParsedOperator::Or,
            (Level::And, Tok::Name(word)) if word == "and" => ParsedOperator::And,
            (Level::Concat, Tok::Sign("~")) => ParsedOperator::Op(ExprOp::Concat),
            (Level::Sum, Tok::Sign("+")) => ParsedOperator::Op(ExprOp::Add),
            (Level::Sum, Tok::Sign("-")) => ParsedOperator::Op(ExprOp::Subtract),
            (Level::Product, Tok::Sign("*")) => ParsedOperator::Op(ExprOp::Multiply),
            (Level::Product, Tok::Sign("//")) => ParsedOperator::Op(ExprOp::Divide),
            (Level::Product, Tok::Sign("%")) => ParsedOperator::Op(ExprOp::Modulo),
            _ => return None,
        };
        self.at += 1;
        Some(op)
    }

    /// `not` binds looser than a comparison and tighter than `and`.
    fn comparison(&mut self) -> Result<ExprNode, ParseError> {
        let start = self.peek().offset;
        if self.take_word("not") {
            let target = self.nested(Parser::comparison)?;
            return self.node_from(ExprKind::Not(Box::new(target)), start);
        }
        let left = self.binary(Level::Concat)?;
        let Some(op) = self.comparison_operator()? else {
            return self.defined(left);
        };
        let right = self.binary(Level::Concat)?;
        let node = self.node(ExprKind::Binary(op, Box::new(left), Box::new(right)))?;
        let at = self.at;
        if self.comparison_operator()?.is_some() {
            self.at = at;
            return Err(self.unexpected("`and`, `or` or the end", Some("write `a < b and b < c`")));
        }
        Ok(node)
    }

    fn comparison_operator(&mut self) -> Result<Option<ExprOp>, ParseError> {
        let op = match &self.peek().tok {
            Tok::Sign("==") => ExprOp::Equal,
            Tok::Sign("!=") => ExprOp::NotEqual,
            Tok::Sign("<") => ExprOp::Less,
            Tok::Sign("<=") => ExprOp::LessEqual,
            Tok::Sign(">") => ExprOp::Greater,
            Tok::Sign(">=") => ExprOp::GreaterEqual,
            Tok::Name(word) if word == "in" => ExprOp::In,
            Tok::Name(word) if word == "not" => {
                self.at += 1;
                if !matches!(&self.peek().tok, Tok::Name(word) if word == "in") {
                    return Err(self.unexpected("`in` after `not`", None));
                }
                ExprOp::NotIn
            }
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(op))
    }

    fn defined(&mut self, target: ExprNode) -> Result<ExprNode, ParseError> {
        if !self.take_word("is") {
            return Ok(target);
        }
        let mut negated = self.take_word("not");
        if self.take_word("undefined") {
            negated = !negated;
        } else if !self.take_word("defined") {
            return Err(self.unexpected("`defined` or `undefined`", Some("values are compared with `==`")));
        }
        self.node(ExprKind::Defined { target: Box::new(target), negated })
    }

    fn unary(&mut self) -> Result<ExprNode, ParseError> {
        let start = self.peek().offset;
        if !self.take(&Tok::Sign("-")) {
            return self.postfix();
        }
        let target = self.nested(Parser::unary)?;
        self.node_from(ExprKind::Negate(Box::new(target)), start)
    }
}

enum ParsedOperator {
    And,
    Or,
    Op(ExprOp),
}
