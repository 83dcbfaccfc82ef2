//! [`Selector`]: which nodes an operator means (one grammar for every verb).
//!
//! Terms stand between commas:
//!
//! | term | means |
//! | --- | --- |
//! | `web-1`, `edge-*`, `/db[0-9]+/` | hostnames, as [`crate::pattern`] reads them; a node id too |
//! | `*` | every node (alone it passes dots too: nobody means a part of the fleet by it) |
//! | `@group` | the members of a declared group |
//! | `!TERM` | none of these |
//! | `label=value` | of these only nodes with this declared label |
//! | `where:EXPR` | of these only nodes for which this holds; takes the rest of the text |
//!
//! Names and groups add up, `!` takes away, `label=` and `where:` narrow. Without a name or
//! a group, narrowing starts from every node; nothing at all, or only what is taken away, is
//! an error: "all" is never implied.

mod unnamed;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::pattern::{Pattern, PatternError};
use crate::{EvalError, Expr, Names, ParseError, Value};

/// The longest selector, in bytes.
pub const MAX_SELECTOR: usize = 4 * 1024;
/// The most terms of one selector.
pub const MAX_TERMS: usize = 256;
/// What an expression begins with.
const WHERE: &str = "where:";

/// Which nodes are meant. Cheap to apply to many nodes; parse it once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    source: String,
    add: Vec<Term>,
    take: Vec<Term>,
    narrow: Vec<Narrow>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Every,
    Name(Pattern),
    Group(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Narrow {
    Label { name: String, value: String, not: bool },
    Where(Expr),
}

/// A part of a selector that what is declared of a node decides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeclaredTerm {
    /// It is in this group.
    Group(String),
    /// It has this label with this value.
    Label {
        /// The label's name.
        name: String,
        /// Its value as text.
        value: String,
    },
}

impl DeclaredTerm {
    /// A label with its value.
    pub fn label(name: &str, value: &str) -> DeclaredTerm {
        DeclaredTerm::Label { name: name.to_owned(), value: value.to_owned() }
    }
}

/// What is known of one node.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its hostname.
    pub hostname: &'a str,
    /// Its id.
    pub id: &'a str,
    /// Its traits as observed last: a map of groups.
    pub traits: Option<&'a Value>,
    /// What the fleet repo declares of it: a map with `groups`, a list of names, and
    /// `labels`, a map of texts; `None` where this is not known.
    pub declared: Option<&'a Value>,
}

/// Whether a node is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorMatch {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// It is not known of this node; why. It is not to be taken as meant.
    Unknown(String),
}

/// A selector that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// There is nothing in it.
    #[error("the selector is empty; `*` means every node")]
    Empty,
    /// Longer than [`MAX_SELECTOR`].
    #[error("the selector is longer than {MAX_SELECTOR} bytes")]
    TooLong,
    /// More than [`MAX_TERMS`].
    #[error("the selector has more than {MAX_TERMS} terms")]
    TooMany,
    /// Only `!` terms.
    #[error("the selector says only what is not meant; begin with `*,` to take it from every node")]
    OnlyTakesAway,
    /// A pattern of hostnames.
    #[error("{term:?} is no pattern of hostnames")]
    Name {
        /// The term.
        term: String,
        /// Why.
        #[source]
        source: PatternError,
    },
    /// A group's or a label's name.
    #[error("{term:?} names no {what}: a to z, 0 to 9, '-' and '_'")]
    BadName {
        /// The term.
        term: String,
        /// `group` or `label`.
        what: &'static str,
    },
    /// The text after `where:`.
    #[error("the expression after `where:` cannot be read")]
    Where(#[source] ParseError),
    /// `!where:`.
    #[error("`!` does not stand before `where:`; write `where:not (...)`")]
    NotWhere,
}

/// Whether a text is `*`: every node, wherever nodes are named. In a longer pattern `*` stops at a dot.
pub fn is_every(text: &str) -> bool {
    text.trim() == "*"
}

impl Selector {
    /// Reads a selector.
    ///
    /// # Errors
    /// [`SelectorError`].
    pub fn parse(source: &str) -> Result<Selector, SelectorError> {
        if source.len() > MAX_SELECTOR {
            return Err(SelectorError::TooLong);
        }
        let mut selector =
            Selector { source: source.trim().to_owned(), add: vec![], take: vec![], narrow: vec![] };
        let mut rest = source.trim();
        if rest.is_empty() {
            return Err(SelectorError::Empty);
        }
        let mut terms = 0;
        loop {
            terms += 1;
            if terms > MAX_TERMS {
                return Err(SelectorError::TooMany);
            }
            let (term, after) = split(rest);
            selector.term(term.trim())?;
            match after {
                Some(after) => rest = after.trim_start(),
                None => break,
            }
        }
        if selector.add.is_empty() {
            if selector.narrow.is_empty() {
                return Err(SelectorError::OnlyTakesAway);
            }
            selector.add.push(Term::Every);
        }
        Ok(selector)
    }

