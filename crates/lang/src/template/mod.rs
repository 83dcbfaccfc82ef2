//! [`Template`]: a file's body with Jinja's marks in it.
//!
//! `{{ expression }}` prints, `{% if %} {% elif %} {% else %} {% endif %}`,
//! `{% for x in list %}` (and `for key, value in map`, `if` to choose, `else` for an empty
//! one; `loop.index`, `loop.index0`, `loop.first`, `loop.last`, `loop.length` inside),
//! `{% set x = expression %}`, `{% raw %} {% endraw %}`, `{# comment #}`. A `-` inside a
//! mark eats the white space on its side; a `{% %}` or `{# #}` alone on its line leaves no
//! line behind. A final newline is kept.
//!
//! The expressions are those of [`crate::expr`], evaluated by the same code: what a
//! comparison or a filter means in `when:` it means here. That, and a bound on every value
//! made on the way (a text doubled forty times is a terabyte after forty cheap steps), is
//! why this is no general template engine. A template stands alone: there is no include,
//! import, inheritance or macro.

mod parse;
mod render;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::expr::{ExprNode, NameUse, ParseError};
use crate::{Scope, SecretUse};

/// The longest template, in bytes.
pub const MAX_TEMPLATE: usize = 256 * 1024;
/// The longest output, in bytes.
pub const MAX_OUTPUT: usize = 1024 * 1024;
/// The most steps that one rendering takes.
pub const MAX_FUEL: u64 = 1_000_000;
/// The most bytes of values that one rendering makes on its way.
pub const MAX_BYTES: usize = 64 * 1024 * 1024;
/// The deepest nesting of blocks.
pub const MAX_NESTING: usize = 32;

/// A parsed template. Cheap to clone.
#[derive(Clone)]
pub struct Template {
    inner: Arc<ParsedTemplate>,
}

struct ParsedTemplate {
    name: String,
    source: String,
    body: Vec<TemplateItem>,
}

/// A template that does not parse, or does not render with these values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{template}:{line}:{column}: {message}")]
pub struct TemplateError {
    /// The template's name.
    pub template: String,
    /// What is wrong; one sentence without a final stop.
    pub message: String,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// How many characters are meant; at least 1.
    pub len: u32,
    /// What to write instead.
    pub help: Option<String>,
}

/// A rendering that gave no text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateRenderError {
    /// The template is wrong for these values.
    #[error(transparent)]
    Failed(#[from] TemplateError),
    /// It is right as far as it can be rendered, and depends on this observed trait.
    #[error("it depends on `{0}`, which only the node observes")]
    Unobserved(String),
}

/// A dotted name that a template uses and does not set itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateName {
    /// Its parts: `["params", "port"]`.
    pub path: Vec<String>,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Length in characters.
    pub len: u32,
    /// It stands before `default` or `is defined`, so it need not exist.
    pub guarded: bool,
}

enum TemplateItem {
    Text(String),
    Print(ExprNode),
    If { branches: Vec<(ExprNode, Vec<TemplateItem>)>, otherwise: Vec<TemplateItem> },
    For(Box<Loop>),
    Set { name: String, value: ExprNode },
}

struct Loop {
    targets: Vec<String>,
    over: ExprNode,
    only_if: Option<ExprNode>,
    body: Vec<TemplateItem>,
    otherwise: Vec<TemplateItem>,
}

impl Template {
    /// Parses a template of at most [`MAX_TEMPLATE`] bytes. `name` is for messages.
    pub fn parse(name: &str, source: &str) -> Result<Template, TemplateError> {
        let body = parse::parse(source).map_err(|mistake| at(mistake, name, source))?;
        Ok(Template {
            inner: Arc::new(ParsedTemplate { name: name.to_owned(), source: source.to_owned(), body }),
        })
    }

    /// Renders with these names, within [`MAX_FUEL`], [`MAX_BYTES`] and [`MAX_OUTPUT`]. What nobody has
    /// observed yet is passed over, each branch that it chooses between rendered once, so that it hides no
    /// mistake.
    ///
    /// # Errors
    /// The first mistake; else the first trait that is not observed.
    pub fn render(&self, scope: &dyn Scope) -> Result<String, TemplateRenderError> {
        let inner = &*self.inner;
        render::render(&inner.body, inner.source.len(), scope).map_err(|error| match error {
            render::RenderStop::Mistake(mistake) => at(mistake, &inner.name, &inner.source).into(),
            render::RenderStop::Unobserved(observed) => TemplateRenderError::Unobserved(observed),
        })
    }

