//! One rollout driven by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::status::Contact;
use model::{Channel, Digest, NodeId, Timestamp};
use rollout::event::{DeclaredProbe, ProbeMode, ProbeOutcome};
use rollout::{
    EventAnswer, JoiningNode, MemberRecord, NewRollout, NextCall, PublishRefusal, RolloutAnswer,
    RolloutCommand, RolloutEffect, RolloutEvent, RolloutEventBody, RolloutId, RolloutInput, RolloutKey,
    RolloutState, Rollouts,
};
use trust::RolloutTerms;

use super::terms::declared;

pub struct Driven {
    pub rollouts: Rollouts,
    pub now: Timestamp,
    pub key: RolloutKey,
    pub id: RolloutId,
    seqs: BTreeMap<(String, RolloutId), u64>,
    pub effects: Vec<RolloutEffect>,
}

pub type Labels<'a> = &'a [(&'a str, &'a str)];

pub fn node_id(name: &str) -> NodeId {
    NodeId::of_key(name.as_bytes())
}

pub fn joining(name: &str, labels: Labels<'_>, before: Option<u64>) -> JoiningNode {
    JoiningNode {
        node: node_id(name),
        hostname: name.parse().unwrap(),
        declared: declared(labels),
        enforcing: Arc::new(["web".to_owned()]),
        before,
    }
}

pub fn release(channel: &Channel, seq: u64, terms: RolloutTerms, nodes: Vec<JoiningNode>) -> NewRollout {
    let header = Digest::of(&seq.to_be_bytes());
    let id = RolloutId::of_release(channel, None, &header, |_| false);
    NewRollout {
        key: RolloutKey { channel: channel.clone(), seq },
        id,
        header,
        terms: Arc::new(terms),
        nodes,
    }
}

impl Driven {
    /// Release 41 of channel `stable`, with all nodes online.
    pub fn new(terms: RolloutTerms, nodes: &[(&str, Labels<'_>)]) -> Driven {
        let channel: Channel = "stable".parse().unwrap();
        let joining = nodes.iter().map(|(name, labels)| joining(name, labels, Some(40))).collect();
        let new = release(&channel, 41, terms, joining);
        let mut driven = Driven {
            rollouts: Rollouts::new(),
            now: Timestamp::from_secs(1_800_000_000),
            key: new.key.clone(),
            id: new.id.clone(),
            seqs: BTreeMap::new(),
            effects: Vec::new(),
        };
        let began = std::time::Instant::now();
        assert_eq!(driven.publish(new), Ok(()));
        println!("{} nodes planned in {:?}", nodes.len(), began.elapsed());
        for (name, _) in nodes {
            driven.contact(name, Contact::Online);
        }
        driven
    }

    pub fn give(&mut self, input: RolloutInput) -> RolloutAnswer {
        let step = self.rollouts.handle(input, self.now);
        self.effects = step.effects;
        step.answer
    }

    pub fn publish(&mut self, new: NewRollout) -> Result<(), PublishRefusal> {
        self.publish_together(vec![new])
    }

    pub fn publish_together(&mut self, new: Vec<NewRollout>) -> Result<(), PublishRefusal> {
        match self.give(RolloutInput::Published(new)) {
            RolloutAnswer::Published(result) => result,
            other => panic!("{other:?}"),
        }
    }

    pub fn contact(&mut self, name: &str, contact: Contact) {
        self.call(name, contact, NextCall::Soon);
    }

    pub fn call(&mut self, name: &str, contact: Contact, next_call: NextCall) {
        self.give(RolloutInput::Contact { node: node_id(name), contact, next_call });
    }

    /// Lets time go by, with a tick each minute.
    pub fn wait(&mut self, secs: u64) {
        for _ in 0..secs / 60 {
            self.now = self.now.plus(Duration::from_secs(60));
            self.give(RolloutInput::Tick);
        }
        self.now = self.now.plus(Duration::from_secs(secs % 60));
        self.give(RolloutInput::Tick);
    }

    pub fn command(&mut self, command: RolloutCommand) -> RolloutAnswer {
        self.give(RolloutInput::Command { rollout: self.key.clone(), by: "ada".to_owned(), command })
    }

    pub fn event(&self, name: &str, log: &str, seq: u64, body: RolloutEventBody) -> RolloutEvent {
        RolloutEvent {
            node: node_id(name),
            incarnation: log.parse().unwrap(),
            rollout: self.id.clone(),
            seq,
            oldest: 1,
            body,
        }
    }

    pub fn send(&mut self, event: RolloutEvent) -> EventAnswer {
        match self.give(RolloutInput::Event(event)) {
            RolloutAnswer::Event(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// The node's next event.
    pub fn say(&mut self, name: &str, body: RolloutEventBody) -> EventAnswer {
        let seq = self.seqs.entry((name.to_owned(), self.id.clone())).or_insert(0);
        *seq += 1;
        let seq = *seq;
        self.send(self.event(name, "log1", seq, body))
    }

    pub fn activate(&mut self, name: &str) {
        assert_eq!(
            self.say(name, RolloutEventBody::DispatchAck),
            EventAnswer::Accepted,
            "{}",
            self.why(name)
        );
        let complete =
            RolloutEventBody::ActivationComplete { release: self.key.seq, boot: "boot-1".to_owned() };
        assert_eq!(self.say(name, complete), EventAnswer::Accepted);
    }

    pub fn pass(&mut self, name: &str) {
        let probes = vec![DeclaredProbe { name: "web".to_owned(), mode: ProbeMode::Enforce }];
        self.say(name, RolloutEventBody::ProbeTopologyDeclared { probes });
        let (probe, outcome, boot) = ("web".to_owned(), ProbeOutcome::Pass, "boot-1".to_owned());
        let passed = RolloutEventBody::ProbeResult { probe, outcome, boot };
        assert_eq!(self.say(name, passed), EventAnswer::Accepted);
    }

    pub fn converged(&mut self, name: &str, soaked_secs: u64) -> EventAnswer {
        let boot = "boot-1".to_owned();
        self.say(name, RolloutEventBody::Converged { release: self.key.seq, boot, soaked_secs })
    }

    pub fn fail(&mut self, name: &str) {
        let failed = RolloutEventBody::Failed { message: "probe web failed".to_owned() };
        assert_eq!(self.say(name, failed), EventAnswer::Accepted);
    }

    /// Something that changes nothing for others.
    pub fn fail_softly(&mut self, name: &str) {
        let probe = "web".to_owned();
        assert_eq!(self.say(name, RolloutEventBody::ProbeFailureFirst { probe }), EventAnswer::Accepted);
    }

    pub fn back(&mut self, name: &str) -> EventAnswer {
        self.say(name, RolloutEventBody::RollbackComplete { release: 40 })
    }

    pub fn why(&self, name: &str) -> String {
        self.rollouts.explain(&node_id(name)).map(|why| why.to_string()).unwrap_or_default()
    }

    pub fn member(&self, name: &str) -> &MemberRecord {
        self.rollouts.member(&self.key, &node_id(name)).unwrap()
    }

    pub fn is_asked(&self, name: &str) -> bool {
        self.member(name).asked.is_some()
    }

    pub fn state(&self) -> RolloutState {
        self.rollouts.document(&self.key).unwrap().state
    }
}
