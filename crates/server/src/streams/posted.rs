//! `POST /v1/agent/events`: frames both ways in a request and its answer (SYN-1).
//!
//! The first request of a link begins with a hello and is answered with the link's name; those
//! that follow name it. A link that is not posted to ends by itself; whoever names one that is
//! not there begins anew, with what is durable.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use model::NodeId;
use model::replication::TransportKind;
use net::accept::Connection;
use streams::LinkCommand;
use streams::task::Post;
use streams::task::{LinkTransport, Posted};
use sync::Frame;
use tokio::sync::oneshot;
use wire::batch::{self, Batch, MAX_REQUEST};
use wire::body::JSON;
use wire::{Code, Problem};

use super::serve::{StreamRequest, linked};
use crate::answer::{Reply, reply};
use crate::hub::NodeLink;
use crate::node_port::Caller;
use crate::state::ControlPlane;

/// Names the link that posted frames are for.
pub(crate) const LINK_HEADER: HeaderName = HeaderName::from_static("muster-link");
/// How long what follows from posted frames may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(45);

/// The links that frames can be posted to.
#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<NodeId, (String, Arc<NodeLink>)>>);

impl Sessions {
    /// A link's name.
    pub(super) fn id(&self, plane: &ControlPlane, number: u64) -> String {
        format!("{}-{number}", plane.boot())
    }

    pub(super) fn put(&self, node: &NodeId, id: &str, link: Arc<NodeLink>) {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.insert(node.clone(), (id.to_owned(), link));
    }

    pub(super) fn take(&self, node: &NodeId, id: &str) {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.get(node).is_some_and(|(other, _)| other == id) {
            sessions.remove(node);
        }
    }

    fn get(&self, node: &NodeId, id: &str) -> Option<Arc<NodeLink>> {
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(node).filter(|(other, _)| other == id).map(|(_, link)| link.clone())
    }
}

/// Takes posted frames and answers with what the link has to say.
pub(crate) async fn events(
    plane: &Arc<ControlPlane>,
    caller: Caller,
    connection: Connection,
    parts: &http::request::Parts,
    body: &Bytes,
    wait: Duration,
) -> Result<Reply, Problem> {
    let source = caller.slot.lock().node.hostname.to_string();
    let Batch { frames, .. } = batch::decode(body, Some(&source), MAX_REQUEST)?;
    let named = parts.headers.get(LINK_HEADER).and_then(|value| value.to_str().ok());
    let (id, answer) = match named {
        Some(id) => (id.to_owned(), post(plane, &caller.id, id, frames, wait)?),
        None => open(plane, caller, connection, frames, wait)?,
    };
    let posted = tokio::time::timeout(wait + ANSWER_WITHIN, answer).await;
    let posted = match posted {
        Ok(Ok(posted)) if posted.busy => {
            return Err(Problem::new(Code::Busy, "what was posted before is still worked on"));
        }
        Ok(Ok(posted)) => posted,
        Ok(Err(_)) => return Err(no_link()),
        Err(_) => return Err(Problem::new(Code::Busy, "what was posted takes too long")),
    };
    let mut origin = wire::cloudevents::Origin::principal(&id);
    let out = batch::encode(&mut origin, &Batch { frames: posted.frames, more: posted.more })
        .map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    let packed = if crate::intake::accepts_gzip(parts) { wire::body::compress(&out) } else { None };
    let coding = packed.is_some().then_some(wire::body::GZIP);
    let mut response = reply(http::StatusCode::OK, JSON, coding, packed.unwrap_or(out).into());
    if let Ok(value) = HeaderValue::try_from(&id) {
        response.headers_mut().insert(LINK_HEADER, value);
    }
    Ok(response)
}

fn no_link() -> Problem {
    Problem::new(Code::NotFound, "there is no such link (any more); begin with a hello")
}

/// Frames for a link that is there, whose answer is wanted at once.
pub(super) fn post_to(
    plane: &ControlPlane,
    node: &NodeId,
    id: &str,
    frames: Vec<Frame>,
) -> Result<oneshot::Receiver<Posted>, Problem> {
    post(plane, node, id, frames, Duration::ZERO)
}

/// Frames for a link that is there.
fn post(
    plane: &ControlPlane,
    node: &NodeId,
    id: &str,
    frames: Vec<Frame>,
    wait: Duration,
) -> Result<oneshot::Receiver<Posted>, Problem> {
    let link = plane.links.sessions.get(node, id).ok_or_else(no_link)?;
    let (answer, posted) = oneshot::channel();
    if !link.tell(LinkCommand::Post(Box::new(Post { frames, wait, answer }))) {
        return Err(Problem::new(Code::Busy, "the link has more to do than it can hold"));
    }
    Ok(posted)
}

/// Frames that begin a link.
fn open(
    plane: &Arc<ControlPlane>,
    caller: Caller,
    connection: Connection,
    frames: Vec<Frame>,
    wait: Duration,
) -> Result<(String, oneshot::Receiver<Posted>), Problem> {
    if !matches!(frames.first(), Some(Frame::Hello(_))) {
        return Err(Problem::new(Code::BadBody, "a link begins with a hello"));
    }
    let opening = StreamRequest::enter(plane, caller, connection, TransportKind::Poll)?;
    let id = plane.links.sessions.id(plane, opening.number);
    let (answer, posted) = oneshot::channel();
    let post = LinkCommand::Post(Box::new(Post { frames: Vec::new(), wait, answer }));
    let ends = LinkTransport { reader: None, writer: None };
    let session = id.clone();
    tokio::spawn(Box::pin(linked(opening, ends, frames, Some(post), Some(session))));
    Ok((id, posted))
}
