//! The answering half of a resync: each request from the own set as it is then.
//!
//! ```text
//! request --(permit, at the principal)--> answers: a queue --> contents of the shell --> events 0
//!                                            pongs and ends of answers keep their place in it
//! ```
//!
//! Invariants: objects, lists and pongs go in the order of their requests, sections and tops at once;
//! one load of contents is under way, shared with the events of [`super::outbox`]; a trie resync that
//! nobody goes on with ends the link.

use std::collections::VecDeque;
use std::time::Duration;

use model::descent::MAX_DEPTH;
use model::set::MAX_SECTIONS;
use model::{Digest, ObjectKey, Timestamp, TrieNode};

use super::inventory_resync::{key_of, resource};
use super::outbox::{Planned, Purpose};
use super::types::Output;
use super::{Cx, Link, STAY_AWAY};
use crate::feed::ObjectState;
use crate::frame::{Frame, Interop, MAX_REQUESTED, Ping, Pong, ResyncRequest, ResyncResponse};
use crate::interop;

/// The link ends when nobody goes on with the resync that it serves for so long.
pub(super) const RESYNC_IDLE: Duration = Duration::from_secs(60);
/// The most answers to requests that wait to be sent; with more nothing is read.
const MAX_ANSWERS: usize = 4096;
/// Names in one part of a list.
const LISTED: usize = 512;
/// How long after a list the next one is begun at the earliest: each looks at all objects.
const LIST_EVERY: Duration = Duration::from_secs(1);

/// An answer that waits for its content, or for its turn.
#[derive(Clone, Debug)]
enum PendingAnswer {
    Object {
        key: ObjectKey,
        uid: String,
    },
    Objects(u64),
    /// The list of all that is here.
    List,
    Pong(u64),
}

/// A list that was asked for: one at a time, sent in parts.
#[derive(Clone, Debug)]
struct InventoryList {
    /// The asker's inventory, until the list begins.
    checksum: Option<Digest>,
    /// It begins no sooner.
    not_before: Option<Timestamp>,
    /// Up to here it is sent.
    after: Option<ObjectKey>,
}

/// The answering half.
#[derive(Debug, Default)]
pub(super) struct ResyncServer {
    /// A resync is served; the last sign of it.
    pub served: Option<Timestamp>,
    /// The head of the own feed as the other side knows it.
    pub announced: u64,
    answers: VecDeque<PendingAnswer>,
    list: Option<Box<InventoryList>>,
    listed: Option<Timestamp>,
}

impl ResyncServer {
    /// The other side is there and works on what it got.
    pub fn is_heard(&mut self, now: Timestamp) {
        self.served = self.served.map(|_| now);
    }

    /// The other side resyncs.
    pub fn is_serving(&self) -> bool {
        self.served.is_some() || self.list.is_some()
    }

    pub fn is_full(&self) -> bool {
        self.answers.len() >= MAX_ANSWERS
    }

    /// When a list begins that is to wait.
    pub fn list_due(&self) -> Option<Timestamp> {
        self.list.as_ref()?.not_before
    }
}

impl Link {
    /// A request of a trie resync about our feed, answered from the set as it is now: what changes while
    /// the resync goes on comes with the changes after the cursor that it began at.
    pub(super) fn resync_requested(&mut self, request: ResyncRequest, cx: &mut Cx<'_>) {
        self.counters.resync_frames += 1;
        match &request {
            ResyncRequest::Done { from } => return self.resync_done(from, cx),
            _ if !self.both.trie_resync => return,
            _ => {}
        }
        if let Err(wait) = self.take_permit(cx) {
            return self.respond(ResyncResponse::Wait(wait.as_secs().max(1)), cx);
        }
        self.server.served = Some(cx.now);
        match request {
            ResyncRequest::Sections => self.serve_sections(None, cx),
            ResyncRequest::ProvenSections { challenge } => self.serve_sections(Some(&challenge), cx),
            ResyncRequest::Tops { section, paths } => {
                // Whoever compares takes another node than was named only of a set that changed.
                let head = cx.feed.head();
                if cx.feed.frozen().is_none() && head > self.server.announced {
                    self.server.announced = head;
                    cx.send(Frame::Ping(Ping { head, ..Ping::default() }));
                }
                let trie = match cx.feed.frozen() {
                    Some(frozen) => frozen.section(&section),
                    None => cx.feed.set().section(&section),
                };
                let paths = paths.into_iter().take(MAX_REQUESTED);
                let sane = |path: &Vec<u8>| path.len() <= MAX_DEPTH && path.iter().all(|nibble| *nibble < 16);
                let tops = paths.filter(sane).map(|path| {
                    let node = TrieNode::of(&trie.at(&path));
                    (path, node)
                });
                let response = ResyncResponse::Tops { section, tops: tops.collect() };
                self.respond(response, cx);
            }
            ResyncRequest::Objects(keys) => {
                let keys: Vec<_> = keys.into_iter().take(MAX_REQUESTED).collect();
                let count = keys.len() as u64;
                let objects = keys.into_iter().map(|key| PendingAnswer::Object { key, uid: String::new() });
                self.server.answers.extend(objects.chain([PendingAnswer::Objects(count)]));
            }
            ResyncRequest::Done { .. } => {}
        }
    }

