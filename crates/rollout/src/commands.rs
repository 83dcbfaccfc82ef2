//! What operators say to a rollout. Each takes effect at once on all that did not begin yet.

use model::NodeId;
use trust::rollout_terms::OnFailure;

use crate::begin::BeginWait;
use crate::id::RolloutKey;
use crate::live::LiveRollout;
use crate::nodes::NodeIndex;
use crate::record::{GateApproval, Halt, HaltCause, PausedRollout};
use crate::rollouts::Rollouts;
use crate::state::RolloutState;
use crate::step::{ApprovedGate, CommandRefusal, RolloutCommand, RolloutNote};

impl Rollouts {
    pub(crate) fn command(
        &mut self,
        key: &RolloutKey,
        by: &str,
        command: RolloutCommand,
    ) -> Result<(), CommandRefusal> {
        let state = self.rollouts.get(key).map(LiveRollout::state).ok_or(CommandRefusal::Unknown)?;
        let word = match command {
            RolloutCommand::Pause => {
                self.pause(key, by, state)?;
                "pause"
            }
            RolloutCommand::Resume => {
                self.resume(key, state)?;
                "resume"
            }
            RolloutCommand::Abort => {
                self.abort(key, by, state)?;
                "abort"
            }
            RolloutCommand::Approve(gate) => {
                self.approve(key, by, state, &gate)?;
                "approve"
            }
            RolloutCommand::Rollback => {
                self.roll_back(key, by, state)?;
                "rollback"
            }
            RolloutCommand::Skip(node) => {
                self.skip(key, by, &node)?;
                "skip"
            }
        };
        self.note(key, RolloutNote::Command { by: by.to_owned(), command: word });
        self.touched.insert(key.clone());
        Ok(())
    }

    fn pause(&mut self, key: &RolloutKey, by: &str, state: RolloutState) -> Result<(), CommandRefusal> {
        // One that is through opens no wave; what comes back late to it is taken along.
        if !state.is_running() {
            return Err(CommandRefusal::OtherState { state, wanted: "goes on" });
        }
        let now = self.now;
        if let Some(rollout) = self.rollouts.get_mut(key) {
            let paused = || PausedRollout { by: by.to_owned(), at: now };
            rollout.document.paused.get_or_insert_with(paused);
            rollout.is_changed = true;
        }
        self.withdraw(key);
        Ok(())
    }

    fn resume(&mut self, key: &RolloutKey, state: RolloutState) -> Result<(), CommandRefusal> {
        let wrong = CommandRefusal::OtherState { state, wanted: "is paused or halted" };
        let now = self.now;
        let Some(rollout) = self.rollouts.get_mut(key) else { return Err(CommandRefusal::Unknown) };
        if state != RolloutState::Failed {
            rollout.document.paused.take().ok_or(wrong)?;
            rollout.is_changed = true;
            return Ok(());
        }
        let halt = rollout.document.halt.as_ref().ok_or(wrong)?;
        if halt.goes_back || halt.cause.is_final() {
            return Err(CommandRefusal::StoppedForGood(halt.cause.clone()));
        }
        (rollout.document.halt, rollout.document.paused) = (None, None);
        rollout.enter(RolloutState::Active, now);
        if rollout.document.opened.len() == rollout.rules.waves() {
            rollout.enter(RolloutState::Converging, now);
        }
        let failed: Vec<NodeIndex> = rollout.failed.iter().flatten().copied().collect();
        for node in failed {
            self.update(key, node, |record| record.forgiven = true);
        }
        Ok(())
    }

    fn abort(&mut self, key: &RolloutKey, by: &str, state: RolloutState) -> Result<(), CommandRefusal> {
        let cause = HaltCause::Aborted { by: by.to_owned() };
        match state {
            RolloutState::Opening if self.current(&key.channel).is_some() => {
                // Nothing stops that was under way.
                let halt = Halt { at: self.now, cause, goes_back: false };
                if let Some(rollout) = self.rollouts.get_mut(key) {
                    rollout.document.halt = Some(halt);
                }
                self.supersede(key);
                Ok(())
            }
            // Nothing else says where the channel's nodes stay, and who comes to it has to be told as well.
            RolloutState::Opening => {
                self.halt(key, cause, OnFailure::Halt);
                self.populate(key);
                Ok(())
            }
            RolloutState::Active | RolloutState::Converging | RolloutState::Failed => {
                let halt = self.rollouts.get(key).and_then(|rollout| rollout.document.halt.clone());
                // What goes back already goes on with that.
                let goes_back = halt.is_some_and(|halt| halt.goes_back);
                let then = if goes_back { OnFailure::Rollback } else { OnFailure::Halt };
                self.halt(key, cause, then);
                Ok(())
            }
            _ => Err(CommandRefusal::OtherState { state, wanted: "waits, goes on or is halted" }),
        }
    }

