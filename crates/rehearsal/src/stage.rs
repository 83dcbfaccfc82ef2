//! [`play`]: the control plane's decisions and the hosts, one occurrence after the other, in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::status::{self, Contact};
use model::{Digest, Hostname, Incarnation, NodeId, Timestamp};
use rollout::cadence::ROLLOUT_CONTACT_SECS;
use rollout::{
    JoiningNode, NewRollout, NextCall, RolloutAnswer, RolloutEffect, RolloutId, RolloutInput, RolloutKey,
    Rollouts,
};

use crate::faults::{NodeFault, draw_faults};
use crate::gather::report_of;
use crate::host::{Agenda, BEFORE, BOOT, HostEvent, RehearsedHost, TARGET};
use crate::nature::HostNature;
use crate::report::RehearsalReport;
use crate::timeline::{Occurrence, Timeline};
use crate::watch::RolloutWatch;
use crate::{Rehearsal, RehearseError};

/// After so long the rehearsal ends, whatever is left: what waits until then waits for a `notBefore` or a pin.
const HORIZON: Duration = Duration::from_secs(400 * 24 * 3600);
/// While nodes are on their way the control plane looks at the time at least so often, as a real one does.
const LOOK: Duration = Duration::from_secs(60);
/// The most occurrences for each node; a rollout needs some thirty.
const MAX_OCCURRENCES: usize = 1_000;
/// The most looks at the time alone, over all: a year of minutes.
const MAX_LOOKS: usize = 600_000;

pub(crate) struct Stage<'r> {
    pub(crate) rehearsal: &'r Rehearsal,
    pub(crate) rollouts: Rollouts,
    pub(crate) key: RolloutKey,
    pub(crate) hosts: Vec<RehearsedHost>,
    pub(crate) watch: RolloutWatch,
    by_id: BTreeMap<NodeId, usize>,
    id: RolloutId,
    log: Incarnation,
    now: Timestamp,
    timeline: Timeline,
    /// When each host that lost the network was heard of last.
    heard: BTreeMap<usize, Timestamp>,
}

/// Plays a rehearsal.
pub(crate) fn play(rehearsal: &Rehearsal) -> Result<RehearsalReport, RehearseError> {
    let mut stage = Stage::new(rehearsal);
    stage.publish()?;
    stage.go_on();
    Ok(report_of(&stage))
}

