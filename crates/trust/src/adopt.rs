//! Whether a node may adopt what it is pointed to (ROL-4).

use model::exchange::Offer;
use model::selection::Matches;
use model::time::SLACK;
use model::{Channel, Digest, FleetId, Hostname, Timestamp};
use serde::{Deserialize, Serialize};

use crate::beacon::{self, BeaconRefusal, BeaconSubject};
use crate::clock::TrustTime;
use crate::document::TrustDocument;
use crate::feature::{self, Feature, MAX_REQUIRES};
use crate::freshness::Freshness;
use crate::release::{Fallback, Header};
use crate::signed::{self, VerifyError};

/// What a node remembers of releases so that it cannot be led back. Persisted with every
/// adoption, before anything of the release takes effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Floor {
    /// The highest release accepted so far.
    pub seq: u64,
    /// The digest of its header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<Digest>,
    /// What that header allows to go back to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<Fallback>,
    /// The newest time in any signature verified so far (IDN-11).
    #[serde(default)]
    pub newest_signature: Timestamp,
    /// The freshness that that header states, in seconds; a floor of an earlier agent does not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freshness_secs: Option<u64>,
}

impl Floor {
    /// Whether the header of the highest release names this one to go back to, by its number and its header's digest.
    pub fn names(&self, seq: u64, header: &Digest) -> bool {
        self.fallbacks.iter().any(|named| named.seq == seq && named.header == *header)
    }
}

/// Who is asked to adopt, and by what it judges.
#[derive(Clone, Copy)]
pub struct Judge<'a> {
    /// The keys believed.
    pub trust: &'a TrustDocument,
    /// The node's hostname.
    pub hostname: &'a Hostname,
    /// What it remembers.
    pub floor: &'a Floor,
    /// What time it is.
    pub time: TrustTime,
    /// How patterns match.
    pub matches: Matches<'a>,
    /// The features that this build has.
    pub features: &'a [Feature],
}

/// An offer that may be adopted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// The verified header.
    pub header: Header,
    /// Its digest.
    pub digest: Digest,
    /// The root of the node's set in it.
    pub root: Digest,
    /// How long the control plane may speak by it.
    pub freshness: Freshness,
    /// The floor to persist together with the adoption.
    pub floor: Floor,
}

/// The code of a release that needs what the node's build lacks ([`Refusal::Requires`]).
pub const REQUIRES_CODE: &str = "release-requires";
/// The code of a release whose number is below one that the node accepted ([`Refusal::Older`]).
pub const OLDER_CODE: &str = "release-older";
/// The code of a release whose number another one bears that the node accepted ([`Refusal::TwoHeaders`]).
pub const TWO_HEADERS_CODE: &str = "release-two-headers";

/// The code of a release that no release key signed which the node believes ([`Refusal::Header`]).
pub const SIGNATURE_CODE: &str = "release-signature";

/// The code of a release with fewer signatures than its channel asks for ([`Refusal::Header`]).
pub const TOO_FEW_CODE: &str = "release-too-few-signatures";

