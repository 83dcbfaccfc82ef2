//! Bootstrap tokens (ENR-1): who may enroll, with which key, where, and whom to believe there.

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use model::canonical;
use model::time::SLACK;
use model::{Digest, FleetId, Hostname, NodeId, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::document::Slots;
use crate::group_token::{self, GroupTermsError};
use crate::key::{PublicKey, SIGNATURE_LEN, SigningKey};
use crate::signed::message;

/// The longest validity of a token that names no key (ENR-9).
pub const MAX_UNBOUND_LIFE: Duration = Duration::from_secs(3600);
/// The longest validity of any token.
pub const MAX_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);
/// The longest token, in characters.
pub const MAX_TOKEN: usize = 8 * 1024;
const PREFIX: &str = "muster1.";
const TYPE: &str = "bootstrap-token";

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claims {
    /// The fleet.
    pub fleet: FleetId,
    /// The hostname that may enroll.
    pub hostname: Hostname,
    /// The fingerprint of the key that may enroll; absent only in a short-lived token that no proxy reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_pubkey_fingerprint: Option<String>,
    /// Which key the agent should use as the machine's.
    #[serde(default, skip_serializing_if = "KeySource::is_own")]
    pub key: KeySource,
    /// When it was minted.
    pub issued_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// Random; burned when the node is recorded.
    pub nonce: String,
    /// Where the control plane is, in order of preference.
    pub servers: Vec<String>,
    /// Who ends the TLS sessions that the node opens there.
    #[serde(default, skip_serializing_if = "TlsTermination::is_control_plane")]
    pub tls_termination: TlsTermination,
    /// SHA-256 of the control plane's CA certificate: the node verifies the server by it
    /// before it says anything.
    pub ca: Digest,
    /// The digest of the trust document.
    pub trust: Digest,
    /// The node that the host was before: the enrollment retires it, and gives its name to this one (IDN-10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<NodeId>,
}

/// Who ends the TLS sessions of a node (IDN-4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlsTermination {
    /// The control plane: a session's client certificate says whose it is.
    #[default]
    ControlPlane,
    /// A proxy in front of it, whose certificate is under the same CA: the node shows no certificate,
    /// and sends nothing that its key does not sign.
    Proxy,
}

impl TlsTermination {
    /// Nobody stands in between.
    pub fn is_control_plane(&self) -> bool {
        *self == TlsTermination::ControlPlane
    }
}

/// Where a machine's key comes from (IDN-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeySource {
    /// The agent makes one in its state directory.
    #[default]
    Own,
    /// The ed25519 SSH host key.
    SshHost,
    /// The ECDSA SSH host key, on curve P-256.
    SshHostEcdsa,
}

impl KeySource {
    pub(crate) fn is_own(&self) -> bool {
        *self == KeySource::Own
    }
}

/// Why a token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is not of a token's form.
    #[error("this is not a token: it must begin with {PREFIX:?}")]
    NotAToken,
    /// It was cut off when it was copied.
    #[error("the token is incomplete: copy it whole, it is one line")]
    Truncated,
    /// The root key did not sign it.
    #[error("the token was not signed by this fleet's root key")]
    Forged,
    /// Its time is over.
    #[error("the token expired at {at}: the control plane's clock ({now}) is {} that", .now.beside(*.at))]
    Expired {
        /// When.
        at: Timestamp,
        /// The time of who verifies it.
        now: Timestamp,
    },
    /// Its time has not come.
    #[error(
        "the token is dated {at}, in the future: the clock of who minted it is {} the control plane's ({now})",
        .at.beside(*.now)
    )]
    FutureDated {
        /// When.
        at: Timestamp,
        /// The time of who verifies it.
        now: Timestamp,
    },
    /// It is for another hostname.
    #[error("the token is for {expected}, not for {got}")]
    OtherHost {
        /// The token's hostname.
        expected: Hostname,
        /// The one that asks.
        got: String,
    },
    /// It is for hostnames of a pattern that this one does not match.
    #[error("the token is for hosts of {pattern:?}, not for {got}")]
    OtherGroup {
        /// The token's pattern.
        pattern: String,
        /// The hostname that asks.
        got: String,
    },
    /// The terms of a group token break a bound.
    #[error(transparent)]
    Group(#[from] GroupTermsError),
    /// It is for another key.
    #[error("the token is for another key than the one that asks")]
    OtherKey,
    /// It names no key, and a proxy reads it on its way: that could enroll a key of its own.
    #[error("a token for the way through a proxy that ends TLS must name the key that may enroll")]
    Unbound,
    /// Its validity is longer than tokens of its sort may have.
    #[error(
        "a token may live for at most {} days, and for at most {} s if it names no key",
        MAX_LIFE.as_secs() / 86_400,
        MAX_UNBOUND_LIFE.as_secs()
    )]
    TooLong,
}

