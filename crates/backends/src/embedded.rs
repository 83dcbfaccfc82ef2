//! [`Embedded`]: objects that live nowhere but in the memory of a process and in the durable
//! store of its caller.
//!
//! What the synchronization applies is accepted; what the node's own verbs change through a
//! [`Local`] is signalled as an edit of a user is elsewhere. Finalizers mean nothing here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use model::ObjectKey;

use crate::backend::{Applied, Apply, Backend, BackendError, Deleted, Found, Listing, Precondition};
use crate::manifest;
use crate::signals::{self, Changes, Sender, Signal, Signals};

/// The most objects.
pub const MAX_OBJECTS: usize = sync::replica::MAX_OBJECTS;
/// The most bytes of their specs and statuses, together: they are in memory.
pub const MAX_BYTES: u64 = sync::replica::MAX_BYTES;

/// An object as the caller kept it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// Kind, namespace, name.
    pub key: ObjectKey,
    /// Its uid here.
    pub uid: Option<String>,
    /// Its uid at the source.
    pub source_uid: Option<String>,
    /// Its spec content.
    pub spec: Bytes,
    /// Its status.
    pub status: Option<Bytes>,
}

/// The backend.
#[derive(Debug)]
pub struct Embedded {
    shared: Arc<Mutex<Inner>>,
}

/// The same objects for whoever changes them on the node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Local {
    shared: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    objects: BTreeMap<ObjectKey, Found>,
    /// Of all specs and statuses.
    bytes: u64,
    sender: Option<Sender>,
}

impl Embedded {
    /// A backend that has what the caller kept.
    ///
    /// # Errors
    /// Permanent when there are more than [`MAX_OBJECTS`], or more bytes than [`MAX_BYTES`].
    pub fn new(kept: impl IntoIterator<Item = StoredObject>) -> Result<Embedded, BackendError> {
        let mut inner = Inner::default();
        for kept in kept {
            let StoredObject { key, uid, source_uid, spec, status } = kept;
            let version = manifest::version(&spec, source_uid.as_deref(), None);
            let found = Found { key: key.clone(), uid, version, spec, status, source_uid, deleting: false };
            inner.room_for(&key, weight(&found))?;
            inner.insert(found);
        }
        Ok(Embedded { shared: Arc::new(Mutex::new(inner)) })
    }

    /// The way in for changes made on the node.
    pub fn local(&self) -> Local {
        Local { shared: self.shared.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.shared)
    }
}

impl Local {
    /// Puts an object as a user of the node does. What `apply.source_uid` says is recorded.
    ///
    /// # Errors
    /// As [`Backend::apply`].
    pub fn apply(&self, apply: Apply<'_>) -> Result<Applied, BackendError> {
        let key = apply.key.clone();
        let mut inner = lock(&self.shared);
        let applied = inner.apply(apply)?;
        inner.tell(key);
        Ok(applied)
    }

    /// Deletes an object as a user of the node does.
    ///
    /// # Errors
    /// As [`Backend::delete`].
    pub fn delete(&self, key: &ObjectKey, precondition: &Precondition) -> Result<Deleted, BackendError> {
        let mut inner = lock(&self.shared);
        let deleted = inner.delete(key, precondition)?;
        if deleted != Deleted::Absent {
            inner.tell(key.clone());
        }
        Ok(deleted)
    }

    /// Sets a status as a tool of the node does.
    ///
    /// # Errors
    /// As [`Backend::put_status`].
    pub fn put_status(&self, key: &ObjectKey, status: Option<&[u8]>) -> Result<(), BackendError> {
        let mut inner = lock(&self.shared);
        inner.put_status(key, None, status)?;
        inner.tell(key.clone());
        Ok(())
    }

    /// One object.
    pub fn get(&self, key: &ObjectKey) -> Option<Found> {
        lock(&self.shared).objects.get(key).cloned()
    }
}

impl Backend for Embedded {
    fn list(&mut self) -> Result<Listing, BackendError> {
        let objects = self.lock().objects.values().cloned().collect();
        Ok(Listing { objects, problems: Vec::new(), complete: true })
    }

    fn get(&mut self, key: &ObjectKey) -> Result<Option<Found>, BackendError> {
        Ok(self.lock().objects.get(key).cloned())
    }

