//! What the owner of rollouts does by itself: takes in what waits, in batches, and lets time go by.

use std::sync::Arc;
use std::time::Duration;

use model::NodeId;
use net::accept::stopped;
use plane::ContactNews;
use rollout::{EventAnswer, RolloutAnswer, RolloutInput};
use store::FactBatch;
use tokio::sync::watch;
use wire::{Code, Problem};

use super::{EventsJob, EventsTaken, follow};
use crate::releases;
use crate::state::{ControlPlane, now};

/// The most batches of events that share a transaction.
const MAX_GROUP: usize = 256;
/// The most nodes whose contact is taken in at once.
const MAX_CONTACTS: usize = 5_000;
/// Time goes by for the rollouts at least so often: well within [`rollout::STEP_GAP`].
const TICK_EVERY: Duration = Duration::from_secs(30);
/// The shortest time until they are asked again what is due.
const TICK_AFTER: Duration = Duration::from_millis(20);
/// After so long it is tried again to make durable what waits.
const RETRY: Duration = Duration::from_secs(1);

/// Runs until the control plane stops.
pub(crate) async fn run(plane: Arc<ControlPlane>, mut shutdown: watch::Receiver<bool>) {
    let owner = &plane.rollouts;
    let received = owner.received.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    let Some(mut received) = received else { return };
    loop {
        let wait = next_tick(&plane).await;
        let mut jobs = Vec::new();
        tokio::select! {
            biased;
            () = stopped(&mut shutdown) => return,
            job = received.recv() => jobs.extend(job),
            () = owner.wake.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
        while jobs.len() < MAX_GROUP
            && let Ok(job) = received.try_recv()
        {
            jobs.push(job);
        }
        take_events(&plane, jobs).await;
        if let Err(problem) = take_rest(&plane).await {
            tracing::warn!(%problem, "rollouts do not go on");
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// How long nothing is due.
async fn next_tick(plane: &ControlPlane) -> Duration {
    let rollouts = plane.rollouts.rollouts.lock().await;
    let due = rollouts.core().next_deadline();
    due.map_or(TICK_EVERY, |at| at.since(now()).clamp(TICK_AFTER, TICK_EVERY))
}

/// Takes the events of many nodes in, in one transaction with their facts, and tells who waits for it.
async fn take_events(plane: &ControlPlane, jobs: Vec<EventsJob>) {
    if jobs.is_empty() {
        return;
    }
    let (mut inputs, mut facts, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
    // What waits has given its room back once it is durable.
    let mut rooms = Vec::with_capacity(jobs.len());
    for EventsJob { heard, _room: room, reply } in jobs {
        rooms.push(room);
        let (events, has_facts) = (heard.events.len(), !heard.facts.is_empty());
        inputs.extend(heard.events.into_iter().map(RolloutInput::Event));
        if has_facts {
            facts.push(FactBatch { node: heard.node, incarnation: heard.incarnation, facts: heard.facts });
        }
        waiting.push((events, has_facts, reply));
    }
    let mut rollouts = plane.rollouts.rollouts.lock().await;
    let taken = match rollouts.may_ask() {
        Ok(()) => rollouts.take(plane, &plane.store, inputs, facts).await,
        Err(problem) => Err(problem),
    };
    drop(rollouts);
    match taken {
        Ok(taken) => {
            let (mut answers, mut accepted) = (taken.answers.into_iter(), taken.accepted.into_iter());
            for (events, has_facts, reply) in waiting {
                let answers = answers.by_ref().take(events).filter_map(event_answer).collect();
                let accepted = if has_facts { accepted.next() } else { None };
                let told = match accepted {
                    // The node was removed meanwhile.
                    Some(None) => Err(Problem::from(Code::UnknownNode)),
                    Some(Some(accepted)) => Ok(EventsTaken { accepted: Some(accepted), answers }),
                    None => Ok(EventsTaken { accepted: None, answers }),
                };
                // Who hung up hears of it with the next request.
                let _ = reply.send(told);
            }
        }
        Err(problem) => {
            for (_, _, reply) in waiting {
                let _ = reply.send(Err(problem.clone()));
            }
        }
    }
}

fn event_answer(answer: RolloutAnswer) -> Option<EventAnswer> {
    match answer {
        RolloutAnswer::Event(answer) => Some(answer),
        _ => None,
    }
}

/// Takes in who is reached and who came or went, and what is due.
async fn take_rest(plane: &Arc<ControlPlane>) -> Result<(), Problem> {
    let (contacts, members) = {
        let mut inbox = plane.rollouts.inbox();
        let some: Vec<NodeId> = inbox.contacts.keys().take(MAX_CONTACTS).cloned().collect();
        let contacts: Vec<_> = some.iter().filter_map(|node| inbox.contacts.remove_entry(node)).collect();
        (contacts, std::mem::take(&mut inbox.members))
    };
    let mut rollouts = plane.rollouts.rollouts.lock().await;
    if contacts.is_empty() && members.is_empty() && rollouts.is_empty() {
        return Ok(());
    }
    let keeps = (contacts.clone(), members.clone());
    let taken = async {
        rollouts.may_ask()?;
        rollouts.load(plane).await?;
        let of = |(node, news): (NodeId, ContactNews)| RolloutInput::Contact {
            node,
            contact: news.contact,
            next_call: news.next_call,
        };
        let mut inputs: Vec<_> = contacts.into_iter().map(of).collect();
        inputs.extend(follow::came_or_went(plane, rollouts.core(), members).await?);
        inputs.extend(follow::replaced(rollouts.core(), &plane.heads()));
        inputs.push(RolloutInput::Tick);
        rollouts.take(plane, &plane.store, inputs, Vec::new()).await
    };
    let taken = taken.await;
    let lacks_release = rollouts.take_lacks_release();
    drop(rollouts);
    if let Err(problem) = taken {
        let mut inbox = plane.rollouts.inbox();
        for (node, contact) in keeps.0 {
            inbox.contacts.entry(node).or_insert(contact);
        }
        inbox.members.extend(keeps.1);
        return Err(problem);
    }
    if !plane.rollouts.inbox().contacts.is_empty() {
        plane.rollouts.wake.notify_one();
    }
    if lacks_release { releases::load(plane).await } else { Ok(()) }
}
