//! What goes into a step of [`Rollouts`](crate::Rollouts), and what comes out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lang::Value;
use model::rollout::RolloutDispatch;
use model::status::Contact;
use model::{Channel, Digest, Hostname, NodeId};
use trust::RolloutTerms;

use crate::begin::BeginWait;
use crate::event::{EventAnswer, RolloutEvent};
use crate::id::{RolloutId, RolloutKey};
use crate::member::ASK_REACH;
use crate::record::{HaltCause, RolloutCommit};
use crate::state::RolloutState;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum RolloutInput {
    /// Verified releases with rollout terms were published, those of all channels at once: none begins before each is known,
    /// as one may go after another.
    Published(Vec<NewRollout>),
    /// A channel points to a release that goes to its nodes at once: the rollouts that it had before end for good.
    AtOnce {
        /// That release.
        head: RolloutKey,
    },
    /// A node came to a channel, or the release declares it now.
    Joined {
        /// The channel.
        channel: Channel,
        /// The node.
        node: JoiningNode,
    },
    /// A node left the fleet, or its channel.
    Removed {
        /// The channel that it left.
        channel: Channel,
        /// The node.
        node: NodeId,
    },
    /// A node is reached, or no longer. To be given for every node after a start.
    Contact {
        /// The node.
        node: NodeId,
        /// How it is reached.
        contact: Contact,
        /// How soon it hears what it is asked.
        next_call: NextCall,
    },
    /// A node says something.
    Event(RolloutEvent),
    /// An operator says something.
    Command {
        /// The rollout.
        rollout: RolloutKey,
        /// The operator.
        by: String,
        /// The operator's word.
        command: RolloutCommand,
    },
    /// Time goes by.
    Tick,
}

/// How soon a node that is reached hears what it is asked (ROL-8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NextCall {
    /// Within [`ASK_REACH`]: it may be asked.
    #[default]
    Soon,
    /// Later: a request would lapse before it is heard, while it holds a slot. It is asked once it called: a node
    /// that a rollout concerns calls often from then on.
    Later,
}

impl NextCall {
    /// Of a node that calls within so long.
    pub fn within(promised: Duration) -> NextCall {
        if promised <= ASK_REACH { NextCall::Soon } else { NextCall::Later }
    }
}

/// A published release.
#[derive(Clone, Debug)]
pub struct NewRollout {
    /// The release and its channel.
    pub key: RolloutKey,
    /// What the wire calls it.
    pub id: RolloutId,
    /// The digest of its header.
    pub header: Digest,
    /// Its terms, in which there is no mistake.
    pub terms: Arc<RolloutTerms>,
    /// The nodes of the channel.
    pub nodes: Vec<JoiningNode>,
}

/// A node that comes to a rollout.
#[derive(Clone, Debug)]
pub struct JoiningNode {
    /// The node.
    pub node: NodeId,
    /// Its hostname.
    pub hostname: Hostname,
    /// What the release declares of it: `groups`, a list of names, and `labels`, a map of texts.
    pub declared: Value,
    /// Enforcing probes that the release declares of it.
    pub enforcing: Arc<[String]>,
    /// The release that it has or may be pointed to until its wave opens; absent for a new node whose channel
    /// has no earlier release that is fresh or a named fallback.
    pub before: Option<u64>,
}

/// What an operator may say to a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutCommand {
    /// No node is started until it is resumed.
    Pause,
    /// It goes on: after a pause, or after a halt in spite of what failed.
    Resume,
    /// It ends where it is.
    Abort,
    /// The gate of the newest open wave counts as passed; a rollout that waits after a halt may begin. Never
    /// opens a wave before its `notBefore`. One that waits for anything else is not approved ahead of a halt.
    Approve(ApprovedGate),
    /// It halts, and what was started goes back, where the signed terms allow that; of one that was never through.
    Rollback,
    /// A node is taken out of the rollout: it holds no slot and no wave.
    Skip(NodeId),
}

/// Which gate counts as passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovedGate {
    /// That of the newest wave, whichever it is by then; or that which a halt closed before a rollout.
    Newest,
    /// That of the wave of this name, while it is the newest one: said twice, it opens one wave.
    Of(String),
}

/// Why a command is not obeyed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandRefusal {
    /// There is no such rollout.
    #[error("there is no such rollout here")]
    Unknown,
    /// The node is not in it.
    #[error("node {0} is not in this rollout")]
    UnknownNode(NodeId),
    /// The rollout's state does not go with it.
    #[error("the rollout is {}, and this asks for one that {wanted}", .state.words())]
    OtherState {
        /// The state.
        state: RolloutState,
        /// What is asked for.
        wanted: &'static str,
    },
    /// The wave that is to be approved is not the newest open one.
    #[error("wave {asked} is not the newest open one, which is {}", newest.as_deref().unwrap_or("none yet"))]
    OtherWave {
        /// The one that was named.
        asked: String,
        /// The newest that is open; `None` before the first one is.
        newest: Option<String>,
    },
    /// It waits to begin, and not for an approval.
    #[error("an approval does not let the rollout begin: {0}")]
    NotLifted(BeginWait),
    /// It was stopped for good, so that nothing resumes it.
    #[error("the rollout cannot be resumed ({0}): what it brings comes with a newer release")]
    StoppedForGood(HaltCause),
    /// It is over, and the node is not on its way in it.
    #[error("the rollout is {}, and {hostname} is not on its way in it: nothing is left that it could be taken out of", .state.words())]
    OverForNode {
        /// The rollout's state.
        state: RolloutState,
        /// The node.
        hostname: Hostname,
    },
    /// The signed terms do not allow to go back.
    #[error("the release's terms say `onFailure: halt`; going back is a new release then")]
    NoRollback,
    /// No node of it had a release before.
    #[error(
        "none of its nodes had a release before, so that there is nothing to go back to; `abort` ends it, and a newer \
         release takes its place"
    )]
    NoEarlierRelease,
    /// It was through, so that nodes which are confirmed in it cannot go back any more.
    #[error(
        "the rollout was through, and its nodes gave up the release of before; publish that once more: \
         `muster release rollback NUMBER`"
    )]
    Through,
}

