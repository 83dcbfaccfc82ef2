//! The one exchange: what goes up in a check-in, what comes down.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::id::Channel;
use crate::log::{Cursor, Fact};
use crate::rollout::RolloutDispatch;
use crate::selection::{Proof, SelectionEntry};
use crate::tags::TaggedRun;
use crate::unadopted::UnadoptedRelease;
use crate::{AgentCapabilities, AgentInstance, Digest, Incarnation, SetDelta, Timestamp, UnmadeRun};

/// Carries out requests for runs by tag: [`Answer::tagged_run`].
pub const TAGGED_RUNS: &str = "tagged-runs";
/// What an agent of this build does of what the first check-in had not. Its trait `agent.features` names it,
/// and a control plane asks for nothing that a node's traits do not name.
pub const NODE_FEATURES: &[&str] = &[TAGGED_RUNS];

/// Up: what the node holds and what happened since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckIn {
    /// The release that the node adopted; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldRelease>,
    /// The incarnation of the node's log.
    pub incarnation: Incarnation,
    /// Facts that were not yet acknowledged, in order, at most [`crate::log::MAX_FACTS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<Fact>,
    /// The newest run, also when it had nothing new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunNote>,
    /// Why no run can be made; absent while runs are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmade_run: Option<UnmadeRun>,
    /// How fresh what it holds is; absent before the first release, and from an earlier agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freshness: Option<HeldFreshness>,
    /// Since when a run of all that is held has been under way; absent while none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_since: Option<Timestamp>,
    /// Observed traits, when they changed since the control plane last took them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traits: Option<TraitReport>,
    /// The node wants its whole set named again, whatever it holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
    /// The last run request that the node carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_confirmed: Option<u64>,
    /// The last request for a run by tag that the node carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tagged_run_confirmed: Option<u64>,
    /// The node's signed document of type `seen`, when the control plane lacks what it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Signed>,
    /// The signed header of the release that the node holds, when [`Answer::want_header`] asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<Signed>,
    /// How far the node's log was acknowledged in this incarnation of it. A control plane that knows less was
    /// restored from a backup, and answers with what it knows (SCL-4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acked: Option<u64>,
    /// The trust document that the node holds; absent for the first version, of which there is only one (IDN-8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<HeldTrust>,
    /// Why the node's certificate could not be renewed; absent unless that is due and failed (IDN-2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewal_failure: Option<String>,
    /// Why the release that was offered is not adopted; absent unless fetching or keeping it failed (LIF-10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unadopted: Option<UnadoptedRelease>,
    /// Which start of the agent speaks (IDN-10); absent from an earlier agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<AgentInstance>,
    /// What the agent is and can do: in its first check-ins, until one is answered, and when
    /// [`Answer::want_capabilities`] asks for it (ENR-5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Box<AgentCapabilities>>,
}

/// A trust document as held by a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldTrust {
    /// Its version.
    pub version: u64,
    /// Its digest.
    pub digest: Digest,
    /// The code of why the node does not follow the links that it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The id of the CA key that it names as the current one, of an agent that believes CAs by it; absent where it names
    /// none, and of agents of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
}

/// A release as held by a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldRelease {
    /// Its channel.
    pub channel: Channel,
    /// Its number.
    pub seq: u64,
    /// The digest of its header.
    pub header: Digest,
    /// The root of the set that the node holds.
    pub root: Digest,
}

/// How fresh what a node holds is, by its own word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldFreshness {
    /// When the newest header or beacon was signed that the node verified for the release that it holds.
    pub signed_at: Timestamp,
    /// It is not fresh since then: that signature is past the header's freshness, and the node takes neither
    /// actions nor objects from the control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_fresh_since: Option<Timestamp>,
    /// It is stale since then: for the channel's `bundle_max_age` no full answer and no newer beacon came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_since: Option<Timestamp>,
}

impl HeldFreshness {
    /// Whether it is not fresh or is stale.
    pub fn is_notable(&self) -> bool {
        self.not_fresh_since.is_some() || self.stale_since.is_some()
    }
}

/// A run in short: an unchanged run is no fact, only this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunNote {
    /// When it ended.
    pub at: Timestamp,
    /// The digest of what it came to, times left out.
    pub outcome: Digest,
}

/// Observed traits, all of them or what differs from an earlier report (TRT-2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TraitReport {
    /// The digest of the canonical bytes of all traits.
    pub digest: Digest,
    /// The report that `values` and `removed` differ from; without it `values` are all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Digest>,
    /// The traits: a map of groups, each a map. A group is always whole.
    pub values: serde_json::Value,
    /// Groups of `base` that are no more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
}

