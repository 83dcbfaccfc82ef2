//! The world: what happens in it by chance, and how it heals.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::status::Contact;
use model::{Channel, Digest, Hostname, NodeId, Timestamp};
use rollout::event::ProbeOutcome;
use rollout::{
    ApprovedGate, EventAnswer, HeadKind, HeadStep, JoiningNode, MemberRecord, NewRollout, NextCall,
    NodeRolloutState, RolloutAnswer, RolloutCommand, RolloutEvent, RolloutEventBody, RolloutId, RolloutInput,
    RolloutKey, RolloutState,
};
use trust::RolloutTerms;
use trust::rollout_terms::OnFailure;

use super::checks::{self, Accepted, Surroundings};
use super::node::{Fate, NodeHost, SimNode};
use super::planes::{Database, Handled, Plane, StoredCommit};
use super::story::{Story, name_of, state_name};
use super::{Rng, terms};

mod heal;

/// How large a world is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub nodes: usize,
    pub steps: usize,
    pub planes: usize,
    /// Every so many decisions what looks at every member is looked at.
    pub wide_every: u64,
}

/// What makes the hosts of a world, where they are not made up.
pub type HostMaker = fn(&SimNode) -> Option<Box<dyn NodeHost>>;

pub struct World {
    rng: Rng,
    hosts: HostMaker,
    size: Size,
    /// True time.
    pub now: Timestamp,
    /// How far the control planes' clock is behind it.
    behind: Duration,
    pub database: Database,
    planes: Vec<Plane>,
    pub nodes: Vec<SimNode>,
    channels: Vec<Channel>,
    headers: BTreeMap<RolloutKey, Arc<RolloutTerms>>,
    /// Of a hundred nodes so many are not well with a release.
    badness: BTreeMap<u64, u64>,
    newest: BTreeMap<Channel, u64>,
    /// The channels whose newest release goes to their nodes at once.
    at_once: BTreeMap<Channel, u64>,
    /// The rollouts that such a release ended: who is on its way in one counts nowhere.
    ended: BTreeSet<RolloutId>,
    seqs: u64,
    named: u64,
    accepted: Accepted,
    taken: BTreeSet<(NodeId, String, RolloutKey, u64)>,
    decisions: u64,
    is_healing: bool,
    /// The host whose story is printed.
    traced: Option<Hostname>,
    pub reached: BTreeMap<&'static str, u64>,
}

const CHANNELS: [&str; 2] = ["alpha", "beta"];

impl World {
    pub fn new(seed: u64, size: Size) -> World {
        World::of(seed, size, |_| None)
    }

    pub fn of(seed: u64, size: Size, hosts: HostMaker) -> World {
        let mut rng = Rng::new(seed);
        let channels: Vec<Channel> = CHANNELS.iter().map(|name| name.parse().unwrap()).collect();
        let database = Database::default();
        let planes = (0..size.planes).map(|_| Plane::start(&database)).collect();
        let mut world = World {
            now: Timestamp::from_secs(1_800_000_000 + i64::try_from(rng.below(86_400)).unwrap()),
            rng,
            hosts,
            size,
            behind: Duration::ZERO,
            database,
            planes,
            nodes: Vec::new(),
            channels,
            headers: BTreeMap::new(),
            badness: BTreeMap::new(),
            newest: BTreeMap::new(),
            at_once: BTreeMap::new(),
            ended: BTreeSet::new(),
            seqs: 10,
            named: 0,
            accepted: Accepted::new(),
            taken: BTreeSet::new(),
            decisions: 0,
            is_healing: false,
            traced: std::env::var("ROLLOUT_TRACE").ok().and_then(|name| name.parse().ok()),
            reached: BTreeMap::new(),
        };
        for _ in 0..size.nodes {
            let node = world.new_node(Some(1));
            world.nodes.push(node);
        }
        for channel in world.channels.clone() {
            world.publish(&channel);
        }
        world
    }

    fn reach(&mut self, what: &'static str) {
        *self.reached.entry(what).or_default() += 1;
    }

    fn new_node(&mut self, holds: Option<u64>) -> SimNode {
        self.named += 1;
        let ring = *self.rng.pick(&["0", "1", "2", "2"]);
        let tier = *self.rng.pick(&["db", "web", "web"]);
        let channel = self.rng.pick(&self.channels).clone();
        let declared = terms::declared(&[("ring", ring), ("tier", tier)]);
        let mut node = SimNode::new(self.named as usize, &channel, declared, holds);
        node.lies = self.rng.chance(6);
        node.is_slow = self.rng.chance(25);
        node.host = (self.hosts)(&node);
        node
    }

