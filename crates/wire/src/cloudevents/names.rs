//! Every type of event by name (SYN-2): the names are those of [`sync::events`].

use model::Kind;
use model::object::FOREIGN_KINDS;
use sync::events;

/// What types of events begin with when they are written.
pub const PREFIX: &str = "dev.muster.event.";
/// What they may begin with as well when they are read (WIR-5).
pub const FOREIGN_PREFIX: &str = "io.argoproj.argocd-agent.event.";
/// The longest name of an unknown event that is told.
pub const MAX_NAME: usize = 100;

/// The `dataschema` of the events of an inventory resync, by which peers of the source document
/// tell their handler.
pub const RESOURCE_RESYNC: &str = "resourceResync";

macro_rules! names {
    ($($(#[$doc:meta])* $variant:ident $text:ident)*) => {
        /// A type of event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Name {
            $($(#[$doc])* $variant,)*
        }

        /// Every type with its name.
        pub const NAMES: &[(Name, &str)] = &[$((Name::$variant, events::$text),)*];

        impl Name {
            /// The name, without prefix.
            pub fn as_str(self) -> &'static str {
                match self { $(Name::$variant => events::$text,)* }
            }

            /// The type with this name, without prefix.
            pub fn parse(text: &str) -> Option<Name> {
                match text {
                    $(events::$text => Some(Name::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

names! {
    /// An object came into being.
    Create CREATE
    /// An object is gone.
    Delete DELETE
    /// An object is like this.
    SpecUpdate SPEC_UPDATE
    /// An object's status is like this, or gone.
    StatusUpdate STATUS_UPDATE
    /// Work for the node, or its end.
    ActionRequest ACTION_REQUEST
    /// A policy is like this, or gone.
    PolicyUpdated POLICY_UPDATED
    /// A peer came.
    PeerAdded PEER_ADDED
    /// A peer is like this.
    PeerUpdated PEER_UPDATED
    /// A peer went.
    PeerRemoved PEER_REMOVED
    /// Events are durable.
    Processed PROCESSED
    /// An event will never be applied.
    Error ERROR
    /// The checksum of all that the sender has.
    RequestSyncedResourceList REQUEST_SYNCED_RESOURCE_LIST
    /// One object that the sender has.
    ResponseSyncedResource RESPONSE_SYNCED_RESOURCE
    /// Send one object if it differs.
    RequestUpdate REQUEST_UPDATE
    /// Begin a resync.
    RequestResourceResync REQUEST_RESOURCE_RESYNC
    /// Are you there?
    Ping PING
    /// Yes.
    Pong PONG
    /// What the node is pointed to has changed.
    StateUpdated STATE_UPDATED
    /// Renew keys; the agent renews by itself, so this is skipped and counted.
    RotateKeys ROTATE_KEYS
    /// Who the sender is and from where it goes on.
    Hello HELLO
    /// Everything up to a place in the feed is said.
    Checkpoint MARK
    /// A question of the resync walk.
    ResyncRequest WALK_ASK
    /// Its answer.
    ResyncResponse WALK_TELL
    /// The sender closes the link.
    GoAway GO_AWAY
    /// A check-in.
    CheckIn CHECK_IN
    /// Its answer.
    Answer CHECK_IN_ANSWER
    /// Deletions beyond the share that goes without asking are confirmed.
    Approve APPROVE_DELETIONS
}

impl Name {
    /// The `dataschema` of an event that is about no single object; `None` for all others.
    pub(super) fn schema(self) -> Option<&'static str> {
        match self {
            Name::RequestSyncedResourceList
            | Name::ResponseSyncedResource
            | Name::RequestUpdate
            | Name::RequestResourceResync => Some(RESOURCE_RESYNC),
            _ => None,
        }
    }
}

/// The kind that a `dataschema` names: itself, or what the source document writes in lower case.
pub(super) fn kind_of(schema: &str) -> Kind {
    let foreign = FOREIGN_KINDS.iter().find(|(foreign, _)| *foreign == schema);
    Kind::new(foreign.map_or(schema, |(_, kind)| kind))
}

/// The name in a type, without the prefixes that are read.
pub(super) fn bare(type_: &str) -> &str {
    type_.strip_prefix(PREFIX).or_else(|| type_.strip_prefix(FOREIGN_PREFIX)).unwrap_or(type_)
}
