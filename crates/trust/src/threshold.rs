//! Thresholds: channels whose releases count only with signatures of several people (IDN-8).
//!
//! ```text
//! trust document (signed by the root key)
//!   release: keys of every channel without a threshold, of signed lists and of beacons
//!   thresholds: channel -> {signatures: n, signers: keys}      a header of the channel needs n of these
//! ```
//!
//! A threshold stands in the trust document alone, so that neither the control plane nor a stolen release key lowers
//! it. A document with thresholds has a form that programs from before them cannot read: they stay on the version
//! that they hold, and say so, where they would else take one signature for enough.

use std::collections::BTreeMap;

use model::Channel;
use model::canonical;
use model::exchange::Signed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::{Slots, TrustDocument};
use crate::key::PublicKey;
use crate::release::Header;
use crate::signed::{self, Document, MAX_SIGNATURES, VerifyError};

/// The most keys that may sign for one channel with a threshold.
pub const MAX_SIGNERS: usize = 16;
/// The most channels with a threshold.
pub const MAX_THRESHOLDS: usize = 32;

/// How many of which keys a release of a channel needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChannelThreshold {
    /// How many different keys must sign, 1 to [`MAX_SIGNATURES`] and no more than there are signers.
    pub signatures: u32,
    /// Those that may, at most [`MAX_SIGNERS`], none of them twice. The release key counts only where it is one.
    #[schemars(with = "Vec<String>")]
    pub signers: Vec<PublicKey>,
}

/// What is wrong with thresholds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdFault {
    /// The number of signatures is none that can be reached.
    #[error(
        "channel {channel} asks for {signatures} signatures of {signers} signers: it may ask for 1 to \
         {MAX_SIGNATURES}, and for no more than it has signers"
    )]
    Signatures {
        /// The channel.
        channel: Channel,
        /// How many it asks for.
        signatures: u32,
        /// How many signers it has.
        signers: usize,
    },
    /// There are too many signers.
    #[error("channel {0} has more than {MAX_SIGNERS} signers")]
    Signers(Channel),
    /// One key would count twice.
    #[error("channel {channel} names signer {key} twice")]
    Twice {
        /// The channel.
        channel: Channel,
        /// The key's id.
        key: String,
    },
    /// A signer is a key with another use.
    #[error("signer {key} of channel {channel} is the fleet's {of} key; one key has one use")]
    OtherUse {
        /// The channel.
        channel: Channel,
        /// The key's id.
        key: String,
        /// What it is for.
        of: &'static str,
    },
    /// There are too many channels with one.
    #[error("more than {MAX_THRESHOLDS} channels have a threshold")]
    Channels,
}

