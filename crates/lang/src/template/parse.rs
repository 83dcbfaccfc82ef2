//! From a template's text to its items.

use super::{Loop, MAX_NESTING, MAX_TEMPLATE, TemplateItem};
use crate::expr::{ExprNode, KEYWORDS, Lexer, MAX_SOURCE, ParseError, Parser, Tok, Token, parse_tokens};
use crate::nearest::hint;

const TAGS: [&str; 9] = ["if", "elif", "else", "endif", "for", "endfor", "set", "raw", "endraw"];
/// Tags of Jinja that do not exist here.
const ABSENT: [&str; 8] = ["include", "import", "from", "extends", "block", "macro", "call", "filter"];

pub(super) fn parse(source: &str) -> Result<Vec<TemplateItem>, ParseError> {
    if source.len() > MAX_TEMPLATE {
        return Err(ParseError::new(format!("the template is longer than {MAX_TEMPLATE} bytes"), 0, 1));
    }
    let mut builder = TemplateBuilder { body: Vec::new(), open: Vec::new() };
    let mut scanner = Scanner { source, at: 0, eat: false };
    while let Some(found) = scanner.next_mark() {
        let text = scanner.text_before(found);
        match found.kind {
            '#' => {
                let end = source[found.at..].find("#}").map(|end| found.at + end + 2);
                let end = end.ok_or_else(|| unclosed("{#", "#}", found.at))?;
                let (before, after) = (trim(source, found.at + 2, '-'), source[..end - 2].ends_with('-'));
                builder.text(
                    &scanner.step(text, TagExtent { start: found.at, end, before, after, alone: true }),
                );
            }
            kind => {
                let (tokens, mark) = scanner.read_mark(found.at, kind)?;
                let raw = kind == '%' && is_word(&tokens, "raw");
                builder.text(&scanner.step(text, mark));
                match kind {
                    '{' => builder.print(tokens)?,
                    _ if raw => builder.text(&scanner.raw(found.at)?),
                    _ => builder.tag(tokens)?,
                }
            }
        }
    }
    let rest = scanner.text_before(FoundTag { at: source.len(), kind: '#' });
    builder.text(&rest);
    builder.finish()
}

/// Where a mark begins, and the character after its `{`.
#[derive(Clone, Copy)]
struct FoundTag {
    at: usize,
    kind: char,
}

/// The extent of a mark and what white space it eats.
struct TagExtent {
    start: usize,
    end: usize,
    before: bool,
    after: bool,
    /// It prints nothing, so that a line with nothing else leaves nothing behind.
    alone: bool,
}

struct Scanner<'a> {
    source: &'a str,
    at: usize,
    /// White space at `at` is eaten.
    eat: bool,
}

impl<'a> Scanner<'a> {
    fn next_mark(&self) -> Option<FoundTag> {
        let mut at = self.at;
        loop {
            at += self.source.get(at..)?.find('{')?;
            match self.source[at + 1..].chars().next() {
                Some(kind @ ('{' | '%' | '#')) => return Some(FoundTag { at, kind }),
                _ => at += 1,
            }
        }
    }

    fn text_before(&self, found: FoundTag) -> String {
        let text = &self.source[self.at..found.at];
        let text = if self.eat { text.trim_start() } else { text };
        text.to_owned()
    }

