//! Rollouts in the form of the source document (ROL-3, ROL-5, ROL-6): a dispatch, one event a request, a heartbeat.
//!
//! The agent of this project says the same in check-ins; these are for other clients. Of the source's two spellings
//! (`rolloutId` in an envelope with `event`, and `rollout_id` flat beside `kind`) both are read and the first is written.

use std::collections::BTreeMap;

use model::exchange::Signature;
use model::rollout::{RolloutEventBody, RolloutFact, RolloutId, RolloutTask};
use model::{Channel, Digest, Incarnation, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The largest body of one event, in bytes. A larger body of this route is a poll.
pub const MAX_EVENT_BODY: usize = 16 * 1024;
/// The most rollouts of which a heartbeat speaks.
pub const MAX_HEARTBEAT_ROLLOUTS: usize = 64;

/// What a node is asked for: the answer to `GET /v1/agent/dispatch`. It is advice; what counts is signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DispatchAnswer {
    /// Always [`DispatchKind::Dispatch`].
    pub kind: DispatchKind,
    /// The rollout.
    pub rollout_id: RolloutId,
    /// Its channel.
    pub channel: Channel,
    /// The number of the release.
    pub release: u64,
    /// The root of the set that the node is to be on.
    pub target_closure: Digest,
    /// The node's wave.
    pub wave: String,
    /// What it is asked for.
    #[serde(flatten)]
    pub task: RolloutTask,
    /// Seconds for which its probes must pass after its activation.
    pub soak_secs: u64,
    /// The time here.
    pub issued_at: Timestamp,
}

/// What a dispatch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DispatchKind {
    /// A request to a node.
    Dispatch,
}

/// How a node is: it never moves a rollout (ROL-6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Heartbeat {
    /// The root of the set that it is on.
    #[serde(alias = "current_closure", skip_serializing_if = "Option::is_none")]
    pub current_closure: Option<Digest>,
    /// The number of its last event, of each rollout.
    #[serde(alias = "last_event_seq_by_rollout")]
    pub last_event_seq_by_rollout: BTreeMap<String, u64>,
    /// Its log; absent: the one that was heard last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Incarnation>,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeartbeatAnswer {
    /// The time here.
    pub received_at: Timestamp,
    /// Seconds until the next contact.
    pub next_checkin_secs: u64,
    /// The number from which on the node sends its events again, of each rollout of which some are missing here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replay_from: BTreeMap<String, u64>,
}

/// One event of a rollout, by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostedEvent {
    /// The event.
    pub fact: RolloutFact,
    /// When, by the node's clock; what a probe found is signed with it.
    pub at: Timestamp,
    /// The node's log; absent: the one that was heard last.
    pub incarnation: Option<Incarnation>,
    /// The lowest number that the node still has; absent: the first.
    pub oldest: u64,
}

/// Why a body is no event of a rollout.
#[derive(Debug, thiserror::Error)]
pub enum ReadEventError {
    /// It is no JSON, or a field has another form.
    #[error("the event cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// It has no kind.
    #[error("the event has no `kind`")]
    NoKind,
}

/// Fields of the source that have another name here.
const RENAMED: [(&str, &str); 6] = [
    ("probeName", "probe"),
    ("status", "outcome"),
    ("bootId", "boot"),
    ("rolloutId", "rollout"),
    ("stderrTail", "message"),
    ("policyApplied", "policy"),
];

/// Fields that are of the envelope.
#[derive(Deserialize)]
struct EventEnvelope {
    rollout: RolloutId,
    seq: u64,
    #[serde(default)]
    at: Timestamp,
    #[serde(default)]
    incarnation: Option<Incarnation>,
    #[serde(default)]
    oldest: Option<u64>,
    #[serde(default)]
    signature: Option<Signature>,
}

impl PostedEvent {
    /// Reads an event in either spelling.
    ///
    /// # Errors
    /// [`ReadEventError`] says what is wrong with it.
    pub fn read(body: &[u8]) -> Result<PostedEvent, ReadEventError> {
        let mut fields = in_one_spelling(serde_json::from_slice(body)?);
        let inner = match fields.remove("event") {
            Some(Value::Object(event)) => Some(in_one_spelling(event)),
            _ => None,
        };
        if let Some(inner) = &inner {
            // The source has the number inside of the event.
            if let Some(seq) = inner.get("seq") {
                fields.entry("seq").or_insert_with(|| seq.clone());
            }
        }
        let mut event = inner.unwrap_or_else(|| fields.clone());
        event.get("kind").and_then(Value::as_str).ok_or(ReadEventError::NoKind)?;
        for word in ["outcome", "mode"] {
            lowered(&mut event, word);
        }
        if let Some(Value::Array(probes)) = event.get_mut("probes") {
            probes.iter_mut().filter_map(Value::as_object_mut).for_each(|probe| lowered(probe, "mode"));
        }
        if event.get("kind").and_then(Value::as_str) == Some("ActivationCompleted") {
            event.insert("kind".to_owned(), "ActivationComplete".into());
        }
        let event: RolloutEventBody = serde_json::from_value(event.into())?;
        let envelope: EventEnvelope = serde_json::from_value(fields.into())?;
        let EventEnvelope { rollout, seq, at, incarnation, oldest, signature } = envelope;
        let fact = RolloutFact { rollout, event_seq: seq, event, signature };
        Ok(PostedEvent { fact, at, incarnation, oldest: oldest.unwrap_or(1) })
    }
}

/// Names in camel case, those of the source under the ones of here.
fn in_one_spelling(fields: Map<String, Value>) -> Map<String, Value> {
    let renamed = |name: String| {
        let name = camel(&name);
        RENAMED.iter().find(|(theirs, _)| *theirs == name).map_or(name, |(_, ours)| (*ours).to_owned())
    };
    fields.into_iter().map(|(name, value)| (renamed(name), value)).collect()
}

fn camel(name: &str) -> String {
    let mut parts = name.split('_');
    let mut camel = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

fn lowered(fields: &mut Map<String, Value>, name: &str) {
    if let Some(Value::String(word)) = fields.get_mut(name) {
        word.make_ascii_lowercase();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// ROL-5: both spellings of the source say the same event.
    #[test]
    fn both_spellings_are_one_event() {
        let enveloped = r#"{"hostname":"web-1","rolloutId":"stable@4f1c","event":{"kind":"ActivationCompleted","seq":3,
            "release":7,"bootId":"b1","observedCurrentClosure":"x"}}"#;
        let flat =
            r#"{"kind":"ActivationComplete","rollout_id":"stable@4f1c","seq":3,"release":7,"boot_id":"b1"}"#;
        let read = PostedEvent::read(enveloped.as_bytes()).unwrap();
        assert_eq!(read, PostedEvent::read(flat.as_bytes()).unwrap());
        assert_eq!((read.fact.event_seq, read.oldest), (3, 1));
        assert_eq!(
            read.fact.event,
            RolloutEventBody::ActivationComplete { release: 7, boot: "b1".to_owned() }
        );
        let probes = r#"{"kind":"ProbeTopologyDeclared","rollout_id":"stable@4f1c","seq":4,
            "probes":[{"name":"up","kind":"http","mode":"Enforce"}]}"#;
        assert!(PostedEvent::read(probes.as_bytes()).is_ok());
        assert!(matches!(PostedEvent::read(b"{}"), Err(ReadEventError::NoKind)));
        assert!(PostedEvent::read(br#"{"kind":"DispatchAck","rollout_id":"../etc","seq":1}"#).is_err());
    }
}
