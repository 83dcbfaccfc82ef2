//! The version of a trust document that follows another, before a root key signs it (IDN-8).

use model::{Channel, Timestamp};

use crate::chain::{ChainHead, MAX_VERSION, SlotName};
use crate::document::{Slots, TrustDocument};
use crate::key::PublicKey;
use crate::threshold::{ChannelThreshold, ThresholdFault};

/// What the next version changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotChange {
    /// Another key is the current one, and the one before it stays believed.
    Rotate(PublicKey),
    /// Another key is the current one, and no other is believed.
    Replace(PublicKey),
    /// The previous key is believed no more.
    Retire,
}

/// Why there is no such next version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NextVersionError {
    /// The key is the current one already.
    #[error("key {0} is the current one already")]
    SameKey(String),
    /// The key stands in the slots of another name.
    #[error("key {key} is the fleet's {of} key; one key has one use")]
    OtherUse {
        /// The key's id.
        key: String,
        /// What it is for.
        of: &'static str,
    },
    /// There is no previous key.
    #[error("there is no previous {0} key")]
    NoPrevious(&'static str),
    /// Documents would be rejected that are not signed yet.
    #[error("what is signed before {0} cannot be rejected yet: that is in the future")]
    RejectsFuture(Timestamp),
    /// Its thresholds would not be in order.
    #[error(transparent)]
    Threshold(#[from] ThresholdFault),
    /// The channel asks for exactly that already.
    #[error("channel {0} asks for that already")]
    SameThreshold(Channel),
    /// The chain is as long as it may be.
    #[error("the chain has {MAX_VERSION} versions, and may have no more")]
    TooLong,
}

/// The version after a document, not yet signed. What was rejected before stays so.
///
/// # Errors
/// [`NextVersionError`] says why there is none.
pub fn next_version(
    head: &ChainHead,
    slot: SlotName,
    change: SlotChange,
    reject_before: Option<Timestamp>,
    now: Timestamp,
) -> Result<TrustDocument, NextVersionError> {
    let before = &head.document;
    if let Some(limit) = reject_before.filter(|limit| *limit > now) {
        return Err(NextVersionError::RejectsFuture(limit));
    }
    let old = slot.of(before);
    let (current, previous) = match (change, old) {
        (SlotChange::Rotate(key), old) => (key, old.map(|old| old.current)),
        (SlotChange::Replace(key), _) => (key, None),
        (SlotChange::Retire, Some(Slots { current, previous: Some(_), .. })) => (*current, None),
        (SlotChange::Retire, _) => return Err(NextVersionError::NoPrevious(slot.as_str())),
    };
    if change != SlotChange::Retire && old.is_some_and(|old| old.current == current) {
        return Err(NextVersionError::SameKey(current.id()));
    }
    let has_it =
        |name: &SlotName| name.of(before).is_some_and(|slots| slots.keys().any(|key| *key == current));
    if let Some(other) = SlotName::ALL.into_iter().filter(|name| *name != slot).find(has_it) {
        return Err(NextVersionError::OtherUse { key: current.id(), of: other.as_str() });
    }
    let rejected = old.and_then(|old| old.reject_before);
    let slots = Slots { current, previous, reject_before: rejected.max(reject_before) };
    let mut next = after(head, now)?;
    match slot {
        SlotName::Release => next.release = slots,
        SlotName::Beacon => next.beacon = Some(slots),
        SlotName::ControlPlane => next.control_plane = Some(slots),
        SlotName::CertificateAuthority => next.certificate_authority = Some(slots),
        SlotName::Root => next.root = slots,
    }
    checked(next)
}

/// The version after a document in which a channel has this threshold, or none; not yet signed.
///
/// # Errors
/// [`NextVersionError`] says why there is none.
pub fn next_threshold(
    head: &ChainHead,
    channel: &Channel,
    threshold: Option<ChannelThreshold>,
    now: Timestamp,
) -> Result<TrustDocument, NextVersionError> {
    let mut next = after(head, now)?;
    if next.thresholds.get(channel) == threshold.as_ref() {
        return Err(NextVersionError::SameThreshold(channel.clone()));
    }
    match threshold {
        Some(threshold) => next.thresholds.insert(channel.clone(), threshold),
        None => next.thresholds.remove(channel),
    };
    checked(next)
}

/// The next version, which changes nothing yet.
fn after(head: &ChainHead, now: Timestamp) -> Result<TrustDocument, NextVersionError> {
    let before = &head.document;
    if before.version >= MAX_VERSION {
        return Err(NextVersionError::TooLong);
    }
    Ok(TrustDocument {
        version: before.version + 1,
        previous: Some(head.digest),
        created: Some(now),
        ..before.clone()
    })
}

fn checked(next: TrustDocument) -> Result<TrustDocument, NextVersionError> {
    match next.threshold_fault() {
        Some(fault) => Err(fault.into()),
        None => Ok(next),
    }
}
