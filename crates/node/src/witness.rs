//! [`Witness`]: when a check-in carries the node's signed `seen` document.
//!
//! An unchanged check-in carries none: it is signed once for what it says, sent until a check-in
//! that carried it is answered, and again when the control plane asks for it.

use model::canonical::CanonicalError;
use model::exchange::Signed;
use trust::seen::Seen;

/// What of the node's `seen` document the control plane has.
#[derive(Debug, Default)]
pub struct Witness {
    signed: Option<(Seen, Signed)>,
    /// The control plane has what is in `signed`.
    delivered: bool,
}

impl Witness {
    /// The document that the next check-in carries, if the control plane lacks what it says.
    ///
    /// # Errors
    /// What `sign` returns; the check-in goes without the document then.
    pub fn next(
        &mut self,
        seen: Seen,
        sign: impl FnOnce(&Seen) -> Result<Signed, CanonicalError>,
    ) -> Result<Option<Signed>, CanonicalError> {
        let same = self.signed.as_ref().filter(|(known, _)| known.says_the_same(&seen));
        let document = match same {
            Some(_) if self.delivered => return Ok(None),
            Some((_, document)) => document.clone(),
            None => {
                let document = sign(&seen)?;
                self.signed = Some((seen, document.clone()));
                self.delivered = false;
                document
            }
        };
        Ok(Some(document))
    }

    /// A check-in was answered that carried `sent`; `wanted`: the control plane lacks the newest
    /// document. Check-ins may overlap, so that an answer counts for what its own request carried.
    pub fn answered(&mut self, sent: Option<&Signed>, wanted: bool) {
        let newest = self.signed.as_ref().map(|(_, document)| document);
        self.delivered = !wanted && (self.delivered || sent == newest);
    }
}
