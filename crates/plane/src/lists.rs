//! The fleet's signed lists as they count, and what they say of tokens and nodes (ENR-3, IDN-6).

use std::sync::Arc;

use model::exchange::Signed;
use model::time::SLACK;
use model::{Hostname, Timestamp};
use trust::lists::{self, HeldList, Revocation, RevocationSet, SignedList, TokenAllowlist};
use trust::signed::{self, VerifyError};
use trust::{ChainHead, ListRefusal, Slots};

use crate::node::NodeState;

/// A list that counts, with the document that it was read from.
#[derive(Clone, Debug)]
pub struct KeptList<L> {
    /// What it says.
    pub list: L,
    /// As it was signed.
    pub document: Arc<Signed>,
}

impl<L: SignedList> KeptList<L> {
    /// What another version is compared with.
    pub fn held(&self) -> HeldList {
        HeldList { seq: self.list.seq(), digest: signed::digest(&self.document) }
    }
}

/// Which tokens may be used, by what was published.
#[derive(Clone, Debug, Default)]
pub enum AllowlistState {
    /// No list was ever published.
    #[default]
    NotPublished,
    /// This list counts.
    Published(KeptList<TokenAllowlist>),
    /// The one that was published is rejected, as a stolen key may have signed it: no token may be used.
    Rejected,
}

impl AllowlistState {
    /// What an allowlist that was taken up before counts for, by the versions of the trust document.
    ///
    /// # Errors
    /// When no release key ever signed it, or it is none of this fleet.
    pub fn kept<'a>(
        document: Signed,
        newest_first: impl IntoIterator<Item = &'a ChainHead>,
    ) -> Result<AllowlistState, ListRefusal> {
        match lists::open_kept::<TokenAllowlist>(&document, newest_first) {
            Ok(list) => Ok(AllowlistState::Published(KeptList { list, document: Arc::new(document) })),
            // It may be a thief's: nobody joins by it, nor without one.
            Err(ListRefusal::Signature(VerifyError::RejectedBefore(_))) => Ok(AllowlistState::Rejected),
            Err(refusal) => Err(refusal),
        }
    }
}

impl KeptList<RevocationSet> {
    /// What a set of revocations that was taken up before says. One that a stolen key may have signed can shut out, and let
    /// nobody in: it counts until another is published.
    ///
    /// # Errors
    /// When no release key ever signed it, or it is none of this fleet.
    pub fn kept<'a>(
        document: Signed,
        newest_first: impl IntoIterator<Item = &'a ChainHead> + Clone,
    ) -> Result<KeptList<RevocationSet>, ListRefusal> {
        let list = match lists::open_kept::<RevocationSet>(&document, newest_first.clone()) {
            Err(ListRefusal::Signature(VerifyError::RejectedBefore(_))) => {
                let by = |version: &ChainHead| {
                    let slots = Slots { reject_before: None, ..version.document.release.clone() };
                    signed::verify::<RevocationSet>(&document, &slots).ok()
                };
                let refusal = ListRefusal::Signature(VerifyError::Untrusted);
                newest_first.into_iter().find_map(by).ok_or(refusal)?
            }
            opened => opened?,
        };
        Ok(KeptList { list, document: Arc::new(document) })
    }
}

/// The lists of a fleet.
#[derive(Clone, Debug, Default)]
pub struct FleetLists {
    /// Which tokens may be used.
    pub allowlist: AllowlistState,
    /// Whose certificates count no more; `None` before a set was published.
    pub revocations: Option<KeptList<RevocationSet>>,
}

/// When a token must be in a published list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowlistRule {
    /// Once a list was published.
    OncePublished,
    /// Always: without a list nobody joins.
    Always,
}

/// What the control plane asks of a token beside what it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRules {
    /// Whether it must be listed.
    pub allowlist: AllowlistRule,
    /// From when on this database knows which tokens were used: none of before may be used.
    pub known_from: Timestamp,
}

/// Why a good token may not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenListRefusal {
    /// Whether it was used before is not known here.
    #[error(
        "the token was minted at {issued}, and this control plane's database knows of tokens from {known_from} on"
    )]
    Outdated {
        /// When it was minted.
        issued: Timestamp,
        /// From when on used tokens are known.
        known_from: Timestamp,
    },
    /// No list has its nonce.
    #[error("the nonce of the token is not in the allowlist, version {seq}")]
    NotListed {
        /// The list's number.
        seq: u64,
    },
    /// A list is needed, and none was published.
    #[error("no allowlist is published")]
    NoList,
    /// The list that was published was signed with a key that may have been stolen.
    #[error("the allowlist was signed before the time from which signatures of release keys count")]
    ListRejected,
    /// The list ends the token before it ends itself.
    #[error("the allowlist lets the token count until {until}, and it is {now}")]
    Ended {
        /// Until when.
        until: Timestamp,
        /// The time here.
        now: Timestamp,
    },
    /// Its host was revoked after it was minted.
    #[error("{hostname} is revoked: what was issued for it before {not_before} counts no more")]
    Revoked {
        /// The host.
        hostname: Hostname,
        /// From when on it may be let in again.
        not_before: Timestamp,
    },
}

