//! How rollouts go on: what is due, gates, halts, waves, and who is asked next.

use std::collections::BTreeSet;

use model::Timestamp;

use crate::ending::RETENTION;
use crate::id::RolloutKey;
use crate::live::LiveRollout;
use crate::member::{MemberFailure, MemberGoal};
use crate::nodes::NodeIndex;
use crate::record::{Halt, HaltCause};
use crate::rollouts::{MAX_STARTS, Rollouts};
use crate::state::{NodeRolloutState, RolloutState};
use crate::step::{OpenReason, RolloutNote};
use trust::rollout_terms::OnFailure;

/// The most looks at rollouts in one step: each changes something, and there is an end to what may change.
const MAX_LOOKS: usize = 10_000;

/// What keeps the next wave closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WaveWait {
    NotBefore(Timestamp),
    Gate,
}

impl Rollouts {
    /// What members waited for is over.
    pub(crate) fn due(&mut self) {
        let now = self.now;
        let mut due: Vec<(RolloutKey, NodeIndex)> = Vec::new();
        for (key, rollout) in &self.rollouts {
            let over = rollout.timers.iter().take_while(|(at, _)| *at <= now);
            due.extend(over.map(|(_, node)| (key.clone(), *node)));
            let may_open = rollout.state().starts_nodes()
                && rollout.document.opened.len() < rollout.rules.waves()
                && self.wave_wait(rollout).is_none();
            if may_open || self.waits_until(rollout).is_some_and(|at| at <= now) {
                self.touched.insert(key.clone());
            }
        }
        for (key, node) in due {
            self.member_due(&key, node);
        }
    }

    fn member_due(&mut self, key: &RolloutKey, node: NodeIndex) {
        let now = self.now;
        let may_answer = self.nodes.get(node).is_some_and(|known| known.reach.may_be_asked());
        let mut silent = None;
        self.update(key, node, |record| {
            let is_due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
            if is_due(record.asked.map(|asked| asked.until)) {
                match may_answer {
                    true => record.put_off(MemberFailure::Unanswered, now),
                    false => record.asked = None,
                }
            }
            if is_due(record.deadline) {
                let was = record.state;
                record.fail(MemberFailure::Silent { was }, now);
                silent = Some(record.hostname.clone());
            }
            if is_due(record.slot_until) {
                (record.slot_until, record.slot_left) = (None, true);
            }
            if is_due(record.retry_at) {
                record.retry_at = None;
            }
            if is_due(record.placement.pinned) {
                record.placement.pinned = None;
            }
        });
        if let Some(hostname) = silent {
            self.note(key, RolloutNote::Silent { hostname });
        }
    }

    /// Looks at what was touched until nothing changes any more. Nodes are asked only when all else is
    /// decided, so by the limits of budgets that are stored with it.
    pub(crate) fn settle(&mut self) {
        let mut ready: BTreeSet<RolloutKey> = BTreeSet::new();
        for _ in 0..MAX_LOOKS {
            if let Some(key) = self.touched.pop_first() {
                self.advance(&key);
                ready.insert(key);
            } else if let Some(key) = ready.pop_first() {
                self.start(&key);
            } else {
                return;
            }
        }
    }

    fn advance(&mut self, key: &RolloutKey) {
        let Some(state) = self.rollouts.get(key).map(LiveRollout::state) else { return };
        match state {
            RolloutState::Opening => {
                if self.waits_to_begin(key).is_none() {
                    self.begin(key);
                    self.touched.insert(key.clone());
                }
            }
            RolloutState::Active | RolloutState::Converging | RolloutState::Terminal => {
                if !self.halt_if_broken(key) {
                    self.open_waves(key);
                }
            }
            RolloutState::Failed => self.end_return(key),
            RolloutState::Superseded => {
                let over = |rollout: &LiveRollout| rollout.document.since.plus(RETENTION) <= self.now;
                if self.rollouts.get(key).is_some_and(over) {
                    self.prune(key);
                }
            }
            RolloutState::Reverted | RolloutState::Pruned => {}
        }
    }

    fn halt_if_broken(&mut self, key: &RolloutKey) -> bool {
        let Some(rollout) = self.rollouts.get(key) else { return false };
        let on_failure = rollout.rules.terms().on_failure;
        let Some(cause) = rollout.broken_gate() else { return false };
        self.halt(key, cause, on_failure);
        true
    }

