//! [`ByName`]: a sorted map whose copies share what they have in common, so that a new
//! state beside the old one costs what differs.

use std::sync::Arc;

/// The most entries of one shared piece.
const MAX_PIECE: usize = 512;

type Run<V> = Vec<(Arc<str>, V)>;

/// A sorted map from names. A clone is cheap and shares all but what is changed later.
#[derive(Clone, Debug)]
pub struct ByName<V> {
    /// Not empty, sorted, each sorted.
    pieces: Vec<Arc<Run<V>>>,
    len: usize,
}

impl<V> Default for ByName<V> {
    fn default() -> Self {
        ByName { pieces: Vec::new(), len: 0 }
    }
}

impl<V> ByName<V> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&V> {
        let piece = self.pieces.get(self.piece_of(name))?;
        let found = piece.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        piece.get(found).map(|(_, value)| value)
    }

    /// Whether there is such a name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// All entries in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &V)> {
        self.pieces.iter().flat_map(|piece| piece.iter().map(|(name, value)| (name, value)))
    }

    /// All names in order.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.iter().map(|(name, _)| name)
    }

    /// All values in the order of names.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The piece that holds a name, or would.
    fn piece_of(&self, name: &str) -> usize {
        let after =
            self.pieces.partition_point(|piece| piece.first().is_some_and(|(first, _)| **first <= *name));
        after.saturating_sub(1)
    }
}

impl<V: Clone> ByName<V> {
    /// Sets a value and gives back the one before.
    pub(crate) fn insert(&mut self, name: Arc<str>, value: V) -> Option<V> {
        let number = self.piece_of(&name);
        let Some(piece) = self.pieces.get_mut(number) else {
            self.pieces.push(Arc::new(vec![(name, value)]));
            self.len += 1;
            return None;
        };
        let piece = Arc::make_mut(piece);
        match piece.binary_search_by(|(known, _)| known.cmp(&name)) {
            Ok(found) => piece.get_mut(found).map(|entry| std::mem::replace(&mut entry.1, value)),
            Err(place) => {
                piece.insert(place, (name, value));
                self.len += 1;
                if piece.len() > MAX_PIECE {
                    let rest = piece.split_off(split(place));
                    self.pieces.insert(number + 1, Arc::new(rest));
                }
                None
            }
        }
    }

    /// Takes a name out.
    pub(crate) fn remove(&mut self, name: &str) -> Option<V> {
        let number = self.piece_of(name);
        let piece = self.pieces.get_mut(number)?;
        let found = piece.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        let piece = Arc::make_mut(piece);
        let (_, value) = piece.remove(found);
        self.len -= 1;
        if piece.is_empty() {
            self.pieces.remove(number);
        }
        Some(value)
    }
}

/// Where a full piece is cut: names that come in order leave full pieces behind.
fn split(place: usize) -> usize {
    if place == MAX_PIECE { MAX_PIECE } else { MAX_PIECE / 2 }
}

impl<V: PartialEq> PartialEq for ByName<V> {
    fn eq(&self, other: &ByName<V>) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<V: Eq> Eq for ByName<V> {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::ByName;

    proptest! {
        #[test]
        fn is_a_map_and_leaves_its_copies_alone(edits in proptest::collection::vec((0u32..2000, any::<Option<u8>>()), 0..3000)) {
            let (mut map, mut model) = (ByName::default(), BTreeMap::new());
            let half = edits.len() / 2;
            let mut copy = None;
            for (at, (number, value)) in edits.into_iter().enumerate() {
                if at == half {
                    copy = Some((map.clone(), model.clone()));
                }
                let name = format!("n{number}");
                let (ours, theirs) = match value {
                    Some(value) => (map.insert(name.as_str().into(), value), model.insert(name, value)),
                    None => (map.remove(&name), model.remove(&name)),
                };
                prop_assert_eq!(ours, theirs);
            }
            let same = |map: &ByName<u8>, model: &BTreeMap<String, u8>| {
                map.len() == model.len() && map.iter().map(|(n, v)| (n.to_string(), *v)).eq(model.clone())
            };
            prop_assert!(same(&map, &model));
            if let Some((map, model)) = copy {
                prop_assert!(same(&map, &model));
                prop_assert!(model.keys().all(|name| map.get(name) == model.get(name)));
            }
        }
    }
}