    fn clock(&self) -> Timestamp {
        self.now.minus(self.behind)
    }

    fn joining(node: &SimNode) -> JoiningNode {
        JoiningNode {
            node: node.id.clone(),
            hostname: node.hostname.clone(),
            declared: node.declared.clone(),
            enforcing: node.enforcing.clone().into(),
            before: node.confirmed,
        }
    }

    fn publish(&mut self, channel: &Channel) {
        self.seqs += 1;
        let seq = self.seqs;
        let hosts: Vec<Hostname> = self.nodes.iter().map(|node| node.hostname.clone()).collect();
        let now = self.clock();
        let terms =
            Arc::new(terms::any(&mut self.rng, &self.channels, channel, &hosts, now, self.size.nodes));
        let key = RolloutKey { channel: channel.clone(), seq };
        let header = Digest::of(&seq.to_be_bytes());
        let id = RolloutId::of_release(channel, None, &header, |_| false);
        let bad = if self.is_healing || self.rng.chance(60) { 0 } else { 10 + self.rng.below(90) };
        self.badness.insert(seq, bad);
        self.headers.insert(key.clone(), terms.clone());
        let nodes = self.nodes.iter().filter(|node| node.channel == *channel).map(World::joining).collect();
        self.newest.insert(channel.clone(), seq);
        self.at_once.remove(channel);
        let plane = self.rng.below(self.planes.len() as u64) as usize;
        self.give(plane, RolloutInput::Published(vec![NewRollout { key, id, header, terms, nodes }]));
        self.reach("published");
    }

    /// A release without terms, which ends what the channel has of rollouts.
    fn publish_at_once(&mut self, channel: &Channel) {
        self.seqs += 1;
        let head = RolloutKey { channel: channel.clone(), seq: self.seqs };
        let of_channel = self.database.rollouts.values().filter(|rows| rows.document.key.channel == *channel);
        self.ended.extend(of_channel.map(|rows| rows.document.id.clone()));
        self.at_once.insert(channel.clone(), head.seq);
        self.newest.insert(channel.clone(), head.seq);
        let plane = self.rng.below(self.planes.len() as u64) as usize;
        self.give(plane, RolloutInput::AtOnce { head: head.clone() });
        // One that was behind ends what it did not know once it has read it, as a control plane does at each load of the heads.
        self.planes[plane].follow(&self.database);
        if matches!(self.planes[plane].rollouts.follow_head(&head, HeadKind::AtOnce), HeadStep::End) {
            self.give(plane, RolloutInput::AtOnce { head });
        }
        let mut left = self.database.rollouts.values().filter(|rows| rows.document.key.channel == *channel);
        assert!(left.all(|rows| rows.document.state.gave_way()), "a rollout outlives what ended it");
        self.reach("went to all at once");
    }

    /// One input to one control plane, with every check of what it stored.
    fn give(&mut self, plane: usize, input: RolloutInput) -> RolloutAnswer {
        let now = self.clock();
        if self.rng.chance(40) {
            self.planes[plane].follow(&self.database);
        }
        if let RolloutInput::Contact { node, contact, next_call } = &input {
            self.planes[plane].told.insert(node.clone(), (*contact, *next_call));
        }
        if !self.is_healing && self.rng.chance(1) {
            // It decides and dies before that is stored.
            self.reach("died before it stored");
            self.planes[plane].rollouts.handle(input.clone(), now);
            self.restart(plane);
        }
        let (planes, database, headers) = (&mut self.planes, &mut self.database, &self.headers);
        let Handled { answer, commit } =
            planes[plane].handle(&input, now, database, headers, &mut self.reached);
        if let (RolloutInput::Event(event), RolloutAnswer::Event(answer)) = (&input, &answer) {
            self.note_event(event, answer);
        }
        if let Some(host) = &self.traced {
            let node = self.nodes.iter().find(|node| node.hostname == *host).map(|node| &node.id);
            let story = Story { host, node, plane, now };
            story.tell(&input, &answer, commit.as_ref());
        }
        // Whoever may be asked is asked in the step that makes it possible: a slot that becomes free, a gate
        // that passes and a rollout that begins wait for no later input.
        let due = self.planes[plane].rollouts.next_deadline().filter(|at| *at <= now);
        assert!(due.is_none(), "after {input:?} something is left to be done");
        if let Some(commit) = commit {
            self.check(plane, &commit);
        }
        answer
    }

