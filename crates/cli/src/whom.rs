//! Whom a selector means, as verbs over many nodes ask for and show it.

use lang::Selector;
use lang::selector::SelectorError;
use server::api;
use server::api::work::{SELECT, Select, Selected};

use crate::failure::{Failure, UserError};
use crate::operator::{Operator, OperatorCallError};
use crate::screen::{Screen, ScreenError, plural};

/// The most names that are shown of a group of nodes.
pub const MAX_NAMES: usize = 3;

/// How nodes are named, where a name or pattern matches none.
pub const NAMING_HINT: &str = "`muster node list` shows all; `*` alone is every node, in a pattern it stops at a dot \
                               (`**` does not); quote a pattern";

/// Why a selector's nodes are not known.
#[derive(Debug, thiserror::Error)]
pub enum WhomError {
    /// It cannot be read.
    #[error("{selector:?} does not say which nodes")]
    Selector {
        /// As written.
        selector: String,
        /// Why not.
        #[source]
        source: SelectorError,
    },
    /// It means nobody.
    #[error("no enrolled node matches {0:?}")]
    Nobody(String),
    /// It means several, and one is wanted.
    #[error("{0:?} means more than one node")]
    NotOne(String),
}

impl UserError for WhomError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            WhomError::Selector { .. } => "`muster help selectors` shows how nodes are named".to_owned(),
            WhomError::NotOne(_) => "name one node by its hostname or id".to_owned(),
            WhomError::Nobody(_) => NAMING_HINT.to_owned(),
        })
    }
}

/// Reads a selector, so that a mistake is reported before any request.
///
/// # Errors
/// [`WhomError::Selector`].
pub fn check(selector: &str) -> Result<Selector, WhomError> {
    let wrong = |source| WhomError::Selector { selector: selector.to_owned(), source };
    Selector::parse(selector).map_err(wrong)
}

/// Asks whom a selector means: at least one node.
///
/// # Errors
/// When it cannot be read, means nobody, or the control plane cannot be asked.
pub async fn select(operator: &Operator, selector: &str) -> Result<Selected, Failure> {
    check(selector)?;
    let selected = operator.call(&SELECT, Select { selector: selector.to_owned() }).await?;
    if selected.count == 0 {
        return Err(WhomError::Nobody(selector.to_owned()).into());
    }
    Ok(selected)
}

/// Makes sure that a node which the command line names is there: an unknown one ends every verb with 1.
///
/// # Errors
/// When there is no such node, or the control plane cannot be asked.
pub async fn known_node(operator: &Operator, node: Option<&str>) -> Result<(), OperatorCallError> {
    if let Some(node) = node {
        operator.call(&api::NODE, node).await?;
    }
    Ok(())
}

/// Asks for a yes where more than one node is meant.
///
/// # Errors
/// When nobody says yes.
pub fn confirm(screen: Screen, selected: &Selected, what: &str, yes: bool) -> Result<(), ScreenError> {
    if selected.count <= 1 {
        return Ok(());
    }
    screen.confirm(&format!("{} {what}", phrase(selected)), yes)
}

/// The nodes in words: how many, the first of them, and what is to be known of them.
pub fn phrase(selected: &Selected) -> String {
    let Selected { count, first, unreachable, offline, .. } = selected;
    let mut notes = vec![some_of(first, *count)];
    notes.retain(|names| !names.is_empty());
    for (count, how) in [(unreachable, "unreachable"), (offline, "offline")] {
        if *count > 0 {
            notes.push(format!("{count} {how}"));
        }
    }
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
    format!("{}{notes}", nodes(*count))
}

/// `1 node`, `12 nodes`.
pub fn nodes(count: usize) -> String {
    plural(count, "node")
}

/// The first few names of so many, and how many more there are: `web-1, web-2 +10`.
pub fn some_of<N: ToString>(names: &[N], count: usize) -> String {
    let shown: Vec<String> = names.iter().take(MAX_NAMES).map(ToString::to_string).collect();
    let more = count.saturating_sub(shown.len());
    let all = shown.join(", ");
    if more == 0 || shown.is_empty() { all } else { format!("{all} +{more}") }
}

#[cfg(test)]
mod tests {
    use super::{Selected, check, phrase, some_of};

    #[test]
    fn many_nodes_are_told_by_count_and_first_names() {
        let names = ["a", "b", "c", "d"];
        assert_eq!(some_of(&names, 4), "a, b, c +1");
        assert_eq!(some_of(&names[..2], 2), "a, b");
        assert_eq!(some_of::<&str>(&[], 7), "");
        let selected = Selected {
            count: 812,
            first: vec!["web-1.test".parse().unwrap(), "web-2.test".parse().unwrap()],
            online: 0,
            promotable: 807,
            unreachable: 2,
            offline: 3,
        };
        let phrase = phrase(&selected);
        assert_eq!(phrase, "812 nodes (web-1.test, web-2.test +810; 2 unreachable; 3 offline)");
    }

    #[test]
    fn a_selector_is_read_before_anything_is_asked() {
        assert!(check("web-*,!web-2").is_ok());
        assert!(check("").is_err());
        assert!(check("!web-1").is_err());
    }
}
