//! What a release says of synchronization: content of the object of kind `Sync` named
//! `sync`, and the transport in [`crate::policy::Policy`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who is the source of truth for the objects of a node (SYN-5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

/// What an operator may ask of an object whose source of truth is its node (SYN-5). It reaches
/// whoever owns the object there, and never changes the object itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ObjectOperation {
    /// Make the world so as the object says.
    Sync,
    /// Look anew at what the object says and at how the world is.
    Refresh,
}

impl ObjectOperation {
    /// All of them, by their words.
    pub const ALL: [(&str, ObjectOperation); 2] =
        [("sync", ObjectOperation::Sync), ("refresh", ObjectOperation::Refresh)];

    /// Its word in a fleet repo, on the command line and in operation files.
    pub fn as_str(self) -> &'static str {
        match self {
            ObjectOperation::Sync => "sync",
            ObjectOperation::Refresh => "refresh",
        }
    }
}

impl std::fmt::Display for ObjectOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
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

/// What carries a link between agent and control plane (SYN-1), the same at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TransportKind {
    /// gRPC over HTTP/2.
    Grpc,
    /// A WebSocket over HTTP/1.1.
    Websocket,
    /// Server-sent events, with posts up.
    Sse,
    /// Posts and their answers.
    Poll,
}

impl TransportKind {
    /// All of them.
    pub const ALL: [TransportKind; 4] =
        [TransportKind::Grpc, TransportKind::Websocket, TransportKind::Sse, TransportKind::Poll];
    /// Those that stay open, in the order in which an agent tries them.
    pub const STREAMS: [TransportKind; 3] =
        [TransportKind::Grpc, TransportKind::Websocket, TransportKind::Sse];

    /// Its name in settings, logs, status and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            TransportKind::Grpc => "grpc",
            TransportKind::Websocket => "websocket",
            TransportKind::Sse => "sse",
            TransportKind::Poll => "poll",
        }
    }

    /// It stays open.
    pub fn is_stream(self) -> bool {
        self != TransportKind::Poll
    }
}

impl std::fmt::Display for TransportKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A channel's setting of how its nodes synchronize (SYN-1, SYN-10): which transports an agent
/// tries, and whether it keeps one open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransportPolicy {
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

impl TransportPolicy {
    /// All settings.
    pub const ALL: [TransportPolicy; 6] = [
        TransportPolicy::Auto,
        TransportPolicy::Poll,
        TransportPolicy::Stream,
        TransportPolicy::Grpc,
        TransportPolicy::Websocket,
        TransportPolicy::Sse,
    ];

    /// Its word in a fleet repo.
    pub fn as_str(self) -> &'static str {
        match self {
            TransportPolicy::Auto => "auto",
            TransportPolicy::Poll => "poll",
            TransportPolicy::Stream => "stream",
            TransportPolicy::Grpc => "grpc",
            TransportPolicy::Websocket => "websocket",
            TransportPolicy::Sse => "sse",
        }
    }

    /// The streams that an agent may open, in the order in which it tries them. Polls are
    /// possible under every policy, between streams and without one (SYN-11).
    pub fn streams(self) -> &'static [TransportKind] {
        match self {
            TransportPolicy::Auto | TransportPolicy::Stream => &TransportKind::STREAMS,
            TransportPolicy::Poll => &[],
            TransportPolicy::Grpc => &[TransportKind::Grpc],
            TransportPolicy::Websocket => &[TransportKind::Websocket],
            TransportPolicy::Sse => &[TransportKind::Sse],
        }
    }

    /// Whether a link over this transport is one that the policy wants.
    pub fn allows(self, kind: TransportKind) -> bool {
        kind == TransportKind::Poll || self.streams().contains(&kind)
    }

    /// Whether a stream is kept open when nothing moves.
    pub fn keeps_open(self) -> bool {
        !matches!(self, TransportPolicy::Auto | TransportPolicy::Poll)
    }

    /// Whether exactly one stream is named, so that there is no other to fall back on.
    pub fn names_one(self) -> bool {
        self.streams().len() == 1
    }
}

