//! What the state directory holds of trust documents (IDN-8).

use std::path::Path;

use ::spool::{Disk, StateFile};
use node::{Node, TrustRecord};
use trust::TrustDocument;

use super::{Durable, MODE, StateError, TRUST_FILE, spool};

/// Whom a host believes that joined with a document, without opening its state directory.
///
/// # Errors
/// When what is recorded there cannot be read.
pub fn read_trusted(state: &Path, pinned: &TrustDocument) -> Result<TrustDocument, StateError> {
    let record: StateFile<TrustRecord> = StateFile::new(&Disk::new(), state.join(TRUST_FILE), MODE);
    let record = record.load().map_err(spool("read the trust document"))?.value;
    Ok(Node::trusted(pinned, record))
}

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
