//! Actions are taken only while what is held is fresh (ROL-4).

use model::Timestamp;
use model::work::{ActionRefusal, RefusalCode};

use super::WorkTime;

/// Whether the control plane may ask for an action at this time: `fresh_until` is that of
/// [`crate::FreshnessRecord::fresh_until`].
///
/// # Errors
/// [`RefusalCode::NotFresh`] afterwards.
pub fn check_fresh(fresh_until: Timestamp, at: WorkTime) -> Result<(), ActionRefusal> {
    if at.trusted <= fresh_until {
        return Ok(());
    }
    let message =
        "what this node holds is not fresh: no release and no beacon was signed within its freshness";
    Err(ActionRefusal { code: RefusalCode::NotFresh, message: message.to_owned() })
}
