//! What goes into a link and what comes out of it.

use std::sync::Arc;
use std::time::Duration;

use crate::cursor::FeedCursor;
use model::replication::SyncPolicy;
use model::{Kind, ObjectKey};

use super::batch::{ApplyBatch, ItemOutcome, NotDurable};
use super::proof::FeedProofs;
use crate::durable::LoadedChange;
use crate::frame::{Capabilities, CloseReason, Frame, GoAway, Hello, MAX_REQUESTED, Refused, VERSIONS};
use crate::mode::{Mode, Role};
use crate::replica::{MAX_BYTES, MAX_OBJECTS};
use crate::totals::Totals;

/// What a link is made with.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// At which end this side stands.
    pub role: Role,
    /// The mode that this side takes the node to be in.
    pub mode: Mode,
    /// One run of this side's process.
    pub instance: Arc<str>,
    /// What this side can do.
    pub capabilities: Capabilities,
    /// Lowest and highest version that this side speaks.
    pub versions: (u32, u32),
    /// The kinds that may be synchronized, in the order in which they are applied.
    pub kinds: Vec<Kind>,
    /// Orphans beyond this share of the replica wait for an operator, in percent.
    pub max_delete_percent: u8,
    /// How long it lasts.
    pub span: Span,
    /// What proves the control plane's feed to the node (IDN-9).
    pub proofs: FeedProofs,
    /// Bounds and waits; links share them.
    pub limits: Arc<Limits>,
}

impl LinkConfig {
    /// A link with the usual bounds.
    pub fn new(role: Role, mode: Mode, instance: &str, kinds: Vec<Kind>) -> LinkConfig {
        LinkConfig {
            role,
            mode,
            instance: instance.into(),
            capabilities: Capabilities::ALL,
            versions: VERSIONS,
            kinds,
            max_delete_percent: SyncPolicy::MAX_DELETE_PERCENT,
            span: Span::Transport,
            proofs: FeedProofs::Unsigned,
            limits: Arc::default(),
        }
    }
}

/// How long a link lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Span {
    /// As long as its transport: what may go before the other side's hello is that side's to say.
    Transport,
    /// One request and its answer, or one of both: every frame is sent without waiting for
    /// the other side's hello.
    Exchange {
        /// The other side's durable cursor in our feed, as it said last: events after it go with
        /// the first frames. Where its hello says otherwise the link ends. `None`: not known, so no
        /// event goes before that hello.
        after: Option<Box<FeedCursor>>,
    },
}

/// Bounds and waits of a link.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most events sent and not acknowledged.
    pub window_events: usize,
    /// The most bytes of content in them; one event may always go.
    pub window_bytes: u64,
    /// The most items of a batch.
    pub batch_events: usize,
    /// The most bytes of content in a batch; one item may always go.
    pub batch_bytes: u64,
    /// The most contents asked of the shell at once.
    pub load_events: usize,
    /// The most objects that wait for a retry without holding up acknowledgements.
    pub pending_retries: usize,
    /// The link ends when events are in flight and nothing is acknowledged for so long. A peer
    /// that applies for longer repeats its acknowledgement meanwhile.
    pub ack_within: Duration,
    /// A ping is sent after so long a silence of this side.
    pub ping_every: Duration,
    /// The link is closed after so long a silence of the other side.
    pub dead_after: Duration,
    /// Roots are compared at least so often.
    pub periodic: Duration,
    /// The first wait before a retry; doubles, up to a minute.
    pub retry_first: Duration,
    /// So often an object is fetched anew before its error is permanent.
    pub refetches: u32,
    /// The most paths or objects in one request of a resync, up to
    /// [`crate::frame::MAX_REQUESTED`].
    pub requested: usize,
    /// The most objects of the replica, and bytes of their contents together; others are refused.
    pub replica: Totals,
    /// So often a temporary error is tried before its object is shown as out of sync, and the
    /// cursor and comparisons go on without it. It is still tried.
    pub shown_after: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            window_events: 4096,
            window_bytes: 8 * 1024 * 1024,
            batch_events: 1024,
            batch_bytes: 4 * 1024 * 1024,
            load_events: 512,
            pending_retries: 1024,
            ack_within: Duration::from_secs(60),
            ping_every: Duration::from_secs(80),
            dead_after: Duration::from_secs(150),
            periodic: Duration::from_secs(600),
            retry_first: Duration::from_secs(1),
            refetches: 5,
            requested: MAX_REQUESTED,
            replica: Totals { objects: MAX_OBJECTS, bytes: MAX_BYTES },
            shown_after: 8,
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The transport is up.
    Open,
    /// A frame came.
    Frame(Frame),
    /// What was asked for by [`Output::Load`], in its order; `None` where the shell has nothing.
    Loaded(Vec<Option<LoadedChange>>),
    /// The batch was applied, and [`ApplyBatch::write`] of these outcomes, one for each item, is durable; or
    /// nothing of it is.
    Applied(Result<Vec<ItemOutcome>, NotDurable>),
    /// What [`Output::Reincarnate`] asked for was tried; or it is too soon for it, by so long.
    Reincarnated(Result<(), Duration>),
    /// A command from outside.
    Command(LinkCommand),
    /// Time passed, or the own feed has new changes.
    Tick,
    /// The transport is gone: the last input.
    Disconnected,
}

