//! What a release says of synchronization: content of the object of kind `Sync` named
//! `sync`, and the transport in [`crate::policy::Policy`].

use serde::{Deserialize, Serialize};

/// Who is the source of truth for the objects of a node (SYN-5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// No objects at all: only work (actions) comes down.
    #[default]
    Off,
    /// The principal: objects go down, status comes up.
    Managed,
    /// The agent: objects and status go up; only work comes down.
    Autonomous,
}

/// What to do when an object comes under another uid than the one here (SYN-7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mismatch {
    /// Delete the one here, then create the one that came.
    #[default]
    Recreate,
    /// Update in place, and record the new uid.
    Upsert,
}

/// How events travel (SYN-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Poll; open the best stream that works while there is work for one (SYN-10).
    #[default]
    Auto,
    /// Poll, never open a stream.
    Poll,
    /// Keep a stream open, the best that works.
    Stream,
    /// Keep a gRPC stream open.
    Grpc,
    /// Keep a WebSocket open.
    Websocket,
    /// Keep server-sent events open.
    Sse,
}

/// The content of the object of kind `Sync`: the release's leave to synchronize objects.
/// Without it a node takes and sends none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncPolicy {
    /// Who is the source of truth.
    pub mode: Mode,
    /// The kinds that may be synchronized, in the order in which they are applied; they are
    /// deleted in the opposite order.
    pub kinds: Vec<String>,
    /// The folder of manifests on the host, absolute; without one objects live in the
    /// agent's own store alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// What to do when an object comes under another uid.
    #[serde(default)]
    pub mismatch: Mismatch,
    /// Orphans beyond this share of the replica, in percent, are deleted only on an
    /// operator's word.
    pub max_delete_percent: u8,
}

impl SyncPolicy {
    /// The largest list of kinds.
    pub const MAX_KINDS: usize = 64;
    /// The share of orphans that goes without asking, unless a release says otherwise.
    pub const MAX_DELETE_PERCENT: u8 = 25;
    /// Below this many orphans nobody is asked whatever their share.
    pub const FEW_ORPHANS: usize = 3;
}
