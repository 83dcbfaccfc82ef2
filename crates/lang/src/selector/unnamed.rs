//! [`Selector::judge_unnamed`]: which nodes are meant of those that nobody has named yet.

use super::{Narrow, Selector, SelectorMatch, Subject, Term, decide, holds, match_of, not};
use crate::Value;
use crate::pattern::Pattern;

impl Selector {
    /// Whether the nodes are meant of which only the pattern of their hostnames is known, and what is declared of them all:
    /// [`SelectorMatch::Yes`] where each is, [`SelectorMatch::No`] where none can be.
    pub fn judge_unnamed(&self, names: &Pattern, declared: &Value) -> SelectorMatch {
        let subject = Subject { hostname: "", id: "", traits: None, declared: Some(declared) };
        let one = |term: &Term| match term {
            Term::Name(pattern) => of_names(pattern, names),
            Term::Every | Term::Group(_) => term.judge(&subject),
        };
        let any = |terms: &[Term]| decide(terms.iter().map(one), SelectorMatch::Yes);
        let narrowed = self.narrow.iter().map(|narrow| match narrow {
            Narrow::Where(expression)
                if expression
                    .names()
                    .iter()
                    .any(|name| name.path.first().is_some_and(|root| root == "hostname")) =>
            {
                SelectorMatch::Unknown("its hostname is not known".to_owned())
            }
            Narrow::Where(expression) => holds(expression, &subject),
            Narrow::Label { .. } => narrow.judge(&subject),
        });
        decide([any(&self.add), not(any(&self.take))].into_iter().chain(narrowed), SelectorMatch::No)
    }
}

/// Whether a pattern takes the names of another: all, none, or nobody knows.
fn of_names(pattern: &Pattern, names: &Pattern) -> SelectorMatch {
    let (one, other) = (pattern.prefix(), names.prefix());
    if pattern.as_str() == names.as_str() {
        return SelectorMatch::Yes;
    }
    match one.starts_with(other) || other.starts_with(one) {
        true => SelectorMatch::Unknown("its hostname is not known".to_owned()),
        false => match_of(false),
    }
}