/// A command to a link.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkCommand {
    /// An operator confirms that orphans be deleted, however many: good for one resync. At the
    /// principal's end it is passed on to a node that said hello.
    Approve,
    /// An operator wants roots compared by a resync now; passed on as well.
    Resync,
    /// Send this: a check-in, an answer, a notice.
    Send(Box<Frame>),
    /// End in order: take nothing new, finish what came, go away.
    Shutdown,
    /// Say why, and close.
    GoAway(Box<GoAway>),
}

/// What the shell is to do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Send a frame; those that [`super::may_overtake`] allows go before waiting data.
    Send(Frame),
    /// Bring these objects of the own feed, each at this change or newer: contents, and where the feed is signed
    /// what proves them, also of those that are gone. One load is under way at a time. Not to be carried out while much waits to be sent: it makes more. With nothing wanted it asks
    /// for just that.
    Load(Vec<(ObjectKey, u64)>),
    /// Apply these, then make [`ApplyBatch::write`] durable, then say [`Input::Applied`].
    Apply(Arc<ApplyBatch>),
    /// The own feed went back behind what it sent before: begin it in a new incarnation with
    /// [`crate::Feed::reincarnate`], durably, then say [`Input::Reincarnated`]. That is a lot of work
    /// on the other side's word alone, and not done too soon after the last time. The link closes; the
    /// next one goes on.
    Reincarnate,
    /// A frame that is not the link's own: a check-in, its answer, a notice.
    Received(Frame),
    /// Something to count or to show.
    Note(Note),
    /// Close the transport after what was sent: why, and which side ended the link.
    Close(GoAway, EndedBy),
}

/// Which side ended a link, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// Nobody: its transport is gone.
    Nobody,
    /// This side.
    Us(CloseReason),
    /// The other side, with a go-away.
    Them(CloseReason),
}

/// Something to count or to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The other side said hello; its instance distinguishes two agents with one identity.
    Met(Box<Hello>),
    /// So many items of a batch were applied; the oldest was accepted at the source at this
    /// time: a sample of the latency of propagation.
    Applied {
        /// How many.
        items: usize,
        /// Milliseconds since 1970; 0 when no item has a time, as deletes have none.
        oldest: i64,
    },
    /// The other side does not apply this object of the own feed: never, or not for now. Of refusals and
    /// resyncs, many in a short time, only the first are noted; [`LinkCounters`] have all.
    RefusedThere(Refused),
    /// An object of the other side cannot be applied here.
    RefusedHere(Refused),
    /// A resync ended.
    Resynced {
        /// Requests and responses.
        frames: u64,
        /// Objects fetched.
        fetched: usize,
        /// Orphans deleted.
        deleted: usize,
        /// Orphans kept until an operator confirms.
        kept: usize,
        /// How long it took.
        took: Duration,
    },
    /// The shell has no content for an object of the own feed.
    Missing(ObjectKey),
    /// The roots were compared and are equal.
    InSync,
}

/// What a link counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Events sent, responses of resyncs among them.
    pub sent: u64,
    /// Events received.
    pub received: u64,
    /// Acknowledgements sent.
    pub acks_sent: u64,
    /// Acknowledgements received.
    pub acks_received: u64,
    /// Changes that a newer one of the same object replaced before they were sent: where a
    /// queue would have grown or evicted.
    pub coalesced: u64,
    /// Events that a newer one of the same object replaced before they were applied.
    pub superseded: u64,
    /// Events that were here already.
    pub duplicates: u64,
    /// Items applied.
    pub applied: u64,
    /// Objects of the other side that could not be taken.
    pub refused_here: u64,
    /// Objects of the own feed that the other side could not take.
    pub refused_there: u64,
    /// Resyncs begun here.
    pub resyncs: u64,
    /// Resyncs served.
    pub resyncs_served: u64,
    /// Requests and responses of resyncs, sent and received.
    pub resync_frames: u64,
    /// Objects that resyncs brought here.
    pub resync_objects: u64,
    /// Orphans deleted here.
    pub orphans: u64,
    /// Checkpoints whose root was equal.
    pub checkpoints_equal: u64,
    /// Checkpoints whose root was different.
    pub checkpoints_different: u64,
}
