//! Operations on objects, on their way to the objects' owners (SYN-2, SYN-5).
//!
//! ```text
//! work thread -> OperationQueue -> mailbox -> reconciler -> Backend::request_operation -> owner
//!      ^---------------- ActionOutcome: handed over, refused, failed -+
//! ```
//!
//! Invariants: the release allowed the operation before it is posted here; posting never waits;
//! each posted operation is answered once, unless the reconciler ends before.

use std::sync::Arc;

use backends::{BackendError, ErrorClass, OperationRequest};
use model::ObjectKey;
use model::replication::Mode;
use model::work::{ActionOutcome, RefusalCode};

use super::mailbox::Mailbox;
use super::reconciler::Reconciler;

/// The way of operations to the reconciler. It may be made before the reconciler is, and does not
/// keep the reconciler going. Cheap to clone.
#[derive(Clone, Default)]
pub struct OperationQueue(Arc<Mailbox>);

impl OperationQueue {
    /// Has an operation handed to the owner of an object.
    ///
    /// # Errors
    /// When it cannot wait there, in words; then `answer` hears nothing.
    pub fn post(
        &self,
        key: ObjectKey,
        request: OperationRequest,
        answer: impl FnOnce(ActionOutcome) + Send + 'static,
    ) -> Result<(), String> {
        let posted = self.0.run(move |reconciler| answer(reconciler.hand_over(&key, &request)));
        posted.then_some(()).ok_or_else(|| "too many operations wait on this node, or it stops".to_owned())
    }

    pub(super) fn mailbox(&self) -> Arc<Mailbox> {
        self.0.clone()
    }
}

impl Reconciler {
    /// Hands an operation to the owner of its object.
    fn hand_over(&mut self, key: &ObjectKey, request: &OperationRequest) -> ActionOutcome {
        // The release that allowed it may be one that this thread does not go by yet.
        let current = self.policy.mode == Mode::Autonomous && self.kinds.contains(&key.section.kind);
        let Some(backend) = self.opened.backend.as_mut().filter(|_| current) else {
            let why = self.opened.unusable.clone();
            let message = why.unwrap_or_else(|| "the node is changing its mode; ask again".to_owned());
            return ActionOutcome::Failed { message };
        };
        match backend.request_operation(key, request) {
            Ok(()) => ActionOutcome::HandedOver,
            Err(BackendError { class: ErrorClass::Recoverable, message, .. }) => {
                ActionOutcome::Refused { code: RefusalCode::ObjectAbsent, message }
            }
            Err(error) => ActionOutcome::Failed { message: error.to_string() },
        }
    }
}