    /// The dotted names used, those that the template sets itself excepted.
    pub fn names(&self) -> BTreeSet<String> {
        self.uses().into_iter().map(|name| name.path.join(".")).collect()
    }

    /// The secrets that it uses, in the order of the source.
    pub fn secrets(&self) -> Vec<SecretUse> {
        let mut found = Vec::new();
        each_expr(&self.inner.body, &mut |node| crate::expr::collect_secrets(node, &mut found));
        found
    }

    /// The same with positions, in the order of the source.
    pub fn uses(&self) -> Vec<TemplateName> {
        let mut found = Vec::new();
        uses(&self.inner.body, &mut Vec::new(), &mut found);
        let located = |name: NameUse| {
            let (line, column, len) = line_and_column(&self.inner.source, name.offset, name.len);
            TemplateName { path: name.path, line, column, len, guarded: name.guarded }
        };
        found.into_iter().map(located).collect()
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Template({:?})", self.inner.name)
    }
}

fn uses(items: &[TemplateItem], locals: &mut Vec<String>, found: &mut Vec<NameUse>) {
    for item in items {
        match item {
            TemplateItem::Text(_) => {}
            TemplateItem::Print(piece) => uses_of(piece, locals, found),
            TemplateItem::Set { name, value } => {
                uses_of(value, locals, found);
                locals.push(name.clone());
            }
            TemplateItem::If { branches, otherwise } => {
                for (condition, body) in branches {
                    uses_of(condition, locals, found);
                    uses(body, locals, found);
                }
                uses(otherwise, locals, found);
            }
            TemplateItem::For(each) => {
                uses_of(&each.over, locals, found);
                let mark = locals.len();
                locals.extend(each.targets.iter().cloned());
                if let Some(only_if) = &each.only_if {
                    uses_of(only_if, locals, found);
                }
                locals.push(render::LOOP.to_owned());
                uses(&each.body, locals, found);
                locals.truncate(mark);
                uses(&each.otherwise, locals, found);
                locals.truncate(mark);
            }
        }
    }
}

/// Every expression of a body.
fn each_expr(items: &[TemplateItem], look: &mut dyn FnMut(&ExprNode)) {
    for item in items {
        match item {
            TemplateItem::Text(_) => {}
            TemplateItem::Print(piece) | TemplateItem::Set { value: piece, .. } => look(piece),
            TemplateItem::If { branches, otherwise } => {
                for (condition, body) in branches {
                    look(condition);
                    each_expr(body, look);
                }
                each_expr(otherwise, look);
            }
            TemplateItem::For(each) => {
                look(&each.over);
                each.only_if.iter().for_each(&mut *look);
                each_expr(&each.body, look);
                each_expr(&each.otherwise, look);
            }
        }
    }
}

fn uses_of(node: &ExprNode, locals: &[String], found: &mut Vec<NameUse>) {
    let mut names = Vec::new();
    crate::expr::collect_names(node, false, &mut names);
    found.extend(
        names.into_iter().filter(|name| name.path.first().is_some_and(|root| !locals.contains(root))),
    );
}

/// A mistake in terms of lines.
fn at(error: ParseError, name: &str, source: &str) -> TemplateError {
    let (line, column, len) = line_and_column(source, error.offset, error.len);
    TemplateError { template: name.to_owned(), message: error.message, line, column, len, help: error.help }
}

/// Line, column and length of a range, in characters; the length stays on the line.
fn line_and_column(source: &str, offset: usize, len: usize) -> (u32, u32, u32) {
    let before = source.get(..offset).unwrap_or(source);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let meant = source.get(offset..offset + len).and_then(|text| text.lines().next()).unwrap_or("");
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    (
        count(before.matches('\n').count() + 1),
        count(before[line_start..].chars().count() + 1),
        count(meant.chars().count().max(1)),
    )
}