    fn note_event(&mut self, event: &RolloutEvent, answer: &EventAnswer) {
        let key = self.database.rollouts.values().find(|rows| rows.document.id == event.rollout);
        let Some(key) = key.map(|rows| rows.document.key.clone()) else { return };
        match answer {
            EventAnswer::Accepted => {
                self.reach(name_of(&event.body));
                let of = (key.clone(), event.node.clone());
                self.accepted.entry(of).or_default().push(event.body.clone());
            }
            EventAnswer::Refused(_) => self.reach("event refused"),
            EventAnswer::Duplicate => self.reach("event twice"),
            EventAnswer::ReplayFrom(_) => self.reach("event gap"),
            EventAnswer::UnknownRollout | EventAnswer::UnknownNode => self.reach("event unknown"),
        }
        if matches!(answer, EventAnswer::Accepted | EventAnswer::Refused(_)) {
            let log = event.incarnation.to_string();
            let is_new = self.taken.insert((event.node.clone(), log, key, event.seq));
            assert!(is_new, "an event took effect twice");
        }
    }

    fn check(&mut self, plane: usize, stored: &StoredCommit) {
        self.decisions += 1;
        let around = Surroundings {
            database: &self.database,
            told: &self.planes[plane].told,
            accepted: &self.accepted,
            now: self.clock(),
            wide: self.decisions.is_multiple_of(self.size.wide_every),
        };
        checks::commit(stored, &around);
        for change in &stored.commit.rollouts {
            let was_confirmed = |member: &MemberRecord| {
                let key = (change.document.key.clone(), member.node.clone());
                let before = stored.members.get(&key);
                before.is_some_and(|before| before.state == NodeRolloutState::Converged)
            };
            let was_to_begin = |member: &MemberRecord| {
                let before = stored.members.get(&(change.document.key.clone(), member.node.clone()));
                before.is_some_and(|before| before.state == NodeRolloutState::Activating)
            };
            let is_pending = |member: &&MemberRecord| member.state == NodeRolloutState::Pending;
            if change.members.iter().filter(is_pending).any(was_to_begin) {
                *self.reached.entry("held off once it acknowledged").or_default() += 1;
            }
            let left = [NodeRolloutState::Failed, NodeRolloutState::Reverted];
            if change.members.iter().any(|member| left.contains(&member.state) && was_confirmed(member)) {
                *self.reached.entry("went back once it was confirmed").or_default() += 1;
            }
            if change.members.iter().any(|member| member.slot_left) {
                *self.reached.entry("slot left").or_default() += 1;
            }
            if change.members.iter().any(|member| member.held_off.is_some_and(|held| held.times > 5)) {
                *self.reached.entry("held off for long").or_default() += 1;
            }
            let document = &change.document;
            let before = stored.documents.get(&document.key).map(|before| before.state);
            if before == Some(RolloutState::Terminal) && document.state == RolloutState::Failed {
                *self.reached.entry("halted once it was through").or_default() += 1;
            }
            if before != Some(document.state) {
                *self.reached.entry(state_name(document.state)).or_default() += 1;
            }
        }
        if self.decisions.is_multiple_of(self.size.wide_every) {
            self.disrupted_nodes_are_counted();
        }
    }

    /// What really is on its way on nodes that do not lie is in flight by what is stored.
    fn disrupted_nodes_are_counted(&self) {
        for node in self.nodes.iter().filter(|node| !node.lies) {
            let Some(by) = node.disrupted_by(self.now) else { continue };
            let rows = || self.database.rollouts.values();
            let mut records = rows().filter_map(|rows| rows.members.get(&node.id));
            let counted =
                records.any(|record| record.in_flight() || record.skipped.is_some() || record.slot_left);
            // Its word was taken that it confirms, and it may not have heard that.
            let of = rows().find(|rows| rows.document.id == *by);
            let is_over = of.is_some_and(|rows| {
                let key = (rows.document.key.clone(), node.id.clone());
                let mut events = self.accepted.get(&key).into_iter().flatten();
                events.any(|event| matches!(event, RolloutEventBody::Converged { .. }))
            });
            let is_ended = self.ended.contains(by);
            assert!(counted || is_over || is_ended, "{} is on its way and counts nowhere", node.hostname);
        }
    }

