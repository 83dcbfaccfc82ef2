//! [`PackedTexts`]: many short texts in one allocation.
//!
//! What an idle agent keeps of thousands of resources is kept so: a text of its own for each would take twice the
//! memory, and would hold the pages of everything that was allocated beside it and is freed.

use std::ops::Range;

/// A list of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PackedTexts {
    text: String,
    /// Where each ends in `text`; it begins where the one before ends.
    ends: Vec<usize>,
}

impl PackedTexts {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The text at a place in the list.
    pub(crate) fn get(&self, place: usize) -> Option<&str> {
        let end = *self.ends.get(place)?;
        let begin = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.get(begin..end)
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|place| self.get(place))
    }

    /// The places of the texts that are this one, in a list that is sorted.
    pub(crate) fn range_of(&self, wanted: &str) -> Range<usize> {
        self.first_not(|text| text < wanted)..self.first_not(|text| text <= wanted)
    }

    /// The first place whose text is not `before`, which holds for a beginning of the list.
    fn first_not(&self, before: impl Fn(&str) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle).is_some_and(&before) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }
}

impl<'a> FromIterator<&'a str> for PackedTexts {
    fn from_iter<I: IntoIterator<Item = &'a str>>(texts: I) -> PackedTexts {
        let mut packed = PackedTexts::default();
        for text in texts {
            packed.text.push_str(text);
            packed.ends.push(packed.text.len());
        }
        packed.text.shrink_to_fit();
        packed.ends.shrink_to_fit();
        packed
    }
}

#[cfg(test)]
mod tests {
    use super::PackedTexts;

    #[test]
    fn texts_are_found_where_they_are() {
        let list = ["", "", "a", "b", "b", "b", "\u{e4}"];
        let packed: PackedTexts = list.into_iter().collect();
        assert_eq!(packed.iter().collect::<Vec<_>>(), list);
        assert_eq!((packed.len(), packed.get(7)), (7, None));
        for (text, places) in [("", 0..2), ("a", 2..3), ("b", 3..6), ("c", 6..6), ("\u{e4}", 6..7)] {
            assert_eq!(packed.range_of(text), places, "{text}");
        }
        assert_eq!(PackedTexts::default().range_of("a"), 0..0);
    }
}