/// Claims that a root key is to sign, which need not be in this program. The text form is one line: prefix, claims,
/// signature.
#[derive(Clone, Debug)]
pub struct UnsignedToken {
    prefix: &'static str,
    claims: Vec<u8>,
    message: Vec<u8>,
}

impl UnsignedToken {
    /// A token with these claims.
    ///
    /// # Errors
    /// When the claims have no canonical form, break the bounds on a token's validity, or name no key where a
    /// proxy reads the token.
    pub fn of(claims: &Claims) -> Result<UnsignedToken, TokenError> {
        check_bounds(claims)?;
        UnsignedToken::encode(PREFIX, TYPE, claims)
    }

    pub(crate) fn encode<T: Serialize>(
        prefix: &'static str,
        kind: &str,
        claims: &T,
    ) -> Result<UnsignedToken, TokenError> {
        let claims = canonical::to_bytes(claims).map_err(|_| TokenError::NotAToken)?;
        let message = message(kind, &claims);
        Ok(UnsignedToken { prefix, claims, message })
    }

    /// What the root key signs.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// The token, with the root key's signature.
    pub fn signed(&self, signature: &[u8; SIGNATURE_LEN]) -> String {
        let (claims, signature) = (BASE64URL_NOPAD.encode(&self.claims), BASE64URL_NOPAD.encode(signature));
        format!("{}{claims}.{signature}", self.prefix)
    }
}

/// Signs claims.
///
/// # Errors
/// As [`UnsignedToken::of`].
pub fn mint(claims: &Claims, root: &SigningKey) -> Result<String, TokenError> {
    let unsigned = UnsignedToken::of(claims)?;
    Ok(unsigned.signed(&root.sign(unsigned.message())))
}

/// Reads the claims without believing them: what a node may know before it has a trust
/// document. It then verifies the server by `ca` and the trust document by `trust`.
///
/// # Errors
/// When the text is no token or was cut off.
pub fn peek(token: &str) -> Result<Claims, TokenError> {
    Ok(split(PREFIX, token)?.claims)
}

/// Verifies a token as the control plane does: signature, time, hostname, key.
///
/// # Errors
/// [`TokenError`] says what does not hold.
pub fn verify(
    token: &str,
    root: &Slots,
    hostname: &str,
    key: &PublicKey,
    now: Timestamp,
) -> Result<Claims, TokenError> {
    let claims = signed_claims(token, root)?;
    check_time(claims.issued_at, claims.expires_at, now)?;
    check_holder(claims, hostname, key)
}

/// Verifies the token under which a failed join is told: as [`verify`], but one counts that ended at `ended_after` or
/// later, and one from the future, as these are what joins fail for.
///
/// # Errors
/// [`TokenError`] says what does not hold.
pub fn verify_for_report(
    token: &str,
    root: &Slots,
    hostname: &str,
    key: &PublicKey,
    ended_after: Timestamp,
) -> Result<Claims, TokenError> {
    let claims = signed_claims(token, root)?;
    if claims.expires_at < ended_after {
        return Err(TokenError::Expired { at: claims.expires_at, now: ended_after });
    }
    check_holder(claims, hostname, key)
}