/// The most bytes of traits, as JSON: what fits into a request beside all the facts that it may have.
pub const MAX_TRAIT_BYTES: usize = 384 * 1024;
/// The most values in traits: read, the smallest takes sixteen times its bytes.
pub const MAX_TRAIT_VALUES: usize = 32 * 1024;

impl TraitReport {
    /// Whether the traits are within [`MAX_TRAIT_BYTES`] and [`MAX_TRAIT_VALUES`].
    pub fn is_within_bounds(&self) -> bool {
        size_of(&self.values).is_within_bounds()
    }

    /// Leaves out groups, the largest first, until the traits are within their bounds; names them.
    pub fn leave_out_what_is_too_large(&mut self) -> Vec<String> {
        let mut left_out = Vec::new();
        while !self.is_within_bounds() {
            let Some(groups) = self.values.as_object_mut() else { break };
            let largest = groups.iter().max_by_key(|(_, group)| size_of(group));
            let Some(largest) = largest.map(|(name, _)| name.clone()) else { break };
            groups.remove(&largest);
            left_out.push(largest);
        }
        left_out
    }

    /// A report of all traits.
    pub fn whole(digest: Digest, values: serde_json::Value) -> TraitReport {
        TraitReport { digest, base: None, values, removed: Vec::new() }
    }

    /// Whether the agent names this among its [`NODE_FEATURES`].
    pub fn has_feature(&self, feature: &str) -> bool {
        let features = self.values.get("agent").and_then(|agent| agent.get("features")?.as_array());
        features.into_iter().flatten().any(|name| name.as_str() == Some(feature))
    }

    /// What of this whole report differs from another whole one.
    pub fn since(&self, base: &TraitReport) -> TraitReport {
        let (Some(now), Some(before)) = (self.values.as_object(), base.values.as_object()) else {
            return self.clone();
        };
        let changed = now.iter().filter(|(name, group)| before.get(*name) != Some(*group));
        let mut values = serde_json::Map::new();
        values.extend(changed.map(|(name, group)| (name.clone(), group.clone())));
        TraitReport {
            digest: self.digest,
            base: Some(base.digest),
            values: values.into(),
            removed: before.keys().filter(|name| !now.contains_key(*name)).cloned().collect(),
        }
    }

    /// The whole report that this one stands for, given the whole one that is kept; `None` when it
    /// differs from another one, or one of them is no map of groups.
    pub fn over(self, kept: Option<TraitReport>) -> Option<TraitReport> {
        let Some(base) = self.base else { return Some(self) };
        let mut values = kept.filter(|kept| kept.digest == base)?.values;
        let groups = values.as_object_mut()?;
        groups.retain(|name, _| !self.removed.contains(name));
        let serde_json::Value::Object(changed) = self.values else { return None };
        groups.extend(changed);
        Some(TraitReport::whole(self.digest, values))
    }
}

/// How much traits are.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct TraitSize {
    bytes: usize,
    values: usize,
}

impl TraitSize {
    fn is_within_bounds(self) -> bool {
        self.bytes <= MAX_TRAIT_BYTES && self.values <= MAX_TRAIT_VALUES
    }
}

/// Bytes without what escapes add, and values.
fn size_of(value: &serde_json::Value) -> TraitSize {
    use serde_json::Value;
    let inner = |sizes: &mut dyn Iterator<Item = (usize, &Value)>| {
        sizes.fold(TraitSize { bytes: 2, values: 1 }, |sum, (name, value)| {
            let size = size_of(value);
            TraitSize { bytes: sum.bytes + name + size.bytes + 1, values: sum.values + size.values }
        })
    };
    match value {
        Value::Array(values) => inner(&mut values.iter().map(|value| (0, value))),
        Value::Object(values) => inner(&mut values.iter().map(|(name, value)| (name.len() + 3, value))),
        Value::String(text) => TraitSize { bytes: text.len() + 2, values: 1 },
        Value::Null | Value::Bool(_) | Value::Number(_) => TraitSize { bytes: 5, values: 1 },
    }
}

