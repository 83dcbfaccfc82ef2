//! The names of events (SYN-2), and which side may say which in which mode (SYN-5).

use model::Kind;

use crate::frame::{Event, Frame, Interop, Op};
use crate::mode::{Mode, Role};
use crate::object;

/// A new object, or one whose uid is new to the receiver.
pub const CREATE: &str = "create";
/// An object is gone.
pub const DELETE: &str = "delete";
/// An object has other content.
pub const SPEC_UPDATE: &str = "spec-update";
/// The status of an object, as its side observes it; also that there is none any more.
pub const STATUS_UPDATE: &str = "status-update";
/// An acknowledgement.
pub const PROCESSED: &str = "processed";
/// An event that will never be applied.
pub const ERROR: &str = "error";
/// The inventory's checksum.
pub const REQUEST_SYNCED_RESOURCE_LIST: &str = "request-synced-resource-list";
/// One resource of the inventory.
pub const RESPONSE_SYNCED_RESOURCE: &str = "response-synced-resource";
/// One resource is wanted if it differs.
pub const REQUEST_UPDATE: &str = "request-update";
/// The other side is to begin a resync.
pub const REQUEST_RESOURCE_RESYNC: &str = "request-resource-resync";
/// Are you there?
pub const PING: &str = "ping";
/// Yes.
pub const PONG: &str = "pong";
/// Work for a node, or a change of it.
pub const ACTION_REQUEST: &str = "action-request";
/// A peer of the mesh is new.
pub const PEER_ADDED: &str = "peer-added";
/// A peer of the mesh changed.
pub const PEER_UPDATED: &str = "peer-updated";
/// A peer of the mesh is gone.
pub const PEER_REMOVED: &str = "peer-removed";
/// A policy of the mesh changed.
pub const POLICY_UPDATED: &str = "policy-updated";
/// Check in: there is something new.
pub const STATE_UPDATED: &str = "state-updated";
/// Make new keys.
pub const ROTATE_KEYS: &str = "rotate-keys";
/// First from each side.
pub const HELLO: &str = "hello";
/// Everything up to here was sent.
pub const CHECKPOINT: &str = "checkpoint";
/// A request of the trie resync.
pub const RESYNC_REQUEST: &str = "resync-request";
/// Its response.
pub const RESYNC_RESPONSE: &str = "resync-response";
/// The link ends.
pub const GO_AWAY: &str = "go-away";
/// A check-in.
pub const CHECK_IN: &str = "check-in";
/// The answer to a check-in.
pub const CHECK_IN_ANSWER: &str = "check-in-answer";

/// An operator confirms deletions beyond the share that goes without asking.
pub const APPROVE_DELETIONS: &str = "approve-deletions";

/// Reserved for a batch of events that its author signs (IDN-9). No build writes it; it is read
/// like any name of a newer version: skipped, and counted.
pub const SIGNED_BATCH: &str = "signed-batch";
/// Names that no frame has yet, and none but the reserved one may get.
pub const RESERVED: &[&str] = &[SIGNED_BATCH];

/// Every name in use.
pub const ALL: &[&str] = &[
    CREATE,
    DELETE,
    SPEC_UPDATE,
    STATUS_UPDATE,
    PROCESSED,
    ERROR,
    REQUEST_SYNCED_RESOURCE_LIST,
    RESPONSE_SYNCED_RESOURCE,
    REQUEST_UPDATE,
    REQUEST_RESOURCE_RESYNC,
    PING,
    PONG,
    ACTION_REQUEST,
    PEER_ADDED,
    PEER_UPDATED,
    PEER_REMOVED,
    POLICY_UPDATED,
    STATE_UPDATED,
    ROTATE_KEYS,
    HELLO,
    CHECKPOINT,
    RESYNC_REQUEST,
    RESYNC_RESPONSE,
    GO_AWAY,
    CHECK_IN,
    CHECK_IN_ANSWER,
    APPROVE_DELETIONS,
];

/// The kind of a peer of the mesh.
pub const PEER: &str = "Peer";

/// The name of what a frame says; `None` when that side may not say it in that mode. An
/// unknown frame keeps its own name.
pub fn name_of(frame: &Frame, from: Role, mode: Mode) -> Option<&str> {
    let name = frame_name(frame);
    (matches!(frame, Frame::Unknown(_)) || may_say(name, from, mode)).then_some(name)
}

/// The name of a frame.
pub fn frame_name(frame: &Frame) -> &str {
    match frame {
        Frame::Event(event) => event_name(event),
        Frame::Hello(_) => HELLO,
        Frame::Ack(_) => PROCESSED,
        Frame::Refused(_) => ERROR,
        Frame::Checkpoint(_) => CHECKPOINT,
        Frame::ResyncRequest(_) => RESYNC_REQUEST,
        Frame::ResyncResponse(_) => RESYNC_RESPONSE,
        Frame::Interop(interop) => match **interop {
            Interop::RequestResync => REQUEST_RESOURCE_RESYNC,
            Interop::RequestList { .. } => REQUEST_SYNCED_RESOURCE_LIST,
            Interop::Listed(_) => RESPONSE_SYNCED_RESOURCE,
            Interop::RequestUpdate(_) => REQUEST_UPDATE,
        },
        Frame::Ping(_) => PING,
        Frame::Pong(_) => PONG,
        Frame::GoAway(_) => GO_AWAY,
        Frame::CheckIn(_) => CHECK_IN,
        Frame::Answer(_) => CHECK_IN_ANSWER,
        Frame::StateUpdated => STATE_UPDATED,
        Frame::Approve => APPROVE_DELETIONS,
        Frame::Unknown(name) => name,
    }
}

/// The name of a change of an object, by its kind.
pub fn event_name(event: &Event) -> &'static str {
    let kind = &event.key.section.kind;
    if object::is_status(kind) {
        return STATUS_UPDATE;
    }
    match (kind.as_str(), &event.op) {
        (Kind::ACTION, _) => ACTION_REQUEST,
        (PEER, Op::Put { created: true, .. }) => PEER_ADDED,
        (PEER, Op::Put { .. }) => PEER_UPDATED,
        (PEER, Op::Delete { .. }) => PEER_REMOVED,
        (Kind::POLICY, _) => POLICY_UPDATED,
        (_, Op::Put { created: true, .. }) => CREATE,
        (_, Op::Put { .. }) => SPEC_UPDATE,
        (_, Op::Delete { .. }) => DELETE,
    }
}

/// Whether a side may say an event of this name in a mode.
pub fn may_say(name: &str, from: Role, mode: Mode) -> bool {
    match name {
        CREATE | SPEC_UPDATE | DELETE => {
            matches!((from, mode), (Role::Principal, Mode::Managed) | (Role::Agent, Mode::Autonomous))
        }
        STATUS_UPDATE => from == Role::Agent && mode != Mode::Off,
        ACTION_REQUEST | PEER_ADDED | PEER_UPDATED | PEER_REMOVED | POLICY_UPDATED | STATE_UPDATED
        | ROTATE_KEYS | CHECK_IN_ANSWER | APPROVE_DELETIONS => from == Role::Principal,
        CHECK_IN => from == Role::Agent,
        // Either side has a set and a replica: statuses and work are resynced like objects.
        _ => true,
    }
}
