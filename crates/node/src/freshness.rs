//! [`FreshnessRecord`]: how fresh what is held is, and when something confirmed it last (ROL-4, CNV-4, IDN-11).
//!
//! ```text
//! header adopted, newer beacon --> fresh ---- window and slack pass ----> not fresh
//!                                    ^---- a newer signature, nothing else ----/
//! full answer, newer beacon -----> confirmed ---- bundle_max_age passes ----> stale
//! ```
//!
//! Invariants: only a signature that is newer than all before makes fresh again: no clock that is set back, no
//! restart and no answer without one. What is held is converged on whatever this says.

use model::exchange::HeldFreshness;
use model::log::FactBody;
use model::{Digest, Timestamp};
use serde::{Deserialize, Serialize};
use trust::{Freshness, Header};

use crate::state::Adoption;

/// How fresh the release is that a node holds. Durable, and written when it changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FreshnessRecord {
    /// The digest of the header that it is about.
    pub header: Digest,
    /// The newest signature for that release.
    pub freshness: Freshness,
    /// The newest time in any signature verified so far, as far as it is remembered (IDN-11).
    pub newest_signature: Timestamp,
    /// Since when it is not fresh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_fresh_since: Option<Timestamp>,
    /// When a full answer or a newer beacon came last, by the host's clock.
    pub confirmed_at: Timestamp,
    /// Since when it is stale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_since: Option<Timestamp>,
}

impl FreshnessRecord {
    /// That of a release just adopted.
    pub fn of(adoption: &Adoption) -> FreshnessRecord {
        // An earlier agent kept only the header; it was verified before it was kept.
        let of_header = || serde_json::from_slice::<Header>(adoption.header.payload.as_bytes()).ok();
        let freshness = adoption.freshness.or_else(|| of_header().map(|header| Freshness::of(&header, None)));
        FreshnessRecord {
            header: adoption.digest,
            freshness: freshness.unwrap_or_default(),
            newest_signature: adoption.floor.newest_signature,
            not_fresh_since: None,
            confirmed_at: adoption.adopted_at,
            stale_since: None,
        }
    }

    /// That of the release held, at the start: as it was kept, unless that is another release's.
    pub fn restored(adoption: &Adoption, kept: Option<&FreshnessRecord>) -> FreshnessRecord {
        let of_adoption = FreshnessRecord::of(adoption);
        match kept {
            Some(kept) => kept.after_adoption(of_adoption),
            None => of_adoption,
        }
    }

    /// That of a release that is adopted while this one counts.
    pub fn adopts(&self, adoption: &Adoption) -> FreshnessRecord {
        FreshnessRecord { stale_since: None, ..self.after_adoption(FreshnessRecord::of(adoption)) }
    }

    /// What two records of one release say together, as of memory and of a copy on the disk: nothing goes back.
    pub fn with(self, other: FreshnessRecord) -> FreshnessRecord {
        let (later, earlier) = match other.newest_signature > self.newest_signature {
            true => (other, self),
            false => (self, other),
        };
        // A newer signature made it fresh again.
        let same = earlier.newest_signature == later.newest_signature;
        let signed_at = later.freshness.signed_at.max(earlier.freshness.signed_at);
        FreshnessRecord {
            freshness: Freshness { signed_at, ..later.freshness },
            not_fresh_since: later.not_fresh_since.or(earlier.not_fresh_since.filter(|_| same)),
            confirmed_at: later.confirmed_at.max(earlier.confirmed_at),
            ..later
        }
    }

    fn after_adoption(&self, adopted: FreshnessRecord) -> FreshnessRecord {
        let same = self.header == adopted.header;
        let freshness = match same && self.freshness.signed_at > adopted.freshness.signed_at {
            true => Freshness { signed_at: self.freshness.signed_at, ..adopted.freshness },
            false => adopted.freshness,
        };
        // A beacon that was dated too far ahead must not keep the next release from being fresh.
        let known = if same { self.newest_known() } else { self.newest_signature };
        let is_newer = freshness.signed_at > known;
        FreshnessRecord {
            freshness,
            newest_signature: self.newest_signature.max(adopted.newest_signature),
            not_fresh_since: self.not_fresh_since.filter(|_| !is_newer),
            confirmed_at: self.confirmed_at.max(adopted.confirmed_at),
            stale_since: self.stale_since.filter(|_| same),
            ..adopted
        }
    }

    /// A newer beacon was verified, of which this much is remembered as the newest signature.
    pub fn signed(&mut self, at: Timestamp, newest_signature: Timestamp, now: Timestamp) {
        if at > self.newest_known() {
            self.not_fresh_since = None;
        }
        self.freshness.signed_at = self.freshness.signed_at.max(at);
        self.newest_signature = self.newest_signature.max(newest_signature);
        (self.confirmed_at, self.stale_since) = (now, None);
    }

    /// What a signature of this release must be newer than to make fresh again. A beacon may be dated past what is remembered of it.
    fn newest_known(&self) -> Timestamp {
        self.newest_signature.max(self.freshness.signed_at)
    }

    /// Until when the control plane may ask for something, by the time that trust goes by; no time at all once it
    /// was past that.
    pub fn fresh_until(&self) -> Timestamp {
        self.not_fresh_since.map_or(self.freshness.ends_at(), |_| Timestamp(i64::MIN))
    }

    /// Takes notice of the time that trust goes by; says whether it is not fresh from now on.
    pub fn judge(&mut self, trusted: Timestamp) -> bool {
        let ends = self.not_fresh_since.is_none() && self.freshness.is_over(trusted);
        if ends {
            self.not_fresh_since = Some(self.freshness.ends_at());
        }
        ends
    }

    /// What check-ins and `muster-agent status` say.
    pub fn view(&self) -> HeldFreshness {
        HeldFreshness {
            signed_at: self.freshness.signed_at,
            not_fresh_since: self.not_fresh_since,
            stale_since: self.stale_since,
        }
    }

    /// The fact that it changed.
    pub fn fact(&self, seq: u64) -> FactBody {
        let HeldFreshness { signed_at, not_fresh_since, stale_since } = self.view();
        FactBody::Freshness { seq, signed_at, not_fresh_since, stale_since }
    }
}
