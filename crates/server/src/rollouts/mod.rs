//! [`RolloutOwner`]: the one owner of [`rollout::Rollouts`]. It decides nothing: inputs go in, commits are made durable,
//! then nodes are pointed as the rollouts say.
//!
//! ```text
//! publish, start            releases::load --> follow.rs: Published, Joined, Removed; AtOnce
//! facts of a check-in       RolloutOwner::events --> jobs --> run.rs: a batch of them in one transaction
//! contact, enrollment       RolloutOwner::contact, membership --> inbox --> run.rs
//! operators                 RolloutOwner::command
//!                                 |
//!        DurableRollouts::take (durable.rs): handle -> Store::commit_rollouts -> NodeState::set_rollout, wake
//! ```
//!
//! Invariants: what a check-in is answered follows from what is durable, as a node's pointer is put into its entry after
//! the commit; whoever looks at the rollouts holds their lock, which is held from a decision until it is durable.

mod durable;
mod events;
mod follow;
mod run;
mod unstored;
pub(crate) mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{Incarnation, NodeId};
use plane::ContactNews;
use rollout::{CommandRefusal, RolloutAnswer, RolloutCommand, RolloutInput, RolloutKey};
use store::{Accepted, Store};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use wire::{Code, Problem};

use self::durable::DurableRollouts;
pub(crate) use self::events::{EventsTaken, HeardEvents, are_among, believed};
pub(crate) use self::run::run;
use crate::state::{ControlPlane, run_to_completion};

/// The most batches of events that wait; who has more is told to come again.
const MAX_JOBS: usize = 4096;
/// The most bytes of facts and events that wait, as their JSON counts: 64 MiB. One batch is no larger than a request's
/// body may be.
const MAX_JOB_BYTES: usize = 64 << 20;

/// All rollouts of the fleet, and who changes them.
pub(crate) struct RolloutOwner {
    rollouts: tokio::sync::Mutex<DurableRollouts>,
    inbox: Mutex<OwnerInbox>,
    jobs: mpsc::Sender<EventsJob>,
    /// A permit for each byte that may wait.
    room: Arc<Semaphore>,
    received: Mutex<Option<mpsc::Receiver<EventsJob>>>,
    /// There is something in the inbox, or another time at which something is due.
    wake: Notify,
}

/// What waits for the owner, each node once.
#[derive(Default)]
struct OwnerInbox {
    /// How nodes are reached since the rollouts were told last.
    contacts: BTreeMap<NodeId, ContactNews>,
    /// Nodes that joined the fleet or left it.
    members: BTreeSet<NodeId>,
}

/// Events of one node, to be made durable with the facts that they came in.
struct EventsJob {
    heard: HeardEvents,
    /// Its room among what waits; given back once it was taken in, or nobody waits for it.
    _room: OwnedSemaphorePermit,
    reply: oneshot::Sender<Result<EventsTaken, Problem>>,
}

impl RolloutOwner {
    pub(crate) fn new() -> RolloutOwner {
        let (jobs, received) = mpsc::channel(MAX_JOBS);
        RolloutOwner {
            rollouts: tokio::sync::Mutex::default(),
            inbox: Mutex::default(),
            jobs,
            room: Arc::new(Semaphore::new(MAX_JOB_BYTES)),
            received: Mutex::new(Some(received)),
            wake: Notify::new(),
        }
    }

    fn inbox(&self) -> MutexGuard<'_, OwnerInbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node of a rollout is reached, or no more.
    pub(crate) fn contact(&self, node: &NodeId, news: ContactNews) {
        self.inbox().contacts.insert(node.clone(), news);
        self.wake.notify_one();
    }

    /// A node joined the fleet, or left it.
    pub(crate) fn membership(&self, node: &NodeId) {
        self.inbox().members.insert(node.clone());
        self.wake.notify_one();
    }

    /// Takes events of a node in; durable, with the facts that they came in, when it returns.
    pub(crate) async fn events(&self, heard: HeardEvents) -> Result<EventsTaken, Problem> {
        let busy = || Problem::from(Code::Busy);
        let bytes = u32::try_from(heard.bytes()).map_err(|_| busy())?;
        let room = self.room.clone().try_acquire_many_owned(bytes).map_err(|_| busy())?;
        let (reply, taken) = oneshot::channel();
        self.jobs.try_send(EventsJob { heard, _room: room, reply }).map_err(|_| busy())?;
        taken.await.unwrap_or_else(|_| Err(Code::StoreUnavailable.into()))
    }

    /// An operator's word; durable in this handle of the store when it returns. Within is why it is not obeyed.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn command(
        &self,
        plane: &Arc<ControlPlane>,
        store: Arc<Store>,
        rollout: RolloutKey,
        by: &str,
        command: RolloutCommand,
    ) -> Result<Result<(), CommandRefusal>, Problem> {
        let (plane, input) = (plane.clone(), RolloutInput::Command { rollout, by: by.to_owned(), command });
        run_to_completion(async move {
            let mut rollouts = plane.rollouts.rollouts.lock().await;
            let taken = rollouts.take(&plane, &store, vec![input], Vec::new()).await?;
            drop(rollouts);
            plane.rollouts.wake.notify_one();
            match taken.answers.into_iter().next() {
                Some(RolloutAnswer::Command(answer)) => Ok(answer),
                _ => Ok(Ok(())),
            }
        })
        .await
    }

    /// How far the events of a node were taken, of each of its rollouts.
    pub(crate) async fn taken_of(
        &self,
        node: &NodeId,
        incarnation: &Incarnation,
    ) -> BTreeMap<model::rollout::RolloutId, u64> {
        let rollouts = self.rollouts.lock().await;
        let of = |document: &rollout::RolloutDocument| {
            let member = rollouts.core().member(&document.key, node)?;
            let is_same = member.cursor.incarnation.as_ref() == Some(incarnation);
            Some((document.id.clone(), if is_same { member.cursor.taken } else { 0 }))
        };
        rollouts.core().documents().filter_map(of).collect()
    }
}

/// What became of a batch of inputs.
pub(crate) struct TakenInputs {
    pub(crate) answers: Vec<RolloutAnswer>,
    /// How far the facts of each batch are durable; `None` of a node that is not active.
    pub(crate) accepted: Vec<Option<Accepted>>,
}
