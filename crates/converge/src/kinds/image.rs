//! `image`: where the link leads to, which trees are whole, and which go (ROL-10).
//!
//! A state is that of the tree which the link leads to (`kinds::archive`), and two texts more: [`IMAGE_TARGET_TEXT`],
//! what the link points to, and [`IMAGE_REST_TEXT`], where trees lie that were not unpacked to their end. What was switched to
//! is remembered in order: a number by the name of each tree.

use catalog::types::{ARCHIVE_TEXT, Ensure, IMAGE_REST_TEXT, IMAGE_TARGET_TEXT, ImageSpec};
use model::Fields;
use model::collect::CollectInserting;
use model::sort::SortCompactly;

use super::archive;
use super::tree::TreeEntry;

/// The most bytes of all trees of an image together; the one in use and the one before stay whatever they take.
pub const MAX_TREES_BYTES: u64 = 8 * 1024 * 1024 * 1024;
/// The trees that stay whatever the bounds say: the one in use, and the one that a return goes to.
const NEEDED: usize = 2;
/// In a state: no tree is half unpacked.
const NO_REST: &str = "none";

/// A tree of an image that was switched to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageTree {
    /// Its name in the store.
    pub name: String,
    /// What its files take, in bytes.
    pub bytes: u64,
}

/// What of an image the host has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedImage {
    /// What the link points to; nothing where there is none.
    pub target: Option<String>,
    /// The state of the tree that it leads to: of the declared one with all its files, of another which archive it is.
    pub tree: Fields,
    /// The names of the trees that were not unpacked to their end and are not the declared one.
    pub rest: Vec<String>,
}

impl ObservedImage {
    /// As a state.
    pub fn state(self, spec: &ImageSpec) -> Option<Fields> {
        let ObservedImage { target, tree: mut fields, mut rest } = self;
        rest.sort_compactly();
        match target {
            Some(target) => fields.insert(IMAGE_TARGET_TEXT.to_owned(), target),
            // Half a tree alone is no image; it is something to remove.
            None if rest.is_empty() || spec.tree.ensure == Ensure::Present => return None,
            None => None,
        };
        if !rest.is_empty() {
            fields.insert(IMAGE_REST_TEXT.to_owned(), rest.join(" "));
        }
        Some(fields)
    }
}

/// The state that the image should have, where `unpacked` is what is remembered of its tree.
///
/// # Errors
/// When something else stands in the place of a file of the tree.
pub fn desired(
    spec: &ImageSpec,
    unpacked: Option<&Fields>,
    now: Option<&Fields>,
) -> Result<Option<Fields>, String> {
    if spec.tree.ensure == Ensure::Absent {
        return Ok(None);
    }
    let leads_here = now.and_then(|now| now.get(IMAGE_TARGET_TEXT)) == Some(&spec.target());
    // What is in a tree that is not in use yet is the switch's to look at.
    let mut to = match leads_here {
        true => archive::desired(&spec.tree, unpacked, now)?.unwrap_or_default(),
        false => Fields::from([(ARCHIVE_TEXT.to_owned(), spec.tree.label())]),
    };
    to.insert(IMAGE_TARGET_TEXT.to_owned(), spec.target());
    if now.is_some_and(|now| now.contains_key(IMAGE_REST_TEXT)) {
        to.insert(IMAGE_REST_TEXT.to_owned(), NO_REST.to_owned());
    }
    Ok(Some(to))
}

/// Whether what is remembered of a tree says that it was unpacked to its end.
pub fn is_whole(unpacked: Option<&Fields>) -> bool {
    unpacked.and_then(|unpacked| unpacked.get(ARCHIVE_TEXT)).is_some_and(|text| text != archive::UNFINISHED)
}

/// What the files of a tree take, in bytes.
pub fn bytes_of(unpacked: &Fields) -> u64 {
    let size = |text: &String| match TreeEntry::read(text) {
        Some(TreeEntry::File { size, .. }) => size,
        _ => 0,
    };
    unpacked.values().map(size).fold(0, u64::saturating_add)
}

/// The trees that were switched to, the newest first.
pub fn in_order(order: Option<&Fields>) -> Vec<String> {
    let mut trees: Vec<(u64, String)> = order
        .into_iter()
        .flatten()
        .filter_map(|(name, number)| Some((number.parse().ok()?, name.clone())))
        .collect();
    trees.sort_compactly_by(|a, b| b.cmp(a));
    trees.into_iter().map(|(_, name)| name).collect()
}

/// The trees, the newest first, where the link leads to one of them or to another: that one comes before all.
pub fn in_use_first(in_use: Option<&str>, trees: Vec<String>) -> Vec<String> {
    let others = trees.into_iter().filter(|name| Some(name.as_str()) != in_use);
    in_use.map(str::to_owned).into_iter().chain(others).collect()
}

/// The order in which a tree is the newest, and of which only these others are left.
pub fn ordered(newest: &str, others: &[String]) -> Fields {
    let others = others.iter().filter(|name| *name != newest);
    let all: Vec<&str> = [newest].into_iter().chain(others.map(String::as_str)).collect();
    let count = all.len();
    all.into_iter()
        .enumerate()
        .map(|(at, name)| (name.to_owned(), (count - at).to_string()))
        .collect_inserting()
}

/// Of trees from the newest to the oldest, how many stay: at most `keep`, and of more than [`MAX_TREES_BYTES`] only the
/// newer ones.
pub fn kept(trees: &[ImageTree], keep: usize) -> usize {
    let mut bytes = 0_u64;
    let fits = |(at, tree): &(usize, &ImageTree)| {
        bytes = bytes.saturating_add(tree.bytes);
        *at < NEEDED || (*at < keep && bytes <= MAX_TREES_BYTES)
    };
    trees.iter().enumerate().take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(name: &str, bytes: u64) -> ImageTree {
        ImageTree { name: name.to_owned(), bytes }
    }

    #[test]
    fn trees_are_bounded_in_count_and_bytes_and_two_stay_whatever_they_take() {
        let small: Vec<ImageTree> = ["e", "d", "c", "b", "a"].map(|name| tree(name, 1)).into();
        assert_eq!((kept(&small, 2), kept(&small, 3), kept(&small, 16)), (2, 3, 5));
        let large = [tree("c", MAX_TREES_BYTES), tree("b", u64::MAX), tree("a", 1)];
        assert_eq!(kept(&large, 16), 2);
        let middle = [tree("c", MAX_TREES_BYTES / 2), tree("b", MAX_TREES_BYTES / 2), tree("a", 1)];
        assert_eq!((kept(&middle, 3), kept(&[], 3)), (2, 0));
    }

    #[test]
    fn the_tree_that_was_switched_to_last_is_the_first() {
        let order = ordered("b", &["c".into(), "b".into(), "a".into()]);
        assert_eq!(in_order(Some(&order)), ["b", "c", "a"]);
        assert_eq!(in_order(None), [] as [&str; 0]);
        // A switch to `b` was cut off before the link led there: `a` is what a return from `c` goes to.
        let known = in_use_first(Some("a"), vec!["b".into(), "a".into()]);
        assert_eq!(in_order(Some(&ordered("c", &known))), ["c", "a", "b"]);
        assert_eq!(in_use_first(None, known), ["a", "b"]);
    }
}