    /// Who counts as confirmed is on that release, or on a newer one, as far as it could say otherwise.
    fn confirmed_is_what_it_is_on(&self, plane: usize, node: usize) {
        let (node, rollouts) = (&self.nodes[node], &self.planes[plane].rollouts);
        let Some(why) = rollouts.explain(&node.id).filter(|_| !node.lies) else { return };
        let counts = why.state == NodeRolloutState::Converged;
        let is_there = node.running.max(node.confirmed) >= Some(why.rollout.seq);
        assert!(!counts || is_there, "{} is not on {} and counts as confirmed", node.hostname, why.rollout);
    }

    fn restart(&mut self, plane: usize) {
        self.planes[plane] = Plane::start(&self.database);
        let now = self.now;
        let contacts: Vec<(NodeId, (Contact, NextCall))> =
            self.nodes.iter().map(|node| (node.id.clone(), contact_of(node, now))).collect();
        for (node, (contact, next_call)) in contacts {
            let input = RolloutInput::Contact { node: node.clone(), contact, next_call };
            self.planes[plane].told.insert(node, (contact, next_call));
            let clock = self.clock();
            let (planes, database) = (&mut self.planes, &mut self.database);
            let handled = planes[plane].handle(&input, clock, database, &self.headers, &mut self.reached);
            if let Some(commit) = handled.commit {
                self.check(plane, &commit);
            }
        }
        self.reach("restart");
    }

    pub fn step(&mut self) {
        let wait = match self.rng.below(100) {
            0..=79 => self.rng.below(90),
            80..=96 => self.rng.below(900),
            _ => self.rng.below(8000),
        };
        self.now = self.now.plus(Duration::from_secs(wait));
        self.happen();
        self.tick();
    }

    fn tick(&mut self) {
        self.tell_contacts();
        for plane in 0..self.planes.len() {
            self.give(plane, RolloutInput::Tick);
        }
        for node in 0..self.nodes.len() {
            self.nodes[node].live(self.now, &mut self.rng);
            let calls = self.nodes[node].next_call(self.now) == NextCall::Soon;
            if self.nodes[node].is_reached(self.now) && calls {
                self.exchange(node);
            }
        }
    }

    fn tell_contacts(&mut self) {
        let mut news = Vec::new();
        for node in &self.nodes {
            let contact = contact_of(node, self.now);
            for plane in 0..self.planes.len() {
                if self.planes[plane].told.get(&node.id) != Some(&contact)
                    && (self.is_healing || self.rng.chance(70))
                {
                    news.push((plane, node.id.clone(), contact));
                }
            }
        }
        for (plane, node, (contact, next_call)) in news {
            self.give(plane, RolloutInput::Contact { node, contact, next_call });
        }
    }

    fn happen(&mut self) {
        match self.rng.below(100) {
            0..=5 => {
                let channel = self.rng.pick(&self.channels).clone();
                // Hosts with the real steps take releases of rollouts alone.
                match self.rng.chance(15) && self.nodes.iter().all(|node| node.host.is_none()) {
                    true => self.publish_at_once(&channel),
                    false => self.publish(&channel),
                }
            }
            6..=25 if !self.nodes.is_empty() => {
                let node = self.rng.below(self.nodes.len() as u64) as usize;
                self.nodes[node].online ^= true;
                self.reach("contact");
            }
            26..=33 => self.operator(),
            34..=36 => {
                let plane = self.rng.below(self.planes.len() as u64) as usize;
                self.restart(plane);
            }
            37..=39 => {
                let holds = if self.rng.chance(50) { Some(1) } else { None };
                let node = self.new_node(holds);
                self.reach(if holds.is_none() { "joined fresh" } else { "joined" });
                let input =
                    RolloutInput::Joined { channel: node.channel.clone(), node: World::joining(&node) };
                let has_rollout = !self.at_once.contains_key(&node.channel);
                self.nodes.push(node);
                if has_rollout {
                    self.give(0, input);
                }
            }
            40..=41 if self.nodes.len() > 2 => {
                let node = self.rng.below(self.nodes.len() as u64) as usize;
                self.remove(node);
            }
            42 if !self.nodes.is_empty() => {
                let node = self.rng.below(self.nodes.len() as u64) as usize;
                self.nodes[node].lose_log();
                self.reach("log lost");
            }
            43 => {
                self.behind = if self.behind.is_zero() { Duration::from_secs(5000) } else { Duration::ZERO };
                self.reach("clock set");
            }
            44..=47 if !self.nodes.is_empty() => {
                let node = self.rng.below(self.nodes.len() as u64) as usize;
                self.nodes[node].is_paused ^= true;
                self.reach("paused by its administrator");
            }
            _ => {}
        }
    }

