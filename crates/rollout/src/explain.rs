//! [`NodeExplanation`]: why a node has not changed yet.

use std::fmt;

use model::status::Contact;
use model::time::when;
use model::{Channel, Hostname, NodeId, Timestamp};

use crate::advance::WaveWait;
use crate::begin::BeginWait;
use crate::event::{EventRefusal, ProbeMode, ProbeOutcome};
use crate::id::{RolloutId, RolloutKey};
use crate::live::LiveRollout;
use crate::member::{MemberFailure, MemberGoal, MemberRecord};
use crate::nodes::NodeIndex;
use crate::placement::{BeginRefusal, bits};
use crate::record::HaltCause;
use crate::rollouts::Rollouts;
use crate::state::{NodeRolloutState, RolloutState};

/// How a node stands in its channel's rollout, and what it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeExplanation {
    /// The node.
    pub hostname: Hostname,
    /// The rollout.
    pub rollout: RolloutKey,
    /// What the wire calls it.
    pub id: RolloutId,
    /// How the rollout stands.
    pub rollout_state: RolloutState,
    /// The node's wave.
    pub wave: String,
    /// How the node stands.
    pub state: NodeRolloutState,
    /// Since when.
    pub since: Timestamp,
    /// What keeps it from the release; `None` where it is confirmed on it.
    pub cause: Option<WaitCause>,
    /// What its confirmation rests on; of a node that is confirmed.
    pub evidence: Option<ConfirmEvidence>,
}

/// What says that a node is well with its release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfirmEvidence {
    /// The boot in which it activated it.
    pub boot: Option<String>,
    /// Its enforcing probes that passed since.
    pub passed: Vec<String>,
}

/// What keeps a node from its release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// The rollout of an earlier release of the channel runs.
    EarlierRollout(u64),
    /// An earlier rollout halted after this release was published.
    EarlierHalted(u64),
    /// Another channel goes first.
    Channel(Channel),
    /// A newer rollout took its place.
    Superseded,
    /// The rollout starts nothing any more.
    Halted(Option<HaltCause>),
    /// An operator paused the rollout.
    Paused {
        /// The operator.
        by: String,
        /// Since when.
        at: Timestamp,
    },
    /// A freeze window is open.
    Frozen(String),
    /// The wave begins later.
    NotBefore {
        /// The wave that is next.
        wave: String,
        /// When.
        at: Timestamp,
        /// What time it is.
        now: Timestamp,
    },
    /// The gate of a wave before has not passed.
    Gate {
        /// The wave.
        wave: String,
        /// How many of it may begin or are waited for.
        open: usize,
        /// How many are on their way.
        moving: usize,
        /// How many failed.
        failed: usize,
    },
    /// It is pinned.
    Pinned {
        /// Until when.
        until: Timestamp,
        /// Why.
        reason: String,
    },
    /// An operator took it out.
    Skipped(String),
    /// It is not reached.
    Contact(Option<Contact>),
    /// It calls later than a request would last.
    CallsLater,
    /// It refused or let pass a request.
    Retry {
        /// When it is asked again.
        at: Timestamp,
        /// How often it did.
        attempts: u8,
    },
    /// It was asked, and does not begin yet.
    HeldOff {
        /// Why.
        why: BeginRefusal,
        /// When it is asked again.
        at: Timestamp,
    },
    /// Nodes that go before it are on their way.
    Edge {
        /// What goes first.
        before: String,
        /// How many of it.
        count: usize,
    },
    /// A budget has no room.
    Budget {
        /// Of which nodes.
        selector: String,
        /// How many are in flight.
        in_flight: usize,
        /// How many may be.
        limit: usize,
    },
    /// It is asked with the next step.
    Next,
    /// It was asked, and did not acknowledge it yet.
    Asked(Timestamp),
    /// It is at it.
    Activating,
    /// It waits for its boot.
    Deferred,
    /// It soaks.
    Soaking {
        /// What is missing beside time.
        missing: Option<EventRefusal>,
    },
    /// It goes back.
    GoingBack,
    /// It failed, and it is waited for that it goes back.
    Failed(Option<MemberFailure>),
    /// It failed, and stays on the release as the signed terms say.
    FailedAndStays(Option<MemberFailure>),
    /// It is back on the release that it had.
    Reverted(Option<MemberFailure>),
    /// It is back as it was found: it had no release, and there is none that it is pointed to.
    RevertedAsFound(Option<MemberFailure>),
}