/// Why an offer is refused. Nothing changes on the node then, but the refusal is a fact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The header's signature does not hold.
    #[error("the release header is refused: {0}")]
    Header(VerifyError),
    /// The beacon is not believed, or is not for this release.
    #[error("the beacon is refused: {0}")]
    Beacon(#[from] BeaconRefusal),
    /// The release needs what this build does not have.
    #[error("release {seq} requires {missing}, which this agent does not have; install a newer muster-agent")]
    Requires {
        /// The release offered.
        seq: u64,
        /// The features that are missing, for people.
        missing: String,
    },
    /// The release is of another fleet.
    #[error("the release is of fleet {theirs}, this node is of {ours}")]
    OtherFleet {
        /// The release's fleet.
        theirs: FleetId,
        /// The node's fleet.
        ours: FleetId,
    },
    /// The header is of another channel than the node's entry.
    #[error("the header is of channel {header}, but the node's entry is of channel {entry}")]
    OtherChannel {
        /// The header's channel.
        header: Channel,
        /// The entry's channel.
        entry: Channel,
    },
    /// It is lower than the highest release accepted, and no named fallback.
    #[error("release {offered} is older than release {accepted}, which this node accepted before")]
    Older {
        /// The release offered.
        offered: u64,
        /// The highest accepted.
        accepted: u64,
    },
    /// Two different headers bear one number.
    #[error("two different headers bear the number {0}; one of them was accepted before")]
    TwoHeaders(u64),
    /// Neither header nor beacon is within the freshness window.
    #[error(
        "release {seq} was last signed for at {signed}, which is past its freshness of {freshness_secs} s, as \
         it is {} by this node's time",
        day(*.now)
    )]
    Stale {
        /// The release offered.
        seq: u64,
        /// When header or beacon was signed.
        signed: Timestamp,
        /// The window in seconds.
        freshness_secs: u64,
        /// The node's time.
        now: Timestamp,
    },
    /// It was signed in the future.
    #[error(
        "release {seq} is dated {created}, {} this node's time ({now}), the later of its clock and the control \
         plane's: the clock of who signed it is ahead, or both of these are behind",
        .created.beside(*.now)
    )]
    FutureDated {
        /// The release offered.
        seq: u64,
        /// Its date.
        created: Timestamp,
        /// The node's time.
        now: Timestamp,
    },
    /// The proof does not show that the release gives this entry to this node.
    #[error("{0}")]
    Proof(#[from] model::selection::ProofError),
    /// The set does not have the root that the release gives to this node.
    #[error("the set received has root {got}, the release says {want}")]
    OtherRoot {
        /// The root that was put together.
        got: Digest,
        /// The root that the release gives.
        want: Digest,
    },
    /// A part of the offer cannot be used.
    #[error("the offer is malformed: {0}")]
    Malformed(String),
}

/// The day alone, so that nodes which refuse one release on one day say the same.
fn day(at: Timestamp) -> String {
    let mut text = at.to_string();
    text.truncate(text.find('T').unwrap_or(text.len()));
    text
}

impl Refusal {
    /// The stable code that facts carry.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::Header(VerifyError::Unsigned) => "release-unsigned",
            Refusal::Header(VerifyError::TooFew { .. }) => TOO_FEW_CODE,
            Refusal::Header(_) => SIGNATURE_CODE,
            Refusal::Beacon(refusal) => refusal.code(),
            Refusal::Requires { .. } => REQUIRES_CODE,
            Refusal::OtherFleet { .. } => "release-other-fleet",
            Refusal::OtherChannel { .. } => "release-other-channel",
            Refusal::Older { .. } => OLDER_CODE,
            Refusal::TwoHeaders(_) => TWO_HEADERS_CODE,
            Refusal::Stale { .. } => "release-stale",
            Refusal::FutureDated { .. } => "release-future",
            Refusal::Proof(_) => "release-proof",
            Refusal::OtherRoot { .. } => "release-other-root",
            Refusal::Malformed(_) => "release-malformed",
        }
    }

    /// Whether it is for the node's time, so that a wrong clock may be the cause.
    pub fn is_of_time(&self) -> bool {
        matches!(
            self,
            Refusal::Stale { .. }
                | Refusal::FutureDated { .. }
                | Refusal::Beacon(BeaconRefusal::Future { .. })
        )
    }
}