    /// A rollout starts nothing any more. What was asked and did not begin is not asked any more; where it
    /// goes back, what began is to be on the release that it had. A channel's first release goes nowhere back.
    pub(crate) fn halt(&mut self, key: &RolloutKey, cause: HaltCause, then: OnFailure) {
        let now = self.now;
        let Some(rollout) = self.rollouts.get_mut(key) else { return };
        let goes_back = then == OnFailure::Rollback && rollout.has_where_to_go_back();
        if rollout.state() != RolloutState::Failed {
            rollout.enter(RolloutState::Failed, now);
        }
        rollout.document.halt = Some(Halt { at: now, cause: cause.clone(), goes_back });
        rollout.is_changed = true;
        self.note(key, RolloutNote::Halted(cause));
        self.withdraw(key);
        if goes_back {
            self.turn_back(key);
        }
        self.touched.insert(key.clone());
        self.touch_waiting();
    }

    /// What began is to go back. Once the rollout was through that is what is on its way still: who is confirmed gave up
    /// the release of before, and would be waited for in vain.
    fn turn_back(&mut self, key: &RolloutKey) {
        let Some(rollout) = self.rollouts.get(key) else { return };
        let is_through = rollout.document.is_through();
        let began = rollout.members.iter().filter(|(_, member)| {
            let record = &member.record;
            let stays = match record.state {
                NodeRolloutState::Pending | NodeRolloutState::Reverted => true,
                NodeRolloutState::Converged => is_through,
                _ => false,
            };
            !record.has_no_earlier_release() && !stays && record.goal == MemberGoal::Target
        });
        let began: Vec<NodeIndex> = began.map(|(node, _)| *node).collect();
        for node in began {
            self.update(key, node, |record| record.goal = MemberGoal::Before);
        }
    }

    /// What was asked and did not begin is not asked any more.
    pub(crate) fn withdraw(&mut self, key: &RolloutKey) {
        let asked = self.rollouts.get(key).map(|rollout| rollout.asked.clone()).unwrap_or_default();
        for node in asked {
            self.update(key, node, |record| record.asked = None);
        }
    }

    fn end_return(&mut self, key: &RolloutKey) {
        let now = self.now;
        let Some(rollout) = self.rollouts.get_mut(key) else { return };
        let goes_back = rollout.document.halt.as_ref().is_some_and(|halt| halt.goes_back);
        if goes_back && rollout.to_return == 0 {
            rollout.enter(RolloutState::Reverted, now);
            self.note(key, RolloutNote::Entered(RolloutState::Reverted));
            self.touch_waiting();
        }
    }

    /// What keeps the wave after the newest open one closed, or the rollout from its end.
    pub(crate) fn wave_wait(&self, rollout: &LiveRollout) -> Option<WaveWait> {
        let open = rollout.document.opened.len();
        if let Some(newest) = open.checked_sub(1) {
            let gate = rollout.rules.gate(newest);
            let count = rollout.waves.get(newest).copied().unwrap_or_default();
            let passed = count.is_settled() && count.failed <= count.allowed(gate.success);
            if !passed && !is_approved(rollout, newest) {
                return Some(WaveWait::Gate);
            }
        }
        let not_before = rollout.rules.not_before(open).filter(|_| open < rollout.rules.waves());
        not_before.filter(|at| *at > self.now).map(WaveWait::NotBefore)
    }

    fn open_waves(&mut self, key: &RolloutKey) {
        while let Some(rollout) = self.rollouts.get(key) {
            let (open, waves) = (rollout.document.opened.len(), rollout.rules.waves());
            let is_paused = rollout.document.paused.is_some();
            if is_paused || self.wave_wait(rollout).is_some() {
                return;
            }
            if open == waves {
                self.reach_end(key);
                return;
            }
            self.open_wave(key, open);
        }
    }

    fn open_wave(&mut self, key: &RolloutKey, wave: usize) {
        let now = self.now;
        let Some(rollout) = self.rollouts.get_mut(key) else { return };
        let reason = match wave.checked_sub(1) {
            None => OpenReason::First,
            Some(before) => open_reason(rollout, before),
        };
        rollout.document.opened.push(now);
        rollout.is_changed = true;
        let name = rollout.rules.wave_name(wave).to_owned();
        let is_last = wave + 1 == rollout.rules.waves();
        if is_last && rollout.state() == RolloutState::Active {
            rollout.enter(RolloutState::Converging, now);
        }
        let members = rollout.in_wave.get(wave).cloned().unwrap_or_default();
        for node in members {
            self.refresh(key, node);
        }
        self.note(key, RolloutNote::WaveOpened { wave: name, reason });
    }

    fn reach_end(&mut self, key: &RolloutKey) {
        let now = self.now;
        let Some(rollout) = self.rollouts.get_mut(key) else { return };
        if rollout.state() == RolloutState::Active {
            rollout.enter(RolloutState::Converging, now);
        }
        if rollout.state() == RolloutState::Converging {
            rollout.enter(RolloutState::Terminal, now);
            self.note(key, RolloutNote::Entered(RolloutState::Terminal));
        }
        self.touch_waiting();
    }

