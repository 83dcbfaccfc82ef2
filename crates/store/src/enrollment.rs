//! The decision of an enrollment, the same for every backend.

use model::{Hostname, NodeId};

use crate::error::EnrollError;
use crate::record::{Enrolled, NewNode, TokenUse};

/// What is stored of a node that matters to an enrollment.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) hostname: Hostname,
    pub(crate) public_key: String,
    pub(crate) active: bool,
    pub(crate) cert_used: bool,
    /// The nonce of the token that it last enrolled with.
    pub(crate) nonce: String,
}

/// What is stored that an enrollment touches.
pub(crate) struct Before {
    /// The node of the same id.
    pub(crate) same_id: Option<Known>,
    /// The active node of the same hostname.
    pub(crate) same_hostname: Option<NodeId>,
    /// The token's nonce is burned.
    pub(crate) nonce_burned: bool,
}

/// Whether `node` may enroll with a token, and as what.
pub(crate) fn decide(node: &NewNode, token: &TokenUse, before: &Before) -> Result<Enrolled, EnrollError> {
    if let Some(known) = &before.same_id
        && known.public_key != node.public_key
    {
        return Err(EnrollError::KeyTaken { by: known.hostname.clone() });
    }
    let same = before.same_id.as_ref().filter(|known| known.active);
    if before.nonce_burned {
        let first_try = same.filter(|known| known.nonce == token.nonce && !known.cert_used);
        return match first_try {
            Some(known) if known.hostname == node.hostname => Ok(Enrolled::Again),
            _ => Err(EnrollError::NonceUsed),
        };
    }
    if let Some(known) = same
        && known.hostname != node.hostname
    {
        return Err(EnrollError::KeyTaken { by: known.hostname.clone() });
    }
    match &before.same_hostname {
        Some(by) if *by == node.node_id => Ok(Enrolled::Again),
        Some(by) if token.replaces.as_ref() == Some(by) => Ok(Enrolled::Replacing),
        Some(by) => Err(EnrollError::HostnameTaken { by: by.clone() }),
        None => Ok(Enrolled::New),
    }
}