impl Rollouts {
    /// Why a node has not changed yet. `None` for a node that is in no rollout.
    pub fn explain(&self, node: &NodeId) -> Option<NodeExplanation> {
        let index = self.nodes.find(node)?;
        let (rollout, record) = self.current_of(index)?;
        Some(NodeExplanation {
            hostname: record.hostname.clone(),
            rollout: rollout.key().clone(),
            id: rollout.document.id.clone(),
            rollout_state: rollout.state(),
            wave: rollout.rules.wave_name(usize::from(record.placement.wave)).to_owned(),
            state: record.state,
            since: record.since,
            cause: self.cause(rollout, record, index),
            evidence: evidence(record),
        })
    }

    fn cause(&self, rollout: &LiveRollout, record: &MemberRecord, node: NodeIndex) -> Option<WaitCause> {
        match record.state {
            NodeRolloutState::Failed
                if record.slot_left && matches!(record.failure, Some(MemberFailure::Reported { .. })) =>
            {
                Some(WaitCause::FailedAndStays(record.failure.clone()))
            }
            NodeRolloutState::Failed => Some(WaitCause::Failed(record.failure.clone())),
            NodeRolloutState::Reverted if record.as_found && record.has_no_earlier_release() => {
                Some(WaitCause::RevertedAsFound(record.failure.clone()))
            }
            NodeRolloutState::Reverted => Some(WaitCause::Reverted(record.failure.clone())),
            NodeRolloutState::Pending => Some(self.pending(rollout, record, node)),
            _ if record.goal == MemberGoal::Before => Some(WaitCause::GoingBack),
            NodeRolloutState::Activating => Some(WaitCause::Activating),
            NodeRolloutState::Deferred => Some(WaitCause::Deferred),
            NodeRolloutState::Soaking => Some(WaitCause::Soaking {
                missing: match record.missing_probe() {
                    Ok(missing) => missing.map(|probe| EventRefusal::ProbeNotPassed(probe.to_owned())),
                    Err(missing) => Some(missing),
                },
            }),
            NodeRolloutState::Converged => None,
        }
    }

    fn pending(&self, rollout: &LiveRollout, record: &MemberRecord, node: NodeIndex) -> WaitCause {
        let wait = self.rollout_wait(rollout, record);
        wait.or_else(|| self.member_wait(rollout, record, node)).unwrap_or(WaitCause::Next)
    }

    /// What the rollout as a whole keeps back.
    fn rollout_wait(&self, rollout: &LiveRollout, record: &MemberRecord) -> Option<WaitCause> {
        match rollout.state() {
            RolloutState::Opening => {
                return self.waits_to_begin(rollout.key()).map(WaitCause::from);
            }
            RolloutState::Superseded | RolloutState::Pruned => return Some(WaitCause::Superseded),
            RolloutState::Failed | RolloutState::Reverted => {
                let cause = rollout.document.halt.as_ref().map(|halt| halt.cause.clone());
                return Some(WaitCause::Halted(cause));
            }
            RolloutState::Active | RolloutState::Converging | RolloutState::Terminal => {}
        }
        if let Some(by) = &record.skipped {
            return Some(WaitCause::Skipped(by.clone()));
        }
        if let Some(asked) = record.asked {
            return Some(WaitCause::Asked(asked.at));
        }
        if let Some(paused) = &rollout.document.paused {
            return Some(WaitCause::Paused { by: paused.by.clone(), at: paused.at });
        }
        if !rollout.is_open(record.placement.wave) {
            return Some(self.closed_wave(rollout));
        }
        rollout.rules.frozen(self.now).map(|(name, _)| WaitCause::Frozen(name.to_owned()))
    }

    fn closed_wave(&self, rollout: &LiveRollout) -> WaitCause {
        let open = rollout.document.opened.len();
        match self.wave_wait(rollout) {
            Some(WaveWait::NotBefore(at)) => {
                let wave = rollout.rules.wave_name(open).to_owned();
                WaitCause::NotBefore { wave, at, now: self.now }
            }
            Some(WaveWait::Gate) | None => {
                let newest = open.saturating_sub(1);
                let count = rollout.waves.get(newest).copied().unwrap_or_default();
                WaitCause::Gate {
                    wave: rollout.rules.wave_name(newest).to_owned(),
                    open: count.open,
                    moving: count.moving,
                    failed: count.failed,
                }
            }
        }
    }

