//! The control plane's shell in memory: the order of a check-in as the server has it. What it has
//! made durable is kept apart from what it knows, and is all that a restart leaves.

use std::collections::{BTreeMap, BTreeSet};

use model::exchange::{Answer, CheckIn, SetOffer};
use model::log::{Cursor, Fact, contiguous};
use model::tags::TaggedRun;
use model::time::SLACK;
use model::{Digest, Hostname, Incarnation, NodeId, ObjectSet, Timestamp};
use plane::{NodeState, SetBase, SetWanted, Step};
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

/// What is durable of a node: its state as far as the server stores it, and its facts in the
/// order of their acceptance.
struct Stored {
    node: NodeState,
    facts: Vec<(Incarnation, Fact)>,
}

pub(crate) struct ControlPlane {
    store: BTreeMap<NodeId, Stored>,
    index: BTreeMap<NodeId, NodeState>,
    touched: BTreeSet<NodeId>,
    started: Timestamp,
    /// It runs.
    pub(crate) up: bool,
    /// The database takes nothing.
    pub(crate) store_down: bool,
    /// Sets that it no longer knows.
    pub(crate) forgotten: BTreeSet<Digest>,
    /// When each node was last requested to run by tag.
    tags_requested: BTreeMap<NodeId, Timestamp>,
    /// Requests by tag that nodes confirmed since somebody looked, and when those were made.
    pub(crate) tags_confirmed: Vec<(NodeId, TaggedRun, Timestamp)>,
}

impl ControlPlane {
    pub(crate) fn new(now: Timestamp) -> ControlPlane {
        ControlPlane {
            store: BTreeMap::new(),
            index: BTreeMap::new(),
            touched: BTreeSet::new(),
            started: now,
            up: true,
            store_down: false,
            forgotten: BTreeSet::new(),
            tags_requested: BTreeMap::new(),
            tags_confirmed: Vec::new(),
        }
    }

    pub(crate) fn enroll(&mut self, id: NodeId, hostname: Hostname, key: PublicKey, now: Timestamp) {
        let node = NodeState::new(id.clone(), hostname, key, now);
        self.store.insert(id.clone(), Stored { node: node.clone(), facts: Vec::new() });
        self.index.insert(id, node);
    }

    /// Starts with what the store has; all else of before is gone.
    pub(crate) fn start(&mut self, now: Timestamp) {
        (self.up, self.started) = (true, now);
        self.touched.clear();
        self.index = self.store.iter().map(|(id, stored)| (id.clone(), stored.node.clone())).collect();
        for node in self.index.values_mut() {
            // The server stores no words of a refusal.
            node.change_open_items(|it| it.refusal = None);
        }
        let newest = self.index.values().map(NodeState::heard_at).max();
        let absence = plane::absence_before(now, newest);
        self.index.values_mut().for_each(|node| node.control_plane_was_absent(absence));
    }

    /// Persists contacts in a batch.
    pub(crate) fn flush(&mut self) {
        for id in std::mem::take(&mut self.touched) {
            let (Some(node), Some(stored)) = (self.index.get(&id), self.store.get_mut(&id)) else { continue };
            stored.node.last_seen = node.last_seen;
            stored.node.promised = node.promised;
            stored.node.held.clone_from(&node.held);
            stored.node.run.clone_from(&node.run);
            let conditions = node.open_items().conditions.clone();
            stored.node.change_open_items(|it| it.conditions = conditions);
            stored.node.trust_version = node.trust_version;
        }
    }

    pub(crate) fn request_run(&mut self, id: &NodeId, number: u64) {
        self.stored(id).node.change_open_items(|it| it.run_request = Some(number));
        self.node(id).change_open_items(|it| it.run_request = Some(number));
    }