    /// Steps over a mark; returns the text before it with what the mark eats taken off.
    fn step(&mut self, mut text: String, mark: TagExtent) -> String {
        (self.at, self.eat) = (mark.end, mark.after);
        if mark.before {
            text.truncate(text.trim_end().len());
        }
        let line_start = self.source[..mark.start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = self.source[mark.end..].find('\n').map_or(self.source.len(), |at| mark.end + at + 1);
        let (left, right) = (&self.source[line_start..mark.start], &self.source[mark.end..line_end]);
        if mark.alone && left.trim().is_empty() && right.trim().is_empty() {
            text.truncate(text.trim_end_matches([' ', '\t']).len());
            self.at = line_end;
        }
        text
    }

    /// The tokens of a `{{ }}` or `{% %}` and its extent.
    fn read_mark(&self, start: usize, kind: char) -> Result<(Vec<Token>, TagExtent), ParseError> {
        let before = trim(self.source, start + 2, '-');
        let base = start + 2 + usize::from(before);
        let (opening, closing) = if kind == '{' { ("{{", "}}") } else { ("{%", "%}") };
        let mut lexer = Lexer::at(self.source, base);
        let (mut tokens, mut depth) = (Vec::<Token>::new(), 0usize);
        loop {
            let mut token = lexer.next()?;
            if token.tok == Tok::End || token.offset - base > MAX_SOURCE {
                return Err(unclosed(opening, closing, start));
            }
            if depth == 0 && self.source[token.offset..].starts_with(closing) {
                let end = token.offset + 2;
                let after = tokens
                    .last()
                    .is_some_and(|last| last.tok == Tok::Sign("-") && last.offset + last.len == token.offset);
                if after {
                    tokens.pop();
                }
                (token.tok, token.len) = (Tok::End, 0);
                tokens.push(token);
                return Ok((tokens, TagExtent { start, end, before, after, alone: kind == '%' }));
            }
            match token.tok {
                Tok::Open('{') => depth += 1,
                Tok::Close('}') => depth = depth.saturating_sub(1),
                _ => {}
            }
            tokens.push(token);
        }
    }

    /// The text up to `{% endraw %}`, as it is.
    fn raw(&mut self, start: usize) -> Result<String, ParseError> {
        let from = self.at;
        while let Some(found) = self.next_mark() {
            if found.kind == '%'
                && let Ok((tokens, mark)) = self.read_mark(found.at, '%')
                && is_word(&tokens, "endraw")
            {
                let mut text = self.source[from..found.at].to_owned();
                if self.eat {
                    text = text.trim_start().to_owned();
                }
                return Ok(self.step(text, mark));
            }
            self.at = found.at + 1;
        }
        Err(ParseError::new("`{% raw %}` is never closed with `{% endraw %}`", start, 2))
    }
}

/// A block that waits for its end.
struct Open {
    block: Block,
    at: usize,
    /// The items before the block.
    outer: Vec<TemplateItem>,
}

enum Block {
    If { done: Vec<(ExprNode, Vec<TemplateItem>)>, condition: Option<ExprNode> },
    For { each: Box<Loop>, otherwise: bool },
}

struct TemplateBuilder {
    body: Vec<TemplateItem>,
    open: Vec<Open>,
}

impl TemplateBuilder {
    fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.body.push(TemplateItem::Text(text.to_owned()));
        }
    }

    fn print(&mut self, tokens: Vec<Token>) -> Result<(), ParseError> {
        self.body.push(TemplateItem::Print(parse_tokens(tokens)?));
        Ok(())
    }

    fn tag(&mut self, mut tokens: Vec<Token>) -> Result<(), ParseError> {
        let first = tokens.remove(0);
        let at = first.offset;
        let Tok::Name(tag) = &first.tok else {
            return Err(ParseError::new("a tag begins with a word such as `if`", at, first.len.max(1)));
        };
        let mut parser = Parser::new(tokens);
        match tag.as_str() {
            "if" => {
                let condition = Some(whole(&mut parser)?);
                self.begin(Block::If { done: Vec::new(), condition }, at)
            }
            "elif" => {
                let condition = whole(&mut parser)?;
                self.branch(Some(condition), at)
            }
            "for" => {
                let each = Box::new(for_head(&mut parser)?);
                self.begin(Block::For { each, otherwise: false }, at)
            }
            "set" => {
                let name = local_name(&mut parser)?;
                parser.expect(&Tok::Sign("="), "`=`")?;
                let value = whole(&mut parser)?;
                self.body.push(TemplateItem::Set { name, value });
                Ok(())
            }
            "else" | "endif" | "endfor" => {
                parser.finish()?;
                match tag.as_str() {
                    "else" => self.branch(None, at),
                    tag => self.end(tag, at),
                }
            }
            other => Err(unknown_tag(other, at)),
        }
    }

    fn begin(&mut self, block: Block, at: usize) -> Result<(), ParseError> {
        if self.open.len() >= MAX_NESTING {
            return Err(ParseError::new(format!("blocks are nested more than {MAX_NESTING} deep"), at, 1));
        }
        self.open.push(Open { block, at, outer: std::mem::take(&mut self.body) });
        Ok(())
    }

    /// `elif` with a condition, `else` without one.
    fn branch(&mut self, next: Option<ExprNode>, at: usize) -> Result<(), ParseError> {
        let word = if next.is_some() { "elif" } else { "else" };
        match self.open.last_mut().map(|open| &mut open.block) {
            Some(Block::If { done, condition }) if condition.is_some() => {
                let body = std::mem::take(&mut self.body);
                done.extend(condition.take().map(|condition| (condition, body)));
                *condition = next;
                Ok(())
            }
            Some(Block::For { each, otherwise }) if next.is_none() && !*otherwise => {
                each.body = std::mem::take(&mut self.body);
                *otherwise = true;
                Ok(())
            }
            _ => Err(ParseError::new(format!("`{word}` has no block to belong to"), at, word.len())),
        }
    }

    fn end(&mut self, tag: &str, at: usize) -> Result<(), ParseError> {
        let fits = match self.open.last().map(|open| &open.block) {
            Some(Block::If { .. }) => tag == "endif",
            Some(Block::For { .. }) => tag == "endfor",
            None => false,
        };
        let Some(open) = self.open.pop().filter(|_| fits) else {
            return Err(ParseError::new(
                format!("`{tag}` does not close the block that is open here"),
                at,
                tag.len(),
            ));
        };
        let last = std::mem::replace(&mut self.body, open.outer);
        let item = match open.block {
            Block::If { mut done, condition: Some(condition) } => {
                done.push((condition, last));
                TemplateItem::If { branches: done, otherwise: Vec::new() }
            }
            Block::If { done, condition: None } => TemplateItem::If { branches: done, otherwise: last },
            Block::For { mut each, otherwise } => {
                *(if otherwise { &mut each.otherwise } else { &mut each.body }) = last;
                TemplateItem::For(each)
            }
        };
        self.body.push(item);
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<TemplateItem>, ParseError> {
        match self.open.pop() {
            None => Ok(self.body),
            Some(open) => {
                let (word, end) = match open.block {
                    Block::If { .. } => ("if", "endif"),
                    Block::For { .. } => ("for", "endfor"),
                };
                Err(ParseError::new(
                    format!("`{word}` is never closed with `{{% {end} %}}`"),
                    open.at,
                    word.len(),
                ))
            }
        }
    }
}

