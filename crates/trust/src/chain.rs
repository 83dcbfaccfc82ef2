//! The chain of trust documents (IDN-8): each version signed by a root key of the one before it.
//!
//! ```text
//! version 1        version 2            version 3
//! (a token's  <--- previous = digest <--- previous = digest
//!  digest)         signed by a root      signed by a root
//!                  key of version 1      key of version 2
//! ```
//!
//! A holder of any version follows the links after it, however they are cut into answers. What it holds changes
//! only by a link that leads on from there: a link that is forged, missing, repeated or out of order ends the walk,
//! and what was followed before it counts.

use model::canonical::{self, CanonicalError};
use model::exchange::{HeldTrust, Signed};
use model::{Digest, FleetId, Timestamp};

use crate::document::{Slots, TrustDocument};
use crate::key::{PublicKey, SigningKey};
pub use crate::next_version::{NextVersionError, SlotChange, next_threshold, next_version};
use crate::signed::{self, VerifyError};

/// The most links in one answer.
pub const MAX_LINKS: usize = 16;
/// The highest version, and so the most links in all.
pub const MAX_VERSION: u64 = 1000;

/// A trust document that somebody holds: the end of the chain as far as they know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// The document.
    pub document: TrustDocument,
    /// The digest of its bytes as they were signed: they may hold fields that this version does not know.
    pub digest: Digest,
}

/// Why a link is not followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// No root key of the version that is held signed it.
    #[error("what follows trust document {held} is not signed by a root key of it")]
    Forged {
        /// The version held.
        held: u64,
    },
    /// It was signed before the time from which signatures of the root keys count.
    #[error("what follows trust document {held} was signed before {limit}, from when on its root keys count")]
    Rejected {
        /// The version held.
        held: u64,
        /// From when signatures count.
        limit: Timestamp,
    },
    /// Versions between the one held and this one are missing.
    #[error("trust document {link} was offered after {held}; those between are missing")]
    Gap {
        /// The version held.
        held: u64,
        /// The version of the link.
        link: u64,
    },
    /// It is no newer than the version held: the chain goes back or in a loop.
    #[error("trust document {link} was offered after {held}, which is not older")]
    Older {
        /// The version held.
        held: u64,
        /// The version of the link.
        link: u64,
    },
    /// It follows another document of the same version than the one held.
    #[error("trust document {link} follows another version {held} than the one held here")]
    Forked {
        /// The version held.
        held: u64,
        /// The version of the link.
        link: u64,
    },
    /// It is of another fleet.
    #[error("the trust document offered is of fleet {theirs}, not of {ours}")]
    OtherFleet {
        /// The link's fleet.
        theirs: FleetId,
        /// The fleet of the document held.
        ours: FleetId,
    },
    /// There are more links, or versions, than there may be.
    #[error("more than {MAX_LINKS} links were offered at once, or more than {MAX_VERSION} in all")]
    TooLong,
    /// Signed, and not what a trust document must be.
    #[error("what follows trust document {held} is malformed: {why}")]
    Malformed {
        /// The version held.
        held: u64,
        /// What is wrong.
        why: String,
    },
}

impl ChainError {
    /// The stable code that facts and check-ins carry.
    pub fn code(&self) -> &'static str {
        match self {
            ChainError::Forged { .. } => "trust-forged",
            ChainError::Rejected { .. } => "trust-rejected",
            ChainError::Gap { .. } => "trust-gap",
            ChainError::Older { .. } => OLDER_TRUST_CODE,
            ChainError::Forked { .. } => "trust-forked",
            ChainError::OtherFleet { .. } => "trust-other-fleet",
            ChainError::TooLong => "trust-too-long",
            ChainError::Malformed { .. } => MALFORMED_TRUST_CODE,
        }
    }
}

/// The code of [`ChainError::Older`]: of an honest control plane, the data went back.
pub const OLDER_TRUST_CODE: &str = "trust-older";

/// The code of [`ChainError::Malformed`]: of an honest control plane, the document is of a form from after the agent.
pub const MALFORMED_TRUST_CODE: &str = "trust-malformed";

/// How far links led.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainProgress {
    /// The newest document reached.
    pub head: ChainHead,
    /// How many links were followed, from the first.
    pub followed: usize,
    /// Why not all of them.
    pub stopped: Option<ChainError>,
}

impl ChainHead {
    /// The head of who holds a document that a token's digest vouches for.
    pub fn of(document: TrustDocument) -> ChainHead {
        // A document that was read has a canonical form; no link would follow this digest if one had none.
        let digest = document.digest().unwrap_or(Digest::ZERO);
        ChainHead { document, digest }
    }

    /// The head that a link leads to which was followed before: it is read, not verified.
    ///
    /// # Errors
    /// When it holds no trust document.
    pub fn read(link: &Signed) -> Result<ChainHead, CanonicalError> {
        let document = canonical::parse_canonical(link.payload.as_bytes())?;
        Ok(ChainHead { document, digest: signed::digest(link) })
    }

    /// Where a link leads from here.
    ///
    /// # Errors
    /// [`ChainError`] says why it leads nowhere.
    pub fn follow(&self, link: &Signed) -> Result<ChainHead, ChainError> {
        let document = self.verified(link, &self.document.root)?;
        self.check_place(&document)?;
        Ok(ChainHead { document, digest: signed::digest(link) })
    }