    /// What keeps back this one.
    fn member_wait(
        &self,
        rollout: &LiveRollout,
        record: &MemberRecord,
        node: NodeIndex,
    ) -> Option<WaitCause> {
        let known = self.nodes.get(node)?;
        if let Some(until) = record.placement.pinned.filter(|until| *until > self.now) {
            let pins = &rollout.rules.terms().pins;
            let pin = pins.iter().find(|pin| pin.nodes.contains(&record.hostname));
            return Some(WaitCause::Pinned {
                until,
                reason: pin.map(|pin| pin.reason.clone()).unwrap_or_default(),
            });
        }
        if known.reach.contact != Some(Contact::Online) {
            return Some(WaitCause::Contact(known.reach.contact));
        }
        if !known.reach.may_be_asked() {
            return Some(WaitCause::CallsLater);
        }
        if let Some(at) = record.retry_at {
            let held_off = record.held_off.map(|held| WaitCause::HeldOff { why: held.why, at });
            return Some(held_off.unwrap_or(WaitCause::Retry { at, attempts: record.attempts }));
        }
        let holding = rollout.holding_edges() & record.placement.after;
        if let Some(edge) = bits(holding).next() {
            let terms = rollout.rules.terms().edges.get(edge)?;
            let count = rollout.edges.get(edge).copied().unwrap_or(0);
            return Some(WaitCause::Edge { before: terms.before.as_str().to_owned(), count });
        }
        let full = rollout.budgets_of(record).into_iter().filter(|budget| !known.holds.contains(budget));
        let budget = full.filter_map(|budget| self.book.get(budget)).find(|budget| !budget.has_room())?;
        Some(WaitCause::Budget {
            selector: budget.selector().to_owned(),
            in_flight: budget.in_flight(),
            limit: budget.limit(),
        })
    }
}

fn evidence(record: &MemberRecord) -> Option<ConfirmEvidence> {
    let probes = record.probes.iter().flatten();
    let passed =
        probes.filter(|probe| probe.mode == ProbeMode::Enforce && probe.outcome == Some(ProbeOutcome::Pass));
    let passed = || passed.map(|probe| probe.name.clone()).collect();
    (record.state == NodeRolloutState::Converged)
        .then(|| ConfirmEvidence { boot: record.boot.clone(), passed: passed() })
}

impl WaitCause {
    /// For somebody who may see this node and not the others: without what the cause says of those, and without who
    /// turned the rollout (OPS-5).
    pub fn without_others(&self) -> String {
        match self {
            WaitCause::Halted(Some(HaltCause::Gate { wave, .. })) => {
                format!("the rollout starts nothing any more: more nodes of wave {wave} failed than may")
            }
            WaitCause::Halted(Some(
                HaltCause::Aborted { .. } | HaltCause::RolledBack { .. } | HaltCause::ReplacedAtOnce { .. },
            )) => "the rollout starts nothing any more: it was ended".to_owned(),
            WaitCause::Paused { at, .. } => format!("the rollout is paused since {at}"),
            WaitCause::Gate { wave, .. } => {
                format!("its wave is closed: the gate of wave {wave} did not pass yet")
            }
            WaitCause::Edge { before, .. } => format!("nodes of `{before}` go before it"),
            WaitCause::Budget { selector, .. } => {
                format!("of `{selector}` as many nodes are in flight as may be")
            }
            of_itself => of_itself.to_string(),
        }
    }
}

impl From<BeginWait> for WaitCause {
    fn from(wait: BeginWait) -> WaitCause {
        match wait {
            BeginWait::Running(seq) => WaitCause::EarlierRollout(seq),
            BeginWait::Halted(seq) => WaitCause::EarlierHalted(seq),
            BeginWait::Channel(channel) => WaitCause::Channel(channel),
        }
    }
}

impl fmt::Display for BeginWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        WaitCause::from(self.clone()).fmt(f)
    }
}

impl fmt::Display for NodeExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeExplanation { hostname, id, wave, state, .. } = self;
        match &self.cause {
            None => write!(f, "{hostname} is confirmed on {id} (wave {wave})"),
            Some(cause) => write!(f, "{hostname} is {} in {id} (wave {wave}): {cause}", state.words()),
        }
    }
}

impl fmt::Display for BeginRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BeginRefusal::NotBefore => "its wave has not begun by its own clock",
            BeginRefusal::Frozen => "a freeze window is open by its own clock",
            BeginRefusal::Pinned => "it is pinned by its own clock",
            BeginRefusal::Paused => "its administrator paused it",
        })
    }
}