    fn remove(&mut self, node: usize) {
        let node = self.nodes.swap_remove(node);
        for plane in &mut self.planes {
            plane.told.remove(&node.id);
        }
        self.give(0, RolloutInput::Removed { channel: node.channel, node: node.id });
        self.reach("removed");
    }

    fn operator(&mut self) {
        let keys: Vec<RolloutKey> = self.database.rollouts.keys().cloned().collect();
        if keys.is_empty() {
            return;
        }
        let rollout = self.rng.pick(&keys).clone();
        let node = (!self.nodes.is_empty()).then(|| self.rng.pick(&self.nodes).id.clone());
        let command = match self.rng.below(12) {
            0 | 1 => RolloutCommand::Pause,
            2..=5 => RolloutCommand::Resume,
            6 => RolloutCommand::Abort,
            7 | 8 => RolloutCommand::Approve(ApprovedGate::Newest),
            9 => RolloutCommand::Rollback,
            _ => match node {
                Some(node) if self.rng.chance(30) => RolloutCommand::Skip(node),
                _ => RolloutCommand::Resume,
            },
        };
        let plane = self.rng.below(self.planes.len() as u64) as usize;
        let answer = self.give(plane, RolloutInput::Command { rollout, by: "ada".to_owned(), command });
        self.reach(if answer == RolloutAnswer::Command(Ok(())) { "command" } else { "command refused" });
    }

    fn fate(&self, node: &SimNode, release: Option<u64>) -> Fate {
        let Some(release) = release else { return Fate::Well };
        let bad = self.badness.get(&release).copied().unwrap_or(0);
        let mut rng = Rng::new(
            release.wrapping_mul(7919)
                ^ u64::from(node.id.as_str().as_bytes()[5]) << 8
                ^ u64::from(node.id.as_str().as_bytes()[9]),
        );
        if rng.chance(8) && !self.is_healing {
            return Fate::NeedsBoot;
        }
        if !rng.chance(bad) {
            return Fate::Well;
        }
        let key = RolloutKey { channel: node.channel.clone(), seq: release };
        let stays = self.headers.get(&key).is_some_and(|terms| terms.on_failure == OnFailure::Halt);
        let probes = if stays { Fate::FailsLater } else { Fate::ProbesFail };
        let late = if stays { Fate::FailsLater } else { Fate::FailsOnceConfirmed };
        *rng.pick(&[Fate::ActivationFails, Fate::ProbesFail, probes, late, Fate::CutOff, Fate::Rejects])
    }

