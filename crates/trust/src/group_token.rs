//! Group tokens (ENR-9): how many hosts of a pattern of names may ask to join, and whether they wait for an operator.
//!
//! A group token names no host and no key: whoever holds it may use it for a key of his own. So it lives in a document
//! type and a text form of its own, its uses are counted, no proxy may read it, and no key that came in by one counts
//! for secrets.

use std::collections::BTreeMap;

use lang::pattern::{Pattern, PatternError};
use model::{Digest, FleetId, Hostname, Timestamp};
use serde::{Deserialize, Serialize};

use crate::document::Slots;
use crate::key::SigningKey;
use crate::token::{self, KeySource, MAX_LIFE, TokenError, UnsignedToken};

/// The most hosts that one group token lets in.
pub const MAX_GROUP_USES: u32 = 10_000;
/// The most labels of a group token.
pub const MAX_GROUP_LABELS: usize = 32;
/// The longest name of a label, in bytes.
pub const MAX_LABEL_NAME: usize = 63;
/// The longest value of a label, in bytes.
pub const MAX_LABEL_VALUE: usize = 256;
pub(crate) const PREFIX: &str = "muster-group1.";
const TYPE: &str = "group-token";

/// What a group token says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupClaims {
    /// The fleet.
    pub fleet: FleetId,
    /// Which hostnames may join: a pattern as nodes.yaml has it.
    pub pattern: String,
    /// How many keys may use it, 1 to [`MAX_GROUP_USES`].
    pub uses: u32,
    /// Whether hosts that join with it wait for an operator.
    #[serde(default, skip_serializing_if = "GroupAdmission::is_by_operator")]
    pub admission: GroupAdmission,
    /// Labels that are kept with each node that joins with it, for people; they select nothing of a release.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Which key the agent should use as the machine's.
    #[serde(default, skip_serializing_if = "KeySource::is_own")]
    pub key: KeySource,
    /// When it was minted.
    pub issued_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// Random; its uses are counted by it.
    pub nonce: String,
    /// Where the control plane is, in order of preference.
    pub servers: Vec<String>,
    /// SHA-256 of the control plane's CA certificate.
    pub ca: Digest,
    /// The digest of the trust document.
    pub trust: Digest,
}

/// Who lets a host in that joins with a group token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupAdmission {
    /// An operator, by the fingerprint of its key: until then the host has no access.
    #[default]
    ByOperator,
    /// The token itself, as for machines that come and go by themselves.
    ByToken,
}

impl GroupAdmission {
    fn is_by_operator(&self) -> bool {
        *self == GroupAdmission::ByOperator
    }
}

/// Why group claims cannot be minted, or do not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupTermsError {
    /// The pattern cannot be read.
    #[error("the group's pattern cannot be read: {0}")]
    Pattern(#[from] PatternError),
    /// The number of uses is none that there may be.
    #[error("a group token is for 1 to {MAX_GROUP_USES} hosts")]
    Uses,
    /// A label cannot be one.
    #[error("{0:?} is no label: write NAME=VALUE, the name of letters, digits and . _ - /")]
    Label(String),
    /// There are too many labels.
    #[error("a group token has at most {MAX_GROUP_LABELS} labels")]
    Labels,
}

/// Whether a text is a group token's, by its form alone.
pub fn is_group_token(token: &str) -> bool {
    token.trim_start().starts_with(PREFIX)
}

/// Reads a label as `NAME=VALUE`.
///
/// # Errors
/// [`GroupTermsError::Label`].
pub fn label(text: &str) -> Result<(String, String), GroupTermsError> {
    let wrong = || GroupTermsError::Label(text.chars().take(100).collect());
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    if is_label(name, value) { Ok((name.to_owned(), value.to_owned())) } else { Err(wrong()) }
}

fn is_label(name: &str, value: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let is_name = !name.is_empty() && name.len() <= MAX_LABEL_NAME && name.chars().all(fits);
    is_name && value.len() <= MAX_LABEL_VALUE && !value.chars().any(char::is_control)
}

impl GroupClaims {
    /// Whether the terms are within their bounds; gives the pattern.
    ///
    /// # Errors
    /// The first bound that they break.
    pub fn check(&self) -> Result<Pattern, GroupTermsError> {
        if !(1..=MAX_GROUP_USES).contains(&self.uses) {
            return Err(GroupTermsError::Uses);
        }
        if self.labels.len() > MAX_GROUP_LABELS {
            return Err(GroupTermsError::Labels);
        }
        if let Some((name, value)) = self.labels.iter().find(|(name, value)| !is_label(name, value)) {
            return Err(GroupTermsError::Label(format!("{name}={value}")));
        }
        Ok(Pattern::parse(&self.pattern)?)
    }
}

/// A group token that a root key is to sign.
///
/// # Errors
/// When the claims break a bound, or have no canonical form.
pub fn unsigned(claims: &GroupClaims) -> Result<UnsignedToken, TokenError> {
    check_bounds(claims)?;
    UnsignedToken::encode(PREFIX, TYPE, claims)
}

/// Signs group claims.
///
/// # Errors
/// As [`unsigned`].
pub fn mint(claims: &GroupClaims, root: &SigningKey) -> Result<String, TokenError> {
    let unsigned = unsigned(claims)?;
    Ok(unsigned.signed(&root.sign(unsigned.message())))
}

/// Reads the claims without believing them, as [`token::peek`] does.
///
/// # Errors
/// When the text is no group token or was cut off.
pub fn peek(token: &str) -> Result<GroupClaims, TokenError> {
    Ok(token::split(PREFIX, token)?.claims)
}

/// Verifies a group token as the control plane does: signature, time, hostname. How often it was used is the store's
/// to know.
///
/// # Errors
/// [`TokenError`] says what does not hold.
pub fn verify(token: &str, root: &Slots, hostname: &str, now: Timestamp) -> Result<GroupClaims, TokenError> {
    let split = token::split::<GroupClaims>(PREFIX, token)?;
    let claims = split.claims;
    token::check_signature(TYPE, &split.bytes, &split.signature, claims.issued_at, root)?;
    let pattern = check_bounds(&claims)?;
    token::check_time(claims.issued_at, claims.expires_at, now)?;
    if hostname.parse::<Hostname>().is_err() || !pattern.matches(hostname) {
        return Err(TokenError::OtherGroup { pattern: claims.pattern, got: hostname.to_owned() });
    }
    Ok(claims)
}

fn check_bounds(claims: &GroupClaims) -> Result<Pattern, TokenError> {
    let pattern = claims.check()?;
    if claims.expires_at.since(claims.issued_at) > MAX_LIFE { Err(TokenError::TooLong) } else { Ok(pattern) }
}
