//! The routes of rollouts in the form of the source document (ROL-3, ROL-5, ROL-6): dispatch, one event a request,
//! heartbeat, manifest. They say what a check-in says.

use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use http::{StatusCode, header};
use model::Incarnation;
use model::rollout::{RolloutId, RolloutTask};
use rollout::{EventAnswer, RolloutEvent, RolloutState};
use serde::Deserialize;
use serde::de::IgnoredAny;
use wire::rollout::{
    DispatchAnswer, DispatchKind, Heartbeat, HeartbeatAnswer, MAX_EVENT_BODY, MAX_HEARTBEAT_ROLLOUTS,
    PostedEvent,
};
use wire::{Code, Problem};

use super::CallingNode;
use super::checkin::ready;
use crate::answer::{PortReply, json, reply, store_problem};
use crate::rollouts::{HeardEvents, believed};
use crate::state::{ControlPlane, now, run_to_completion};

/// What the node is asked for, as soon as it is asked for something; `None` where the wait is over before.
pub(super) async fn dispatch(
    plane: &ControlPlane,
    caller: &CallingNode,
    wait: Duration,
) -> Result<Option<DispatchAnswer>, Problem> {
    ready(plane)?;
    let deadline = tokio::time::sleep(wait);
    tokio::pin!(deadline);
    let mut heads = plane.heads.subscribe();
    loop {
        let mut woken = std::pin::pin!(caller.slot.wake.notified());
        woken.as_mut().enable();
        caller.is_not_revoked()?;
        caller.is_alone()?;
        if let Some(asked) = asked(plane, caller) {
            return Ok(Some(asked));
        }
        tokio::select! {
            _ = heads.changed() => {}
            () = woken => {}
            () = &mut deadline => return Ok(None),
        }
    }
}

/// What the node is to do now.
fn asked(plane: &ControlPlane, caller: &CallingNode) -> Option<DispatchAnswer> {
    let heads = plane.heads();
    let mut entry = caller.slot.lock();
    heard(plane, caller, &mut entry);
    let (_, pointed) = entry.node.pointed(&heads)?;
    let task = entry.node.rollout()?.dispatch.task;
    if !matches!(task, RolloutTask::Acknowledge { .. } | RolloutTask::GoBack) {
        // Another exchange tells the node what it is not asked here.
        return None;
    }
    let dispatch = entry.node.tell_rollout()?;
    Some(DispatchAnswer {
        kind: DispatchKind::Dispatch,
        rollout_id: dispatch.rollout,
        channel: pointed.channel,
        release: dispatch.seq,
        target_closure: pointed.root,
        wave: dispatch.wave,
        task: dispatch.task,
        soak_secs: dispatch.soak_secs,
        issued_at: now(),
    })
}

/// The node is there.
fn heard(plane: &ControlPlane, caller: &CallingNode, entry: &mut crate::index::NodeEntry) {
    entry.node.last_seen = Some(now());
    plane.index.touch(&caller.slot, entry);
    if let Some(contact) = entry.node.contact_untold(model::status::Contact::Online) {
        plane.rollouts.contact(&caller.id, contact);
    }
}

/// How a poll begins as agents write it.
const POLL: &[u8] = br#"{"frames""#;

/// Whether the body of a post of events is one event of a rollout: one with `frames` is a poll, and any other object is an
/// event.
pub(super) fn is_event(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Fields {
        frames: Option<IgnoredAny>,
    }
    // A poll may be long, and is not read twice.
    !body.starts_with(POLL) && serde_json::from_slice::<Fields>(body).is_ok_and(|body| body.frames.is_none())
}

/// Takes one event: 204 once it is durable, and a second time too.
pub(super) async fn event(
    plane: &Arc<ControlPlane>,
    caller: &CallingNode,
    body: &[u8],
) -> Result<PortReply, Problem> {
    ready(plane)?;
    if body.len() > MAX_EVENT_BODY {
        let detail = format!("an event has at most {MAX_EVENT_BODY} bytes; a poll has `frames`");
        return Err(Problem::new(Code::BodyTooLarge, detail));
    }
    let mut posted =
        PostedEvent::read(body).map_err(|error| Problem::new(Code::BadBody, error.to_string()))?;
    let incarnation = incarnation(caller, posted.incarnation.clone())?;
    let refused = |detail: String| Problem::new(Code::EventRefused, detail);
    if let Some(closure) = posted.closure {
        let pointed = caller.slot.lock().node.pointed(&plane.heads());
        let (head, _) = pointed
            .filter(|(_, entry)| entry.root == closure)
            .ok_or_else(|| refused(format!("the node is not asked to be on {closure}")))?;
        posted.of_release(head.header.seq);
    }
    let believed = believed(plane, caller, &incarnation, &posted.fact, posted.at)
        .ok_or_else(|| refused("what the probe found is not signed with the host's key".to_owned()))?;
    let event = RolloutEvent { oldest: posted.oldest, ..believed };
    let heard = HeardEvents { node: caller.id.clone(), incarnation, facts: Vec::new(), events: vec![event] };
    let owner = plane.clone();
    let taken = run_to_completion(async move { owner.rollouts.events(heard).await }).await?;
    match taken.answers.into_iter().next() {
        Some(EventAnswer::Accepted | EventAnswer::Duplicate) => {
            Ok(reply(StatusCode::NO_CONTENT, wire::body::JSON, None, bytes::Bytes::new()))
        }
        Some(EventAnswer::Refused(refusal)) => Err(refused(refusal.to_string())),
        Some(EventAnswer::ReplayFrom(from)) => {
            let mut problem =
                Problem::new(Code::EventGap, format!("events are missing: send them again from {from} on"));
            problem.next_number = Some(from);
            Err(problem)
        }
        Some(EventAnswer::UnknownRollout | EventAnswer::UnknownNode) | None => {
            Err(Problem::new(Code::NotFound, "the node is in no such rollout"))
        }
    }
}