/// Decides on an offer: signatures, what it requires, fleet, channel, number, date, freshness, proof.
///
/// # Errors
/// The first [`Refusal`] found; nothing of the offer may be used then.
pub fn judge(offer: &Offer, by: Judge<'_>) -> Result<Adopted, Refusal> {
    let header: Header = by.trust.header(&offer.header).map_err(Refusal::Header)?;
    // Before anything else of it: what a feature adds may change what the rest means.
    check_requires(&header, by.features)?;
    let digest = signed::digest(&offer.header);
    let beacon = match &offer.beacon {
        Some(document) => {
            let subject = BeaconSubject { channel: &header.channel, seq: header.seq, header: &digest };
            let beacon = beacon::open(document, by.trust)?;
            let time = by.time.now().min(by.time.after_header(header.created).for_beacons());
            beacon::check(&beacon, subject, time)?;
            Some(beacon)
        }
        None => None,
    };
    check_identity(&header, offer, by)?;
    header.check_rollout().map_err(|error| Refusal::Malformed(error.to_string()))?;
    let fallback = by.floor.names(header.seq, &digest);
    check_number(&header, &digest, fallback, by.floor)?;
    let own = Freshness::of(&header, beacon.as_ref());
    let freshness = if fallback { own.of_fallback(by.floor) } else { own };
    check_dates(&header, freshness, fallback, by.time)?;
    offer.proof.verify(&header.selection, by.hostname, &offer.entry, by.matches)?;
    let newest_signature = by.time.after_header(header.created).remembered(freshness.signed_at);
    let floor = raise(by.floor, &header, digest, newest_signature);
    Ok(Adopted { digest, root: offer.entry.root, freshness, floor, header })
}

fn check_requires(header: &Header, features: &[Feature]) -> Result<(), Refusal> {
    if header.requires.len() > MAX_REQUIRES {
        return Err(Refusal::Malformed(format!("it requires more than {MAX_REQUIRES} features")));
    }
    match feature::missing(&header.requires, features) {
        Some(missing) => Err(Refusal::Requires { seq: header.seq, missing }),
        None => Ok(()),
    }
}

fn check_identity(header: &Header, offer: &Offer, by: Judge<'_>) -> Result<(), Refusal> {
    if header.fleet != by.trust.fleet {
        let (theirs, ours) = (header.fleet.clone(), by.trust.fleet.clone());
        return Err(Refusal::OtherFleet { theirs, ours });
    }
    if header.channel != offer.entry.channel {
        let (header, entry) = (header.channel.clone(), offer.entry.channel.clone());
        return Err(Refusal::OtherChannel { header, entry });
    }
    Ok(())
}

fn check_number(header: &Header, digest: &Digest, fallback: bool, floor: &Floor) -> Result<(), Refusal> {
    if header.seq < floor.seq && !fallback {
        return Err(Refusal::Older { offered: header.seq, accepted: floor.seq });
    }
    let other = floor.header.is_some_and(|accepted| accepted != *digest);
    if header.seq == floor.seq && other {
        return Err(Refusal::TwoHeaders(header.seq));
    }
    Ok(())
}

fn check_dates(
    header: &Header,
    freshness: Freshness,
    fallback: bool,
    time: TrustTime,
) -> Result<(), Refusal> {
    let now = time.now();
    if header.created > now.plus(SLACK) {
        return Err(Refusal::FutureDated { seq: header.seq, created: header.created, now });
    }
    // A fallback is old by its nature; the header that names it vouches for it.
    if !fallback && freshness.is_over(now) {
        let (signed, freshness_secs) = (freshness.signed_at, header.freshness_secs);
        return Err(Refusal::Stale { seq: header.seq, signed, freshness_secs, now });
    }
    Ok(())
}

fn raise(floor: &Floor, header: &Header, digest: Digest, newest: Timestamp) -> Floor {
    let newest_signature = floor.newest_signature.max(newest);
    if header.seq < floor.seq {
        return Floor { newest_signature, ..floor.clone() };
    }
    let fallbacks = header.fallbacks.iter().take(crate::release::MAX_FALLBACKS).cloned().collect();
    let freshness_secs = Some(header.freshness_secs);
    Floor { seq: header.seq, header: Some(digest), fallbacks, newest_signature, freshness_secs }
}

/// Whether a pattern, its exceptions aside, takes a hostname. One that this version cannot
/// read takes every name, so that no later entry can be proven past it.
pub fn takes(pattern: &str, except: &[String], hostname: &str) -> bool {
    let matches = |pattern: &str| lang::pattern::Pattern::parse(pattern).map(|p| p.matches(hostname));
    matches(pattern).unwrap_or(true) && !except.iter().any(|except| matches(except).unwrap_or(false))
}
