//! Frames as CloudEvents 1.0 (WIR-5): protobuf for gRPC, JSON for WebSocket, SSE and polling.
//!
//! `source` is the node's hostname or `principal`; `type` is [`PREFIX`] and the name of a frame.
//! A change of an object has extension attributes: `dataschema` is the kind
//! and `subject` is `namespace/name` of the object, and others number it. Every other frame carries
//! the JSON of its type; an inventory resync's events have the `dataschema` `resourceResync`. The
//! source document's lower-case kinds are read. A name that this version does not know is
//! [`sync::Frame::Unknown`], so that a newer peer can say more.
//!
//! Contents of objects travel byte for byte: their digest is over the bytes. In protobuf they
//! are `binary_data`. In JSON they are `data` when they are canonical JSON (RFC 8785), which
//! any client can make again from the value, and `data_base64` otherwise. That a content has
//! the digest that its event names is for the receiver's link to judge, not for this module.

mod event;
pub mod json;
pub mod names;
pub mod protobuf;

use std::sync::Arc;

use model::{Hostname, Incarnation};

pub use names::{FOREIGN_PREFIX, PREFIX};
pub use sync::bounds::{MAX_NAME as MAX_ATTRIBUTE, MAX_NUMBER};

/// What the control plane calls itself as a source.
pub const PRINCIPAL: &str = "principal";
/// The longest event that the control plane reads of a node, in bytes: an object of the
/// largest size in base64, with its attributes.
pub const MAX_UP: usize = 2 * 1024 * 1024;
/// The longest event that an agent reads, in bytes: the longest answer, with its attributes.
pub const MAX_DOWN: usize = crate::body::MAX_ANSWER + 64 * 1024;

/// The source of the frames of one link, and what names them.
///
/// An event of a feed is named `incarnation.rev`, so a repeated one has the same name. Other frames
/// are named by the link and a running number.
#[derive(Clone, Debug)]
pub struct Origin {
    source: Arc<str>,
    link: Arc<str>,
    incarnation: Option<Incarnation>,
    count: u64,
}

impl Origin {
    /// A node's end of a link. `link` is a text that names this link among all of the node.
    pub fn agent(name: &Hostname, link: &str) -> Origin {
        Origin { source: name.as_str().into(), link: link.into(), incarnation: None, count: 0 }
    }

    /// The control plane's end of a link. `link` is a text that names this link among all.
    pub fn principal(link: &str) -> Origin {
        Origin { source: PRINCIPAL.into(), link: link.into(), incarnation: None, count: 0 }
    }

    /// The source that is written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The incarnation of the feed whose events are written; known once a hello or checkpoint was.
    pub fn incarnation(&self) -> Option<&Incarnation> {
        self.incarnation.as_ref()
    }

    /// The id of the next frame, of a change with its revision.
    fn id(&mut self, change: Option<u64>) -> String {
        match (change, &self.incarnation) {
            (Some(revision), Some(incarnation)) => format!("{incarnation}.{revision}"),
            _ => {
                self.count += 1;
                format!("{}.{}", self.link, self.count)
            }
        }
    }
}

/// Why a frame cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteFrameError {
    /// The content is larger than a synchronized object may be.
    #[error("the content of {bytes} bytes is larger than {} bytes", sync::object::MAX_CONTENT)]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// A message holds something that JSON has no form for, such as an instant out of range.
    #[error("the message cannot be written as JSON: {0}")]
    Payload(String),
}

/// Why bytes are not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadFrameError {
    /// Longer than its bound, as sent or as unpacked.
    #[error("the event is larger than {limit} bytes")]
    TooLarge {
        /// The bound in bytes.
        limit: usize,
    },
    /// The content is larger than a synchronized object may be.
    #[error("the object of {bytes} bytes is larger than {} bytes", sync::object::MAX_CONTENT)]
    ObjectTooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Not protobuf of the shape of an event.
    #[error("the event is not protobuf of the shape expected: {0}")]
    Protobuf(String),
    /// Not JSON of the shape of an event.
    #[error("the event is not JSON of the shape expected: {0}")]
    Json(String),
    /// Another major version of CloudEvents.
    #[error("the event is of CloudEvents {0:?}; 1.0 is spoken here")]
    SpecVersion(String),
    /// An attribute that this type of event needs is missing or empty.
    #[error("the event has no attribute {0:?}")]
    Missing(&'static str),
    /// An attribute is too long or is not of its form.
    #[error("the event's attribute {0:?} is not of its form")]
    Attribute(&'static str),
    /// It names another source than its sender.
    #[error("the event names another source than who sent it: {0:?}")]
    Source(String),
    /// What it carries is not of the shape that its type has.
    #[error("the event {name} does not carry what it should: {what}")]
    Payload {
        /// The name of its type.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// More of something than fits one frame.
    #[error("more than {limit} {what} in one message")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
}

impl From<ReadFrameError> for crate::Problem {
    fn from(error: ReadFrameError) -> crate::Problem {
        use crate::Code;
        let code = match error {
            ReadFrameError::TooLarge { .. } | ReadFrameError::TooMany { .. } => Code::BodyTooLarge,
            ReadFrameError::ObjectTooLarge { .. } => Code::ObjectTooLarge,
            ReadFrameError::Source(_) => Code::OtherNode,
            _ => Code::BadBody,
        };
        crate::Problem::new(code, error.to_string())
    }
}

/// A text of a peer, short enough for a message.
fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}