    /// A node speaks with a control plane: what it has to say, then where it is pointed to.
    fn exchange(&mut self, node: usize) {
        let plane = self.rng.below(self.planes.len() as u64) as usize;
        if self.nodes[node].lies && self.rng.chance(20) {
            self.lie(node);
        }
        for _ in 0..if self.is_healing { 100 } else { 6 } {
            let skip = if !self.is_healing && self.rng.chance(3) { 1 } else { 0 };
            let Some(event) = self.nodes[node].next_event(skip) else { break };
            let answer = self.give(plane, RolloutInput::Event(event.clone()));
            if !self.is_healing && self.rng.chance(5) {
                self.reach("answer lost");
                return;
            }
            let RolloutAnswer::Event(answer) = answer else { panic!("no answer to an event") };
            self.nodes[node].heard_at = self.database.versions(&self.nodes[node].id);
            self.nodes[node].answered(&event, &answer, self.now);
        }
        if self.nodes[node].next_event(0).is_some() {
            return;
        }
        if let Some(seq) = self.at_once.get(&self.nodes[node].channel) {
            self.nodes[node].heard_at = self.database.versions(&self.nodes[node].id);
            self.nodes[node].pointed_at_once(*seq);
            return self.nodes[node].called(None, self.now);
        }
        // What `Rollouts::pointer` asks of a shell, and no more: who says where a node is pointed to has read
        // what was stored when the node was heard last. It may be behind what others decided since.
        if self.planes[plane].is_behind(&self.nodes[node].heard_at) {
            self.planes[plane].follow(&self.database);
        } else if self.planes[plane].is_behind(&self.database.versions(&self.nodes[node].id)) {
            self.reach("pointer of a plane that is behind");
        }
        let pointer = self.planes[plane].rollouts.pointer(&self.nodes[node].id);
        self.confirmed_is_what_it_is_on(plane, node);
        let now = self.now;
        self.nodes[node].called(pointer.as_ref(), now);
        if self.nodes[node].next_call(now) == NextCall::Later {
            self.reach("calls later");
        }
        let Some(pointer) = pointer else { return };
        if checks::told_end(&pointer, &self.nodes[node].id, &self.database).is_earlier() {
            self.reach("told of the end of an earlier rollout");
        }
        let fate = self.fate(&self.nodes[node], Some(pointer.rollout.seq));
        if self.traced.as_ref() == Some(&self.nodes[node].hostname) {
            println!("{} plane {plane}: pointed to {:?}: {:?}", self.now, pointer.release, pointer.dispatch);
        }
        let terms = self.headers[&pointer.rollout].clone();
        match self.nodes[node].host.is_some() {
            true => self.nodes[node].pointed_host(&pointer, &terms, fate, self.now, &mut self.rng),
            false => self.nodes[node].pointed(&pointer, fate, self.now, &mut self.rng),
        }
    }

    fn lie(&mut self, node: usize) {
        let id = self.nodes[node].id.clone();
        let Some(pointer) = self.planes[0].rollouts.pointer(&id) else { return };
        let release = pointer.rollout.seq;
        let boot = "boot-1".to_owned();
        let body = match self.rng.below(7) {
            0 => RolloutEventBody::DispatchAck,
            1 => RolloutEventBody::ActivationComplete { release, boot },
            2 => RolloutEventBody::Converged { release, boot, soaked_secs: 1_000_000 },
            3 => RolloutEventBody::ProbeTopologyDeclared { probes: Vec::new() },
            4 => RolloutEventBody::RollbackComplete { release: self.rng.below(30) },
            5 => {
                let (probe, outcome) = ("web".to_owned(), ProbeOutcome::Pass);
                RolloutEventBody::ProbeResult { probe, outcome, boot }
            }
            _ => RolloutEventBody::Failed { message: "I feel bad".to_owned() },
        };
        self.nodes[node].lie(&pointer.dispatch.rollout, body);
        self.reach("lie");
    }

    /// What a control plane made of its inputs one by one is what it would make of what is stored.
    pub fn rebuilt_is_held(&mut self) {
        let now = self.clock();
        self.give(0, RolloutInput::Tick);
        self.planes[0].follow(&self.database);
        self.give(0, RolloutInput::Tick);
        let mut database = self.database.clone();
        // Nothing was silent in the meantime: the control plane was there.
        database.rollouts.values_mut().for_each(|rows| rows.document.latest = now);
        let mut rebuilt = Plane::start(&database);
        for (node, (contact, next_call)) in &self.planes[0].told {
            let (contact, next_call) = (*contact, *next_call);
            let input = RolloutInput::Contact { node: node.clone(), contact, next_call };
            let step = rebuilt.rollouts.handle(input, now);
            assert!(step.commit.is_none(), "a restart decides what was not decided: {:?}", step.commit);
        }
        for node in &self.nodes {
            let (held, new) = (self.planes[0].rollouts.explain(&node.id), rebuilt.rollouts.explain(&node.id));
            assert_eq!(held, new);
            assert_eq!(self.planes[0].rollouts.pointer(&node.id), rebuilt.rollouts.pointer(&node.id));
        }
        assert_eq!(self.planes[0].rollouts.next_deadline(), rebuilt.rollouts.next_deadline());
        self.reach("rebuilt");
    }
}

fn contact_of(node: &SimNode, now: Timestamp) -> (Contact, NextCall) {
    let contact = match node.is_reached(now) {
        true => Contact::Online,
        false if node.hostname.as_str().ends_with(['1', '2']) => Contact::Unreachable,
        false => Contact::Offline,
    };
    (contact, node.next_call(now))
}