    fn apply(&mut self, apply: Apply<'_>) -> Result<Applied, BackendError> {
        self.lock().apply(apply)
    }

    fn delete(&mut self, key: &ObjectKey, precondition: &Precondition) -> Result<Deleted, BackendError> {
        self.lock().delete(key, precondition)
    }

    fn put_status(
        &mut self,
        key: &ObjectKey,
        uid: Option<&str>,
        status: Option<&[u8]>,
    ) -> Result<(), BackendError> {
        self.lock().put_status(key, uid, status)
    }

    fn assign_uid(&mut self, key: &ObjectKey, uid: &str) {
        if let Some(found) = self.lock().objects.get_mut(key) {
            found.uid = Some(uid.to_owned());
        }
    }

    fn watch(&mut self) -> Result<Signals, BackendError> {
        let (sender, signals) = signals::pair(None);
        self.lock().sender = Some(sender);
        Ok(signals)
    }
}

impl Inner {
    /// Whether an object of so many bytes has room.
    fn room_for(&self, key: &ObjectKey, bytes: u64) -> Result<(), BackendError> {
        let before = self.objects.get(key).map_or(0, weight);
        if bytes > before && self.bytes.saturating_sub(before).saturating_add(bytes) > MAX_BYTES {
            let message = format!("the objects here have {MAX_BYTES} bytes already; delete some");
            return Err(BackendError::permanent("too-many", message));
        }
        if self.objects.len() >= MAX_OBJECTS && !self.objects.contains_key(key) {
            let message = format!("there are {MAX_OBJECTS} objects already; delete some");
            return Err(BackendError::permanent("too-many", message));
        }
        Ok(())
    }

    fn apply(&mut self, apply: Apply<'_>) -> Result<Applied, BackendError> {
        manifest::identify(apply.key, apply.spec)?;
        let old = self.objects.get(apply.key);
        if !apply.expect.holds(old) {
            return Err(BackendError::conflict(apply.key));
        }
        let version = manifest::version(apply.spec, apply.source_uid, None);
        let found = Found {
            key: apply.key.clone(),
            uid: old.and_then(|old| old.uid.clone()),
            version: version.clone(),
            spec: Bytes::copy_from_slice(apply.spec),
            status: old.and_then(|old| old.status.clone()),
            source_uid: apply.source_uid.map(str::to_owned),
            deleting: false,
        };
        self.room_for(apply.key, weight(&found))?;
        self.insert(found);
        Ok(Applied { version })
    }

    fn insert(&mut self, found: Found) {
        self.bytes = self.bytes.saturating_add(weight(&found));
        if let Some(old) = self.objects.insert(found.key.clone(), found) {
            self.bytes = self.bytes.saturating_sub(weight(&old));
        }
    }

    fn delete(&mut self, key: &ObjectKey, precondition: &Precondition) -> Result<Deleted, BackendError> {
        let Some(old) = self.objects.get(key) else { return Ok(Deleted::Absent) };
        if !precondition.holds(old) {
            return Err(BackendError::conflict(key));
        }
        self.bytes = self.bytes.saturating_sub(weight(old));
        self.objects.remove(key);
        Ok(Deleted::Gone)
    }

    fn put_status(
        &mut self,
        key: &ObjectKey,
        uid: Option<&str>,
        status: Option<&[u8]>,
    ) -> Result<(), BackendError> {
        let status = status.map(manifest::read_status).transpose()?;
        let Some(found) = self.objects.get(key).cloned() else { return Err(BackendError::absent(key)) };
        if uid.is_some() && uid != found.uid.as_deref() {
            return Err(BackendError::conflict(key));
        }
        let found = Found { status, ..found };
        self.room_for(key, weight(&found))?;
        self.insert(found);
        Ok(())
    }

    fn tell(&self, key: ObjectKey) {
        if let Some(sender) = &self.sender {
            sender.send(Signal::Changed(Changes::Keys(BTreeSet::from([key]))));
        }
    }
}

fn weight(found: &Found) -> u64 {
    (found.spec.len() + found.status.as_ref().map_or(0, Bytes::len)) as u64
}

/// Every change is one assignment, so a holder that panicked left nothing half done.
fn lock(shared: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
