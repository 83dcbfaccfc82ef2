//! The heads of the channels: what nodes are pointed to.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::rollout::{RolloutKey, RolloutPointer};
use lang::pattern::{Pattern, first_match};
use model::exchange::Signed;
use model::policy::RunTimes;
use model::selection::{Selection, SelectionEntry};
use model::{Channel, Digest, Hostname, ReleaseVersion, Timestamp};
use trust::{Freshness, Header};

/// A release that nodes of one channel are pointed to.
#[derive(Clone, Debug)]
pub struct Head {
    /// The signed header, served byte for byte.
    pub signed: Arc<Signed>,
    /// Its content.
    pub header: Header,
    /// Its digest.
    pub digest: Digest,
    /// The newest beacon for it.
    pub beacon: Option<Arc<Signed>>,
    /// When the newest of header and beacon was signed.
    pub signed_at: Timestamp,
    /// Seconds between contacts that its nodes are asked for.
    pub contact_secs: u64,
    /// The oldest agent that its nodes' check-ins are taken from.
    pub minimum_agent: Option<ReleaseVersion>,
    /// How often its nodes run.
    pub runs: Option<RunTimes>,
    /// Which set each node gets.
    pub selection: Arc<Selection>,
    /// The selection's patterns, read.
    pub patterns: Arc<Patterns>,
}

impl Head {
    /// How fresh it is.
    pub fn freshness(&self) -> Freshness {
        Freshness { signed_at: self.signed_at, window_secs: self.header.freshness_secs }
    }

    /// Its entry for a hostname.
    fn entry(&self, hostname: &Hostname) -> Option<SelectionEntry> {
        match self.selection.exact().get(hostname.as_str()) {
            Some(leaf) => Selection::entry_of(leaf),
            None => self.patterns.entry(hostname.as_str()).cloned(),
        }
    }
}

/// A selection's patterns, read once for many nodes.
#[derive(Debug, Default)]
pub struct Patterns(Vec<(Pattern, Vec<Pattern>, SelectionEntry)>);

/// A pattern of a release cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the release holds a pattern that cannot be read: {0}")]
pub struct ReadPatternsError(String);

impl Patterns {
    /// Reads a selection's patterns.
    ///
    /// # Errors
    /// When one cannot be read; such a release is refused at the door.
    pub fn read(selection: &Selection) -> Result<Patterns, ReadPatternsError> {
        let parse = |text: &String| {
            Pattern::parse(text).map_err(|error| ReadPatternsError(format!("{text:?}: {error}")))
        };
        let mut patterns = Vec::new();
        for entry in selection.patterns() {
            let except = entry.except.iter().map(parse).collect::<Result<_, _>>()?;
            patterns.push((parse(&entry.pattern)?, except, entry.entry.clone()));
        }
        Ok(Patterns(patterns))
    }

    /// The index of the first pattern that matches.
    pub fn first(&self, hostname: &str) -> Option<usize> {
        first_match(self.0.iter().map(|(pattern, except, _)| (pattern, except.as_slice())), hostname)
    }

    fn entry(&self, hostname: &str) -> Option<&SelectionEntry> {
        Some(&self.0[self.first(hostname)?].2)
    }
}

/// All channels' heads. A new value is made for every publish or beacon.
#[derive(Clone, Debug, Default)]
pub struct Heads {
    /// Rises with every change, so that what was worked out for a node is known to be old.
    pub version: u64,
    /// By channel.
    pub channels: BTreeMap<Channel, Arc<Head>>,
    /// Earlier releases that members of rollouts are pointed to, or may be.
    pub earlier: BTreeMap<RolloutKey, Arc<Head>>,
    /// The verified header with the highest number that nodes hold and that no release here has.
    pub node_header: Option<NodeHeader>,
}

/// A header that nodes hold, and that the control plane lost or never had (SCL-4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeHeader {
    /// Its number.
    pub seq: u64,
    /// The signed header.
    pub signed: Arc<Signed>,
}

impl Heads {
    /// All releases that nodes are pointed to: what each channel points to, then the earlier ones.
    pub fn served(&self) -> impl Iterator<Item = &Arc<Head>> {
        self.channels.values().chain(self.earlier.values())
    }

    /// The newest time in any signature of what the fleet is pointed to.
    pub fn newest_signature(&self) -> Option<Timestamp> {
        self.served().map(|head| head.signed_at).max()
    }

    /// The head and the entry for a hostname: of the newest release that has one.
    ///
    /// Each channel's head carries the whole fleet's selection; a node follows the channel
    /// that the newest selection gives it.
    pub fn pointed(&self, hostname: &Hostname) -> Option<(Arc<Head>, SelectionEntry)> {
        let newest = self.channels.values().max_by_key(|head| head.header.seq)?;
        let entry = newest.entry(hostname)?;
        let head = self.channels.get(&entry.channel)?;
        let entry =
            if head.header.selection == newest.header.selection { entry } else { head.entry(hostname)? };
        (entry.channel == head.header.channel).then(|| (head.clone(), entry))
    }

    /// As [`Heads::pointed`], where the channel's release goes to its nodes by a rollout: then each is pointed to the
    /// release that the rollout says, and one that is in none waits until it is. What a release says whose header has
    /// no rollout section goes to all of its nodes at once.
    pub fn pointed_in_rollout(
        &self,
        hostname: &Hostname,
        rollout: Option<&RolloutPointer>,
    ) -> Option<(Arc<Head>, SelectionEntry)> {
        let (head, entry) = self.pointed(hostname)?;
        if head.header.rollout.is_none() {
            return Some((head, entry));
        }
        let pointer = rollout.filter(|pointer| pointer.rollout.channel == head.header.channel)?;
        let seq = pointer.release?;
        if seq == head.header.seq {
            return Some((head, entry));
        }
        let earlier = self.earlier.get(&RolloutKey { channel: head.header.channel.clone(), seq })?;
        let entry = earlier.entry(hostname)?;
        (entry.channel == earlier.header.channel).then(|| (earlier.clone(), entry))
    }

    /// The release of the channel goes to its nodes by a rollout.
    pub fn has_rollout(&self, channel: &Channel) -> bool {
        self.channels.get(channel).is_some_and(|head| head.header.rollout.is_some())
    }

    /// A release that is served here: the one that its channel points to, or an earlier one.
    pub fn release(&self, key: &RolloutKey) -> Option<&Arc<Head>> {
        let head = self.channels.get(&key.channel).filter(|head| head.header.seq == key.seq);
        head.or_else(|| self.earlier.get(key))
    }

    /// A node holds a release whose header is asked for: its number is not below any here, and no release here
    /// has this header.
    pub fn lacks(&self, seq: u64, header: &Digest) -> bool {
        let is_known = |head: &Arc<Head>| head.digest == *header;
        let is_below = self.node_header.as_ref().is_some_and(|known| seq <= known.seq);
        seq > 0 && seq >= self.seq() && !is_below && !self.channels.values().any(is_known)
    }

    /// The header of nodes beside which the newest release cannot be: its number is as high, or higher.
    pub fn overtaken_by(&self) -> Option<&NodeHeader> {
        self.node_header.as_ref().filter(|known| known.seq >= self.seq())
    }

    /// The highest number of any channel.
    pub fn seq(&self) -> u64 {
        self.channels.values().map(|head| head.header.seq).max().unwrap_or(0)
    }
}