    fn term(&mut self, term: &str) -> Result<(), SelectorError> {
        let (not, bare) = match term.strip_prefix('!') {
            Some(bare) => (true, bare.trim_start()),
            None => (false, term),
        };
        if let Some(expression) = bare.strip_prefix(WHERE) {
            if not {
                return Err(SelectorError::NotWhere);
            }
            let expression = Expr::parse(expression.trim()).map_err(SelectorError::Where)?;
            self.narrow.push(Narrow::Where(expression));
            return Ok(());
        }
        let name = |text: &str, what| {
            let bad = || SelectorError::BadName { term: term.to_owned(), what };
            if is_name(text) { Ok(text.to_owned()) } else { Err(bad()) }
        };
        if !bare.starts_with('/')
            && let Some((label, value)) = bare.split_once('=')
        {
            let label = name(label.trim(), "label")?;
            self.narrow.push(Narrow::Label { name: label, value: value.trim().to_owned(), not });
            return Ok(());
        }
        let term = match bare.strip_prefix('@') {
            Some(group) => Term::Group(name(group, "group")?),
            None if is_every(bare) => Term::Every,
            None => {
                let wrong = |source| SelectorError::Name { term: term.to_owned(), source };
                Term::Name(Pattern::parse(bare).map_err(wrong)?)
            }
        };
        if not {
            self.take.push(term)
        } else {
            self.add.push(term)
        }
        Ok(())
    }

    /// Whether a node is meant. What one sure term decides, an unsure one does not matter to.
    pub fn judge(&self, subject: &Subject<'_>) -> SelectorMatch {
        let narrowed = self.narrow.iter().map(|narrow| narrow.judge(subject));
        let any = |terms: &[Term]| decide(terms.iter().map(|term| term.judge(subject)), SelectorMatch::Yes);
        let all = [any(&self.add), not(any(&self.take))].into_iter().chain(narrowed);
        decide(all, SelectorMatch::No)
    }

    /// It asks for traits.
    pub fn uses_traits(&self) -> bool {
        self.narrow.iter().any(|narrow| matches!(narrow, Narrow::Where(_)))
    }

    /// It asks for what the fleet repo declares: groups or labels.
    pub fn uses_declared(&self) -> bool {
        let group = |term: &Term| matches!(term, Term::Group(_));
        self.add.iter().chain(&self.take).any(group)
            || self.narrow.iter().any(|narrow| match narrow {
                Narrow::Label { .. } => true,
                Narrow::Where(expr) => {
                    let declared = |path: &[String]| path.first().is_some_and(|root| root == "labels");
                    expr.names().iter().any(|name| declared(&name.path))
                }
            })
    }

    /// The expressions after `where:`.
    pub fn expressions(&self) -> impl Iterator<Item = &Expr> {
        self.narrow.iter().filter_map(|narrow| match narrow {
            Narrow::Where(expression) => Some(expression),
            Narrow::Label { .. } => None,
        })
    }

    /// Groups and labels that it names outside expressions, each as often as it stands there.
    pub fn declared_terms(&self) -> Vec<DeclaredTerm> {
        let labels = self.narrow.iter().filter_map(|narrow| match narrow {
            Narrow::Label { name, value, .. } => Some(DeclaredTerm::label(name, value)),
            Narrow::Where(_) => None,
        });
        self.groups().map(|group| DeclaredTerm::Group(group.to_owned())).chain(labels).collect()
    }

    /// An expression of it asks for labels.
    pub fn evaluates_labels(&self) -> bool {
        let declared = |path: &[String]| path.first().is_some_and(|root| root == "labels");
        self.narrow.iter().any(|narrow| match narrow {
            Narrow::Where(expr) => expr.names().iter().any(|name| declared(&name.path)),
            Narrow::Label { .. } => false,
        })
    }

    /// Every node that it means has one of these declared; `None` when nothing of the kind is known.
    pub fn only_among(&self) -> Option<Vec<DeclaredTerm>> {
        let label = self.narrow.iter().find_map(|narrow| match narrow {
            Narrow::Label { name, value, not: false } => Some(DeclaredTerm::label(name, value)),
            Narrow::Label { .. } | Narrow::Where(_) => None,
        });
        let group = |term: &Term| match term {
            Term::Group(group) => Some(DeclaredTerm::Group(group.clone())),
            Term::Every | Term::Name(_) => None,
        };
        label.map(|label| vec![label]).or_else(|| self.add.iter().map(group).collect())
    }

    /// What the hostname of every node that it means begins with; empty where that is not known.
    pub fn prefix(&self) -> &str {
        match self.add.as_slice() {
            [Term::Name(pattern)] if !pattern.is_exact() => pattern.prefix(),
            _ => "",
        }
    }

