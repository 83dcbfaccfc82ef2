//! [`DurableRollouts`]: the core, and what makes its decisions durable before they count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use model::NodeId;
use model::status::contact_of;
use plane::PointerChange;
use rollout::{
    EventAnswer, RolloutAnswer, RolloutCommit, RolloutEffect, RolloutInput, RolloutKey, RolloutNote,
    RolloutState, Rollouts, StoredRollout,
};
use store::{CommitRolloutsError, FactBatch, KeptRollout, RolloutWrite, Store, StoredMembers};
use streams::LinkCommand;
use sync::Frame;
use trust::RolloutTerms;
use wire::{Code, Problem};

use super::TakenInputs;
use super::unstored::UnstoredRollouts;
use crate::answer::store_problem;
use crate::state::{ControlPlane, now};

/// How often inputs are handed in again because others are stored than those that they were judged by.
const JUDGED_AGAIN: usize = 8;

/// All rollouts, as they are stored.
#[derive(Default)]
pub(crate) struct DurableRollouts {
    core: Rollouts,
    /// How each rollout stood when its members were pointed last.
    states: BTreeMap<RolloutKey, RolloutState>,
    /// They were read from the store; memory is ahead of it in those that are unstored alone.
    is_loaded: bool,
    unstored: UnstoredRollouts,
    /// A member is pointed to a release that the heads do not have.
    lacks_release: bool,
}

impl DurableRollouts {
    /// The rollouts; what they say is durable once they were [loaded](DurableRollouts::load).
    pub(crate) fn core(&self) -> &Rollouts {
        &self.core
    }

    /// There is none that anything could follow of.
    pub(super) fn is_empty(&self) -> bool {
        self.core.documents().next().is_none()
    }

    /// Whether since this was asked last a member was pointed to a release that the heads do not have.
    pub(super) fn take_lacks_release(&mut self) -> bool {
        std::mem::take(&mut self.lacks_release)
    }

    /// For a while after a failed commit the store is asked for nothing that comes by itself: events, contacts and time.
    ///
    /// # Errors
    /// [`Code::StoreUnavailable`] while that lasts.
    pub(super) fn may_ask(&self) -> Result<(), Problem> {
        match self.unstored.waits(Instant::now()) {
            true => Err(Code::StoreUnavailable.into()),
            false => Ok(()),
        }
    }

