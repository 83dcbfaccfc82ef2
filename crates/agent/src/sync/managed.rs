//! Managed mode: what the control plane wants is put into the backend, local edits go back,
//! local deletes are made good, and statuses go up (SYN-5, SYN-7).
//!
//! ```text
//! link --item--> decide by uid and content --> backend --> recorded as applied last
//! listing, wanted, applied last --> corrections --^
//!         +--statuses--> own set
//! ```
//!
//! Invariants: the backend holds what is wanted before the link hears that an item is applied; a
//! user's own object is never deleted; nothing that is marked goes before all that is wanted is
//! known.

use std::collections::BTreeMap;

use backends::reconcile::{self, Correction, LastApplied};
use backends::{ApplyRequest, Backend, BackendError, Deleted, ErrorClass, Expect, FoundObject, Listing};
use bytes::Bytes;
use model::condition::node_status_key;
use model::{ObjectKey, Stub};
use sync::frame::Op;
use sync::identity::{self, Decision, Incoming, Local};
use sync::link::{Item, ItemOutcome};
use sync::object;
use sync::{Content, Side};

use super::reconciler::{CONTENTS, Reconciler};
use super::sets::Own;

/// An object to be put.
struct Put<'a> {
    key: &'a ObjectKey,
    stub: &'a Stub,
    content: &'a Bytes,
}

impl Reconciler {
    /// One item of a batch.
    pub(super) fn item(&mut self, item: &Item) -> ItemOutcome {
        if item.key.section.kind.as_str() == model::Kind::ACTION {
            return ItemOutcome::Done;
        }
        let Some(mut backend) = self.opened.backend.take() else {
            let why = self.opened.unusable.as_deref().unwrap_or("its release synchronizes no objects");
            return ItemOutcome::Temporary(format!("there is no place for objects on this node: {why}"));
        };
        let done = match &item.change {
            Op::Put { stub, content, .. } => self.put(&mut *backend, &Put { key: &item.key, stub, content }),
            Op::Delete { uid } => self.delete(&mut *backend, &item.key, uid, item.rev),
        };
        self.opened.backend = Some(backend);
        match done {
            Ok(()) => ItemOutcome::Done,
            Err(error) => outcome(error),
        }
    }

    fn put(&mut self, backend: &mut dyn Backend, put: &Put<'_>) -> Result<(), BackendError> {
        let found = backend.get(put.key)?;
        let decision = self.decide(backend, put, found.as_ref());
        let version = found.map(|found| found.version);
        match decision {
            Decision::Nothing => {
                self.record(put, version.unwrap_or_default());
                Ok(())
            }
            Decision::Create => self.apply(backend, put, Expect::Absent),
            Decision::Update | Decision::Adopt | Decision::Upsert => {
                self.apply(backend, put, version.map_or(Expect::Absent, Expect::Version))
            }
            Decision::Recreate => {
                let here = version.map_or(Expect::Anything, Expect::Version);
                if backend.delete(put.key, &here)? == Deleted::Pending {
                    let why = "the object before it is going, and its finalizers are pending";
                    return Err(BackendError::temporary("finalizers", why));
                }
                self.apply(backend, put, Expect::Absent)
            }
        }
    }

    fn apply(
        &mut self,
        backend: &mut dyn Backend,
        put: &Put<'_>,
        expect: Expect,
    ) -> Result<(), BackendError> {
        let apply = ApplyRequest { key: put.key, spec: put.content, source_uid: Some(&put.stub.uid), expect };
        let version = backend.apply(apply)?.version;
        self.record(put, version);
        Ok(())
    }

    /// It is in the backend under this version.
    fn record(&mut self, put: &Put<'_>, version: String) {
        self.opened.applied.insert(put.key.clone(), LastApplied { stub: put.stub.clone(), version });
    }

    fn decide(&self, backend: &dyn Backend, put: &Put<'_>, found: Option<&FoundObject>) -> Decision {
        let same = |found: &FoundObject| backend.equivalent(put.content, &found.spec);
        let local = found.map(|found| Local { source_uid: found.source_uid.as_deref(), same: same(found) });
        let other =
            found.and_then(|found| found.source_uid.as_deref()).is_some_and(|uid| *uid != *put.stub.uid);
        // Only an object of another uid asks for the annotation.
        let manifest: Option<serde_json::Value> =
            other.then(|| serde_json::from_slice(put.content).ok()).flatten();
        let annotation = manifest.as_ref().and_then(identity::policy_annotation);
        let incoming = Incoming { uid: &put.stub.uid, annotation };
        let (decision, warning) = identity::decide(local, incoming, self.policy.mismatch);
        if let Some(warning) = warning {
            tracing::warn!(key = %put.key, warning, "an annotation is not understood");
        }
        decision
    }

    fn delete(
        &mut self,
        backend: &mut dyn Backend,
        key: &ObjectKey,
        uid: &str,
        rev: u64,
    ) -> Result<(), BackendError> {
        let Some(found) = backend.get(key)? else { return Ok(()) };
        // Without a mark it is a user's own.
        if found.source_uid.is_none() && !self.opened.applied.contains_key(key) {
            return Ok(());
        }
        let here_rev = self.context.sets.with(|_, replica| replica.get(key).map_or(0, |(_, rev)| rev));
        if identity::delete_applies(found.source_uid.as_deref(), here_rev, uid, rev) {
            backend.delete(key, &Expect::Version(found.version))?;
        }
        Ok(())
    }

