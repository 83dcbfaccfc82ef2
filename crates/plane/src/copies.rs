//! Two live holders of one key (IDN-10): [`InstanceLineage`].
//!
//! ```text
//! one agent      x --restart--> a1 --restart--> a2           each names the one before: a chain
//! a copied disk  x --> a1            a1 speaks
//!                x --> b1            names x, which a1 replaced: a fork, and a1 is displaced
//!                      a1, or a2 after a1: what was displaced speaks again, so there are two
//! ```
//!
//! A fork alone is no copy: a disk that was set back to a snapshot makes one too, and nobody speaks for the other branch
//! any more. So two holders are told apart within two contacts after the second one first spoke.

use model::Digest;
use model::instance::{AgentInstance, MAX_INSTANCE};

/// How many displaced starts are remembered.
pub(crate) const MAX_DISPLACED: usize = 8;

/// A start of an agent, in short.
type Start = u64;

/// The newest starts of an agent that were heard; nothing from an agent of before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstanceLineage {
    current: Option<Start>,
    /// The one that the current one took the place of.
    before: Option<Start>,
}

/// What a contact says of who holds a node's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderNotice {
    /// One agent, as far as is known.
    One,
    /// Two: a start that another one replaced speaks again.
    Two,
}

impl InstanceLineage {
    /// Takes in who speaks. `displaced` holds the starts whose place another branch took.
    pub fn heard(&mut self, instance: &AgentInstance, displaced: &mut Vec<u64>) -> HolderNotice {
        let Some(id) = start(&instance.id) else { return HolderNotice::One };
        if self.current == Some(id) {
            return HolderNotice::One;
        }
        let after = instance.after.as_deref().and_then(start);
        let is_displaced = |start: Start| displaced.contains(&start);
        if self.before == Some(id) || is_displaced(id) || after.is_some_and(is_displaced) {
            return HolderNotice::Two;
        }
        let replaced = std::mem::replace(self, InstanceLineage { current: Some(id), before: self.current });
        match replaced.current {
            // One that names no start before it is an agent whose state directory was emptied, and may be put back.
            Some(current) if after.is_some_and(|after| after != current) => {
                displaced.insert(0, current);
                displaced.truncate(MAX_DISPLACED);
            }
            Some(_) | None => {}
        }
        HolderNotice::One
    }
}

fn start(id: &str) -> Option<Start> {
    let first = *Digest::of(id.as_bytes()).0.first_chunk()?;
    (!id.is_empty() && id.len() <= MAX_INSTANCE).then_some(u64::from_be_bytes(first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use HolderNotice::{One, Two};

    /// Who speaks, with whom he names as the start before, and what is noticed.
    fn said(contacts: &[(&str, Option<&str>, HolderNotice)]) {
        let (mut lineage, mut displaced) = (InstanceLineage::default(), Vec::new());
        for (at, (id, after, want)) in contacts.iter().enumerate() {
            let instance = AgentInstance { id: (*id).to_owned(), after: after.map(str::to_owned) };
            assert_eq!(lineage.heard(&instance, &mut displaced), *want, "contact {at}: {id} after {after:?}");
        }
        assert!(displaced.len() <= MAX_DISPLACED);
    }

    /// IDN-10: one agent that restarts, however often, is one.
    #[test]
    fn a_restart_is_no_copy() {
        said(&[
            ("a1", None, One),
            ("a1", None, One),
            ("a2", Some("a1"), One),
            ("a3", Some("a2"), One),
            ("a3", Some("a2"), One),
            ("a4", Some("a3"), One),
        ]);
    }

    /// One that never reached the control plane is missing in the chain, and one that cannot write keeps naming the last
    /// start that it wrote down.
    #[test]
    fn a_start_that_was_not_heard_is_no_copy() {
        said(&[("a1", None, One), ("a3", Some("a2"), One), ("a4", Some("a3"), One)]);
        said(&[
            ("a1", Some("x"), One),
            ("a2", Some("x"), One),
            ("a3", Some("x"), One),
            ("a4", Some("x"), One),
        ]);
        said(&[("a5", Some("a4"), One), ("b3", Some("a2"), One), ("b4", Some("b3"), One)]);
    }

    /// A state directory that was lost, and is put back later.
    #[test]
    fn a_state_directory_that_is_put_back_is_no_copy() {
        said(&[("a1", None, One), ("b1", None, One), ("a2", Some("a1"), One), ("a3", Some("a2"), One)]);
        said(&[("a1", None, One), ("b1", None, One), ("a2", Some("a1"), One), ("b1", None, Two)]);
    }

    /// A machine cloned while it ran: the second contact after the clone first spoke tells.
    #[test]
    fn a_running_clone_is_noticed_within_two_contacts() {
        said(&[("x", None, One), ("b1", Some("x"), One), ("x", None, Two)]);
        said(&[("x", None, One), ("b1", Some("x"), One), ("b1", Some("x"), One), ("x", None, Two)]);
    }

    /// A template from which two machines started.
    #[test]
    fn two_of_one_template_are_noticed_within_two_contacts() {
        said(&[("a1", Some("x"), One), ("b1", Some("x"), One), ("a1", Some("x"), Two)]);
        said(&[("x", None, One), ("a1", Some("x"), One), ("b1", Some("x"), One), ("a1", Some("x"), Two)]);
    }

    /// Two that start anew before each contact.
    #[test]
    fn two_that_crash_in_turn_are_noticed_too() {
        said(&[("a1", Some("x"), One), ("b1", Some("x"), One), ("a2", Some("a1"), Two)]);
        said(&[
            ("x", None, One),
            ("a1", Some("x"), One),
            ("b1", Some("x"), One),
            ("b2", Some("b1"), One),
            ("a2", Some("a1"), Two),
        ]);
    }

    /// A disk that is set back again and again, as by a reset lab: what is remembered of it is bounded, and the newest
    /// branches are told apart still.
    #[test]
    fn displaced_starts_are_remembered_within_a_bound() {
        let (mut lineage, mut displaced) = (InstanceLineage::default(), Vec::new());
        let mut heard = |id: &str, after: Option<&str>| {
            let instance = AgentInstance { id: id.to_owned(), after: after.map(str::to_owned) };
            let notice = lineage.heard(&instance, &mut displaced);
            (notice, displaced.len())
        };
        heard("x", None);
        heard("b0", Some("x"));
        for branch in 1..=MAX_DISPLACED + 3 {
            let (notice, kept) = heard(&format!("b{branch}"), Some("x"));
            assert_eq!((notice, kept), (One, branch.min(MAX_DISPLACED)));
        }
        // The one that was displaced the longest ago of those that are remembered.
        assert_eq!(heard("b3", Some("x")).0, Two);
        assert_eq!(heard("later", Some("b3")).0, Two);
    }

    /// What is no start says nothing.
    #[test]
    fn a_start_without_a_name_or_with_too_long_a_one_says_nothing() {
        let long = "x".repeat(MAX_INSTANCE + 1);
        let longest = "x".repeat(MAX_INSTANCE);
        said(&[("a1", None, One), ("", Some("a1"), One), ("", None, One), ("a1", None, One)]);
        said(&[("a1", None, One), (&long, Some("a1"), One), (&long, None, One), ("a1", None, One)]);
        said(&[("a1", None, One), (&longest, Some("a1"), One), ("a1", None, Two)]);
    }
}