    /// As the server: the tags join those of a request that stands.
    pub(crate) fn request_tagged_run(&mut self, id: &NodeId, number: u64, tag: &str, now: Timestamp) {
        self.tags_requested.insert(id.clone(), now);
        let mut tags = BTreeSet::from([tag.to_owned()]);
        tags.extend(self.node(id).open_items().tagged_run.iter().flat_map(|run| run.tags.clone()));
        let run = Some(TaggedRun { number, tags });
        self.stored(id).node.change_open_items(|it| it.tagged_run.clone_from(&run));
        self.node(id).change_open_items(|it| it.tagged_run = run);
    }

    pub(crate) fn unconfirmed_runs(&self) -> usize {
        self.store.values().filter(|stored| stored.node.awaits_request()).count()
    }

    fn stored(&mut self, id: &NodeId) -> &mut Stored {
        self.store.get_mut(id).unwrap()
    }

    pub(crate) fn node(&mut self, id: &NodeId) -> &mut NodeState {
        self.index.get_mut(id).unwrap()
    }

    /// All facts stored of a node, in the order of their acceptance.
    pub(crate) fn facts(&self, id: &NodeId) -> &[(Incarnation, Fact)] {
        self.store.get(id).map_or(&[], |stored| &stored.facts)
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
        step.answer.acked = self.persist(id, incarnation, &mut step)?;
        if let (Some(wanted), Some(offer)) = (step.wanted, step.answer.offer.as_mut()) {
            offer.set = Some(self.set_offer(wanted, publisher));
        }
        Ok(step.answer)
    }

    fn persist(
        &mut self,
        id: &NodeId,
        incarnation: Incarnation,
        step: &mut Step,
    ) -> Result<Option<Cursor>, &'static str> {
        if let Some(number) = step.run_confirmed {
            let waits = |it: &mut plane::OpenItems| it.run_request.take_if(|waits| *waits <= number);
            self.stored(id).node.change_open_items(waits);
        }
        if let Some(run) = step.tagged_run_confirmed.take() {
            let waits = |it: &mut plane::OpenItems| it.tagged_run.take_if(|waits| waits.number <= run.number);
            self.stored(id).node.change_open_items(waits);
            let requested = self.tags_requested.get(id).copied().unwrap_or_default();
            self.tags_confirmed.push((id.clone(), run, requested));
        }
        if self.store_down && (step.traits.is_some() || !step.facts.is_empty()) {
            if step.traits.is_some() {
                self.node(id).traits = None;
            }
            return Err("store-unavailable");
        }
        if let Some(traits) = step.traits.take() {
            self.stored(id).node.traits = Some(traits.digest);
        }
        if step.facts.is_empty() {
            return Ok(None);
        }
        let stored = self.stored(id);
        let last = stored.facts.iter().rfind(|(of, _)| *of == incarnation);
        let after = last.map_or(0, |(_, fact)| fact.seq);
        let new = contiguous(after, std::mem::take(&mut step.facts));
        let cursor =
            Cursor { incarnation: incarnation.clone(), seq: new.last().map_or(after, |fact| fact.seq) };
        stored.facts.extend(new.iter().map(|fact| (incarnation.clone(), fact.clone())));
        if !new.is_empty() {
            stored.node.accepted(cursor.clone(), &new);
        }
        self.node(id).accepted(cursor.clone(), &new);
        Ok(Some(cursor))
    }

    /// The difference to the wanted set, with a few of its contents.
    pub(crate) fn set_offer(&self, wanted: SetWanted, publisher: &Publisher) -> SetOffer {
        let target = &publisher.sets[&wanted.target];
        let base = match wanted.base {
            SetBase::Offered(root) => Some(root).filter(|root| !self.forgotten.contains(root)),
            SetBase::Nothing | SetBase::Unknown => None,
        };
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
            return Response::Refused("not-entitled");
        }
        let content = |digest: &Digest| (*digest, publisher.contents[digest].clone());
        Response::Contents(wanted.iter().map(content).collect())
    }
}

/// A request's number: its time, or higher.
pub(crate) fn micros(time: Timestamp) -> u64 {
    u64::try_from(time.0).unwrap_or(0) * 1000
}