    fn serve_sections(&mut self, challenge: Option<&str>, cx: &mut Cx<'_>) {
        self.counters.resyncs_served += 1;
        self.server.announced = cx.feed.head();
        cx.feed.freeze(challenge.is_some());
        let set = cx.feed.set();
        if set.sections().count() > MAX_SECTIONS {
            let message = format!("objects are of more than {MAX_SECTIONS} kinds and namespaces");
            self.go_away("too-many-sections", &message, Some(STAY_AWAY), cx);
            return;
        }
        let sections = set.sections().map(|(key, trie)| (key.clone(), trie.hash())).collect();
        let proof = challenge.and_then(|challenge| self.prove_head(challenge, cx));
        self.respond(ResyncResponse::Sections { cursor: cx.feed.cursor(), sections, proof }, cx);
    }

    fn respond(&mut self, response: ResyncResponse, cx: &mut Cx<'_>) {
        self.counters.resync_frames += 1;
        cx.send(Frame::ResyncResponse(Box::new(response)));
    }

    /// The resync of the source document, as asked of us.
    pub(super) fn interop(&mut self, interop: Interop, cx: &mut Cx<'_>) {
        match interop {
            Interop::RequestResync => {
                if !self.resync.is_busy() {
                    self.want_resync(cx);
                }
            }
            // Who has the trie resync has no need of it, and one at a time is enough.
            Interop::RequestList { .. } if self.both.trie_resync || self.server.list.is_some() => {}
            Interop::RequestList { checksum } => {
                let not_before = self.server.listed.map(|at| at.plus(LIST_EVERY)).filter(|at| *at > cx.now);
                let list = InventoryList { checksum: Some(checksum), not_before, after: None };
                self.server.list = Some(Box::new(list));
                self.server.answers.push_back(PendingAnswer::List);
            }
            Interop::Listed(resource) => self.listed(&resource, cx),
            Interop::RequestUpdate(resource) => {
                let key = key_of(&resource);
                let same = cx
                    .feed
                    .stub(&key)
                    .is_some_and(|stub| Some(stub.digest) == resource.checksum && *stub.uid == *resource.uid);
                if !same {
                    self.server.answers.push_back(PendingAnswer::Object { key, uid: resource.uid });
                }
            }
        }
    }

    /// A ping comes back once the answers before it were sent.
    pub(super) fn pinged(&mut self, ping: Ping) {
        self.server.answers.push_back(PendingAnswer::Pong(ping.number));
    }

    /// Sends answers, as far as no content is waited for.
    pub(super) fn answer(&mut self, cx: &mut Cx<'_>) {
        while self.out.load.is_none() {
            let mut wanted = Vec::new();
            let mut bytes = 0;
            while let Some(PendingAnswer::Object { key, uid }) = self.server.answers.front() {
                let (rev, state) = match cx.feed.get(key) {
                    Some((rev, state)) => (rev, state.clone()),
                    None => (cx.feed.head(), ObjectState::Deleted { uid: uid.as_str().into() }),
                };
                let size = state.size().unwrap_or(0);
                let limits = &self.config.limits;
                if !wanted.is_empty()
                    && (wanted.len() >= limits.load_events || size.saturating_add(bytes) > limits.batch_bytes)
                {
                    break;
                }
                bytes = size.saturating_add(bytes);
                wanted.push(Planned { key: key.clone(), rev, state, purpose: Purpose::Answer });
                self.server.answers.pop_front();
            }
            if !wanted.is_empty() {
                self.load(wanted, cx);
                continue;
            }
            if matches!(self.server.answers.front(), Some(PendingAnswer::List)) && !self.list(cx) {
                return;
            }
            match self.server.answers.pop_front() {
                Some(PendingAnswer::Objects(count)) => self.respond(ResyncResponse::Objects(count), cx),
                Some(PendingAnswer::Pong(number)) => {
                    cx.send(Frame::Pong(Pong { number, head: cx.feed.head() }))
                }
                Some(PendingAnswer::Object { .. } | PendingAnswer::List) => {}
                None => return,
            }
        }
    }

    /// Sends the next part of the list; whether all of it is sent.
    fn list(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(mut list) = self.server.list.take() else { return true };
        if let Some(checksum) = list.checksum {
            list.not_before = list.not_before.filter(|at| *at > cx.now);
            if list.not_before.is_none()
                && let Err(wait) = self.take_permit(cx)
            {
                list.not_before = Some(cx.now.plus(wait));
            }
            if list.not_before.is_some() {
                self.server.list = Some(list);
                return false;
            }
            list.checksum = None;
            let ours = interop::inventory_checksum(cx.feed.objects().map(|(key, stub)| (key, &*stub.uid)));
            if ours == checksum {
                self.server.listed = Some(cx.now);
                return true;
            }
        }
        let (after, mut sent) = (list.after.take(), 0);
        for (key, stub) in cx.feed.objects_after(after.as_ref()).take(LISTED) {
            let listed = Interop::Listed(resource(key, &stub.uid, None));
            cx.out.push(Output::Send(Frame::Interop(Box::new(listed))));
            sent += 1;
            list.after = Some(key.clone());
        }
        if sent < LISTED {
            self.server.listed = Some(cx.now);
            return true;
        }
        self.server.list = Some(list);
        // The next part goes when the shell has room for more.
        self.out.load = Some(Vec::new());
        cx.out.push(Output::Load(Vec::new()));
        false
    }
}
