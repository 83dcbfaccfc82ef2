//! What `muster-agent seen` exports: what this node was given, under its own key.

use model::Timestamp;
use model::log::Cursor;
use node::Adoption;
use trust::SigningKey;
use trust::equivocation::{SEEN_FORMAT, SeenRecord};
use trust::seen::Seen;

use crate::runner::RunnerError;
use crate::state::FactsWaiting;

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum SeenRecordError {
    /// No release is held.
    #[error(transparent)]
    NothingHeld(#[from] RunnerError),
    /// It cannot be signed.
    #[error("what this node has seen cannot be signed")]
    Sign(#[from] model::canonical::CanonicalError),
}

/// The release that is held and where the log ends, signed now.
///
/// # Errors
/// When nothing is held yet.
pub fn seen_record(
    key: &SigningKey,
    adoption: Option<Adoption>,
    facts: &FactsWaiting,
    at: Timestamp,
) -> Result<SeenRecord, SeenRecordError> {
    let adoption = adoption.ok_or(RunnerError::NothingHeld)?;
    let seen = Seen {
        node: key.public().node_id(),
        header: adoption.digest,
        seq: adoption.seq,
        log_head: Cursor { incarnation: facts.incarnation.clone(), seq: facts.last },
        at,
        acked: Some(facts.acked),
    };
    let seen = seen.sign(key)?;
    Ok(SeenRecord { format: SEEN_FORMAT, key: key.public(), seen, header: adoption.header })
}