/// Who signs the headers of a channel, and how many of them must.
#[derive(Clone, Copy, Debug)]
pub enum HeaderSigners<'t> {
    /// One of the release keys.
    Release(&'t Slots),
    /// As many of a list as its threshold says.
    Threshold(&'t ChannelThreshold),
}

impl<'t> HeaderSigners<'t> {
    /// Whether a key may sign.
    pub fn has(&self, key: &PublicKey) -> bool {
        match self {
            HeaderSigners::Release(slots) => slots.keys().any(|known| known == key),
            HeaderSigners::Threshold(threshold) => threshold.signers.contains(key),
        }
    }

    /// Those who may sign.
    pub fn keys(&self) -> Vec<&'t PublicKey> {
        match self {
            HeaderSigners::Release(slots) => slots.keys().collect(),
            HeaderSigners::Threshold(threshold) => threshold.signers.iter().collect(),
        }
    }

    /// How many different keys must sign.
    pub fn needed(&self) -> usize {
        match self {
            HeaderSigners::Release(_) => 1,
            HeaderSigners::Threshold(threshold) => threshold.signatures as usize,
        }
    }

    /// Which of these keys count here, each once.
    pub fn counting(&self, made: &[&'t PublicKey]) -> Vec<&'t PublicKey> {
        let mut counting: Vec<&PublicKey> = Vec::new();
        for key in made {
            if self.has(key) && !counting.contains(key) {
                counting.push(key);
            }
        }
        counting
    }
}

impl TrustDocument {
    /// Who signs the headers of a channel.
    pub fn header_signers(&self, channel: &Channel) -> HeaderSigners<'_> {
        match self.thresholds.get(channel) {
            Some(threshold) => HeaderSigners::Threshold(threshold),
            None => HeaderSigners::Release(&self.release),
        }
    }

    /// Verifies a release's header by what its channel asks for, then reads it (ROL-4, IDN-8). Nothing is parsed
    /// before a signature of a key was found good that signs headers of some channel.
    ///
    /// # Errors
    /// [`VerifyError`] says why it is not believed; [`VerifyError::TooFew`] when good signatures are missing.
    pub fn header(&self, signed: &Signed) -> Result<Header, VerifyError> {
        signed::check_form::<Header>(signed)?;
        let made = self.made(signed);
        if made.is_empty() {
            return Err(VerifyError::Untrusted);
        }
        let header: Header =
            canonical::parse_canonical(signed.payload.as_bytes()).map_err(VerifyError::Malformed)?;
        let signers = self.header_signers(&header.channel);
        let (have, need) = (signers.counting(&made).len(), signers.needed());
        match (signers, self.release.reject_before) {
            (HeaderSigners::Release(_), _) if have == 0 => Err(VerifyError::Untrusted),
            (HeaderSigners::Threshold(_), _) if have < need => {
                Err(VerifyError::TooFew { channel: header.channel, have, need })
            }
            (_, Some(limit)) if header.signed_at() < limit => Err(VerifyError::RejectedBefore(limit)),
            _ => Ok(header),
        }
    }

    /// The keys that signed a header of a channel and count there, whether they are enough or not.
    pub fn header_signatures(&self, signed: &Signed, channel: &Channel) -> Vec<&PublicKey> {
        self.header_signers(channel).counting(&self.made(signed))
    }

    /// The keys of any channel that made good signatures of a header.
    fn made(&self, signed: &Signed) -> Vec<&PublicKey> {
        let listed = self.thresholds.values().flat_map(|threshold| &threshold.signers);
        signed::signers_among::<Header>(signed, self.release.keys().chain(listed))
    }
}

/// What is wrong with the thresholds of a document; `None` when they are in order.
pub(crate) fn fault(
    thresholds: &BTreeMap<Channel, ChannelThreshold>,
    root: &Slots,
    beacon: Option<&Slots>,
) -> Option<ThresholdFault> {
    if thresholds.len() > MAX_THRESHOLDS {
        return Some(ThresholdFault::Channels);
    }
    thresholds.iter().find_map(|(channel, threshold)| {
        let ChannelThreshold { signatures, signers } = threshold;
        if signers.len() > MAX_SIGNERS {
            return Some(ThresholdFault::Signers(channel.clone()));
        }
        let most = signers.len().min(MAX_SIGNATURES);
        if !(1..=most).contains(&(*signatures as usize)) {
            let (channel, signatures, signers) = (channel.clone(), *signatures, signers.len());
            return Some(ThresholdFault::Signatures { channel, signatures, signers });
        }
        signers.iter().enumerate().find_map(|(at, key)| {
            let (channel, id) = (channel.clone(), key.id());
            if signers[..at].contains(key) {
                return Some(ThresholdFault::Twice { channel, key: id });
            }
            let has_it = |slots: &Slots| slots.keys().any(|known| known == key);
            let of = match (has_it(root), beacon.is_some_and(has_it)) {
                (true, _) => "root",
                (false, true) => "beacon",
                (false, false) => return None,
            };
            Some(ThresholdFault::OtherUse { channel, key: id, of })
        })
    })
}
