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

/// The largest body of one event, in bytes.
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
    /// The root of the set that the node says to be on, where it names that, as the source does, and no release. The event's
    /// release is 0 then, until [`PostedEvent::of_release`] says which it is.
    pub closure: Option<Digest>,
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

/// Fields in which the source names the set that a node is on.
const CLOSURES: [&str; 3] = ["observedCurrentClosure", "currentClosure", "revertedToClosure"];
/// The events that say on which release a node is.
const OF_RELEASE: [&str; 3] = ["ActivationComplete", "Converged", "RollbackComplete"];
/// How long a node soaked that does not say it, in seconds: as long as it can have by the time that it was asked.
const UNSAID_SOAK: u32 = u32::MAX;

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
        let closure = closure_instead_of_release(&mut event)?;
        let event: RolloutEventBody = serde_json::from_value(event.into())?;
        let envelope: EventEnvelope = serde_json::from_value(fields.into())?;
        let EventEnvelope { rollout, seq, at, incarnation, oldest, signature } = envelope;
        let fact = RolloutFact { rollout, event_seq: seq, event, signature };
        Ok(PostedEvent { fact, at, incarnation, oldest: oldest.unwrap_or(1), closure })
    }

    /// The set that the node says to be on is that of this release.
    pub fn of_release(&mut self, is: u64) {
        if let RolloutEventBody::ActivationComplete { release, .. }
        | RolloutEventBody::Converged { release, .. }
        | RolloutEventBody::RollbackComplete { release } = &mut self.fact.event
        {
            *release = is;
        }
    }
}

/// Fills in what the source says otherwise: the set instead of the release, its probes instead of a message.
fn closure_instead_of_release(event: &mut Map<String, Value>) -> Result<Option<Digest>, serde_json::Error> {
    let kind = event.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind == "Failed"
        && let (false, Some(Value::Array(probes))) =
            (event.contains_key("message"), event.get("failingProbes"))
    {
        let names: Vec<&str> = probes.iter().filter_map(Value::as_str).collect();
        let message = format!("probes went on failing: {}", names.join(", "));
        event.insert("message".to_owned(), message.into());
    }
    if !OF_RELEASE.contains(&kind.as_str()) || event.contains_key("release") {
        return Ok(None);
    }
    let Some(closure) = CLOSURES.iter().find_map(|name| event.get(*name).cloned()) else { return Ok(None) };
    event.insert("release".to_owned(), 0.into());
    if kind == "Converged" {
        event.entry("soakedSecs").or_insert_with(|| UNSAID_SOAK.into());
    }
    serde_json::from_value(closure).map(Some)
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
        // A set instead of a release, as the source says it.
        let closure = "6ee0eb490ff832101cf82a3d387c35f29e4230be786978f7acf9e811febf6723";
        let named = format!(
            r#"{{"kind":"Converged","rollout_id":"stable@4f1c","seq":5,"converged_at":"x","boot_id":"b1","current_closure":"{closure}"}}"#
        );
        let mut read = PostedEvent::read(named.as_bytes()).unwrap();
        assert_eq!(read.closure.unwrap().to_string(), closure);
        read.of_release(7);
        let RolloutEventBody::Converged { release: 7, soaked_secs, .. } = read.fact.event else {
            panic!("{read:?}")
        };
        assert_eq!(soaked_secs, u64::from(UNSAID_SOAK));
        let failed = r#"{"kind":"Failed","rollout_id":"stable@4f1c","seq":5,"failing_probes":["a","b"]}"#;
        let read = PostedEvent::read(failed.as_bytes()).unwrap();
        assert_eq!(
            read.fact.event,
            RolloutEventBody::Failed { message: "probes went on failing: a, b".into() }
        );
        assert!(PostedEvent::read(named.replace(closure, "../x").as_bytes()).is_err());
        let probes = r#"{"kind":"ProbeTopologyDeclared","rollout_id":"stable@4f1c","seq":4,
            "probes":[{"name":"up","kind":"http","mode":"Enforce"}]}"#;
        assert!(PostedEvent::read(probes.as_bytes()).is_ok());
        assert!(matches!(PostedEvent::read(b"{}"), Err(ReadEventError::NoKind)));
        assert!(PostedEvent::read(br#"{"kind":"DispatchAck","rollout_id":"../etc","seq":1}"#).is_err());
    }
}