/// The claims, if the root key signed them and they are within the bounds on a token's validity.
fn signed_claims(token: &str, root: &Slots) -> Result<Claims, TokenError> {
    let split = split::<Claims>(PREFIX, token)?;
    let claims = split.claims;
    check_signature(TYPE, &split.bytes, &split.signature, claims.issued_at, root)?;
    check_bounds(&claims)?;
    Ok(claims)
}

fn check_holder(claims: Claims, hostname: &str, key: &PublicKey) -> Result<Claims, TokenError> {
    if claims.hostname.as_str() != hostname {
        return Err(TokenError::OtherHost { expected: claims.hostname, got: hostname.to_owned() });
    }
    match &claims.expected_pubkey_fingerprint {
        Some(expected) if *expected != key.fingerprint() => Err(TokenError::OtherKey),
        _ => Ok(claims),
    }
}

fn check_bounds(claims: &Claims) -> Result<(), TokenError> {
    let bound = claims.expected_pubkey_fingerprint.is_some();
    if !bound && !claims.tls_termination.is_control_plane() {
        return Err(TokenError::Unbound);
    }
    let validity = claims.expires_at.since(claims.issued_at);
    let limit = if bound { MAX_LIFE } else { MAX_UNBOUND_LIFE };
    if validity > limit { Err(TokenError::TooLong) } else { Ok(()) }
}

/// A root key that counts for a token of that time signed these claims.
pub(crate) fn check_signature(
    kind: &str,
    bytes: &[u8],
    signature: &[u8],
    issued_at: Timestamp,
    root: &Slots,
) -> Result<(), TokenError> {
    let message = message(kind, bytes);
    let rejected = root.reject_before.is_some_and(|limit| issued_at < limit);
    if rejected || !root.keys().any(|root| root.verifies(&message, signature)) {
        return Err(TokenError::Forged);
    }
    Ok(())
}

/// A token of these times counts now (IDN-7).
pub(crate) fn check_time(
    issued_at: Timestamp,
    expires_at: Timestamp,
    now: Timestamp,
) -> Result<(), TokenError> {
    if issued_at > now.plus(SLACK) {
        return Err(TokenError::FutureDated { at: issued_at, now });
    }
    if now > expires_at.plus(SLACK) {
        return Err(TokenError::Expired { at: expires_at, now });
    }
    Ok(())
}

/// A token's parts, of which nothing is verified.
pub(crate) struct SplitToken<T> {
    pub(crate) claims: T,
    pub(crate) bytes: Vec<u8>,
    pub(crate) signature: Vec<u8>,
}

pub(crate) fn split<T: DeserializeOwned + Serialize>(
    prefix: &str,
    token: &str,
) -> Result<SplitToken<T>, TokenError> {
    let token = token.trim();
    if token.len() > MAX_TOKEN {
        return Err(TokenError::NotAToken);
    }
    let Some(rest) = token.strip_prefix(prefix) else {
        let is_cut = |prefix: &str| prefix.starts_with(token) && !token.is_empty();
        let cut = is_cut(PREFIX) || is_cut(group_token::PREFIX);
        return Err(if cut { TokenError::Truncated } else { TokenError::NotAToken });
    };
    let (claims, signature) = rest.split_once('.').ok_or(TokenError::Truncated)?;
    let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).map_err(|_| TokenError::Truncated)?;
    if signature.len() != SIGNATURE_LEN {
        return Err(TokenError::Truncated);
    }
    let bytes = BASE64URL_NOPAD.decode(claims.as_bytes()).map_err(|_| TokenError::Forged)?;
    let claims = canonical::parse_canonical(&bytes).map_err(|_| TokenError::Forged)?;
    Ok(SplitToken { claims, bytes, signature })
}
