//! Nodes and their facts.

use model::exchange::Held;
use model::log::{Cursor, Fact};
use model::{Incarnation, NodeId, Timestamp};

use super::{Node, State, derived};
use crate::enrollment::{self, Before, Known};
use crate::error::{EnrollError, Result, StoreError};
use crate::record::{Accepted, Enrolled, FactRecord, NewNode, NodeRecord, RunRecord, TokenUse, Touch};
use crate::{MAX_LISTED, log};

impl State {
    pub(super) fn active(&mut self, node: &NodeId) -> Result<&mut Node> {
        let active = self.nodes.get_mut(node).filter(|node| node.record.removed.is_none());
        active.ok_or_else(|| StoreError::UnknownNode(node.clone()))
    }

    pub(super) fn enroll(
        &mut self,
        node: NewNode,
        token: TokenUse,
        now: Timestamp,
    ) -> Result<Enrolled, EnrollError> {
        let before = Before {
            same_id: self.nodes.get(&node.node_id).map(known),
            same_hostname: self.hostnames.get(&node.hostname).cloned(),
            nonce_burned: self.nonces.contains_key(&token.nonce),
        };
        let enrolled = enrollment::decide(&node, &token.nonce, &before)?;
        self.nonces.insert(token.nonce.clone(), token.expires_at);
        self.hostnames.insert(node.hostname.clone(), node.node_id.clone());
        let old = self.nodes.remove(&node.node_id);
        let node_id = node.node_id.clone();
        if enrolled == Enrolled::New {
            // What is left of a former incarnation, like its contacts.
            self.sync.remove(&node_id);
        }
        self.nodes.insert(node_id, recorded(node, token.nonce, old, enrolled, now));
        Ok(enrolled)
    }

    pub(super) fn remove_node(&mut self, node: &NodeId, now: Timestamp) -> bool {
        let Ok(node) = self.active(node) else { return false };
        node.record.removed = Some(now);
        node.record.push = None;
        let hostname = node.record.hostname.clone();
        self.hostnames.remove(&hostname);
        true
    }

    pub(super) fn touch(&mut self, touch: Touch) {
        let Ok(node) = self.active(&touch.node) else { return };
        let record = &mut node.record;
        if record.last_seen.is_some_and(|seen| seen > touch.last_seen) {
            return;
        }
        record.last_seen = Some(touch.last_seen);
        record.promised_secs = touch.promised_secs;
        record.held = touch.held.or_else(|| record.held.take());
        record.run = touch.run.or_else(|| record.run.take());
    }

    pub(super) fn append_facts(
        &mut self,
        node: &NodeId,
        incarnation: &Incarnation,
        facts: Vec<Fact>,
        now: Timestamp,
    ) -> Result<Accepted> {
        self.active(node)?;
        let name = (node.clone(), incarnation.clone());
        let after = self.logs.get(&name).copied().unwrap_or(0);
        let new = log::contiguous(after, facts);
        let seq = new.last().map_or(after, |fact| fact.seq);
        for fact in &new {
            self.last_fact += 1;
            let (node, incarnation) = name.clone();
            let record =
                FactRecord { id: self.last_fact, node, incarnation, received: now, fact: fact.clone() };
            if let Some(action) = log::action_of(fact) {
                let name = (record.node.clone(), action.id.clone());
                self.actions.entry(name).or_default().insert(self.last_fact);
            }
            self.facts.insert(self.last_fact, record);
        }
        let cursor = Cursor { incarnation: incarnation.clone(), seq };
        if !new.is_empty() {
            self.logs.insert(name, seq);
        }
        let record = &mut self.active(node)?.record;
        let after = derived(record).after(incarnation, &new);
        (record.streak, record.last_run) = (after.streak, after.last_run.clone());
        if !new.is_empty() {
            record.cursor = Some(cursor.clone());
        }
        Ok(Accepted { cursor, new, streak: after.streak, last_run: after.last_run })
    }

    /// Facts of an action, oldest first.
    pub(super) fn action_facts(&self, node: &NodeId, action: &str) -> impl Iterator<Item = &FactRecord> {
        let ids = self.actions.get(&(node.clone(), action.to_owned()));
        ids.into_iter().flatten().filter_map(|id| self.facts.get(id))
    }

    /// Facts below an id, newest first.
    pub(super) fn newest_facts(&self, before: Option<u64>) -> impl Iterator<Item = &FactRecord> {
        self.facts.range(..before.unwrap_or(u64::MAX)).rev().map(|(_, record)| record)
    }
}

/// A limit held to its bound.
pub(super) fn listed(limit: usize) -> usize {
    limit.min(MAX_LISTED)
}

pub(super) fn run_record(record: &FactRecord) -> Option<RunRecord> {
    let report = log::run_of(&record.fact)?.clone();
    Some(RunRecord {
        id: record.id,
        node: record.node.clone(),
        incarnation: record.incarnation.clone(),
        seq: record.fact.seq,
        at: record.fact.at,
        received: record.received,
        report,
    })
}

fn known(node: &Node) -> Known {
    Known {
        hostname: node.record.hostname.clone(),
        public_key: node.record.public_key.clone(),
        active: node.record.removed.is_none(),
        cert_used: node.record.cert_used,
        nonce: node.nonce.clone(),
    }
}

fn recorded(new: NewNode, nonce: String, old: Option<Node>, enrolled: Enrolled, now: Timestamp) -> Node {
    let traits = old.as_ref().and_then(|old| old.traits.clone());
    let again = old.map(|old| old.record).filter(|_| enrolled == Enrolled::Again);
    let fresh = NodeRecord {
        node_id: new.node_id,
        hostname: new.hostname,
        public_key: new.public_key,
        enrolled: now,
        removed: None,
        cert_not_before: new.cert_not_before,
        cert_serial: new.cert_serial,
        cert_used: false,
        key_confirmed: new.key_confirmed,
        declared: new.declared,
        last_seen: None,
        promised_secs: 0,
        held: None::<Held>,
        run: None,
        last_run: None,
        streak: 0,
        cursor: None,
        traits: traits.as_ref().map(|traits| traits.digest),
        seen: None,
        push: None,
    };
    let record = match again {
        None => fresh,
        Some(old) => NodeRecord {
            cert_not_before: fresh.cert_not_before,
            cert_serial: fresh.cert_serial,
            cert_used: false,
            key_confirmed: old.key_confirmed || fresh.key_confirmed,
            declared: fresh.declared,
            ..old
        },
    };
    Node { record, nonce, traits }
}
