//! Signed lists: who may join with which token, and whose certificates count no more (ENR-3, IDN-6).
//!
//! ```text
//! fleet repo: tokens.yaml, revocations.yaml
//!   muster publish, node revoke: signed with the release key, seq one higher --> control plane: open, follows
//!                                                                                 --> durable, then it counts
//! ```
//!
//! A list is whole each time: what it does not name is not in it. `seq` only rises, so that nobody who keeps an
//! earlier one can put it back.

use std::collections::BTreeMap;

use model::exchange::Signed;
use model::time::SLACK;
use model::{Digest, FleetId, Hostname, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chain::ChainHead;
use crate::document::TrustDocument;
use crate::signed::{self, Document, VerifyError};

/// The longest signed list, in bytes.
pub const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;
/// The most tokens in a list, and the most hosts that are revoked.
pub const MAX_LISTED: usize = 30_000;
/// The longest reason of a revocation, in bytes.
pub const MAX_WHY: usize = 240;
/// The longest nonce, in bytes.
pub const MAX_NONCE: usize = 128;

/// Which list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListName {
    /// The nonces of tokens that may be used.
    Allowlist,
    /// Hosts whose certificates count no more.
    Revocations,
}

impl ListName {
    /// All names.
    pub const ALL: [ListName; 2] = [ListName::Allowlist, ListName::Revocations];

    /// Its stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            ListName::Allowlist => "allowlist",
            ListName::Revocations => "revocations",
        }
    }

    /// The list of a stable name.
    pub fn named(name: &str) -> Option<ListName> {
        ListName::ALL.into_iter().find(|list| list.as_str() == name)
    }
}

/// The nonces of the tokens that may be used (ENR-3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenAllowlist {
    /// The fleet.
    pub fleet: FleetId,
    /// Rises with every version.
    pub seq: u64,
    /// When it was signed.
    pub at: Timestamp,
    /// Until when the token of each nonce counts at the most, whatever it says itself; at most [`MAX_LISTED`].
    pub tokens: BTreeMap<String, Timestamp>,
}

/// The hosts whose certificates count no more (IDN-6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevocationSet {
    /// The fleet.
    pub fleet: FleetId,
    /// Rises with every version.
    pub seq: u64,
    /// When it was signed.
    pub at: Timestamp,
    /// Each host that is revoked; at most [`MAX_LISTED`].
    pub revoked: BTreeMap<Hostname, Revocation>,
}

/// A host that is revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Revocation {
    /// Certificates issued before count no more; never later than the set's own time.
    pub not_before: Timestamp,
    /// Why, for people; at most [`MAX_WHY`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A list that a release key signs and a control plane keeps.
pub trait SignedList: Document {
    /// Which one it is.
    const NAME: ListName;

    /// Its fleet.
    fn fleet(&self) -> &FleetId;

    /// Its number.
    fn seq(&self) -> u64;

    /// What in it breaks a bound, if anything does.
    fn fault(&self) -> Option<String>;
}

impl Document for TokenAllowlist {
    const TYPE: &'static str = "token-allowlist";
    const MAX_BYTES: usize = MAX_LIST_BYTES;

    fn signed_at(&self) -> Timestamp {
        self.at
    }
}

impl SignedList for TokenAllowlist {
    const NAME: ListName = ListName::Allowlist;

    fn fleet(&self) -> &FleetId {
        &self.fleet
    }

    fn seq(&self) -> u64 {
        self.seq
    }

    fn fault(&self) -> Option<String> {
        if self.tokens.len() > MAX_LISTED {
            return Some(format!("it has more than {MAX_LISTED} tokens"));
        }
        let odd = self.tokens.keys().find(|nonce| nonce.is_empty() || nonce.len() > MAX_NONCE)?;
        Some(format!("{:?} is no token's nonce", model::text::beginning(odd, MAX_NONCE)))
    }
}

impl Document for RevocationSet {
    const TYPE: &'static str = "revocation-set";
    const MAX_BYTES: usize = MAX_LIST_BYTES;

    fn signed_at(&self) -> Timestamp {
        self.at
    }
}

impl SignedList for RevocationSet {
    const NAME: ListName = ListName::Revocations;

    fn fleet(&self) -> &FleetId {
        &self.fleet
    }

    fn seq(&self) -> u64 {
        self.seq
    }

    fn fault(&self) -> Option<String> {
        if self.revoked.len() > MAX_LISTED {
            return Some(format!("it has more than {MAX_LISTED} hosts"));
        }
        let is_wordy =
            |revocation: &Revocation| revocation.why.as_ref().is_some_and(|why| why.len() > MAX_WHY);
        if let Some((host, _)) = self.revoked.iter().find(|(_, revocation)| is_wordy(revocation)) {
            return Some(format!("the reason of {host} has more than {MAX_WHY} bytes"));
        }
        // Else a certificate of tomorrow would be refused, with which the host was let in again.
        let latest = self.at.plus(SLACK);
        let (host, early) = self.revoked.iter().find(|(_, revocation)| revocation.not_before > latest)?;
        Some(format!("{host} is revoked from {} on, which is after the set was signed", early.not_before))
    }
}

