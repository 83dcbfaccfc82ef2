//! Reading a [`FactBody`] from JSON.
//!
//! What serde derives for an enum with a tag copies the whole body into a tree of its own first, and reads
//! reports and actions out of that by code that nothing else uses: 150 KiB of the agent. Here the tag is
//! looked up in the text, and the text is read by the code that reads reports and actions elsewhere.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::FactBody;
use crate::invocation::AgentInvocation;
use crate::{Contention, Digest, Timestamp};

#[derive(Deserialize)]
struct Tag<'t> {
    #[serde(borrow)]
    kind: std::borrow::Cow<'t, str>,
}

/// The sorts that have their fields here, and no type of their own.
#[derive(Deserialize)]
#[serde(remote = "FactBody", tag = "kind", rename_all = "camelCase")]
enum SmallFact {
    #[serde(rename_all = "camelCase")]
    Adopted {
        seq: u64,
        header: Digest,
        root: Digest,
    },
    Refused {
        code: String,
        message: String,
    },
    #[serde(rename_all = "camelCase")]
    Freshness {
        seq: u64,
        signed_at: Timestamp,
        #[serde(default)]
        not_fresh_since: Option<Timestamp>,
        #[serde(default)]
        stale_since: Option<Timestamp>,
    },
    #[serde(rename_all = "camelCase")]
    Started {
        version: String,
        boot_id: String,
        #[serde(default)]
        invocation: Option<AgentInvocation>,
        #[serde(default)]
        cut_off_run: Option<Timestamp>,
    },
    Repaired {
        message: String,
    },
    FileRestored {
        path: String,
        version: u64,
    },
    Rebooting {
        reason: String,
        window: String,
    },
    NotRebooted {
        reason: String,
    },
    Contended {
        #[serde(default)]
        resources: Vec<Contention>,
        #[serde(default)]
        more: u32,
    },
    #[serde(other)]
    Unknown,
}

impl<'de> Deserialize<'de> for FactBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FactBody, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        read(text.get().as_bytes()).map_err(D::Error::custom)
    }
}