/// By what a host is let in, as the lists judge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinCredential<'a> {
    /// A token, of one host or of a group.
    Token {
        /// Its nonce.
        nonce: &'a str,
        /// When it was minted.
        issued_at: Timestamp,
    },
    /// An operator's approval of the key.
    Approval {
        /// When it was given.
        at: Timestamp,
    },
    /// A key that the fleet repo declares. Nobody knows since when, so that it counts for no host that is revoked.
    DeclaredKey,
}

impl FleetLists {
    /// Whether what lets a host in, which is good by itself, counts now.
    ///
    /// # Errors
    /// [`TokenListRefusal`] says why not.
    pub fn judge_join(
        &self,
        hostname: &Hostname,
        credential: JoinCredential<'_>,
        rules: TokenRules,
        now: Timestamp,
    ) -> Result<(), TokenListRefusal> {
        let known_from = rules.known_from;
        if let JoinCredential::Token { issued_at: issued, .. } = credential
            && issued < known_from
        {
            return Err(TokenListRefusal::Outdated { issued, known_from });
        }
        let issued = match credential {
            JoinCredential::Token { issued_at, .. } => issued_at,
            JoinCredential::Approval { at } => at,
            JoinCredential::DeclaredKey => Timestamp(i64::MIN),
        };
        if let Some(revocation) = self.revocation(hostname, issued) {
            let (hostname, not_before) = (hostname.clone(), revocation.not_before);
            return Err(TokenListRefusal::Revoked { hostname, not_before });
        }
        let JoinCredential::Token { nonce, .. } = credential else { return Ok(()) };
        let list = match (&self.allowlist, rules.allowlist) {
            (AllowlistState::NotPublished, AllowlistRule::OncePublished) => return Ok(()),
            (AllowlistState::NotPublished, AllowlistRule::Always) => return Err(TokenListRefusal::NoList),
            (AllowlistState::Rejected, _) => return Err(TokenListRefusal::ListRejected),
            (AllowlistState::Published(kept), _) => &kept.list,
        };
        match list.tokens.get(nonce) {
            None => Err(TokenListRefusal::NotListed { seq: list.seq }),
            Some(until) if now > until.plus(SLACK) => Err(TokenListRefusal::Ended { until: *until, now }),
            Some(_) => Ok(()),
        }
    }

    /// The revocation that a host's certificate or token falls under which was issued then.
    pub fn revocation(&self, hostname: &Hostname, issued: Timestamp) -> Option<&Revocation> {
        let set = &self.revocations.as_ref()?.list;
        set.revoked.get(hostname).filter(|revocation| issued < revocation.not_before)
    }

    /// The number of the allowlist; 0 where none counts.
    pub fn allowlist_seq(&self) -> u64 {
        match &self.allowlist {
            AllowlistState::Published(kept) => kept.list.seq,
            AllowlistState::NotPublished | AllowlistState::Rejected => 0,
        }
    }

    /// The number of the set of revocations; 0 before the first.
    pub fn revocations_seq(&self) -> u64 {
        self.revocations.as_ref().map_or(0, |kept| kept.list.seq)
    }
}

/// What a set of revocations changed of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevocationChange {
    /// It is as it was.
    Same,
    /// It is revoked from now on.
    Revoked,
    /// It is revoked no more, or for another reason.
    Other,
}

impl NodeState {
    /// Judges the node by the lists as they are now. What counts is when it joined: renewals since came of the
    /// certificate that is revoked.
    pub fn judge_revocation(&mut self, lists: &FleetLists) -> RevocationChange {
        let now = lists.revocation(&self.hostname, self.enrolled_at);
        if self.revoked.as_deref() == now {
            return RevocationChange::Same;
        }
        let before = std::mem::replace(&mut self.revoked, now.cloned().map(Box::new));
        match (before, &self.revoked) {
            (None, Some(_)) => RevocationChange::Revoked,
            _ => RevocationChange::Other,
        }
    }
}
