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
use model::collect::CollectInserting;
use model::condition::node_status_key;
use model::{Kind, ObjectKey, Stub};
use sync::Side;
use sync::frame::Op;
use sync::identity::{self, Decision, Local};
use sync::link::{ApplyItem, ItemOutcome};
use sync::object;

use super::reconciler::{OpenedBackend, Reconciler, SOON};
use super::sets::OwnChange;
use crate::render::chain;

/// Why a change of the control plane waits.
const HELD_BACK: &str =
    "the release that the node holds is not fresh: changes wait for a newer release or beacon";

impl Reconciler {
    /// One item of a batch, which is held back while what the node holds is not fresh: the link tries it again.
    /// An action is taken, so that it ends with a refusal.
    pub(super) fn item_if(&mut self, fresh: bool, item: &ApplyItem) -> ItemOutcome {
        if item.key.section.kind.as_str() == Kind::ACTION {
            return ItemOutcome::Done;
        }
        if fresh { self.item(item) } else { ItemOutcome::Temporary(HELD_BACK.to_owned()) }
    }

    fn item(&mut self, item: &ApplyItem) -> ItemOutcome {
        let key = &item.key;
        let done = match &item.change {
            Op::Put { stub, content, .. } => self.put(key, stub, content),
            Op::Delete { uid } => self.delete(key, uid, item.rev),
        };
        match done {
            Ok(()) => ItemOutcome::Done,
            Err(error) => outcome(error),
        }
    }

    fn backend(&mut self) -> Result<&mut (dyn Backend + 'static), BackendError> {
        let OpenedBackend { backend, unusable, .. } = &mut self.opened;
        let why = unusable.as_deref().unwrap_or("its release synchronizes no objects");
        let none = || {
            BackendError::temporary("unusable", format!("there is no place for objects on this node: {why}"))
        };
        backend.as_deref_mut().ok_or_else(none)
    }

    fn put(&mut self, key: &ObjectKey, stub: &Stub, content: &Bytes) -> Result<(), BackendError> {
        let backend = self.backend()?;
        let found = backend.get(key)?;
        let same = found.as_ref().is_some_and(|found| backend.equivalent(content, &found.spec));
        let local = found.as_ref().map(|found| Local { source_uid: found.source_uid.as_deref(), same });
        let (decision, warning) = identity::decide(local, &stub.uid, content, self.policy.mismatch);
        if let Some(warning) = warning {
            tracing::warn!(%key, warning, "an annotation is not understood");
        }
        if matches!(decision, Decision::Recreate | Decision::Upsert) {
            // Its status is still that of the other uid.
            self.reconcile_within(SOON);
        }
        let version = found.map(|found| found.version);
        let expect = match decision {
            Decision::Nothing => {
                self.record(key, stub, version.unwrap_or_default());
                return Ok(());
            }
            Decision::Create => Expect::Absent,
            Decision::Update | Decision::Adopt | Decision::Upsert => {
                version.map_or(Expect::Absent, Expect::Version)
            }
            Decision::Recreate => {
                let here = version.map_or(Expect::Anything, Expect::Version);
                if self.backend()?.delete(key, &here)? == Deleted::Pending {
                    let why = "the object before it is going, and its finalizers are pending";
                    return Err(BackendError::temporary("finalizers", why));
                }
                Expect::Absent
            }
        };
        self.apply(key, stub, content, expect)
    }

    fn apply(
        &mut self,
        key: &ObjectKey,
        stub: &Stub,
        spec: &Bytes,
        expect: Expect,
    ) -> Result<(), BackendError> {
        let applied =
            self.backend()?.apply(ApplyRequest { key, spec, source_uid: Some(&stub.uid), expect })?;
        self.record(key, stub, applied.version);
        Ok(())
    }

    /// It is in the backend under this version.
    fn record(&mut self, key: &ObjectKey, stub: &Stub, version: String) {
        self.opened.applied.insert(key.clone(), LastApplied { stub: stub.clone(), version });
    }