    /// Puts right what is not as the control plane wants it; then statuses go up. Says
    /// whether all went well.
    pub(super) fn reconcile_managed(&mut self, listing: &Listing) -> bool {
        let Some(mut backend) = self.opened.backend.take() else { return true };
        let same = |found: &FoundObject| {
            let wanted = self.context.sets.contents(Side::Theirs, std::slice::from_ref(&found.key));
            let wanted = wanted.ok().and_then(|mut contents| contents.pop().flatten());
            wanted.is_some_and(|wanted| backend.equivalent(&wanted.bytes, &found.spec))
        };
        let corrections = reconcile::managed(&self.opened.wanted, &self.opened.applied, listing, same);
        let corrections: Vec<(ObjectKey, Correction)> = corrections.into_iter().collect();
        let mut well = true;
        for group in corrections.chunks(CONTENTS) {
            well &= self.correct(&mut *backend, group, listing);
        }
        self.opened.backend = Some(backend);
        let wanted = &self.opened.wanted;
        let uid = |found: &FoundObject| Some(wanted.get(&found.key)?.uid.clone());
        let own = self.statuses(listing, uid);
        self.own(own) && well
    }

    fn correct(
        &mut self,
        backend: &mut dyn Backend,
        group: &[(ObjectKey, Correction)],
        listing: &Listing,
    ) -> bool {
        let keys: Vec<ObjectKey> = group.iter().map(|(key, _)| key.clone()).collect();
        let contents = self.context.sets.contents(Side::Theirs, &keys);
        let Some(contents) = self.kept(contents) else { return false };
        let mut well = true;
        for ((key, correction), content) in group.iter().zip(contents) {
            let place = format!("object {key}");
            let done = self.correct_one(backend, key, *correction, content, listing);
            well &= done.is_ok();
            self.problem(&place, done.err().map(|error| error.to_string()));
        }
        well
    }

    fn correct_one(
        &mut self,
        backend: &mut dyn Backend,
        key: &ObjectKey,
        correction: Correction,
        content: Option<Content>,
        listing: &Listing,
    ) -> Result<(), BackendError> {
        let found = || listing.objects.iter().find(|found| found.key == *key);
        if correction == Correction::Remove {
            // Marked, but maybe by what came when the agent was killed: whether it is wanted is
            // known once both sides compared.
            let Some(found) = found().filter(|_| self.complete) else { return Ok(()) };
            tracing::info!(%key, "an object that the control plane has no more is removed");
            return backend.delete(key, &Expect::Version(found.version.clone())).map(drop);
        }
        let (Some(stub), Some(content)) = (self.opened.wanted.get(key).cloned(), content) else {
            return Ok(());
        };
        let put = Put { key, stub: &stub, content: &content.bytes };
        match correction {
            Correction::Record => {
                self.record(&put, found().map_or(String::new(), |found| found.version.clone()));
                return Ok(());
            }
            Correction::OtherUid => return self.put(backend, &put),
            Correction::Apply | Correction::Adopt => {}
            Correction::Revert => {
                tracing::info!(%key, "a local edit is put back");
                self.context.view.set(|view| view.counts.reverted += 1);
            }
            Correction::Recreate => {
                tracing::info!(%key, "a local deletion is made good");
                self.context.view.set(|view| view.counts.recreated += 1);
            }
            Correction::Remove => return Ok(()),
        }
        self.apply(backend, &put, Expect::Anything)
    }

    /// The statuses as found, towards those in the own set. `uid`: that of an object whose
    /// status goes up.
    pub(super) fn statuses(
        &self,
        listing: &Listing,
        uid: impl Fn(&FoundObject) -> Option<std::sync::Arc<str>>,
    ) -> Vec<Own> {
        let mut there: BTreeMap<ObjectKey, Own> = BTreeMap::new();
        for found in &listing.objects {
            let (Some(status), Some(uid)) = (&found.status, uid(found)) else { continue };
            let key = object::status_key(&found.key);
            there.extend(self.up(&key, &uid, status).map(|own| (key, own)));
        }
        let gone = self.gone(|key| {
            let is_status = object::is_status(&key.section.kind);
            is_status && listing.complete && !there.contains_key(key)
        });
        there.into_values().chain(gone).collect()
    }

    /// What of the own set is to go out of it. What the node says of itself stays.
    pub(super) fn gone(&self, is_gone: impl Fn(&ObjectKey) -> bool) -> Vec<Own> {
        let node_status = node_status_key();
        let is_gone = |key: &ObjectKey| *key != node_status && is_gone(key);
        let gone: Vec<(ObjectKey, Stub)> = self.context.sets.stubs(Side::Ours, is_gone);
        gone.into_iter().map(|(key, _)| Own::Remove(key)).collect()
    }
}

/// What becomes of an item whose application failed (SYN-12).
fn outcome(error: BackendError) -> ItemOutcome {
    let BackendError { class, code, message } = error;
    match class {
        ErrorClass::Temporary => ItemOutcome::Temporary(message),
        ErrorClass::Recoverable => ItemOutcome::Recoverable(message),
        ErrorClass::Permanent => ItemOutcome::Permanent { code: code.to_owned(), message },
    }
}
