//! [`Embedded`]: objects that live nowhere but in the memory of a process and in the durable
//! store of its caller. Nobody else changes them, so there is nothing to watch, and they have no
//! statuses; finalizers mean nothing here.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::ObjectKey;

use crate::backend::{
    AppliedVersion, ApplyRequest, Backend, BackendError, Deleted, Expect, FoundObject, Listing,
};
use crate::manifest;

/// The most objects.
pub const MAX_OBJECTS: usize = sync::replica::MAX_OBJECTS;
/// The most bytes of their specs, together: they are in memory.
pub const MAX_BYTES: u64 = sync::replica::MAX_BYTES;

/// The backend.
#[derive(Debug, Default)]
pub struct Embedded {
    objects: BTreeMap<ObjectKey, FoundObject>,
    /// Of all specs.
    bytes: u64,
}

impl Embedded {
    /// Puts an object as the caller kept it: with its uid here and its uid at the source.
    ///
    /// # Errors
    /// Permanent `too-many` when there are [`MAX_OBJECTS`] others, or with this one more bytes
    /// than [`MAX_BYTES`].
    pub fn restore(
        &mut self,
        key: &ObjectKey,
        uid: Option<String>,
        source_uid: Option<&str>,
        spec: Bytes,
    ) -> Result<AppliedVersion, BackendError> {
        let version = manifest::version(&spec, source_uid, None);
        let old = self.objects.get(key).map_or(0, |old| old.spec.len() as u64);
        let new = spec.len() as u64;
        let bytes = self.bytes.saturating_sub(old).saturating_add(new);
        if new > old && bytes > MAX_BYTES {
            let message = format!("the objects here have {MAX_BYTES} bytes already; delete some");
            return Err(BackendError::permanent("too-many", message));
        }
        if self.objects.len() >= MAX_OBJECTS && !self.objects.contains_key(key) {
            let message = format!("there are {MAX_OBJECTS} objects already; delete some");
            return Err(BackendError::permanent("too-many", message));
        }
        let (key, source_uid) = (key.clone(), source_uid.map(str::to_owned));
        let found = FoundObject {
            key,
            uid,
            version: version.clone(),
            spec,
            status: None,
            source_uid,
            deleting: false,
        };
        self.objects.insert(found.key.clone(), found);
        self.bytes = bytes;
        Ok(AppliedVersion { version })
    }
}

impl Backend for Embedded {
    fn list(&mut self) -> Listing {
        Listing { objects: self.objects.values().cloned().collect(), problems: Vec::new(), complete: true }
    }

    fn get(&mut self, key: &ObjectKey) -> Result<Option<FoundObject>, BackendError> {
        Ok(self.objects.get(key).cloned())
    }

    fn apply(&mut self, apply: ApplyRequest<'_>) -> Result<AppliedVersion, BackendError> {
        manifest::identify(apply.key, apply.spec)?;
        let old = self.objects.get(apply.key);
        if !apply.expect.holds(old) {
            return Err(BackendError::conflict(apply.key));
        }
        let uid = old.and_then(|old| old.uid.clone());
        self.restore(apply.key, uid, apply.source_uid, Bytes::copy_from_slice(apply.spec))
    }

    fn delete(&mut self, key: &ObjectKey, expect: &Expect) -> Result<Deleted, BackendError> {
        let Some(old) = self.objects.get(key) else { return Ok(Deleted::Absent) };
        if !expect.holds(Some(old)) {
            return Err(BackendError::conflict(key));
        }
        self.bytes = self.bytes.saturating_sub(old.spec.len() as u64);
        self.objects.remove(key);
        Ok(Deleted::Removed)
    }

    fn assign_uid(&mut self, key: &ObjectKey, uid: &str) {
        if let Some(found) = self.objects.get_mut(key) {
            found.uid = Some(uid.to_owned());
        }
    }
}