    fn delete(&mut self, key: &ObjectKey, uid: &str, rev: u64) -> Result<(), BackendError> {
        let Some(found) = self.backend()?.get(key)? else { return Ok(()) };
        // Without a mark it is a user's own.
        if found.source_uid.is_none() && !self.opened.applied.contains_key(key) {
            return Ok(());
        }
        let here_rev = self.context.sets.with(|_, replica| replica.get(key).map_or(0, |(_, rev)| rev));
        if identity::delete_applies(found.source_uid.as_deref(), here_rev, uid, rev) {
            self.backend()?.delete(key, &Expect::Version(found.version))?;
        }
        Ok(())
    }

    /// Puts right what is not as the control plane wants it; then statuses go up. Says
    /// whether all went well.
    pub(super) fn reconcile_managed(&mut self, listing: &Listing) -> bool {
        let OpenedBackend { backend: Some(backend), applied, .. } = &self.opened else { return true };
        let wanted = self.context.sets.stubs(Side::Replica, |key| key.section.kind.as_str() != Kind::ACTION);
        let wanted: BTreeMap<ObjectKey, Stub> = wanted.into_iter().collect_inserting();
        let same = |found: &FoundObject| {
            let wanted = self.content(&found.key).ok().flatten();
            wanted.is_some_and(|wanted| backend.equivalent(&wanted, &found.spec))
        };
        let mut well = true;
        for (key, correction) in reconcile::managed(&wanted, applied, listing, same) {
            let found = listing.objects.binary_search_by(|found| found.key.cmp(&key)).ok();
            let version = found.map(|at| listing.objects[at].version.clone());
            let done = self.correct(&key, correction, wanted.get(&key), version);
            well &= done.is_ok();
            self.problem(&format!("object {key}"), done.err().map(|error| error.to_string()));
        }
        let uid = |found: &FoundObject| Some(wanted.get(&found.key)?.uid.clone());
        let own = self.statuses(listing, uid);
        self.own(own) && well
    }

    /// What the control plane wants an object to be.
    fn content(&self, key: &ObjectKey) -> Result<Option<Bytes>, BackendError> {
        let contents = self.context.sets.contents(Side::Replica, std::slice::from_ref(key));
        let contents = contents.map_err(|error| BackendError::temporary("unreadable", chain(&error)));
        Ok(contents?.pop().flatten().map(|content| content.bytes))
    }

    /// Puts one object right, which was found under this version.
    fn correct(
        &mut self,
        key: &ObjectKey,
        correction: Correction,
        wanted: Option<&Stub>,
        version: Option<String>,
    ) -> Result<(), BackendError> {
        match (correction, wanted) {
            // An item that was applied when the agent was killed may have marked it: whether it is wanted
            // is known once both sides compared.
            (Correction::Remove, _) => {
                let Some(version) = version.filter(|_| self.complete) else { return Ok(()) };
                tracing::info!(%key, "an object that the control plane has no more is removed");
                self.backend()?.delete(key, &Expect::Version(version)).map(drop)
            }
            (_, None) => Ok(()),
            (Correction::Record, Some(stub)) => {
                self.record(key, stub, version.unwrap_or_default());
                Ok(())
            }
            (correction, Some(stub)) => {
                let Some(content) = self.content(key)? else { return Ok(()) };
                match correction {
                    Correction::OtherUid => return self.put(key, stub, &content),
                    Correction::Revert => {
                        tracing::info!(%key, "a local edit is put back");
                        self.context.view.set(|view| view.counts.reverted += 1);
                    }
                    Correction::Recreate => {
                        tracing::info!(%key, "a local deletion is made good");
                        self.context.view.set(|view| view.counts.recreated += 1);
                    }
                    _ => {}
                }
                self.apply(key, stub, &content, Expect::Anything)
            }
        }
    }

    /// The statuses as found, towards those in the own set. `uid`: that of an object whose
    /// status goes up.
    pub(super) fn statuses(
        &self,
        listing: &Listing,
        uid: impl Fn(&FoundObject) -> Option<std::sync::Arc<str>>,
    ) -> Vec<OwnChange> {
        let mut there: BTreeMap<ObjectKey, OwnChange> = BTreeMap::new();
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
    pub(super) fn gone(&self, is_gone: impl Fn(&ObjectKey) -> bool) -> Vec<OwnChange> {
        let node_status = node_status_key();
        let is_gone = |key: &ObjectKey| *key != node_status && is_gone(key);
        let gone = self.context.sets.stubs(Side::Feed, is_gone);
        gone.into_iter().map(|(key, _)| OwnChange::Remove(key)).collect()
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