impl<'r> Stage<'r> {
    fn new(rehearsal: &'r Rehearsal) -> Stage<'r> {
        // Both texts are names of the form that is asked for.
        let (boot, log) = (
            BOOT.parse().unwrap_or_else(|_| unreachable!("a boot's name")),
            "rehearsed".parse().unwrap_or_else(|_| unreachable!("a log's name")),
        );
        let hostnames: Vec<&Hostname> = rehearsal.nodes.iter().map(|node| &node.hostname).collect();
        let drawn = draw_faults(&rehearsal.faults, rehearsal.seed, &hostnames);
        let hosts: Vec<RehearsedHost> = rehearsal
            .nodes
            .iter()
            .zip(drawn)
            .map(|(node, drawn)| {
                let nature = HostNature::draw(rehearsal.seed, &node.hostname, drawn);
                RehearsedHost::new(node, nature, Arc::clone(&rehearsal.terms), &boot, rehearsal.begins)
            })
            .collect();
        let header = Digest::of(b"rehearsed");
        Stage {
            rehearsal,
            rollouts: Rollouts::new(),
            key: RolloutKey { channel: rehearsal.channel.clone(), seq: TARGET },
            watch: RolloutWatch::new(&rehearsal.terms, hosts.len()),
            by_id: hosts.iter().enumerate().map(|(index, host)| (host.id.clone(), index)).collect(),
            hosts,
            id: RolloutId::of_release(&rehearsal.channel, None, &header, |_| false),
            log,
            now: rehearsal.begins,
            timeline: Timeline::default(),
            heard: BTreeMap::new(),
        }
    }

    fn publish(&mut self) -> Result<(), RehearseError> {
        for index in 0..self.hosts.len() {
            let host = &self.hosts[index];
            let contact = if host.is_reached { Contact::Online } else { Contact::Offline };
            let first_call = host.nature.first_call.filter(|_| host.is_reached);
            let next_call = if first_call.is_some() { NextCall::Later } else { NextCall::Soon };
            self.give(RolloutInput::Contact { node: host.id.clone(), contact, next_call });
            if let Some(first) = first_call {
                self.timeline.enter(self.now.plus(first), Occurrence::Call(index));
            }
        }
        let nodes = self.rehearsal.nodes.iter().zip(&self.hosts).map(|(node, host)| JoiningNode {
            node: host.id.clone(),
            hostname: host.hostname.clone(),
            declared: node.declared.clone(),
            enforcing: host.enforcing(),
            before: Some(BEFORE),
        });
        let new = NewRollout {
            key: self.key.clone(),
            id: self.id.clone(),
            header: Digest::of(b"rehearsed"),
            terms: Arc::clone(&self.rehearsal.terms),
            nodes: nodes.collect(),
        };
        match self.give(RolloutInput::Published(vec![new])) {
            RolloutAnswer::Published(Err(refusal)) => Err(RehearseError::Publish(refusal)),
            _ => Ok(()),
        }
    }

    fn go_on(&mut self) {
        let end = self.rehearsal.begins.plus(HORIZON);
        let (mut occurrences, mut looks) = (self.hosts.len().saturating_mul(MAX_OCCURRENCES), MAX_LOOKS);
        while occurrences > 0 && looks > 0 {
            let deadline = self.rollouts.next_deadline();
            let Some(at) = self.timeline.next_at().into_iter().chain(deadline).min() else { return };
            let at = at.max(self.now);
            // A control plane that does not look at the time takes nobody for silent.
            let look = self.now.plus(LOOK);
            if self.watch.in_flight() > 0 && at > look {
                (self.now, looks) = (look, looks - 1);
                self.give(RolloutInput::Tick);
            } else if at > end {
                return;
            } else {
                self.now = at;
                match self.timeline.pop_until(at) {
                    Some(occurrence) => {
                        occurrences -= 1;
                        self.occur(occurrence);
                    }
                    None => {
                        looks -= 1;
                        self.give(RolloutInput::Tick);
                    }
                }
            }
        }
    }

    /// One input to the control plane: what it decides is watched, and whom it wakes speaks with it soon.
    fn give(&mut self, input: RolloutInput) -> RolloutAnswer {
        let step = self.rollouts.handle(input, self.now);
        if let Some(commit) = &step.commit {
            self.watch.commit(commit, &self.by_id, self.now);
        }
        for effect in step.effects {
            match effect {
                RolloutEffect::Wake(node) => {
                    if let Some(index) = self.by_id.get(&node).copied() {
                        self.exchange_soon(index);
                    }
                }
                RolloutEffect::Note { note, .. } => self.watch.note(&note, self.now),
            }
        }
        step.answer
    }

    fn exchange_soon(&mut self, index: usize) {
        let hears = |host: &&mut RehearsedHost| host.is_reached && !host.calls_later;
        let Some(host) = self.hosts.get_mut(index).filter(hears) else { return };
        if host.exchange_at.is_none() {
            let at = self.now.plus(host.nature.latency);
            host.exchange_at = Some(at);
            self.timeline.enter(at, Occurrence::Exchange(index));
        }
    }

    fn occur(&mut self, occurrence: Occurrence) {
        match occurrence {
            Occurrence::Exchange(index) => self.exchange(index),
            Occurrence::Host(index, event) => self.happen(index, event),
            Occurrence::Contact(index) => self.look_for(index),
            Occurrence::Call(index) => self.call(index),
        }
    }

    /// A host that calls seldom calls, and hears that a rollout concerns it: from now on it is heard of each minute.
    fn call(&mut self, index: usize) {
        self.hosts[index].calls_later = false;
        let node = self.hosts[index].id.clone();
        let (contact, next_call) = (Contact::Online, NextCall::Soon);
        self.give(RolloutInput::Contact { node, contact, next_call });
        self.exchange_soon(index);
    }

    /// A host says what it has to say, then hears what it is pointed to.
    fn exchange(&mut self, index: usize) {
        let mut agenda = Agenda::new();
        self.hosts[index].exchange_at = None;
        if !self.hosts[index].is_reached {
            return;
        }
        while let Some(event) = self.hosts[index].next_event(&self.id, &self.log) {
            let RolloutAnswer::Event(answer) = self.give(RolloutInput::Event(event)) else { break };
            self.hosts[index].answered(&answer);
        }
        if let Some(pointer) = self.rollouts.pointer(&self.hosts[index].id) {
            self.hosts[index].hear(&pointer, self.now, &mut agenda);
        }
        self.enter(index, agenda);
    }

    fn happen(&mut self, index: usize, event: HostEvent) {
        let mut agenda = Agenda::new();
        let was_reached = self.hosts[index].is_reached;
        self.hosts[index].happen(event, self.now, &mut agenda);
        match (was_reached, self.hosts[index].is_reached) {
            (true, false) => {
                self.heard.insert(index, self.now);
                self.look_later(index);
            }
            (false, true) if self.heard.remove(&index).is_some() => {
                let node = self.hosts[index].id.clone();
                self.give(RolloutInput::Contact {
                    node,
                    contact: Contact::Online,
                    next_call: NextCall::Soon,
                });
            }
            _ => {}
        }
        self.enter(index, agenda);
    }

    /// What is to happen on a host is entered, and what it has to say is said soon.
    fn enter(&mut self, index: usize, agenda: Agenda) {
        for (at, event) in agenda {
            self.timeline.enter(at, Occurrence::Host(index, event));
        }
        if self.hosts[index].has_events() {
            self.exchange_soon(index);
        }
    }

    fn look_later(&mut self, index: usize) {
        let Some(heard) = self.heard.get(&index) else { return };
        let promised = Duration::from_secs(ROLLOUT_CONTACT_SECS);
        if let Some(at) = status::contact_until(*heard, promised, self.now) {
            self.timeline.enter(at, Occurrence::Contact(index));
        }
    }

    /// A host that lost the network is missed.
    fn look_for(&mut self, index: usize) {
        let Some(heard) = self.heard.get(&index) else { return };
        let contact = status::contact_of(*heard, Duration::from_secs(ROLLOUT_CONTACT_SECS), self.now);
        let node = self.hosts[index].id.clone();
        self.give(RolloutInput::Contact { node, contact, next_call: NextCall::Soon });
        self.look_later(index);
    }

    /// What goes wrong with a host.
    pub(crate) fn fault(&self, index: usize) -> Option<NodeFault> {
        self.hosts.get(index).and_then(|host| host.nature.fault)
    }
}