/// The log that is meant: the one named, else the one heard last.
fn incarnation(caller: &CallingNode, named: Option<Incarnation>) -> Result<Incarnation, Problem> {
    let heard = || caller.slot.lock().node.cursor.as_ref().map(|cursor| cursor.incarnation.clone());
    let known = named.or_else(heard).or_else(|| "none".parse().ok());
    known.ok_or_else(|| Code::Internal.into())
}

/// Hears how a node is. It moves no rollout; it says which events are missing here.
pub(super) async fn heartbeat(
    plane: &ControlPlane,
    caller: &CallingNode,
    said: Heartbeat,
) -> Result<HeartbeatAnswer, Problem> {
    ready(plane)?;
    if said.last_event_seq_by_rollout.len() > MAX_HEARTBEAT_ROLLOUTS {
        let detail = format!("a heartbeat speaks of at most {MAX_HEARTBEAT_ROLLOUTS} rollouts");
        return Err(Problem::new(Code::BadBody, detail));
    }
    let next_checkin_secs = {
        let mut entry = caller.slot.lock();
        heard(plane, caller, &mut entry);
        entry.node.promised.as_secs()
    };
    let incarnation = incarnation(caller, said.incarnation)?;
    let taken = plane.rollouts.taken_of(&caller.id, &incarnation).await;
    let missing = |(id, last): (String, u64)| {
        let taken = *taken.get(&id.parse::<RolloutId>().ok()?)?;
        (taken < last).then_some((id, taken + 1))
    };
    let replay_from = said.last_event_seq_by_rollout.into_iter().filter_map(missing).collect();
    Ok(HeartbeatAnswer { received_at: now(), next_checkin_secs, replay_from })
}

/// The signed header of a rollout of the node's channel, byte for byte; or its signatures, one after the other.
pub(super) async fn manifest(
    plane: &ControlPlane,
    caller: &CallingNode,
    id: &str,
    parts: &http::request::Parts,
) -> Result<PortReply, Problem> {
    ready(plane)?;
    let unknown = || Problem::from(Code::NotFound);
    let id: RolloutId = wire::percent::decode(id).parse().map_err(|_| unknown())?;
    let stored = plane.store.rollout(&id).await.map_err(store_problem)?;
    let document = stored.filter(|stored| stored.state != RolloutState::Pruned).ok_or_else(unknown)?;
    let hostname = caller.slot.names().1;
    let channel = plane.heads().pointed(&hostname).map(|(head, _)| head.header.channel.clone());
    if channel.as_ref() != Some(&document.key.channel) {
        return Err(Problem::new(Code::NotEntitled, "the rollout is of another channel than the node's"));
    }
    let release = plane.store.release(document.key.seq).await.map_err(store_problem)?;
    let mut headers = release.ok_or_else(unknown)?.headers;
    let signed = headers.remove(&document.key.channel).ok_or_else(unknown)?;
    let accepted = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    if accepted.split(',').any(|kind| kind.trim().starts_with("application/octet-stream")) {
        let mut bytes = Vec::new();
        for signature in &signed.signatures {
            bytes.extend(BASE64.decode(signature.sig.as_bytes()).map_err(|_| Code::Internal)?);
        }
        return Ok(reply(StatusCode::OK, "application/octet-stream", None, bytes.into()));
    }
    Ok(reply(StatusCode::OK, wire::body::JSON, None, signed.payload.into_bytes().into()))
}

/// An answer, or none.
pub(super) fn or_no_content(answer: Option<DispatchAnswer>, gzip: bool) -> Result<PortReply, Problem> {
    match answer {
        Some(answer) => json(&answer, gzip),
        None => Ok(reply(StatusCode::NO_CONTENT, wire::body::JSON, None, bytes::Bytes::new())),
    }
}
