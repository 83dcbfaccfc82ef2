//! [`Resealer`]: secrets in sets of an earlier release, with the values and recipients of now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::trie::Trie;
use model::{Digest, Kind, ObjectSet, SectionKey};
use trust::RecipientKey;
use trust::sealing::InHand;

use super::seal::SealPass;
use super::{NotSealed, secret_sections};
use crate::specialize::Grant;

/// The secrets that a set holds sealed, by name.
pub fn sealed_in(set: &ObjectSet) -> BTreeSet<String> {
    set.section(&SectionKey::of(Kind::SECRET_REF)).leaves().map(|leaf| leaf.name.to_string()).collect()
}

/// A set whose secrets were sealed anew.
#[derive(Clone, Debug)]
pub struct ResealedSet {
    /// The set.
    pub set: ObjectSet,
    /// What is sealed, as a section: the same one for all sets with the same secrets.
    pub sealed: Trie,
    /// The contents that are new in it, by digest.
    pub contents: BTreeMap<Digest, Arc<[u8]>>,
    /// It needs secrets, and nothing is sealed for it: its node has no recipient key, or it is a pattern's.
    pub is_blocked: bool,
}

/// Seals anew what sets of an earlier release hold, one after the other.
pub struct Resealer<'s> {
    pass: SealPass<'s>,
    recipients: &'s BTreeMap<Arc<str>, RecipientKey>,
}

impl<'s> Resealer<'s> {
    /// With these values, for these recipients.
    pub fn new(
        values: &'s BTreeMap<String, InHand>,
        recipients: &'s BTreeMap<Arc<str>, RecipientKey>,
    ) -> Resealer<'s> {
        Resealer { pass: SealPass::new(values), recipients }
    }

    /// The set of a node, or of the nodes of a pattern, with its secrets as they are now; `None` where it has none.
    ///
    /// # Errors
    /// [`NotSealed`].
    pub fn set(&mut self, name: &Arc<str>, set: &ObjectSet) -> Result<Option<ResealedSet>, NotSealed> {
        let key = self.recipients.get(name);
        let Some(secrets) = self.pass.node(name, sealed_in(set), key)? else { return Ok(None) };
        let kept = set.sections().filter(|(section, _)| !secret_sections().contains(section));
        let kept = kept.map(|(section, trie)| (section.clone(), trie.clone()));
        let own = secrets.sections().into_iter().filter(|(_, trie)| !trie.is_empty());
        let of = |object: &Grant| (object.digest, object.bytes.clone());
        Ok(Some(ResealedSet {
            set: ObjectSet::of_sections(kept.chain(own)),
            sealed: secrets.sealed_section().clone(),
            contents: secrets.sealed.objects.iter().chain(&secrets.keys).map(of).collect(),
            is_blocked: secrets.keys.is_none(),
        }))
    }
}
