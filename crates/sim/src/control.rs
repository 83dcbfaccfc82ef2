//! The control plane's shell in memory: the order of a check-in as the server has it, over
//! the store that other backends are held against.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use model::exchange::{Answer, CheckIn, SetOffer};
use model::log::Cursor;
use model::time::SLACK;
use model::{Digest, Hostname, NodeId, ObjectSet, Timestamp};
use plane::{NodeState, SetWanted, Step};
use store::{MemoryStore, NewNode, NodeRecord, Store, TokenUse, Touch};
use trust::PublicKey;

use crate::publisher::Publisher;

/// The most contents that come inside an answer, so that some are left to be fetched.
const INLINE: usize = 3;

/// A request as it arrives.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) node: NodeId,
    pub(crate) created: Timestamp,
    pub(crate) nonce: u64,
    pub(crate) body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    CheckIn(Box<CheckIn>),
    Contents(BTreeSet<Digest>),
}

/// What comes back.
#[derive(Clone, Debug)]
pub(crate) enum Response {
    Answer(Box<Answer>),
    Contents(BTreeMap<Digest, String>),
    Skewed(Timestamp),
    /// The next number that is new.
    Replayed(u64),
    Refused(&'static str),
}

pub(crate) struct ControlPlane {
    store: MemoryStore,
    index: BTreeMap<NodeId, NodeState>,
    touched: BTreeSet<NodeId>,
    started: Timestamp,
    /// It runs.
    pub(crate) up: bool,
    /// The database takes nothing.
    pub(crate) store_down: bool,
    /// Sets that it no longer knows.
    pub(crate) forgotten: BTreeSet<Digest>,
}

impl ControlPlane {
    pub(crate) fn new(now: Timestamp) -> ControlPlane {
        ControlPlane {
            store: MemoryStore::new(),
            index: BTreeMap::new(),
            touched: BTreeSet::new(),
            started: now,
            up: true,
            store_down: false,
            forgotten: BTreeSet::new(),
        }
    }

    pub(crate) fn enroll(&mut self, id: NodeId, hostname: Hostname, key: PublicKey, now: Timestamp) {
        let node = NewNode {
            node_id: id.clone(),
            hostname: hostname.clone(),
            public_key: key.to_string(),
            cert_not_before: now,
            cert_serial: "01".to_owned(),
            key_confirmed: true,
            declared: serde_json::json!({}),
        };
        let token = TokenUse { nonce: hostname.to_string(), expires_at: now.plus(Duration::from_secs(3600)) };
        ready(self.store.enroll(node, token, now)).unwrap();
        self.index.insert(id.clone(), NodeState::new(id, hostname, key, now));
    }

    /// Starts with what the store has; all else of before is gone.
    pub(crate) fn start(&mut self, now: Timestamp) {
        (self.up, self.started) = (true, now);
        self.touched.clear();
        let nodes = ready(self.store.nodes()).unwrap();
        self.index = nodes.into_iter().map(|record| (record.node_id.clone(), restored(record))).collect();
    }

    /// Persists contacts in a batch.
    pub(crate) fn flush(&mut self) {
        let touched = std::mem::take(&mut self.touched);
        let touch = |node: &NodeState| Touch {
            node: node.id.clone(),
            last_seen: node.last_seen.unwrap_or_default(),
            held: node.held.clone(),
            run: node.run.clone(),
            promised_secs: node.promised.as_secs(),
        };
        let touches = touched.iter().filter_map(|id| self.index.get(id)).map(touch).collect();
        ready(self.store.touch(touches)).unwrap();
    }

    pub(crate) fn push(&mut self, id: &NodeId, number: u64, now: Timestamp) {
        ready(self.store.set_push(vec![id.clone()], number, now)).unwrap();
        if let Some(node) = self.index.get_mut(id) {
            node.push = Some(number);
        }
    }

    pub(crate) fn pushes(&self) -> usize {
        ready(self.store.pushes()).unwrap().len()
    }

    pub(crate) fn node(&mut self, id: &NodeId) -> &mut NodeState {
        self.index.get_mut(id).unwrap()
    }

    /// All facts stored of a node, in the order of their acceptance.
    pub(crate) fn facts(&self, id: &NodeId) -> Vec<store::FactRecord> {
        let (mut facts, mut before) = (vec![], None);
        loop {
            let page = ready(self.store.facts(id, before, store::MAX_LISTED)).unwrap();
            let Some(last) = page.last() else { break };
            before = Some(last.id);
            facts.extend(page);
        }
        facts.reverse();
        facts
    }