    fn approve(
        &mut self,
        key: &RolloutKey,
        by: &str,
        state: RolloutState,
        gate: &ApprovedGate,
    ) -> Result<(), CommandRefusal> {
        let at = self.now;
        let rollout = self.rollouts.get(key).ok_or(CommandRefusal::Unknown)?;
        let newest = rollout.document.opened.len().checked_sub(1).map(|wave| rollout.rules.wave_name(wave));
        if let ApprovedGate::Of(asked) = gate
            && newest != Some(asked.as_str())
        {
            return Err(CommandRefusal::OtherWave {
                asked: asked.clone(),
                newest: newest.map(str::to_owned),
            });
        }
        // Kept, it would let the rollout begin after a halt that nobody knew of then.
        if state == RolloutState::Opening
            && let Some(wait) = self.waits_to_begin(key).filter(|wait| !matches!(wait, BeginWait::Halted(_)))
        {
            return Err(CommandRefusal::NotLifted(wait));
        }
        let Some(rollout) = self.rollouts.get_mut(key) else { return Err(CommandRefusal::Unknown) };
        let wave = match state {
            RolloutState::Opening => None,
            RolloutState::Active | RolloutState::Converging => {
                let newest = rollout.document.opened.len().checked_sub(1);
                let none_open = CommandRefusal::OtherState { state, wanted: "has an open wave" };
                let newest = newest.ok_or(none_open)?;
                Some(u16::try_from(newest).unwrap_or(u16::MAX))
            }
            _ => return Err(CommandRefusal::OtherState { state, wanted: "waits for a gate or to begin" }),
        };
        if wave.is_none() {
            // One after an earlier halt counts no more.
            rollout.document.approvals.retain(|approval| approval.wave.is_some());
        }
        if !rollout.document.approvals.iter().any(|approval| approval.wave == wave) {
            rollout.document.approvals.push(GateApproval { wave, by: by.to_owned(), at });
            rollout.is_changed = true;
        }
        Ok(())
    }

    fn roll_back(&mut self, key: &RolloutKey, by: &str, state: RolloutState) -> Result<(), CommandRefusal> {
        let Some(rollout) = self.rollouts.get(key) else { return Err(CommandRefusal::Unknown) };
        if rollout.document.is_through() {
            return Err(CommandRefusal::Through);
        }
        if !state.starts_nodes() && state != RolloutState::Failed {
            return Err(CommandRefusal::OtherState { state, wanted: "began" });
        }
        if rollout.rules.terms().on_failure != OnFailure::Rollback {
            return Err(CommandRefusal::NoRollback);
        }
        if !rollout.has_where_to_go_back() {
            return Err(CommandRefusal::NoEarlierRelease);
        }
        self.halt(key, HaltCause::RolledBack { by: by.to_owned() }, OnFailure::Rollback);
        Ok(())
    }

    fn skip(&mut self, key: &RolloutKey, by: &str, node: &NodeId) -> Result<(), CommandRefusal> {
        let unknown = || CommandRefusal::UnknownNode(node.clone());
        let index = self.nodes.find(node).ok_or_else(unknown)?;
        let rollout = self.rollouts.get(key).ok_or_else(unknown)?;
        let record = rollout.record(index).ok_or_else(unknown)?;
        // One that was superseded holds the slot of whoever is on its way in it.
        if rollout.state().gave_way() && !record.in_flight() && !record.is_on_its_way() {
            let hostname = record.hostname.clone();
            return Err(CommandRefusal::OverForNode { state: rollout.state(), hostname });
        }
        self.update(key, index, |record| {
            record.skipped = Some(by.to_owned());
            record.asked = None;
        });
        Ok(())
    }
}
