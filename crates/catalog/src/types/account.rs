//! What names of users and groups may look like, for the types that take them.

use crate::schema::AttributeProblem;

/// The longest name of a user or a group, in bytes: what the tools of the shadow suite take.
const MAX_NAME: usize = 32;

/// Whether the tools of the shadow suite take the name for a user or a group.
pub(super) fn is_account_name(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let other = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let stem = name.strip_suffix('$').unwrap_or(name);
    name.len() <= MAX_NAME && stem.starts_with(first) && stem.chars().all(other)
}

/// What is wrong with the name of a user or a group.
pub(super) fn account_name_problem(attribute: &str, name: &str) -> Option<AttributeProblem> {
    let help = "a letter or _, then letters, digits, _, - and ., at most 32";
    let message = || format!("`{name}` cannot be the name of a user or a group");
    (!is_account_name(name)).then(|| AttributeProblem::value(attribute, message(), help))
}

/// What is wrong with a list of names; the first is blamed.
pub(super) fn group_names_problem<'a>(
    attribute: &str,
    names: impl Iterator<Item = &'a str>,
) -> Option<AttributeProblem> {
    names.into_iter().find_map(|name| account_name_problem(attribute, name))
}