    /// Handles a request as the server does: time, replay, step, what is new made durable,
    /// then the answer.
    pub(crate) fn receive(&mut self, request: Request, now: Timestamp, publisher: &Publisher) -> Response {
        let off = now.secs().abs_diff(request.created.secs());
        let known = micros(self.started)..=micros(now.plus(SLACK * 2));
        if off > SLACK.as_secs() || !known.contains(&request.nonce) {
            return Response::Skewed(now);
        }
        let id = request.node;
        let window = &mut self.node(&id).window;
        if !window.accept(request.nonce) {
            return Response::Replayed(window.highest() + 1);
        }
        match request.body {
            Body::Contents(wanted) => self.contents(&id, &wanted, publisher),
            Body::CheckIn(check_in) => match self.check_in(&id, *check_in, now, publisher) {
                Ok(answer) => Response::Answer(Box::new(answer)),
                Err(code) => Response::Refused(code),
            },
        }
    }

    fn check_in(
        &mut self,
        id: &NodeId,
        request: CheckIn,
        now: Timestamp,
        publisher: &Publisher,
    ) -> Result<Answer, &'static str> {
        let incarnation = request.incarnation.clone();
        self.touched.insert(id.clone());
        let mut step = self.node(id).check_in(request, &publisher.heads, now);
        step.answer.acked = self.persist(id, incarnation, &mut step, now)?;
        if let (Some(wanted), Some(offer)) = (step.wanted, step.answer.offer.as_mut()) {
            offer.set = Some(self.set_offer(wanted, publisher));
        }
        Ok(step.answer)
    }

    fn persist(
        &mut self,
        id: &NodeId,
        incarnation: model::Incarnation,
        step: &mut Step,
        now: Timestamp,
    ) -> Result<Option<Cursor>, &'static str> {
        if let Some(push) = step.push_done {
            ready(self.store.clear_push(id, push)).map_err(|_| "store_unavailable")?;
        }
        if let Some(traits) = step.traits.take() {
            if self.store_down {
                self.node(id).traits = None;
                return Err("store_unavailable");
            }
            ready(self.store.put_traits(id, traits, now)).map_err(|_| "store_unavailable")?;
        }
        if step.facts.is_empty() {
            return Ok(None);
        }
        if self.store_down {
            return Err("store_unavailable");
        }
        let facts = std::mem::take(&mut step.facts);
        let accepted = ready(self.store.append_facts(id, &incarnation, facts, now));
        let accepted = accepted.map_err(|_| "store_unavailable")?;
        self.node(id).accepted(accepted.cursor.clone(), &accepted.new);
        Ok(Some(accepted.cursor))
    }

    /// The difference to the wanted set, with a few of its contents.
    pub(crate) fn set_offer(&self, wanted: SetWanted, publisher: &Publisher) -> SetOffer {
        let target = &publisher.sets[&wanted.target];
        let base = wanted.base.filter(|root| !self.forgotten.contains(root));
        let base = base.and_then(|root| Some((root, publisher.sets.get(&root)?)));
        let empty = ObjectSet::new();
        let delta = base.map_or(&empty, |(_, set)| set).delta_to(target);
        let contents = delta.edits.values().filter_map(model::Edit::to).take(INLINE);
        let contents = contents.map(|stub| publisher.contents[&stub.digest].clone()).collect();
        SetOffer { base: base.map(|(root, _)| root), delta, contents }
    }

    /// Contents that the set which the node is pointed to names (IDN-5).
    fn contents(&mut self, id: &NodeId, wanted: &BTreeSet<Digest>, publisher: &Publisher) -> Response {
        let pointed = self.node(id).pointed(&publisher.heads);
        let set = pointed.and_then(|(_, entry)| publisher.sets.get(&entry.root));
        let named: BTreeSet<Digest> =
            set.into_iter().flat_map(ObjectSet::objects).map(|(_, stub)| stub.digest).collect();
        if !wanted.is_subset(&named) {
            return Response::Refused("not_entitled");
        }
        let content = |digest: &Digest| (*digest, publisher.contents[digest].clone());
        Response::Contents(wanted.iter().map(content).collect())
    }
}

fn restored(record: NodeRecord) -> NodeState {
    let key = record.public_key.parse::<PublicKey>().unwrap();
    let mut node = NodeState::new(record.node_id, record.hostname, key, record.cert_not_before);
    node.last_seen = record.last_seen;
    node.held = record.held;
    node.run = record.run;
    node.cursor = record.cursor;
    node.traits = record.traits;
    node.push = record.push;
    node.summary.streak = record.streak;
    if let Some(run) = record.last_run {
        node.summary.counts = Some(run.counts);
        node.summary.since = Some(run.started);
    }
    node
}

/// A request's number: its time, or higher.
pub(crate) fn micros(time: Timestamp) -> u64 {
    u64::try_from(time.0).unwrap_or(0) * 1000
}

/// The value of a future that never waits.
fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a store in memory never waits"),
    }
}