/// Why a release begins no rollout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishRefusal {
    /// A rollout of this release or of a newer one is there.
    #[error("channel {channel} has a rollout of release {known}, and this is release {seq}")]
    NotNewer {
        /// The channel.
        channel: Channel,
        /// The newest release known.
        known: u64,
        /// The one published.
        seq: u64,
    },
    /// A node stands there twice.
    #[error("node {0} stands in the rollout twice")]
    NodeTwice(NodeId),
}

/// What a step answers to its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutAnswer {
    /// There is nothing to answer.
    None,
    /// To an event.
    Event(EventAnswer),
    /// To a command.
    Command(Result<(), CommandRefusal>),
    /// To releases: why the first one is refused that is. The others begin.
    Published(Result<(), PublishRefusal>),
}

/// What comes out of a step. The commit is made durable first; only then the answer is given and the effects
/// are carried out. Where its guards do not hold, both are dropped and what is stored is
/// [loaded](crate::Rollouts::reload).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutStep {
    /// What to store; `None` where nothing changed.
    pub commit: Option<RolloutCommit>,
    /// The answer.
    pub answer: RolloutAnswer,
    /// What to do then.
    pub effects: Vec<RolloutEffect>,
}

/// Something to be done after a step was made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutEffect {
    /// What the node is pointed to or asked for changed: its poll is answered.
    Wake(NodeId),
    /// Something for the log of the rollout, and for people.
    Note {
        /// The rollout.
        rollout: RolloutKey,
        /// What it decided, and why.
        note: RolloutNote,
    },
}

/// What a rollout decided, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutNote {
    /// It began.
    Began,
    /// A wave opened.
    WaveOpened {
        /// Its name.
        wave: String,
        /// What opened it.
        reason: OpenReason,
    },
    /// A node was asked to begin, or to go back.
    Asked {
        /// The node.
        hostname: Hostname,
        /// The release that it is to be on.
        release: Option<u64>,
    },
    /// A node is past its time.
    Silent {
        /// The node.
        hostname: Hostname,
    },
    /// It entered a state.
    Entered(RolloutState),
    /// It halted.
    Halted(HaltCause),
    /// An operator said something.
    Command {
        /// The operator.
        by: String,
        /// The verb, as it is called on the command line.
        command: &'static str,
    },
    /// Events of a node are lost.
    EventsLost {
        /// The node.
        hostname: Hostname,
        /// How many.
        count: u64,
    },
}

/// Why a wave opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenReason {
    /// It is the first.
    First,
    /// The gate before it passed.
    GatePassed {
        /// How many nodes of the wave before are confirmed.
        converged: usize,
        /// How many failed.
        failed: usize,
        /// How many did not count: offline, paused, pinned or taken out.
        apart: usize,
    },
    /// An operator passed the gate before it.
    Approved {
        /// The operator.
        by: String,
    },
}

impl fmt::Display for OpenReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenReason::First => f.write_str("it is the first"),
            OpenReason::GatePassed { converged, failed, apart } => write!(
                f,
                "of the wave before {converged} are confirmed, {failed} failed, {apart} are offline, paused, \
                 pinned or taken out"
            ),
            OpenReason::Approved { by } => write!(f, "{by} passed the gate of the wave before"),
        }
    }
}

impl fmt::Display for RolloutNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RolloutNote::Began => f.write_str("the rollout began"),
            RolloutNote::WaveOpened { wave, reason } => write!(f, "wave {wave} opened: {reason}"),
            RolloutNote::Asked { hostname, release: Some(release) } => {
                write!(f, "{hostname} is asked to be on release {release}")
            }
            RolloutNote::Asked { hostname, release: None } => write!(f, "{hostname} is asked to go back"),
            RolloutNote::Silent { hostname } => {
                write!(f, "{hostname} was not heard of in time and counts as failed")
            }
            RolloutNote::Entered(state) => write!(f, "the rollout is {}", state.words()),
            RolloutNote::Halted(cause) => write!(f, "the rollout starts nothing any more: {cause}"),
            RolloutNote::Command { by, command } => write!(f, "{by}: {command}"),
            RolloutNote::EventsLost { hostname, count } => {
                write!(f, "{hostname} has {count} events no more that were not received")
            }
        }
    }
}

/// Where a node is pointed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutPointer {
    /// The rollout.
    pub rollout: RolloutKey,
    /// The release; absent where the node has none and the rollout starts nothing.
    pub release: Option<u64>,
    /// What the wire says to it.
    pub dispatch: RolloutDispatch,
    /// Why the node is not on the rollout's release, where nothing brings it there; absent of one that is, or may come to it.
    pub off_release: Option<OffRelease>,
}

/// Why a node is not on the release of its rollout, for people: that rollout does not bring it there any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OffRelease {
    /// It failed, and is not back on what it had.
    Failed(String),
    /// It is back on what it had.
    WentBack(String),
    /// Somebody took it out of the rollout before it began.
    TakenOut(String),
}