    /// Asks as many members as budgets and edges allow.
    fn start(&mut self, key: &RolloutKey) {
        while let Some(rollout) = self.rollouts.get(key) {
            if rollout.queues.is_empty() || self.held_back(rollout) || self.starts >= MAX_STARTS {
                return;
            }
            let Some(node) = self.next_of(rollout) else { return };
            self.ask(key, node);
        }
    }

    /// Whom a rollout would ask next: forward while it goes on, back once it is halted.
    fn next_of(&self, rollout: &LiveRollout) -> Option<NodeIndex> {
        let goal = if rollout.state().starts_nodes() { MemberGoal::Target } else { MemberGoal::Before };
        rollout.queues.next(goal, &self.book, rollout.holding_edges())
    }

    /// Whether a rollout asks nobody now.
    pub(crate) fn held_back(&self, rollout: &LiveRollout) -> bool {
        let goes_back = rollout.document.halt.as_ref().is_some_and(|halt| halt.goes_back);
        match rollout.state() {
            RolloutState::Failed | RolloutState::Reverted => !goes_back,
            state if state.starts_nodes() => {
                rollout.document.paused.is_some() || rollout.rules.frozen(self.now).is_some()
            }
            _ => true,
        }
    }

    fn ask(&mut self, key: &RolloutKey, node: NodeIndex) {
        self.starts += 1;
        let now = self.now;
        self.guard_other_holds(key, node);
        let mut note = None;
        self.update(key, node, |record| {
            record.ask(now);
            let release = (record.goal == MemberGoal::Target).then_some(key.seq);
            note = Some(RolloutNote::Asked { hostname: record.hostname.clone(), release });
        });
        if let Some(note) = note {
            self.note(key, note);
        }
    }

    /// A node that is on its way in another rollout may be asked because it holds its slots already. That is a
    /// ground of the decision, so it holds only with the version of that rollout.
    fn guard_other_holds(&mut self, key: &RolloutKey, node: NodeIndex) {
        let rollouts = self.nodes.get(node).map(|known| known.rollouts.as_slice()).unwrap_or_default();
        for other in rollouts.iter().filter(|other| *other != key) {
            if let Some(rollout) = self.rollouts.get_mut(other)
                && rollout.record(node).is_some_and(|record| record.in_flight())
            {
                rollout.is_changed = true;
            }
        }
    }

    /// When time alone makes a rollout go on.
    pub(crate) fn waits_until(&self, rollout: &LiveRollout) -> Option<Timestamp> {
        match rollout.state() {
            RolloutState::Superseded => {
                return Some(rollout.document.since.plus(RETENTION))
                    .filter(|_| self.has_more_than_is_kept(rollout));
            }
            RolloutState::Opening => {
                return Some(self.now).filter(|_| self.waits_to_begin(rollout.key()).is_none());
            }
            _ => {}
        }
        let is_running = rollout.state().starts_nodes() && rollout.document.paused.is_none();
        let opens = match self.wave_wait(rollout) {
            Some(WaveWait::NotBefore(at)) if is_running => Some(at),
            _ => None,
        };
        if rollout.queues.is_empty() {
            return opens;
        }
        let thaws = rollout.rules.frozen(self.now).filter(|_| is_running).map(|(_, window)| {
            window.opened(self.now).map_or(self.now, |at| at.plus(window.length())).max(self.now.plus(MINUTE))
        });
        let goes_on = !self.held_back(rollout) && self.next_of(rollout).is_some();
        [opens, thaws, goes_on.then_some(self.now)].into_iter().flatten().min()
    }
}

/// A freeze window is looked at again after a minute at the earliest.
const MINUTE: std::time::Duration = std::time::Duration::from_secs(60);

fn is_approved(rollout: &LiveRollout, wave: usize) -> bool {
    rollout.document.approvals.iter().any(|approval| approval.wave.map(usize::from) == Some(wave))
}

fn open_reason(rollout: &LiveRollout, before: usize) -> OpenReason {
    let count = rollout.waves.get(before).copied().unwrap_or_default();
    let gate = rollout.rules.gate(before);
    if count.is_settled() && count.failed <= count.allowed(gate.success) {
        return OpenReason::GatePassed {
            converged: count.converged,
            failed: count.failed,
            apart: count.apart,
        };
    }
    let mut approvals = rollout.document.approvals.iter();
    let by = approvals.find(|approval| approval.wave.map(usize::from) == Some(before));
    OpenReason::Approved { by: by.map(|approval| approval.by.clone()).unwrap_or_default() }
}
