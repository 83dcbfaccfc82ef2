//! The traits that a node observes of itself: one table, `traits.txt`, for `check`, the collectors
//! and the reference.

use std::sync::LazyLock;

/// One observed trait: `traits.GROUP.NAME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trait {
    /// The collector that observes it. One that fails leaves its whole group undefined; one that
    /// succeeds gives every trait of its group.
    pub group: &'static str,
    /// The part after the group.
    pub name: &'static str,
    /// `string`, `int`, `bool` or `list`.
    pub kind: &'static str,
    /// What it says, with its unit.
    pub summary: &'static str,
}

/// Every trait, by the collector that observes it: a line each of group, name, kind and summary.
pub static TRAITS: LazyLock<Vec<Trait>> = LazyLock::new(|| {
    let read = |line: &'static str| {
        let mut words = line.splitn(4, ' ');
        let (group, name, kind) = (words.next()?, words.next()?, words.next()?);
        Some(Trait { group, name, kind, summary: words.next()? })
    };
    include_str!("traits.txt").lines().filter_map(read).collect()
});

/// What of a dotted path below `traits` is not a trait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// No collector of this name.
    Group,
    /// The collector has no trait of this name.
    Name,
    /// The trait is no map: nothing lies below it.
    Below,
}

/// The group of facts that an administrator adds on the host: which there are is not known here.
pub const EXTERNAL: &str = "external";

/// Looks the parts after `traits` up; a group alone is known.
///
/// # Errors
/// Which part is unknown.
pub fn lookup<S: AsRef<str>>(path: &[S]) -> Result<(), Unknown> {
    let Some(group) = path.first().filter(|group| group.as_ref() != EXTERNAL) else { return Ok(()) };
    if !groups().any(|name| name == group.as_ref()) {
        return Err(Unknown::Group);
    }
    let Some(name) = path.get(1) else { return Ok(()) };
    let is_it = |one: &&Trait| one.group == group.as_ref() && one.name == name.as_ref();
    let found = TRAITS.iter().find(is_it).ok_or(Unknown::Name)?;
    // A list's element is reached by its number.
    let deeper = path.len() > 2 && !(found.kind == "list" && path.len() == 3);
    if deeper { Err(Unknown::Below) } else { Ok(()) }
}

/// The names of the groups.
pub fn groups() -> impl Iterator<Item = &'static str> {
    TRAITS.chunk_by(|a, b| a.group == b.group).filter_map(|group| Some(group.first()?.group))
}

/// The names in one group; none for an unknown one.
pub fn members(group: &str) -> impl Iterator<Item = &'static str> {
    TRAITS.iter().filter(move |one| one.group == group).map(|one| one.name)
}

#[cfg(test)]
mod tests {
    use super::{Unknown, lookup};

    #[test]
    fn names_the_part_that_is_unknown() {
        assert_eq!(lookup(&["os", "family"]), Ok(()));
        assert_eq!(lookup::<&str>(&[]), Ok(()));
        assert_eq!(lookup(&["oss"]), Err(Unknown::Group));
        assert_eq!(lookup(&["os", "famly"]), Err(Unknown::Name));
        assert_eq!(lookup(&["os", "family", "x"]), Err(Unknown::Below));
        assert_eq!(lookup(&["network", "addresses", "0"]), Ok(()));
        assert_eq!(lookup(&["external", "rack", "row"]), Ok(()));
    }
}