    /// Reads all rollouts where they were not read, and those in which memory is ahead of what is stored.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn load(&mut self, plane: &ControlPlane) -> Result<(), Problem> {
        if !self.is_loaded {
            let gone = self.core.documents().map(|document| document.key.clone()).collect();
            self.read(plane, StoredMembers::OfLive, gone).await?;
            self.is_loaded = true;
            self.unstored.read();
            return Ok(());
        }
        let unstored = self.unstored.keys();
        if !unstored.is_empty() {
            let read = self.read(plane, StoredMembers::Of(unstored.clone()), unstored).await;
            read.inspect_err(|_| self.unstored.failed(&[], Instant::now()))?;
            self.unstored.read();
        }
        Ok(())
    }

    /// Takes inputs in, one after the other, and makes what they decide durable in one transaction with the facts that
    /// they came in; then points the nodes. Not to be cancelled.
    ///
    /// # Errors
    /// The store's; then nothing of it counts.
    pub(crate) async fn take(
        &mut self,
        plane: &ControlPlane,
        store: &Store,
        inputs: Vec<RolloutInput>,
        facts: Vec<FactBatch>,
    ) -> Result<TakenInputs, Problem> {
        for _ in 0..JUDGED_AGAIN {
            self.load(plane).await?;
            let steps: Vec<_> = inputs.iter().map(|input| self.core.handle(input.clone(), now())).collect();
            let (mut commits, mut answers, mut effects) = (Vec::new(), Vec::new(), Vec::new());
            for step in steps {
                commits.extend(step.commit);
                answers.push(step.answer);
                effects.extend(step.effects);
            }
            if commits.is_empty() && facts.is_empty() {
                self.count(plane, &answers, &effects);
                return Ok(TakenInputs { answers, accepted: Vec::new() });
            }
            let write = RolloutWrite { facts: facts.clone(), commits: commits.clone() };
            match store.commit_rollouts(write, now()).await {
                Ok(accepted) => {
                    self.unstored.stored();
                    self.count(plane, &answers, &effects);
                    self.point_members(plane, &commits, &effects);
                    return Ok(TakenInputs { answers, accepted });
                }
                Err(CommitRolloutsError::Outdated) => self.is_loaded = false,
                Err(CommitRolloutsError::Store(error)) => {
                    if !commits.is_empty() {
                        self.unstored.failed(&commits, Instant::now());
                    }
                    return Err(store_problem(error));
                }
            }
        }
        Err(Code::Busy.into())
    }

    /// Puts what is stored in the place of what is held, and points the nodes by it.
    async fn read(
        &mut self,
        plane: &ControlPlane,
        which: StoredMembers,
        gone: Vec<RolloutKey>,
    ) -> Result<(), Problem> {
        let (kept, budgets) = plane.store.rollouts(which).await.map_err(store_problem)?;
        let mut stored = Vec::with_capacity(kept.len());
        for KeptRollout { document, members } in kept {
            match terms(plane, &document.key).await? {
                Some(terms) => stored.push(StoredRollout { document, terms, members }),
                // Pruning keeps the release while the rollout is.
                None => {
                    tracing::error!(rollout = %document.key, "a rollout's release is not stored, so it is left out")
                }
            }
        }
        let of_gone = gone.iter().flat_map(|key| self.core.members(key)).map(|record| record.node.clone());
        let mut affected: BTreeSet<NodeId> = of_gone.collect();
        affected.extend(stored.iter().flat_map(|rollout| &rollout.members).map(|record| record.node.clone()));
        self.core.reload(stored, &gone, budgets);
        self.states = self.core.documents().map(|document| (document.key.clone(), document.state)).collect();
        self.point(plane, affected);
        Ok(())
    }

    /// Points those nodes anew of which something was stored: changed members, and all of a rollout that stands
    /// otherwise than before; and those that the rollouts name, as they may be members of none any more. Of these only the
    /// ones that are asked for something else are woken ([`PointerChange::Wakes`]): what halts or ends wakes nobody whom
    /// that leaves as he is.
    fn point_members(&mut self, plane: &ControlPlane, commits: &[RolloutCommit], effects: &[RolloutEffect]) {
        let woken = effects.iter().filter_map(|effect| match effect {
            RolloutEffect::Wake(node) => Some(node.clone()),
            RolloutEffect::Note { .. } => None,
        });
        let mut affected: BTreeSet<NodeId> = woken.collect();
        for change in commits.iter().flat_map(|commit| &commit.rollouts) {
            affected.extend(change.members.iter().map(|member| member.node.clone()));
            affected.extend(change.removed.iter().cloned());
            let (key, state) = (&change.document.key, change.document.state);
            if self.states.insert(key.clone(), state) != Some(state) {
                affected.extend(self.core.members(key).map(|member| member.node.clone()));
            }
            if state == RolloutState::Pruned {
                self.states.remove(key);
            }
        }
        self.point(plane, affected);
    }

    /// Puts into the entries of nodes where the rollouts point them, and answers the polls of those that are pointed
    /// otherwise.
    fn point(&mut self, plane: &ControlPlane, nodes: BTreeSet<NodeId>) {
        let heads = plane.heads();
        for node in nodes {
            let Some(slot) = plane.index.get(&node) else { continue };
            let pointer = self.core.pointer(&node);
            let release = pointer.as_ref().and_then(|pointer| {
                Some(RolloutKey { channel: pointer.rollout.channel.clone(), seq: pointer.release? })
            });
            let is_lacking = release.is_some_and(|key| heads.release(&key).is_none());
            let (change, contact) = {
                let mut entry = slot.lock();
                let change = entry.node.set_rollout(pointer);
                // Once for each pointer: a node may say that it is back on a release that was never stored here.
                self.lacks_release |= is_lacking && change != PointerChange::Same;
                if change != PointerChange::Same {
                    plane.index.mark_entry(&slot, &mut entry);
                }
                let contact = contact_of(entry.node.silent_since(), entry.node.promised, now());
                (change, entry.node.contact_untold(contact))
            };
            if let Some(contact) = contact {
                plane.rollouts.contact(&node, contact);
            }
            if change == PointerChange::Wakes {
                slot.wake.notify_waiters();
                if let Some(link) = plane.hub.sync_index().link(&node) {
                    link.commands.try_send(LinkCommand::Send(Box::new(Frame::StateUpdated)));
                }
            }
        }
    }

    /// Counts what became of events, and says what was decided.
    fn count(&self, plane: &ControlPlane, answers: &[RolloutAnswer], effects: &[RolloutEffect]) {
        for answer in answers {
            if let RolloutAnswer::Event(answer) = answer {
                plane.metrics.rollout_event(event_word(answer));
            }
        }
        for effect in effects {
            if let RolloutEffect::Note { rollout, note } = effect {
                match note {
                    RolloutNote::Halted(cause) => {
                        plane.metrics.rollout_halted();
                        tracing::error!(%rollout, %cause, "a rollout starts nothing any more");
                    }
                    RolloutNote::Asked { .. } => tracing::debug!(%rollout, %note, "a rollout goes on"),
                    RolloutNote::Silent { .. } | RolloutNote::EventsLost { .. } => {
                        tracing::warn!(%rollout, %note, "a node of a rollout")
                    }
                    _ => tracing::info!(%rollout, %note, "a rollout goes on"),
                }
            }
        }
    }
}

/// What became of an event, as metrics name it.
pub(super) fn event_word(answer: &EventAnswer) -> &'static str {
    match answer {
        EventAnswer::Accepted => "taken",
        EventAnswer::Duplicate => "duplicate",
        EventAnswer::Refused(_) => "refused",
        EventAnswer::ReplayFrom(_) => "replayed",
        EventAnswer::UnknownRollout => "unknown-rollout",
        EventAnswer::UnknownNode => "unknown-node",
    }
}

/// The terms of a rollout, from the header of its release, which was verified when it was committed.
async fn terms(plane: &ControlPlane, key: &RolloutKey) -> Result<Option<Arc<RolloutTerms>>, Problem> {
    let release = plane.store.release(key.seq).await.map_err(store_problem)?;
    let Some(header) = release.as_ref().and_then(|release| release.headers.get(&key.channel)) else {
        return Ok(None);
    };
    Ok(crate::releases::committed(plane, header)?.rollout)
}