/// `x in list`, `key, value in map`, with or without a following `if`.
fn for_head(parser: &mut Parser) -> Result<Loop, ParseError> {
    let mut targets = vec![local_name(parser)?];
    while parser.take(&Tok::Sign(",")) {
        targets.push(local_name(parser)?);
    }
    if !parser.take_word("in") {
        return Err(parser.unexpected("`in`", Some("write `for x in list`")));
    }
    let over = parser.condition()?;
    let only_if = if parser.take_word("if") { Some(parser.condition()?) } else { None };
    parser.finish()?;
    Ok(Loop { targets, over, only_if, body: Vec::new(), otherwise: Vec::new() })
}

fn local_name(parser: &mut Parser) -> Result<String, ParseError> {
    match parser.peek().tok.clone() {
        Tok::Name(name) if !KEYWORDS.contains(&name.as_str()) && name != "changed" => {
            parser.next();
            Ok(name)
        }
        _ => Err(parser.unexpected("a name", None)),
    }
}

/// An expression and nothing after it.
fn whole(parser: &mut Parser) -> Result<ExprNode, ParseError> {
    let node = parser.expression()?;
    parser.finish()?;
    Ok(node)
}

fn is_word(tokens: &[Token], word: &str) -> bool {
    matches!(tokens, [Token { tok: Tok::Name(name), .. }, Token { tok: Tok::End, .. }] if name == word)
}

fn trim(source: &str, at: usize, sign: char) -> bool {
    source[at..].starts_with(sign)
}

fn unknown_tag(tag: &str, at: usize) -> ParseError {
    if ABSENT.contains(&tag) {
        let mut mistake =
            ParseError::new(format!("there is no `{tag}`: a template stands alone"), at, tag.len());
        mistake.help = Some("use if, for and set; put shared values into vars".into());
        return mistake;
    }
    let mut mistake = ParseError::new(format!("unknown tag `{tag}`{}", hint(tag, TAGS)), at, tag.len());
    mistake.help = Some(format!("there are: {}", TAGS.join(", ")));
    mistake
}

fn unclosed(opening: &str, closing: &str, at: usize) -> ParseError {
    let mut mistake = ParseError::new(format!("`{opening}` is never closed with `{closing}`"), at, 2);
    mistake.help = Some("text that is meant as it is stands between {% raw %} and {% endraw %}".into());
    mistake
}
