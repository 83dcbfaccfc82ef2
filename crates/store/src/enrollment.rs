//! The decision of an enrollment, the same for every backend.

use model::{Hostname, JoinState, KeyConfirmation, NodeId, PendingJoin};

use crate::error::EnrollError;
use crate::record::{Enrolled, JoinAdmission, NewNode, TokenUse};

/// What is stored of a node that matters to an enrollment.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) hostname: Hostname,
    pub(crate) public_key: String,
    pub(crate) active: bool,
    pub(crate) cert_used: bool,
    /// The nonce of the token that it last enrolled with.
    pub(crate) nonce: String,
    pub(crate) confirmation: KeyConfirmation,
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

/// What is stored that an admission touches.
pub(crate) struct JoinBefore {
    pub(crate) nodes: Before,
    /// What was decided of the key.
    pub(crate) pending: Option<PendingJoin>,
    /// How many other keys used the group token.
    pub(crate) other_uses: u32,
}

/// Whether `node` may join without a token of its own, and as what (ENR-9).
pub(crate) fn decide_admission(
    node: &NewNode,
    admission: &JoinAdmission,
    before: &JoinBefore,
) -> Result<Enrolled, EnrollError> {
    if let Some(known) = &before.nodes.same_id
        && known.public_key != node.public_key
    {
        return Err(EnrollError::KeyTaken { by: known.hostname.clone() });
    }
    if let Some(known) = before.nodes.same_id.as_ref().filter(|known| known.active) {
        // It proves the key that it enrolled with. A declared key may do so as often as it likes: it names one host.
        let may = !known.cert_used || *admission == JoinAdmission::Declared;
        return match known.hostname == node.hostname && may {
            true => Ok(Enrolled::Again),
            false => Err(EnrollError::KeyTaken { by: known.hostname.clone() }),
        };
    }
    if let Some(by) = &before.nodes.same_hostname {
        return Err(EnrollError::HostnameTaken { by: by.clone() });
    }
    let is_approved = |join: &PendingJoin| {
        join.state == JoinState::Approved
            && join.hostname == node.hostname
            && join.public_key == node.public_key
    };
    match admission {
        JoinAdmission::Group(group) if before.other_uses >= group.uses => {
            Err(EnrollError::GroupSpent { uses: group.uses })
        }
        JoinAdmission::Group(_) if node.key_confirmation != KeyConfirmation::Operator => Ok(Enrolled::New),
        JoinAdmission::Declared => Ok(Enrolled::New),
        JoinAdmission::Group(_) | JoinAdmission::Approved
            if before.pending.as_ref().is_some_and(is_approved) =>
        {
            Ok(Enrolled::New)
        }
        JoinAdmission::Group(_) | JoinAdmission::Approved | JoinAdmission::Retry => {
            Err(EnrollError::NotApproved)
        }
    }
}