impl fmt::Display for MemberFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemberFailure::Reported { message } => write!(f, "it says: {message}"),
            MemberFailure::Silent { was } => {
                write!(f, "it was not heard of in time while it was {}", was.words())
            }
            MemberFailure::Returned => f.write_str("it returned by itself"),
            MemberFailure::Refused { code } => write!(f, "it refuses the release: {code}"),
            MemberFailure::Unanswered => f.write_str("it is online and does not answer"),
        }
    }
}

fn failed(f: &mut fmt::Formatter<'_>, what: &str, failure: Option<&MemberFailure>) -> fmt::Result {
    match failure {
        Some(failure) => write!(f, "{what}: {failure}"),
        None => f.write_str(what),
    }
}

impl fmt::Display for WaitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitCause::EarlierRollout(seq) => {
                write!(f, "the rollout of release {seq} runs, and this one is next")
            }
            WaitCause::EarlierHalted(seq) => write!(
                f,
                "the rollout of release {seq} halted while this one waited; approve this one, or publish a newer \
                 release"
            ),
            WaitCause::Channel(channel) => {
                write!(f, "channel {channel} goes first, and its newest rollout is not through")
            }
            WaitCause::Superseded => f.write_str("a newer rollout took the place of this one"),
            WaitCause::Halted(None) => f.write_str("the rollout starts nothing any more"),
            WaitCause::Halted(Some(cause)) => write!(f, "the rollout starts nothing any more: {cause}"),
            WaitCause::Paused { by, at } => write!(f, "{by} paused the rollout at {at}"),
            WaitCause::Frozen(window) => write!(f, "the freeze window {window} is open"),
            WaitCause::NotBefore { wave, at, now } => write!(f, "wave {wave} begins at {}", when(*at, *now)),
            WaitCause::Gate { wave, open, moving, failed } => write!(
                f,
                "its wave is closed: of wave {wave} {open} did not begin, {moving} are on their way and {failed} \
                 failed"
            ),
            WaitCause::Pinned { until, reason } if reason.is_empty() => {
                write!(f, "it is pinned until {until}")
            }
            WaitCause::Pinned { until, reason } => write!(f, "it is pinned until {until} ({reason})"),
            WaitCause::Skipped(by) => write!(f, "{by} took it out of the rollout"),
            WaitCause::Contact(None) => f.write_str("it was not heard of since the control plane started"),
            WaitCause::Contact(Some(Contact::Offline)) => {
                f.write_str("it is offline; it gets the release once it is back, and holds up nobody")
            }
            WaitCause::Contact(Some(_)) => f.write_str("it is not reached at the moment"),
            WaitCause::CallsLater => f.write_str("it calls seldom, and is asked once it called"),
            WaitCause::Retry { at, attempts } => {
                write!(f, "it did not begin when it was asked ({attempts} times), and is asked again at {at}")
            }
            WaitCause::HeldOff { why, at } => write!(f, "{why}, so it is asked again at {at}"),
            WaitCause::Edge { before, count } => write!(f, "{count} nodes of `{before}` go before it"),
            WaitCause::Budget { selector, in_flight, limit } => {
                write!(f, "of `{selector}` {in_flight} nodes are in flight, and at most {limit} may be")
            }
            WaitCause::Next => f.write_str("it is asked next"),
            WaitCause::Asked(at) => write!(f, "it was asked at {at} and did not acknowledge it yet"),
            WaitCause::Activating => f.write_str("it activates the release"),
            WaitCause::Deferred => f.write_str("the release takes effect at its next boot"),
            WaitCause::Soaking { missing: None } => f.write_str("its probes pass, and it soaks"),
            WaitCause::Soaking { missing: Some(missing) } => write!(f, "it soaks, and {missing}"),
            WaitCause::GoingBack => f.write_str("it goes back to the release that it had"),
            WaitCause::Failed(failure) => failed(f, "it failed", failure.as_ref()),
            WaitCause::FailedAndStays(failure) => failed(
                f,
                "it failed and stays on the release, within what its gate lets fail",
                failure.as_ref(),
            ),
            WaitCause::Reverted(failure) => {
                failed(f, "it is back on the release that it had", failure.as_ref())
            }
            WaitCause::RevertedAsFound(failure) => {
                failed(f, "it is back as it was found, without a release", failure.as_ref())
            }
        }
    }
}