    /// The groups that it names, each as often as it stands there.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.add.iter().chain(&self.take).filter_map(|term| match term {
            Term::Group(group) => Some(group.as_str()),
            Term::Every | Term::Name(_) => None,
        })
    }

    /// The one hostname or id that it consists of, if it does.
    pub fn exact(&self) -> Option<&str> {
        match (self.add.as_slice(), self.take.is_empty() && self.narrow.is_empty()) {
            ([Term::Name(pattern)], true) if pattern.is_exact() => Some(pattern.as_str()),
            _ => None,
        }
    }

    /// The text as written.
    pub fn as_str(&self) -> &str {
        &self.source
    }
}

/// The first term, and what follows its comma. A regular expression may hold commas, and an
/// expression takes all that is left.
fn split(rest: &str) -> (&str, Option<&str>) {
    let bare = rest.strip_prefix('!').unwrap_or(rest).trim_start();
    if bare.starts_with(WHERE) {
        return (rest, None);
    }
    let from = rest.len() - bare.len();
    let regex_end = || {
        let ends = |at: usize| at + 1 == bare.len() || bare[at + 1..].trim_start().starts_with(',');
        bare.match_indices('/').skip(1).map(|(at, _)| at).find(|at| ends(*at))
    };
    let search = if bare.starts_with('/') { regex_end().unwrap_or(0) } else { 0 };
    match bare[search..].find(',') {
        Some(comma) => (&rest[..from + search + comma], Some(&bare[search + comma + 1..])),
        None => (rest, None),
    }
}

fn is_name(text: &str) -> bool {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    !text.is_empty() && text.chars().all(good)
}

impl Term {
    fn judge(&self, subject: &Subject<'_>) -> SelectorMatch {
        match self {
            Term::Every => SelectorMatch::Yes,
            Term::Name(pattern) => {
                match_of(pattern.matches(subject.hostname) || pattern.as_str() == subject.id)
            }
            Term::Group(group) => match declared(subject, "groups") {
                Ok(Some(Value::List(groups))) => {
                    match_of(groups.iter().any(|name| name.as_str() == Some(group.as_str())))
                }
                Ok(_) => SelectorMatch::No,
                Err(unknown) => unknown,
            },
        }
    }
}

impl Narrow {
    fn judge(&self, subject: &Subject<'_>) -> SelectorMatch {
        match self {
            Narrow::Label { name, value, not } => match declared(subject, "labels") {
                Ok(labels) => {
                    let has = labels.and_then(|labels| labels.path(name)).map(ToString::to_string);
                    match_of((has.as_deref() == Some(value.as_str())) != *not)
                }
                Err(unknown) => unknown,
            },
            Narrow::Where(expression) => holds(expression, subject),
        }
    }
}

/// What is declared under a name; an error where nothing declared is known at all.
fn declared<'a>(subject: &Subject<'a>, name: &str) -> Result<Option<&'a Value>, SelectorMatch> {
    match subject.declared {
        Some(declared) => Ok(declared.path(name)),
        None => Err(SelectorMatch::Unknown(format!(
            "which {name} it has is not known here: they are declared in the fleet repo"
        ))),
    }
}

fn holds(expression: &Expr, subject: &Subject<'_>) -> SelectorMatch {
    let mut names = Names::new().with("hostname", Value::from(subject.hostname));
    if let Some(traits) = subject.traits {
        names = names.with_ref("traits", traits);
    }
    if let Some(labels) = subject.declared.and_then(|declared| declared.path("labels")) {
        names = names.with_ref("labels", labels);
    }
    match expression.eval_bool(&names) {
        Ok(holds) => match_of(holds),
        Err(EvalError::Failed { message, .. }) if subject.traits.is_none() => {
            SelectorMatch::Unknown(format!("it has reported no traits yet ({message})"))
        }
        Err(error) => SelectorMatch::Unknown(error.to_string()),
    }
}

fn match_of(yes: bool) -> SelectorMatch {
    if yes { SelectorMatch::Yes } else { SelectorMatch::No }
}

fn not(one: SelectorMatch) -> SelectorMatch {
    match one {
        SelectorMatch::Yes => SelectorMatch::No,
        SelectorMatch::No => SelectorMatch::Yes,
        unknown => unknown,
    }
}

/// What the decisive match decides; else what is not known, or the other match.
fn decide(all: impl Iterator<Item = SelectorMatch>, decisive: SelectorMatch) -> SelectorMatch {
    let mut found = not(decisive.clone());
    for one in all {
        if one == decisive {
            return one;
        }
        if matches!(one, SelectorMatch::Unknown(_)) {
            found = one;
        }
    }
    found
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

impl Serialize for Selector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.source)
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Selector, D::Error> {
        let source = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Selector::parse(&source).map_err(serde::de::Error::custom)
    }
}