/// Why a signed list is refused. What is held counts on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListRefusal {
    /// No release key signed it.
    #[error("{0}")]
    Signature(VerifyError),
    /// It cannot be read, or breaks a bound.
    #[error("{0}")]
    Malformed(String),
    /// It is of another fleet.
    #[error("it is of fleet {theirs}, this is fleet {ours}")]
    OtherFleet {
        /// The list's fleet.
        theirs: FleetId,
        /// This one.
        ours: FleetId,
    },
    /// It was signed in the future.
    #[error("it is dated {at}, {} the time here ({now})", .at.beside(*.now))]
    Future {
        /// Its date.
        at: Timestamp,
        /// The time here.
        now: Timestamp,
    },
    /// A later one is held, or another one of its number.
    #[error("its number is {seq}, and number {held} is held")]
    Older {
        /// Its number.
        seq: u64,
        /// The number of the one that is held.
        held: u64,
    },
}

impl From<VerifyError> for ListRefusal {
    fn from(error: VerifyError) -> ListRefusal {
        match error {
            VerifyError::TooLarge | VerifyError::Malformed(_) => ListRefusal::Malformed(error.to_string()),
            VerifyError::Unsigned
            | VerifyError::Untrusted
            | VerifyError::TooFew { .. }
            | VerifyError::RejectedBefore(_) => ListRefusal::Signature(error),
        }
    }
}

/// A list that is held, by number and content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldList {
    /// Its number.
    pub seq: u64,
    /// The digest of its bytes, signatures apart.
    pub digest: Digest,
}

/// What to do with a list that is in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListSuccession {
    /// It takes the place of what is held.
    Follows,
    /// It is what is held.
    Same,
}

/// Reads a list that a release key of this fleet signed.
///
/// # Errors
/// When none did, it cannot be read or breaks a bound, or it is of another fleet.
pub fn open<L: SignedList>(document: &Signed, trust: &TrustDocument) -> Result<L, ListRefusal> {
    in_order(signed::verify(document, &trust.release)?, &trust.fleet)
}

/// Reads a list that was taken up before: the key that signed it may be retired by now, but not rejected.
///
/// # Errors
/// As [`open`]; of the keys of every version.
pub fn open_kept<'a, L: SignedList>(
    document: &Signed,
    newest_first: impl IntoIterator<Item = &'a ChainHead>,
) -> Result<L, ListRefusal> {
    let mut versions = newest_first.into_iter().peekable();
    let rejected = versions.peek().and_then(|newest| newest.document.release.reject_before);
    let mut refusal = ListRefusal::Signature(VerifyError::Untrusted);
    for version in versions {
        match signed::verify::<L>(document, &version.document.release) {
            // What a stolen key may have signed does not count, whoever believed it once.
            Ok(list) => match rejected.filter(|limit| list.signed_at() < *limit) {
                Some(limit) => return Err(VerifyError::RejectedBefore(limit).into()),
                None => return in_order(list, &version.document.fleet),
            },
            Err(error @ (VerifyError::Unsigned | VerifyError::Untrusted)) => refusal = error.into(),
            Err(error) => return Err(error.into()),
        }
    }
    Err(refusal)
}

fn in_order<L: SignedList>(list: L, fleet: &FleetId) -> Result<L, ListRefusal> {
    if list.fleet() != fleet {
        return Err(ListRefusal::OtherFleet { theirs: list.fleet().clone(), ours: fleet.clone() });
    }
    match list.fault() {
        Some(fault) => Err(ListRefusal::Malformed(fault)),
        None => Ok(list),
    }
}

/// Whether a list takes the place of what is held.
///
/// # Errors
/// When it is from the future, or its number is not higher and it is another one.
pub fn follows<L: SignedList>(
    list: &L,
    digest: &Digest,
    held: Option<HeldList>,
    now: Timestamp,
) -> Result<ListSuccession, ListRefusal> {
    match held {
        Some(held) if held.digest == *digest => return Ok(ListSuccession::Same),
        Some(HeldList { seq: held, .. }) if list.seq() <= held => {
            return Err(ListRefusal::Older { seq: list.seq(), held });
        }
        _ => {}
    }
    if list.signed_at() > now.plus(SLACK) {
        return Err(ListRefusal::Future { at: list.signed_at(), now });
    }
    Ok(ListSuccession::Follows)
}