fn read(json: &[u8]) -> Result<FactBody, serde_json::Error> {
    let tag: Tag<'_> = serde_json::from_slice(json)?;
    Ok(match tag.kind.as_ref() {
        "run" => FactBody::Run(serde_json::from_slice(json)?),
        "rollout" => FactBody::Rollout(serde_json::from_slice(json)?),
        "action" => FactBody::Action(serde_json::from_slice(json)?),
        _ => SmallFact::deserialize(&mut serde_json::Deserializer::from_slice(json))?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::rollout::{RolloutEventBody, RolloutFact};
    use crate::work::{ActionEvent, ActionFact, ActionOutcome, RefusalCode};
    use crate::{RunCounts, RunReport};

    fn report() -> RunReport {
        let item = serde_json::json!({"resource": "app/file:/etc/app", "action": "failed", "reason": "why"});
        serde_json::from_value(serde_json::json!({
            "started": Timestamp::default(), "durationMs": 5, "seq": 7, "root": Digest::of(b"root"),
            "intended": true, "counts": RunCounts::default(), "items": [item],
        }))
        .unwrap()
    }

    fn contention() -> Contention {
        let since = Timestamp::default();
        Contention {
            resource: "app/file:/etc/app".to_owned(),
            since,
            corrections: 5,
            wait_secs: 2,
            culprit: None,
            culprit_unknown: Some(crate::UnknownCulprit::Refused),
        }
    }

    /// One of each sort. A new one makes the match incomplete: it belongs into the list, too.
    fn each() -> Vec<FactBody> {
        let all = vec![
            FactBody::Run(report()),
            FactBody::Adopted { seq: 7, header: Digest::of(b"header"), root: Digest::of(b"root") },
            FactBody::Refused { code: "not-fresh".to_owned(), message: "too old".to_owned() },
            FactBody::Freshness {
                seq: 7,
                signed_at: Timestamp(1),
                not_fresh_since: Some(Timestamp(2)),
                stale_since: None,
            },
            FactBody::Started {
                version: "1.0".to_owned(),
                boot_id: "boot".to_owned(),
                invocation: Some(AgentInvocation::default()),
                cut_off_run: Some(Timestamp(7)),
            },
            FactBody::Repaired { message: "a \"quoted\" word".to_owned() },
            FactBody::FileRestored { path: "/etc/motd".to_owned(), version: 3 },
            FactBody::Rebooting { reason: "libc6".to_owned(), window: "nights".to_owned() },
            FactBody::NotRebooted { reason: "no bus".to_owned() },
            FactBody::Contended { resources: Vec::new(), more: 0 },
            FactBody::Contended { resources: vec![contention()], more: 2 },
            FactBody::Rollout(RolloutFact {
                rollout: "stable@4f1c2a9".parse().unwrap(),
                event_seq: 1,
                event: RolloutEventBody::ActivationComplete { release: 7, boot: "boot".to_owned() },
                signature: None,
            }),
            FactBody::Action(ActionFact { id: "task/1".to_owned(), event: ActionEvent::Started }),
        ];
        for fact in &all {
            match fact {
                FactBody::Run(_)
                | FactBody::Adopted { .. }
                | FactBody::Refused { .. }
                | FactBody::Freshness { .. }
                | FactBody::Started { .. }
                | FactBody::Repaired { .. }
                | FactBody::FileRestored { .. }
                | FactBody::Rebooting { .. }
                | FactBody::NotRebooted { .. }
                | FactBody::Contended { .. }
                | FactBody::Rollout(_)
                | FactBody::Action(_)
                | FactBody::Unknown => {}
            }
        }
        all
    }

    #[test]
    fn each_sort_is_read_as_it_was_written() {
        for fact in each() {
            let json = serde_json::to_vec(&fact).unwrap();
            assert_eq!(serde_json::from_slice::<FactBody>(&json).unwrap(), fact);
            let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
            assert_eq!(value["kind"], fact.kind());
            assert_eq!(serde_json::from_value::<FactBody>(value).unwrap(), fact);
        }
    }

    #[test]
    fn a_sort_of_a_newer_agent_is_unknown_wherever_its_tag_stands() {
        let read = |json: &str| serde_json::from_str::<FactBody>(json);
        assert_eq!(read(r#"{"weather":"fine","kind":"forecast"}"#).unwrap(), FactBody::Unknown);
        assert!(read(r#"{"weather":"fine"}"#).is_err());
        assert!(read(r#"{"kind":"refused"}"#).is_err());
        assert!(read(r#""run""#).is_err());
    }

    /// WIR-1: a refusal for a reason that a newer agent knows is a refusal, and no message that cannot be read.
    #[test]
    fn a_refusal_for_a_newer_reason_is_read() {
        let json = r#"{"kind":"action","id":"a","event":{"event":"ended","durationMs":1,
            "outcome":{"outcome":"refused","code":"quota-spent","message":"the quota is spent"}}}"#;
        let FactBody::Action(fact) = serde_json::from_str(json).unwrap() else { panic!("no action") };
        let message = "the quota is spent".to_owned();
        let outcome = ActionOutcome::Refused { code: RefusalCode::Unknown, message };
        assert_eq!(fact.event, ActionEvent::Ended { outcome, duration_ms: 1 });
    }

    /// WIR-1: so is an event of a rollout that only a newer agent has a word for.
    #[test]
    fn a_newer_event_of_a_rollout_is_read() {
        let json =
            r#"{"kind":"rollout","rollout":"stable@4f1c","eventSeq":2,"event":{"kind":"Snoozed","until":7}}"#;
        let FactBody::Rollout(fact) = serde_json::from_str(json).unwrap() else { panic!("no event") };
        assert_eq!((fact.event_seq, fact.event), (2, RolloutEventBody::Unknown));
    }

    /// WIR-1: so are an end and an event that only a newer agent has a word for.
    #[test]
    fn a_newer_end_or_event_is_read() {
        let read = |event: &str| match serde_json::from_str(&format!(
            r#"{{"kind":"action","id":"a","event":{event}}}"#
        )) {
            Ok(FactBody::Action(fact)) => fact.event,
            other => panic!("{other:?}"),
        };
        let ended = read(r#"{"event":"ended","durationMs":1,"outcome":{"outcome":"handedBack","to":"x"}}"#);
        assert_eq!(ended, ActionEvent::Ended { outcome: ActionOutcome::Unknown, duration_ms: 1 });
        assert_eq!(read(r#"{"event":"suspended","until":7}"#), ActionEvent::Unknown);
    }
}
