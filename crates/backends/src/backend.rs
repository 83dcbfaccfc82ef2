//! [`Backend`]: where objects live for their users, whatever that is (SYN-9).
//!
//! One worker owns a backend and calls it; every call may block on a disk or a server. The
//! trait is shaped so that a store with versions, a status subresource, finalizers and
//! defaulted fields fits as well as a folder does.

use bytes::Bytes;
use model::replication::ObjectOperation;
use model::{ObjectKey, Timestamp};
use serde::Serialize;

use crate::manifest;

/// An object as a backend has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundObject {
    /// Kind, namespace, name.
    pub key: ObjectKey,
    /// Its uid here: its own, or the one given by [`Backend::assign_uid`].
    pub uid: Option<String>,
    /// Its version: changes with everything but its status, and only then. Opaque; equal
    /// versions of one key are equal content. After [`Backend::apply`] it is what
    /// [`AppliedVersion::version`] said, until somebody else changes the object.
    pub version: String,
    /// Its spec content: canonical JSON.
    pub spec: Bytes,
    /// Its status, canonical JSON.
    pub status: Option<Bytes>,
    /// The recorded uid of its source: synchronization put it here (SYN-7).
    pub source_uid: Option<String>,
    /// It is going, and somebody else has to agree first (finalizers). It may neither be
    /// applied nor made anew until it is gone.
    pub deleting: bool,
}

/// Something that a backend has and cannot take as an object; for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingProblem {
    /// Where: a path in the folder, or an object's key. Empty for the whole backend.
    pub path: String,
    /// The line, from 1, where one can be named.
    pub line: Option<u32>,
    /// A stable code.
    pub code: &'static str,
    /// What is wrong and what to do, for people.
    pub message: String,
    /// Objects that go on as they were before it, though what is there says nothing of them.
    pub kept: Vec<ObjectKey>,
}

impl ListingProblem {
    /// A problem that keeps no object as it was.
    pub(crate) fn of(path: &str, line: Option<u32>, code: &'static str, message: String) -> ListingProblem {
        ListingProblem { path: path.to_owned(), line, code, message, kept: Vec::new() }
    }
}

/// Everything that a backend has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The objects, by key.
    pub objects: Vec<FoundObject>,
    /// What could not be taken.
    pub problems: Vec<ListingProblem>,
    /// An object that is not in `objects` is not there. When false, something could not be
    /// looked at: nothing may be taken for deleted.
    pub complete: bool,
}

/// What must hold for a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    #[default]
    Anything,
    /// The object is not there.
    Absent,
    /// The object has this version.
    Version(String),
}

impl Expect {
    /// Whether what is there is as it must be.
    pub fn holds(&self, found: Option<&FoundObject>) -> bool {
        match (self, found) {
            (Expect::Anything, _) | (Expect::Absent, None) => true,
            (Expect::Version(version), Some(found)) => *version == found.version,
            _ => false,
        }
    }
}

/// An object to be put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyRequest<'a> {
    /// Kind, namespace, name.
    pub key: &'a ObjectKey,
    /// Its spec content, at most [`sync::object::MAX_CONTENT`] bytes.
    pub spec: &'a [u8],
    /// Its uid at the source, recorded with it; `None` for an object of this side's own.
    pub source_uid: Option<&'a str>,
    /// What must hold.
    pub expect: Expect,
}

/// A change that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedVersion {
    /// The object's version now: whoever finds it finds what was put, and no local edit.
    pub version: String,
}

/// An operation on an object, for whoever owns the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationRequest {
    /// What to do.
    pub operation: ObjectOperation,
    /// Which request it is: a request of the same id is the same request.
    pub id: String,
    /// When the node took it.
    pub requested_at: Timestamp,
}

/// How far a deletion is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// The object is removed.
    Removed,
    /// There was none.
    Absent,
    /// It is going: finalizers are pending.
    Pending,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BackendError {
    /// What helps.
    pub class: ErrorClass,
    /// A stable code.
    pub code: &'static str,
    /// What happened and, where it stays, what to do, for people.
    pub message: String,
}

