//! What the state directory holds of trust documents (IDN-8).

use node::TrustRecord;

use super::{Durable, StateError, spool};

impl Durable {
    /// The newest trust document, if one was taken up since the host joined. One that is damaged is set aside: the
    /// chain is walked again from the one that the token named.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn trust(&self) -> Result<Option<TrustRecord>, StateError> {
        self.load(&self.trust, "read the trust document")
    }

    /// Records a newer trust document, before anything is judged by it.
    ///
    /// # Errors
    /// When it cannot be written; the one before it is there still.
    pub fn save_trust(&self, record: &TrustRecord) -> Result<(), StateError> {
        self.trust.store(record).map_err(spool("record the trust document"))
    }
}
