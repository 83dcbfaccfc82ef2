//! Commands as people write and read them, and what a delegation allows, item by item.

use std::collections::BTreeMap;

use model::Fields;
use model::collect::CollectInserting;
use model::work::{Delegation, QuerySpec};

use super::name_of;
use crate::duration;

/// A command's text cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// A quote that nothing ends.
    #[error("the quote {0} is not closed")]
    Open(char),
    /// There is no word.
    #[error("the command is empty")]
    Empty,
}

/// A command's text as a list: split at white space, where `'...'` and `"..."` hold together.
/// Nothing else has a meaning: no backslash, no variable, no shell.
///
/// # Errors
/// When a quote is left open, or there is no word.
pub fn split(text: &str) -> Result<Vec<String>, SplitError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c.is_whitespace() => words.extend(word.take()),
            None if matches!(c, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None => word.get_or_insert_default().push(c),
        }
    }
    if let Some(open) = quote {
        return Err(SplitError::Open(open));
    }
    words.extend(word);
    if words.is_empty() { Err(SplitError::Empty) } else { Ok(words) }
}

/// A command as [`split`] reads it.
pub fn show(command: &[String]) -> String {
    let word = |word: &String| {
        let bare = !word.is_empty() && !word.chars().any(|c| c.is_whitespace() || matches!(c, '\'' | '"'));
        match (bare, word.contains('\'')) {
            (true, _) => word.clone(),
            (false, false) => format!("'{word}'"),
            (false, true) => {
                word.split('\'').map(|part| format!("'{part}'")).collect::<Vec<_>>().join("\"'\"")
            }
        }
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// What a delegation allows, item by item, in words: `run /usr/bin/uptime`, `read /etc/*`.
/// Two that read alike allow the same.
pub fn permits(delegation: &Delegation) -> BTreeMap<String, Fields> {
    let limit = |own: Option<u64>| {
        let secs = [own, delegation.timeout_secs].into_iter().flatten().min();
        let secs = secs.map(|secs| u32::try_from(secs).unwrap_or(u32::MAX));
        secs.map(|secs| ("timeout".to_owned(), duration::show(secs)))
    };
    let mut items = BTreeMap::new();
    for command in &delegation.commands {
        items.insert(format!("run {}", show(command)), limit(None).into_iter().collect_inserting());
    }
    for (name, action) in &delegation.actions {
        let mut fields: Fields = limit(action.timeout_secs).into_iter().collect_inserting();
        fields.insert("command".to_owned(), show(&action.command));
        let args = action.args.iter();
        fields.extend(args.map(|(argument, pattern)| (format!("{{{argument}}}"), pattern.clone())));
        items.insert(format!("action {name}"), fields);
    }
    for query in &delegation.queries {
        let fields: Fields = limit(None).into_iter().collect_inserting();
        match query {
            QuerySpec::File { paths } => {
                items.extend(paths.iter().map(|path| (format!("read {path}"), fields.clone())));
            }
            other => drop(items.insert(format!("ask for {}", name_of(other)), fields)),
        }
    }
    items
}
