//! Things of the host with a state: what differs between two states, as named texts.

use catalog::types::{Ensure, StateSpec};
use model::collect::CollectInserting;
use model::{Edit, Fields};

/// The state that a thing should have, given the one that it has: what is declared, and nothing
/// where it is to be absent. A type for which more counts than equal texts decides for itself.
pub fn desired(spec: &dyn StateSpec) -> Option<Fields> {
    (spec.ensure() == Ensure::Present).then(|| spec.declared())
}

/// What leads from one state to another, `None` when nothing does. Only what `to` names counts: a
/// text that only `now` has is left as it is.
pub fn difference(now: Option<&Fields>, to: Option<&Fields>) -> Option<Edit<Fields>> {
    match (now, to) {
        (None, None) => None,
        (None, Some(to)) => Some(Edit::Add { to: to.clone() }),
        (Some(now), None) => Some(Edit::Remove { from: now.clone() }),
        (Some(now), Some(to)) => {
            let differs = |(name, text): &(&String, &String)| now.get(*name) != Some(*text);
            let changed: Vec<_> = to.iter().filter(differs).collect();
            if changed.is_empty() {
                return None;
            }
            let owned = |(name, text): (&String, &String)| (name.clone(), text.clone());
            let from = changed
                .iter()
                .filter_map(|(name, _)| now.get_key_value(*name))
                .map(owned)
                .collect_inserting();
            Some(Edit::Change { from, to: changed.into_iter().map(owned).collect_inserting() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn only_what_is_wanted_and_differs_is_an_edit() {
        let now = fields(&[("shell", "/bin/sh"), ("home", "/home/a"), ("uid", "1000")]);
        let same = fields(&[("shell", "/bin/sh")]);
        assert_eq!(difference(Some(&now), Some(&same)), None);
        let to = fields(&[("shell", "/bin/bash"), ("home", "/home/a"), ("comment", "A")]);
        let from = fields(&[("shell", "/bin/sh")]);
        let wanted = fields(&[("shell", "/bin/bash"), ("comment", "A")]);
        assert_eq!(difference(Some(&now), Some(&to)), Some(Edit::Change { from, to: wanted }));
        assert_eq!(difference(None, None), None);
        assert_eq!(difference(None, Some(&same)), Some(Edit::Add { to: same.clone() }));
        assert_eq!(difference(Some(&same), None), Some(Edit::Remove { from: same }));
    }
}