/// Down: what differs, and when to call next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Seconds until the next contact is expected.
    pub next_checkin_secs: u64,
    /// How far the node's log is durable here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acked: Option<Cursor>,
    /// The release that the node is pointed to, when it is not the one held (DLT-1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<Offer>,
    /// A newer proof of freshness than the node says that it has, for the release that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beacon: Option<Signed>,
    /// A run request: run now and confirm with this number (DLT-5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_request: Option<u64>,
    /// A request for a run by tag: run what has one of them, and confirm with its number. A full run that
    /// begins after it came carries it out too. Within the bounds of [`crate::tags::check_run_tags`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tagged_run: Option<TaggedRun>,
    /// What the node is asked for in the rollout that it is in (ROL-5); absent where its channel has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutDispatch>,
    /// Work waits that wants a stream (DLT-5).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream_requested: bool,
    /// The control plane lacks this node's traits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub want_traits: bool,
    /// The control plane lacks this node's newest `seen` document.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub want_seen: bool,
    /// The node holds a release that the control plane does not know: it wants the signed header of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub want_header: bool,
    /// The control plane lacks the report of the node's last run on what it holds: it was removed and joined again,
    /// or the control plane was restored. The next full run is reported, whatever it comes to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub want_run: bool,
    /// No entry of what is published matches the node. What it holds stays in force.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unassigned: bool,
    /// On how many other nodes what failed here fails for the same cause, by resource; those that fail
    /// here alone are left out. At most [`crate::report::MAX_NOTED_FAILURES`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub same_cause: BTreeMap<String, u32>,
    /// The control plane's clock when it answered on a link. The answer to a request does not say it, as
    /// the request was signed with a time that was judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_time: Option<Timestamp>,
    /// Newer versions of the trust document, in order from the one after [`CheckIn::trust`]; the node asks for more
    /// at once. While it takes them up, the offer beside them waits for the next answer (IDN-8).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trust_links: Vec<Signed>,
    /// The control plane wants the node to renew its certificate now, however long it counts (IDN-2).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renew_certificate: bool,
    /// The control plane lacks what the agent is and can do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub want_capabilities: bool,
    /// Two hosts hold this node's key. Neither gets releases, actions or objects until an operator decides; each goes
    /// on converging on what it holds (IDN-10).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub identity_copied: bool,
}

/// A signed document as it travels: the exact bytes and the signatures over them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Signed {
    /// The document's bytes, as text (canonical JSON).
    pub payload: String,
    /// Signatures, at most 8.
    pub signatures: Vec<Signature>,
}

/// The longest id of a key in a signature, in bytes.
pub const MAX_SIGNATURE_KEY: usize = 128;
/// The longest text of a signature, in bytes: with room for those of algorithms that are not known here.
pub const MAX_SIGNATURE: usize = 8 * 1024;

/// One signature over a [`Signed`] document. With a longer text than may be it is not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Signature {
    /// The key's id; at most 128 bytes.
    #[serde(deserialize_with = "at_most::<MAX_SIGNATURE_KEY, _>")]
    pub key: String,
    /// The signature, base64; at most 8 KiB.
    #[serde(deserialize_with = "at_most::<MAX_SIGNATURE, _>")]
    pub sig: String,
}

/// Reads a text of at most so many bytes: whoever hands a document on may write what he likes beside it.
fn at_most<'de, const MOST: usize, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct AtMost<const MOST: usize>;
    impl<const MOST: usize> Visitor<'_> for AtMost<MOST> {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a text of at most {MOST} bytes")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
            match text.len() <= MOST {
                true => Ok(text.to_owned()),
                false => Err(E::invalid_length(text.len(), &self)),
            }
        }
    }
    deserializer.deserialize_str(AtMost::<MOST>)
}

/// A release for one node, with all that the node needs to verify it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Offer {
    /// The signed header.
    pub header: Signed,
    /// A later signed proof of freshness, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beacon: Option<Signed>,
    /// What the release gives to this node.
    pub entry: SelectionEntry,
    /// The proof of that.
    pub proof: Proof,
    /// How to get from the set held to the one offered; absent when they are the same (DLT-2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<SetOffer>,
}

/// A difference of sets with the small contents that come with it (DLT-3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetOffer {
    /// The root that the difference starts from; absent when it starts from nothing, so
    /// that every object is named and the node fetches what it lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Digest>,
    /// The difference.
    pub delta: SetDelta,
    /// Contents up to [`crate::object::MAX_INLINE`] bytes each; all are canonical JSON text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<String>,
}

/// The acknowledgement of facts that came in a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Acked {
    /// How far the node's log is durable here.
    pub acked: Cursor,
}

/// Facts alone (`POST /v1/agent/report`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The incarnation of the node's log.
    pub incarnation: Incarnation,
    /// Facts in order.
    pub facts: Vec<Fact>,
}