    /// As [`ChainHead::follow`], for a link that its own root key signed, as the one before it was lost or stolen.
    /// Who holds the version before it must not believe it: only who has other cause to, as a control plane has
    /// of its own directory, and a node of a token.
    ///
    /// # Errors
    /// As [`ChainHead::follow`].
    pub fn begin_anew(&self, link: &Signed) -> Result<ChainHead, ChainError> {
        let next = ChainHead::read(link).map_err(|error| self.malformed(&error))?;
        let document = self.verified(link, &next.document.root)?;
        self.check_place(&document)?;
        Ok(next)
    }

    fn verified(&self, link: &Signed, root: &Slots) -> Result<TrustDocument, ChainError> {
        let held = self.document.version;
        signed::verify(link, root).map_err(|error| match error {
            VerifyError::Unsigned | VerifyError::Untrusted | VerifyError::TooFew { .. } => {
                ChainError::Forged { held }
            }
            VerifyError::RejectedBefore(limit) => ChainError::Rejected { held, limit },
            VerifyError::TooLarge | VerifyError::Malformed(_) => self.malformed(&error),
        })
    }

    /// A root key of this version signed the link, whatever the link says.
    pub fn is_signed(&self, link: &Signed) -> bool {
        !signed::signers::<TrustDocument>(link, &self.document.root).is_empty()
    }

    fn malformed(&self, why: &dyn std::fmt::Display) -> ChainError {
        ChainError::Malformed { held: self.document.version, why: why.to_string() }
    }

    fn check_place(&self, next: &TrustDocument) -> Result<(), ChainError> {
        let (held, link) = (self.document.version, next.version);
        if next.fleet != self.document.fleet {
            let (theirs, ours) = (next.fleet.clone(), self.document.fleet.clone());
            return Err(ChainError::OtherFleet { theirs, ours });
        }
        if link <= held {
            return Err(ChainError::Older { held, link });
        }
        if link > MAX_VERSION {
            return Err(ChainError::TooLong);
        }
        if link > held + 1 {
            return Err(ChainError::Gap { held, link });
        }
        if next.previous != Some(self.digest) {
            return Err(ChainError::Forked { held, link });
        }
        if next.created.is_none() {
            return Err(self.malformed(&"it does not say when it was signed"));
        }
        // Whoever takes the slot away has the CA believed again that a node joined with: a stolen one, perhaps.
        if self.document.certificate_authority.is_some() && next.certificate_authority.is_none() {
            return Err(self.malformed(&"it names no certificate authority, as the one before it does"));
        }
        let slots = SlotName::ALL.into_iter().filter_map(|name| name.of(next));
        let mut seen: Vec<&PublicKey> = Vec::new();
        for key in slots.flat_map(Slots::keys) {
            if seen.contains(&key) {
                return Err(self.malformed(&"one key is in two slots"));
            }
            seen.push(key);
        }
        Ok(())
    }

    /// What a check-in says of it.
    pub fn held(&self) -> HeldTrust {
        let authority = self.document.certificate_authority.as_ref().map(|slots| slots.current.id());
        HeldTrust { version: self.document.version, digest: self.digest, refused: None, authority }
    }
}

/// Follows links from what is held as far as they lead.
pub fn walk(held: &ChainHead, links: &[Signed]) -> ChainProgress {
    let mut walk = ChainProgress { head: held.clone(), followed: 0, stopped: None };
    if links.len() > MAX_LINKS {
        walk.stopped = Some(ChainError::TooLong);
        return walk;
    }
    for link in links {
        match walk.head.follow(link) {
            Ok(next) => (walk.head, walk.followed) = (next, walk.followed + 1),
            Err(error) => {
                walk.stopped = Some(error);
                break;
            }
        }
    }
    walk
}

/// Whose slots change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotName {
    /// The keys that sign releases and beacons.
    Release,
    /// The keys that sign beacons and nothing else; a fleet need have none.
    Beacon,
    /// The keys that sign objects and actions of the control plane's own authority (IDN-9); a fleet of before
    /// them has none.
    ControlPlane,
    /// The keys of the CAs that certify control planes, nodes and proxies; absent before a CA was replaced.
    CertificateAuthority,
    /// The keys that sign tokens and trust documents.
    Root,
}

impl SlotName {
    /// All names.
    pub const ALL: [SlotName; 5] = [
        SlotName::Release,
        SlotName::Beacon,
        SlotName::ControlPlane,
        SlotName::CertificateAuthority,
        SlotName::Root,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            SlotName::Release => "release",
            SlotName::Beacon => "beacon",
            SlotName::ControlPlane => "control-plane",
            SlotName::CertificateAuthority => "certificate-authority",
            SlotName::Root => "root",
        }
    }

    /// The slots of this name; `None` where the fleet has no such key.
    pub fn of(self, document: &TrustDocument) -> Option<&Slots> {
        match self {
            SlotName::Release => Some(&document.release),
            SlotName::Beacon => document.beacon.as_ref(),
            SlotName::ControlPlane => document.control_plane.as_ref(),
            SlotName::CertificateAuthority => document.certificate_authority.as_ref(),
            SlotName::Root => Some(&document.root),
        }
    }
}

/// Signs a version as the link to it.
///
/// # Errors
/// Never for a valid document.
pub fn sign(next: &TrustDocument, root: &SigningKey) -> Result<Signed, CanonicalError> {
    signed::sign(next, &[root])
}
