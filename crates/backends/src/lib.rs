//! Where objects live for their users: a watched folder of manifests, an embedded store.
//!
//! A [`Backend`] is one of these, behind one trait; what should be there and what it
//! says is decided elsewhere, with the help of the pure functions of [`reconcile`].
//!
//! Deliberately absent: uids, cursors and what is durable of synchronization; they are the
//! caller's.

pub mod backend;
pub mod embedded;
pub mod folder;
pub mod manifest;
pub mod reconcile;

pub use backend::{
    AppliedVersion, ApplyRequest, Backend, BackendError, ChangeListener, Deleted, ErrorClass, Expect,
    FoundObject, Listing, ListingProblem, OperationRequest,
};
pub use embedded::Embedded;
pub use folder::Folder;
