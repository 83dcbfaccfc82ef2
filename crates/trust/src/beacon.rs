//! Verifying beacons: one order of checks for nodes and control planes.

use model::exchange::Signed;
use model::time::SLACK;
use model::{Channel, Digest, FleetId, Timestamp};

use crate::document::TrustDocument;
use crate::release::Beacon;
use crate::signed::{self, VerifyError};

/// The release that a beacon must be for.
#[derive(Clone, Copy, Debug)]
pub struct BeaconSubject<'a> {
    /// Its channel.
    pub channel: &'a Channel,
    /// Its number.
    pub seq: u64,
    /// The digest of its header.
    pub header: &'a Digest,
}

/// Why a beacon is refused. Nothing changes then: a beacon can only make something fresher.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BeaconRefusal {
    /// No key that may sign beacons signed it.
    #[error("{0}")]
    Signature(VerifyError),
    /// It cannot be read.
    #[error("{0}")]
    Malformed(VerifyError),
    /// It is of another fleet.
    #[error("it is of fleet {theirs}, this is fleet {ours}")]
    OtherFleet {
        /// The beacon's fleet.
        theirs: FleetId,
        /// This one.
        ours: FleetId,
    },
    /// It is of another channel.
    #[error("it is of channel {theirs}, not of channel {ours}")]
    OtherChannel {
        /// The beacon's channel.
        theirs: Channel,
        /// The release's.
        ours: Channel,
    },
    /// It is for another header.
    #[error("it is for another header (release {theirs}) than that of release {ours}")]
    OtherRelease {
        /// The number that it names.
        theirs: u64,
        /// The release's.
        ours: u64,
    },
    /// It was signed in the future.
    #[error("it is dated {at}, {} the time here ({now})", .at.beside(*.now))]
    Future {
        /// Its date.
        at: Timestamp,
        /// The time here.
        now: Timestamp,
    },
    /// A later signature for the same release is known.
    #[error("it was signed at {at}, and a later signature is known, of {known}")]
    Older {
        /// Its date.
        at: Timestamp,
        /// That of the newest one.
        known: Timestamp,
    },
}

impl BeaconRefusal {
    /// The stable code that facts and problems carry.
    pub fn code(&self) -> &'static str {
        match self {
            BeaconRefusal::Signature(_) => "beacon-signature",
            BeaconRefusal::Malformed(_) => "beacon-malformed",
            BeaconRefusal::OtherFleet { .. } => "beacon-other-fleet",
            BeaconRefusal::OtherChannel { .. } => "beacon-other-channel",
            BeaconRefusal::OtherRelease { .. } => "beacon-other-release",
            BeaconRefusal::Future { .. } => "beacon-future",
            BeaconRefusal::Older { .. } => "beacon-older",
        }
    }
}

impl From<VerifyError> for BeaconRefusal {
    fn from(error: VerifyError) -> BeaconRefusal {
        match error {
            VerifyError::TooLarge | VerifyError::Malformed(_) => BeaconRefusal::Malformed(error),
            VerifyError::Unsigned
            | VerifyError::Untrusted
            | VerifyError::TooFew { .. }
            | VerifyError::RejectedBefore(_) => BeaconRefusal::Signature(error),
        }
    }
}

/// Reads a beacon that a key of the beacon slots or of the release slots signed, for this fleet.
///
/// # Errors
/// When none did, it cannot be read, or it is of another fleet.
pub fn open(document: &Signed, trust: &TrustDocument) -> Result<Beacon, BeaconRefusal> {
    let by_beacon_key = trust.beacon.as_ref().map(|slots| signed::verify::<Beacon>(document, slots));
    let beacon = match by_beacon_key {
        // The release key says more than a beacon does.
        Some(Err(VerifyError::Untrusted)) | None => signed::verify::<Beacon>(document, &trust.release)?,
        Some(verified) => verified?,
    };
    if beacon.fleet != trust.fleet {
        return Err(BeaconRefusal::OtherFleet { theirs: beacon.fleet, ours: trust.fleet.clone() });
    }
    Ok(beacon)
}

/// Whether a beacon is for this release, and not from the future by the time here.
///
/// # Errors
/// When it is for another channel or header, or dated later than now and the slack.
pub fn check(beacon: &Beacon, subject: BeaconSubject<'_>, now: Timestamp) -> Result<(), BeaconRefusal> {
    if beacon.channel != *subject.channel {
        let (theirs, ours) = (beacon.channel.clone(), subject.channel.clone());
        return Err(BeaconRefusal::OtherChannel { theirs, ours });
    }
    if beacon.seq != subject.seq || beacon.header != *subject.header {
        return Err(BeaconRefusal::OtherRelease { theirs: beacon.seq, ours: subject.seq });
    }
    if beacon.at > now.plus(SLACK) {
        return Err(BeaconRefusal::Future { at: beacon.at, now });
    }
    Ok(())
}

/// Whether a beacon says more than the newest signature that is known; one of the same time is that one again.
///
/// # Errors
/// When a later signature is known.
pub fn is_newer(beacon: &Beacon, known: Timestamp) -> Result<bool, BeaconRefusal> {
    if beacon.at < known { Err(BeaconRefusal::Older { at: beacon.at, known }) } else { Ok(beacon.at > known) }
}