/// What helps against an error (SYN-12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// It may work later as it is: try again after a while.
    Temporary,
    /// What is known of the object is stale: get it, and try again.
    Recoverable,
    /// It will never work: stop, and refuse it towards the source of truth.
    Permanent,
}

impl BackendError {
    /// Something that may pass.
    pub fn temporary(code: &'static str, message: impl Into<String>) -> BackendError {
        BackendError { class: ErrorClass::Temporary, code, message: message.into() }
    }

    /// The object is not as expected.
    pub fn conflict(key: &ObjectKey) -> BackendError {
        let message = format!("{key} is not as expected; somebody changed it");
        BackendError { class: ErrorClass::Recoverable, code: "conflict", message }
    }

    /// There is no such object.
    pub fn absent(key: &ObjectKey) -> BackendError {
        let message = format!("there is no {key}");
        BackendError { class: ErrorClass::Recoverable, code: "absent", message }
    }

    /// Something that stays.
    pub fn permanent(code: &'static str, message: impl Into<String>) -> BackendError {
        BackendError { class: ErrorClass::Permanent, code, message: message.into() }
    }
}

impl From<manifest::ReadManifestError> for BackendError {
    fn from(error: manifest::ReadManifestError) -> BackendError {
        BackendError::permanent(error.problem.code(), error.to_string())
    }
}

/// Hears that something changed in a backend. Called on any thread; it must not call the backend.
pub type ChangeListener = Box<dyn Fn() + Send>;

/// Where objects live for their users.
pub trait Backend: Send {
    /// Everything that is there now. Of a backend that cannot be asked, as of a folder that is gone, an
    /// incomplete listing with a problem of the whole backend.
    fn list(&mut self) -> Listing;

    /// One object.
    ///
    /// # Errors
    /// When the backend cannot be asked.
    fn get(&mut self, key: &ObjectKey) -> Result<Option<FoundObject>, BackendError>;

    /// Puts an object: makes it, or replaces its spec, and leaves its status alone. The listener
    /// does not hear of it.
    ///
    /// # Errors
    /// Recoverable `conflict` when `expect` does not hold; permanent when the content is not
    /// one of this object; temporary when the backend is gone, full or busy.
    fn apply(&mut self, apply: ApplyRequest<'_>) -> Result<AppliedVersion, BackendError>;

    /// Deletes an object with its status. The listener does not hear of it.
    ///
    /// # Errors
    /// Recoverable `conflict` when `expect` does not hold for an object that is there; else as for
    /// apply.
    fn delete(&mut self, key: &ObjectKey, expect: &Expect) -> Result<Deleted, BackendError>;

    /// Hands an operation to whoever owns the object, in place of one that the owner did not take
    /// yet. The object and its status stay as they are, and the listener does not hear of it.
    ///
    /// # Errors
    /// Recoverable `absent` when there is no such object; permanent `no-operations` where nobody
    /// takes operations; temporary as for apply.
    fn request_operation(&mut self, key: &ObjectKey, request: &OperationRequest) -> Result<(), BackendError> {
        let message = format!("nobody takes {} of {key} here", request.operation);
        Err(BackendError::permanent("no-operations", message))
    }

    /// Tells the uid that the caller gave to an object that has none of its own. The backend
    /// says it in [`FoundObject::uid`] as long as the object lives here, so that one that was deleted
    /// and made again is seen as another. It is not kept over a restart: the caller does that.
    fn assign_uid(&mut self, key: &ObjectKey, uid: &str);

    /// Calls `changed` from now on, in place of an earlier listener, whenever somebody else changed
    /// something, until the backend is dropped. It is a hint to list, and several changes may be
    /// one. Call it before [`Backend::list`], so that nothing happens in between. A backend that
    /// nobody else changes never calls it.
    ///
    /// # Errors
    /// As [`Backend::get`].
    fn watch(&mut self, _changed: ChangeListener) -> Result<(), BackendError> {
        Ok(())
    }

    /// Whether what is found is what was applied, as this backend keeps it: fields that it
    /// adds or writes differently by itself are no local edit. Asked only where versions
    /// differ.
    fn equivalent(&self, applied: &[u8], found: &[u8]) -> bool {
        applied == found || manifest::normal(applied).is_some_and(|applied| applied == found)
    }
}
