//! The world heals: everything becomes well, and every node must come to the newest release.

use std::time::Duration;

use model::Channel;
use rollout::{
    ApprovedGate, BeginWait, MemberFailure, NodeRolloutState, RETENTION, RolloutCommand, RolloutInput,
    RolloutKey, RolloutState, WaitCause,
};

use super::World;
use crate::model::node::SimNode;

impl World {
    /// Everything becomes well; every node must come to the newest release.
    pub fn heal(&mut self) {
        self.is_healing = true;
        self.behind = Duration::ZERO;
        while let Some(liar) = self.nodes.iter().position(|node| node.lies) {
            self.remove(liar);
        }
        for node in &mut self.nodes {
            (node.online, node.is_paused) = (true, false);
            if let Some(host) = &mut node.host {
                host.heal();
            }
        }
        for channel in self.channels.clone() {
            self.publish(&channel);
        }
        let mut decided = 0;
        for _ in 0..2000 {
            // Where nothing happens, time goes by faster.
            let wait = if self.decisions == decided { 500 } else { 100 };
            decided = self.decisions;
            self.now = self.now.plus(Duration::from_secs(wait));
            self.tick();
            if self.at_rest() {
                self.rebuilt_is_held();
                return self.what_gave_way_is_pruned();
            }
            self.help();
        }
        let stuck: Vec<String> = self
            .nodes
            .iter()
            .filter(|node| !self.is_there(node))
            .filter_map(|node| self.planes[0].rollouts.explain(&node.id))
            .map(|explanation| explanation.to_string())
            .collect();
        let states: Vec<String> = self.planes[0]
            .rollouts
            .documents()
            .map(|document| format!("{} {} {:?}", document.key, document.state, document.opened.len()))
            .collect();
        let is_over = |state| matches!(state, RolloutState::Terminal | RolloutState::Superseded);
        let under_way = self.planes[0].rollouts.documents().filter(|document| !is_over(document.state));
        let members: Vec<String> = under_way
            .flat_map(|document| self.planes[0].rollouts.members(&document.key))
            .map(|member| format!("{member:?}"))
            .collect();
        panic!("stranded:\n  {}\n  {}\n  {}", stuck.join("\n  "), states.join("\n  "), members.join("\n  "));
    }

    /// Of what gave way the documents alone are kept in the end: nobody is on its way in it any more.
    fn what_gave_way_is_pruned(&mut self) {
        self.now = self.now.plus(RETENTION);
        self.planes[0].follow(&self.database);
        self.give(0, RolloutInput::Tick);
        let mut left = self.database.rollouts.values().map(|rows| &rows.document);
        let left = left.find(|document| document.state == RolloutState::Superseded);
        assert!(left.is_none(), "{left:?} is kept for ever");
    }

    /// What operators do about what asks for them.
    fn help(&mut self) {
        let documents: Vec<_> = self.planes[0].rollouts.documents().cloned().collect();
        for document in documents {
            if document.paused.is_some() && document.state.starts_nodes() {
                let (rollout, by) = (document.key.clone(), "ada".to_owned());
                self.give(0, RolloutInput::Command { rollout, by, command: RolloutCommand::Resume });
            }
        }
        self.take_out_who_is_silent();
        // A channel without nodes asks for it as well.
        for channel in self.channels.clone() {
            let (rollout, by) = (RolloutKey { seq: self.newest[&channel], channel }, "ada".to_owned());
            if let Some(BeginWait::Halted(_)) = self.planes[0].rollouts.waits_to_begin(&rollout) {
                self.give(
                    0,
                    RolloutInput::Command {
                        rollout,
                        by,
                        command: RolloutCommand::Approve(ApprovedGate::Newest),
                    },
                );
            }
        }
        for node in 0..self.nodes.len() {
            let Some(why) = self.planes[0].rollouts.explain(&self.nodes[node].id) else { continue };
            let (rollout, by) = (
                RolloutKey { seq: self.newest[&why.rollout.channel], ..why.rollout.clone() },
                "ada".to_owned(),
            );
            let halted = matches!(why.rollout_state, RolloutState::Failed | RolloutState::Reverted);
            if halted || matches!(why.cause, Some(WaitCause::EarlierHalted(_))) {
                self.give(
                    0,
                    RolloutInput::Command {
                        rollout,
                        by,
                        command: RolloutCommand::Approve(ApprovedGate::Newest),
                    },
                );
            }
        }
    }

    /// What an operator has to do about real hosts in rollouts that are not the newest: one that said that it converged just
    /// when the control plane's clock was set back says it no more.
    fn take_out_who_is_silent(&mut self) {
        if self.nodes.iter().all(|node| node.host.is_none()) {
            return;
        }
        let rollouts = &self.planes[0].rollouts;
        let older =
            rollouts.documents().filter(|document| document.key.seq < self.newest[&document.key.channel]);
        let members =
            older.flat_map(|document| rollouts.members(&document.key).map(|member| (&document.key, member)));
        let stuck = members.filter(|(_, member)| {
            member.in_flight() && matches!(member.failure, Some(MemberFailure::Silent { .. }))
        });
        let stuck: Vec<_> = stuck.map(|(key, member)| (key.clone(), member.node.clone())).collect();
        for (rollout, node) in stuck {
            let (by, command) = ("ada".to_owned(), RolloutCommand::Skip(node));
            self.give(0, RolloutInput::Command { rollout, by, command });
        }
    }

    fn is_there(&self, node: &SimNode) -> bool {
        let newest = self.newest[&node.channel];
        let explained = self.planes[0].rollouts.explain(&node.id);
        node.confirmed == Some(newest)
            && node.running == Some(newest)
            && explained.is_some_and(|why| why.state == NodeRolloutState::Converged && why.cause.is_none())
    }

    fn at_rest(&self) -> bool {
        let newest = |channel: &Channel| self.newest[channel];
        self.nodes.iter().all(|node| self.is_there(node))
            && self.channels.iter().all(|channel| {
                let key = RolloutKey { channel: channel.clone(), seq: newest(channel) };
                let document = self.planes[0].rollouts.document(&key);
                document.is_some_and(|document| document.state == RolloutState::Terminal)
            })
    }
}