impl std::fmt::Display for TransportPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a setting may be, and what it is unless somebody sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The least.
    pub min: u32,
    /// The most.
    pub max: u32,
    /// Unless somebody sets it.
    pub default: u32,
}

/// Bounds and waits of links that a channel sets for its agents' ends, and a control plane for its
/// own (SYN-3). Every keepalive is shorter than every timeout, so that no setting of one end makes
/// the other one give up a link that lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkSettings {
    /// The most events sent and not acknowledged.
    pub window: u32,
    /// The most objects that wait for another try.
    pub pending_retries: u32,
    /// Seconds of silence of this end after which it pings.
    pub keepalive_secs: u32,
    /// Seconds of silence of the other end after which the link is given up.
    pub timeout_secs: u32,
}

impl LinkSettings {
    /// Of [`LinkSettings::window`], in events.
    pub const WINDOW: Bounds = Bounds { min: 16, max: 65_536, default: 4096 };
    /// Of [`LinkSettings::pending_retries`], in objects.
    pub const PENDING_RETRIES: Bounds = Bounds { min: 16, max: 65_536, default: 1024 };
    /// Of [`LinkSettings::keepalive_secs`].
    pub const KEEPALIVE_SECS: Bounds = Bounds { min: 5, max: 120, default: 80 };
    /// Of [`LinkSettings::timeout_secs`].
    pub const TIMEOUT_SECS: Bounds = Bounds { min: 150, max: 3600, default: 150 };

    /// The same, with what is out of bounds brought within them.
    pub fn bounded(self) -> LinkSettings {
        let within = |value: u32, bounds: Bounds| value.clamp(bounds.min, bounds.max);
        LinkSettings {
            window: within(self.window, LinkSettings::WINDOW),
            pending_retries: within(self.pending_retries, LinkSettings::PENDING_RETRIES),
            keepalive_secs: within(self.keepalive_secs, LinkSettings::KEEPALIVE_SECS),
            timeout_secs: within(self.timeout_secs, LinkSettings::TIMEOUT_SECS),
        }
    }

    /// Nobody set anything.
    pub fn is_default(&self) -> bool {
        *self == LinkSettings::default()
    }
}

impl Default for LinkSettings {
    fn default() -> LinkSettings {
        LinkSettings {
            window: LinkSettings::WINDOW.default,
            pending_retries: LinkSettings::PENDING_RETRIES.default,
            keepalive_secs: LinkSettings::KEEPALIVE_SECS.default,
            timeout_secs: LinkSettings::TIMEOUT_SECS.default,
        }
    }
}

/// The content of the object of kind `Sync`: the release's leave to synchronize objects.
/// Without it a node takes and sends none, as the default says.
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
    /// What operators may ask of the node's objects; only in autonomous mode.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<ObjectOperation>,
}

impl Default for SyncPolicy {
    /// Nothing is synchronized.
    fn default() -> SyncPolicy {
        SyncPolicy {
            mode: Mode::Off,
            kinds: Vec::new(),
            folder: None,
            mismatch: Mismatch::default(),
            max_delete_percent: SyncPolicy::MAX_DELETE_PERCENT,
            operations: Vec::new(),
        }
    }
}

impl SyncPolicy {
    /// The largest list of kinds.
    pub const MAX_KINDS: usize = 64;
    /// The share of orphans that goes without asking, unless a release says otherwise.
    pub const MAX_DELETE_PERCENT: u8 = 25;
    /// Below this many orphans nobody is asked whatever their share.
    pub const FEW_ORPHANS: usize = 3;

    /// Whether a link that was made under one of them may go on under the other: what a link goes
    /// by is the same. Where a node's objects live is the node's alone.
    pub fn is_same_for_links(&self, other: &SyncPolicy) -> bool {
        let terms = |policy: &SyncPolicy| (policy.mode, policy.max_delete_percent);
        terms(self) == terms(other) && self.kinds == other.kinds
    }
}
