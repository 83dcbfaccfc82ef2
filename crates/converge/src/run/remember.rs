//! What the ledger learns of a resource: its state before the first change, what is made around it, and
//! what is declared of its removal (CNV-10).

use catalog::module::OnRemove;
use catalog::schema::Manages;
use model::collect::CollectInserting;
use model::delta::{Edit, Fields};

use super::Run;
use super::replace::replaces_own;
use crate::kinds::{Checked, Surroundings};
use crate::{BoundResource, LedgerEntry, Prior, ResourceId};

/// The attributes that say where a thing is.
const PLACES: &[&str] = &["path", "section", "key", "pointer", "user"];

impl Run {
    /// Keeps the ledger true to what is declared now, for a resource that is as declared.
    pub(super) fn follow_declaration(&mut self, resource: &BoundResource, prior: &Prior) {
        if self.ledger.entries.is_empty() && resource.on_remove != OnRemove::Delete {
            return;
        }
        let Some(Remembered { path, .. }) = remembered(resource) else { return };
        match self.ledger.entries.get(&resource.id) {
            Some(entry) if follows(entry, resource) => {}
            // It is about another thing now, which is right already: nothing of it is Muster's.
            Some(entry) if is_elsewhere(entry, resource) => {
                self.ledger.entries.remove(&resource.id);
                self.put.remove(&resource.id);
                self.forget.insert(resource.id.clone());
            }
            Some(entry) => {
                let entry = LedgerEntry {
                    on_remove: resource.on_remove,
                    sensitive: resource.sensitive,
                    attributes: resource.kept.clone(),
                    ..entry.clone()
                };
                self.remember(&resource.id, entry);
            }
            // It is to be deleted when it leaves, whoever made it.
            None if resource.on_remove == OnRemove::Delete
                && resource.manages() != Some(Manages::Effect)
                && !resource.is_absent() =>
            {
                let entry = self.entry(resource, path.to_owned(), prior.clone(), false);
                self.remember(&resource.id, entry);
            }
            None => {}
        }
    }

    /// Keeps the ledger true to a resource that was found as declared. Mostly it is: one look at it says so.
    pub(super) fn follow(&mut self, resource: &BoundResource, prior: &Prior) {
        let known = self.ledger.entries.get(&resource.id);
        if known.is_some_and(|entry| follows(entry, resource) && !replaces_own(entry, resource)) {
            return;
        }
        self.follow_kind(resource);
        self.follow_declaration(resource, prior);
    }

    /// Adds to what the ledger knows of a thing the texts that this change is the first one to touch, and
    /// what it makes around it.
    pub(super) fn remember_more(&mut self, id: &ResourceId, checked: &Checked) {
        let (Some(entry), Some(to)) = (self.ledger.entries.get(id), checked.edit.as_ref().and_then(Edit::to))
        else {
            return;
        };
        let mut made = self.made(&checked.surroundings);
        made.retain(|path| !entry.made.contains(path));
        let new: Fields = match (&entry.prior, &checked.prior) {
            (Prior::State(Some(before)), Prior::State(Some(now))) => now
                .iter()
                .filter(|(name, _)| to.contains_key(*name) && !before.contains_key(*name))
                .map(|(name, text)| (name.clone(), text.clone()))
                .collect_inserting(),
            _ => Fields::new(),
        };
        if new.is_empty() && made.is_empty() {
            return;
        }
        let mut entry = entry.clone();
        entry.made.extend(made);
        if let Prior::State(Some(before)) = &mut entry.prior {
            before.extend(new);
        }
        self.remember(id, entry);
    }

    /// What is missing around a thing after a try to make it is nothing that Muster made: whoever makes it
    /// after this keeps it.
    pub(super) fn forget_missing(&mut self, m: usize, slot: usize, missing: &[String]) {
        let id = self.resource(m, slot).id.clone();
        let Some(mut entry) = self.ledger.entries.get(&id).cloned() else { return };
        entry.made.retain(|path| !missing.contains(path));
        self.remember(&id, entry);
    }

    /// What of its surroundings goes with a resource: what is missing now, and what another resource made.
    /// So it goes with the last of them.
    pub(super) fn made(&self, surroundings: &Surroundings) -> Vec<String> {
        let by_another =
            |path: &&String| self.ledger.entries.values().any(|other| other.made.contains(*path));
        let there = surroundings.there.iter().filter(by_another);
        surroundings.missing.iter().chain(there).cloned().collect()
    }

    pub(super) fn entry(
        &self,
        resource: &BoundResource,
        path: String,
        prior: Prior,
        kept: bool,
    ) -> LedgerEntry {
        // Nobody looked what a command changes.
        let effect = resource.manages() == Some(Manages::Effect);
        LedgerEntry {
            kind: resource.kind.clone(),
            path,
            prior: if effect { Prior::State(None) } else { prior },
            kept,
            on_remove: resource.on_remove,
            at: self.now,
            sensitive: resource.sensitive,
            attributes: resource.kept.clone(),
            made: Vec::new(),
            generation: Some(self.root()),
        }
    }

    /// Into the ledger, and into the next record.
    pub(super) fn remember(&mut self, id: &ResourceId, entry: LedgerEntry) {
        self.forget.remove(id);
        self.put.insert(id.clone(), entry.clone());
        self.ledger.entries.insert(id.clone(), entry);
    }
}

/// The ledger's entry says of a resource's removal what is declared now.
fn follows(entry: &LedgerEntry, resource: &BoundResource) -> bool {
    entry.on_remove == resource.on_remove
        && entry.sensitive == resource.sensitive
        && entry.attributes == resource.kept
}

/// The ledger's entry is about another thing than the resource: it has the same name, and is declared
/// to be in another place.
pub(super) fn is_elsewhere(entry: &LedgerEntry, resource: &BoundResource) -> bool {
    let differs = |name: &&str| entry.attributes.get(*name) != resource.kept.get(*name);
    matches!(entry.prior, Prior::State(_))
        && resource.manages() == Some(Manages::State)
        && PLACES.iter().any(differs)
}

/// What the ledger calls a resource.
pub(crate) struct Remembered<'a> {
    /// Its path, or its name where it has none.
    pub(crate) path: &'a str,
    /// Its change can be undone by what was there before.
    pub(crate) undone: bool,
}

/// What the ledger keeps of a resource; `None` for a command that nothing undoes.
pub(crate) fn remembered(resource: &BoundResource) -> Option<Remembered<'_>> {
    let (path, undone) = match resource.manages()? {
        Manages::Path | Manages::Part => (resource.path()?, true),
        Manages::State => (resource.name.as_str(), true),
        Manages::Effect if resource.on_remove == OnRemove::Delete => (resource.name.as_str(), false),
        Manages::Effect => return None,
    };
    Some(Remembered { path, undone })
}
