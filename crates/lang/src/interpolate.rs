//! [`InterpolatedText`]: a text with `${{ expression }}` in it.

use crate::expr::{EvalError, Expr, Lexer, MAX_SOURCE, ParseError, Tok};
pub use crate::value::MAX_RESULT;
use crate::value::append;
use crate::{Scope, Value};

/// The longest text that may hold expressions, in bytes (a whole inline file).
pub const MAX_TEXT: usize = 1024 * 1024;
/// The most expressions in one text.
const MAX_EXPRS: usize = 1000;

/// A text such as `port ${{ params.port }}`. A lone expression keeps its type; `$${{`
/// stands for a literal `${{`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterpolatedText {
    parts: Vec<TextSegment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TextSegment {
    Literal(String),
    Expr { expr: Expr, offset: usize },
}

impl InterpolatedText {
    /// Parses a text of at most [`MAX_TEXT`] bytes. Offsets in errors are those of the
    /// whole text.
    pub fn parse(text: &str) -> Result<InterpolatedText, ParseError> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let (mut rest, mut at) = (text, 0);
        while let Some(found) = rest.find("${{") {
            if text.len() > MAX_TEXT || parts.len() > 2 * MAX_EXPRS {
                return Err(too_large(text));
            }
            if let Some(before) = rest[..found].strip_suffix('$') {
                literal.push_str(before);
                literal.push_str("${{");
                at += found + 3;
            } else {
                literal.push_str(&rest[..found]);
                let start = at + found + 3;
                let end = close(text, start)?;
                if !literal.is_empty() {
                    parts.push(TextSegment::Literal(std::mem::take(&mut literal)));
                }
                let expr = Expr::parse(&text[start..end]).map_err(|error| error.shifted(start))?;
                parts.push(TextSegment::Expr { expr, offset: start });
                at = end + 2;
            }
            rest = &text[at..];
        }
        literal.push_str(rest);
        if !literal.is_empty() || parts.is_empty() {
            parts.push(TextSegment::Literal(literal));
        }
        Ok(InterpolatedText { parts })
    }

    /// Whether `text` needs no parsing at all: it holds no `${{`.
    pub fn is_literal(text: &str) -> bool {
        // The search for a character is far quicker than that for a text, and says no for nearly all.
        !text.contains('$') || !text.contains("${{")
    }

    /// The one expression that the text is, if it is nothing else.
    pub fn lone(&self) -> Option<&Expr> {
        match self.parts.as_slice() {
            [TextSegment::Expr { expr, .. }] => Some(expr),
            _ => None,
        }
    }

    /// The expressions, each with the byte offset of its source in the whole text.
    pub fn exprs(&self) -> impl Iterator<Item = (&Expr, usize)> {
        self.parts.iter().filter_map(|part| match part {
            TextSegment::Expr { expr, offset } => Some((expr, *offset)),
            TextSegment::Literal(_) => None,
        })
    }

    /// Evaluates. A list or a map among other text is an error, and so is a result of more
    /// than [`MAX_RESULT`] bytes. Offsets in errors are those of the whole text.
    pub fn eval(&self, scope: &dyn Scope) -> Result<Value, EvalError> {
        if let [TextSegment::Expr { expr, offset }] = self.parts.as_slice() {
            return expr.eval(scope).map_err(|error| error.shifted(*offset));
        }
        let mut out = String::new();
        // What is not observed hides no mistake that comes after it.
        let mut unobserved = None;
        for part in &self.parts {
            match part {
                TextSegment::Literal(text) => out.push_str(text),
                TextSegment::Expr { expr, offset } => {
                    let value = match expr.eval(scope) {
                        Ok(value) => value,
                        Err(error @ EvalError::Unobserved(_)) => {
                            unobserved.get_or_insert(error);
                            continue;
                        }
                        Err(error) => return Err(error.shifted(*offset)),
                    };
                    let failed =
                        |message| EvalError::Failed { message, offset: *offset, len: expr.source().len() };
                    append(&mut out, &value).map_err(failed)?;
                }
            }
        }
        unobserved.map_or(Ok(Value::Str(out)), Err)
    }
}

/// The offset of the `}}` that closes an expression: braces of map literals and braces in
/// strings do not count.
fn close(text: &str, start: usize) -> Result<usize, ParseError> {
    let unclosed = || ParseError {
        message: "`${{` is never closed".into(),
        offset: start - 3,
        len: 3,
        help: Some("close it with `}}`, or write `$${{` for a literal `${{`".into()),
    };
    let mut window = (start + MAX_SOURCE).min(text.len());
    while !text.is_char_boundary(window) {
        window -= 1;
    }
    let mut lexer = Lexer::at(&text[..window], start);
    let mut depth = 0usize;
    loop {
        let token = lexer.next()?;
        match token.tok {
            Tok::End => return Err(unclosed()),
            Tok::Open('{') => depth += 1,
            Tok::Close('}') if depth > 0 => depth -= 1,
            Tok::Close('}') if text[token.offset..].starts_with("}}") => {
                return Ok(token.offset);
            }
            _ => {}
        }
    }
}

fn too_large(text: &str) -> ParseError {
    ParseError {
        message: format!("a text with expressions may hold {MAX_TEXT} bytes and {MAX_EXPRS} expressions"),
        offset: 0,
        len: text.len().min(1),
        help: Some("use a template or a file of the module".into()),
    }
}
