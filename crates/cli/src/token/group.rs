//! `muster token mint --group`: a token for hosts of a pattern of names (ENR-9).

use std::collections::BTreeMap;
use std::time::Duration;

use data_encoding::HEXLOWER;
use model::Timestamp;
use server::EnrollInfo;
use server::posture;
use trust::group_token::{self, GroupAdmission, GroupClaims, GroupTermsError};
use trust::token::{KeySource, TokenError};

use super::MintError;
use crate::signer::FleetSigner;

/// What a group token is to say.
#[derive(Clone, Debug)]
pub struct GroupMintRequest {
    /// Which hostnames may join.
    pub pattern: String,
    /// How many.
    pub uses: u32,
    /// Who lets them in.
    pub admission: GroupAdmission,
    /// Labels as `NAME=VALUE`.
    pub labels: Vec<String>,
    /// How long the token counts.
    pub valid: Duration,
    /// Which key is a machine's.
    pub key: KeySource,
}

/// Mints a group token.
///
/// # Errors
/// When it would break a rule on group tokens, or the root key does not sign.
pub fn mint(
    request: &GroupMintRequest,
    info: &EnrollInfo,
    root: &FleetSigner,
    now: Timestamp,
) -> Result<String, MintError> {
    let labels: Result<BTreeMap<_, _>, GroupTermsError> =
        request.labels.iter().map(|label| group_token::label(label)).collect();
    let labels = labels.map_err(|error| MintError::Mint(TokenError::Group(error)))?;
    if info.servers.is_empty() {
        return Err(MintError::NoServer);
    }
    let nonce: [u8; 16] = posture::random().map_err(MintError::Random)?;
    let claims = GroupClaims {
        fleet: info.fleet.clone(),
        pattern: request.pattern.clone(),
        uses: request.uses,
        admission: request.admission,
        labels,
        key: request.key,
        issued_at: now,
        expires_at: now.plus(request.valid),
        nonce: HEXLOWER.encode(&nonce),
        servers: info.servers.iter().map(ToString::to_string).collect(),
        ca: info.ca,
        trust: info.trust,
    };
    let unsigned = group_token::unsigned(&claims).map_err(MintError::Mint)?;
    Ok(unsigned.signed(&root.sign(unsigned.message())?))
}
