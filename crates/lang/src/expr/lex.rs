//! Tokens of an expression.

use super::error::ParseError;
use crate::value::MAX_INT;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tok {
    Name(String),
    Int(i64),
    Str(String),
    /// An operator or separator, longest match first.
    Sign(&'static str),
    Open(char),
    Close(char),
    End,
}

#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) tok: Tok,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

/// Longer ones first: `==` is not two `=`.
const SIGNS: [&str; 20] = [
    "==", "!=", "<=", ">=", "//", "**", "&&", "||", "<", ">", "+", "-", "*", "/", "%", "~", "|", ",", ":",
    "=",
];

/// Reads tokens one by one, so that a reader of surrounding text can stop at its own end.
pub(crate) struct Lexer<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(source: &'a str) -> Lexer<'a> {
        Lexer::at(source, 0)
    }

    /// From an offset of a longer text on: offsets are those of the whole text.
    pub(crate) fn at(source: &'a str, at: usize) -> Lexer<'a> {
        Lexer { source, at }
    }

    /// The next token; [`Tok::End`] at the end, and again after it.
    pub(crate) fn next(&mut self) -> Result<Token, ParseError> {
        let rest = &self.source[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        let (start, rest) = (self.at, &self.source[self.at..]);
        let Some(first) = rest.chars().next() else {
            return Ok(Token { tok: Tok::End, offset: start, len: 0 });
        };
        let tok = match first {
            'a'..='z' | 'A'..='Z' | '_' => self.name(),
            '0'..='9' => self.number()?,
            '"' | '\'' => self.string(first)?,
            '(' | '[' | '{' => self.one(Tok::Open(first)),
            ')' | ']' | '}' => self.one(Tok::Close(first)),
            '.' => self.one(Tok::Sign(".")),
            _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => {
                    self.at += sign.len();
                    Tok::Sign(sign)
                }
                None => {
                    return Err(ParseError::new(
                        format!("`{first}` has no meaning here"),
                        start,
                        first.len_utf8(),
                    ));
                }
            },
        };
        Ok(Token { tok, offset: start, len: self.at - start })
    }

    fn one(&mut self, tok: Tok) -> Tok {
        self.at += 1;
        tok
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = &self.source[self.at..];
        let len = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    fn name(&mut self) -> Tok {
        Tok::Name(self.take_while(|c| c.is_ascii_alphanumeric() || c == '_').to_owned())
    }

    fn number(&mut self) -> Result<Tok, ParseError> {
        let start = self.at;
        let digits = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        let rest = &self.source[self.at..];
        let fraction =
            rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if fraction {
            self.take_while(|c| c.is_ascii_digit() || c == '.');
            let text = &self.source[start..self.at];
            let mut error = ParseError::new("numbers are whole numbers", start, text.len());
            error.help = Some(format!("write \"{text}\", or version(\"{text}\") to compare versions"));
            return Err(error);
        }
        match digits.parse::<i64>() {
            Ok(number) if number <= MAX_INT => Ok(Tok::Int(number)),
            Ok(_) => Err(ParseError::new(format!("a number may be at most {MAX_INT}"), start, digits.len())),
            Err(_) => Err(ParseError::new(
                format!("`{digits}` is neither a number nor a name"),
                start,
                digits.len(),
            )),
        }
    }

    fn string(&mut self, quote: char) -> Result<Tok, ParseError> {
        let start = self.at;
        let mut text = String::new();
        let mut chars = self.source[start + 1..].char_indices();
        while let Some((at, c)) = chars.next() {
            if c == quote {
                self.at = start + 1 + at + 1;
                return Ok(Tok::Str(text));
            }
            if c != '\\' {
                text.push(c);
                continue;
            }
            let position = start + 1 + at;
            match chars.next().map(|(_, escaped)| escaped) {
                Some('n') => text.push('\n'),
                Some('r') => text.push('\r'),
                Some('t') => text.push('\t'),
                Some(same @ ('\\' | '"' | '\'')) => text.push(same),
                Some(other) => {
                    let mut error =
                        ParseError::new(format!("`\\{other}` is no escape"), position, 1 + other.len_utf8());
                    error.help = Some("there are \\n \\r \\t \\\\ \\\" and \\'".into());
                    return Err(error);
                }
                None => break,
            }
        }
        Err(ParseError::new("the text is never closed", start, 1))
    }
}
