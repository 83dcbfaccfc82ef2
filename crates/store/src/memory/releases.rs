//! Releases, and what outlives them.

use std::collections::{BTreeMap, BTreeSet};

use model::chunk::Chunk;
use model::{Digest, NodeId, Timestamp};

use super::State;
use crate::closure::decode;
use crate::error::{CommitError, Result};
use crate::log::{self, Sort};
use crate::record::{ChannelHead, FactRecord, NewRelease, Pruned, Release, Retention};

impl State {
    pub(super) fn commit_release(&mut self, new: NewRelease) -> Result<(), CommitError> {
        let expected = new.expected_head;
        let release = Release::from(new);
        let head = self.releases.keys().next_back().copied();
        if self.releases.get(&release.seq) == Some(&release) {
            return Ok(());
        }
        if release.headers.is_empty() {
            return Err(CommitError::NoHeader);
        }
        if head != expected || head.is_some_and(|head| head >= release.seq) {
            return Err(CommitError::HeadMoved { head });
        }
        if !matches!(self.chunk(&release.selection)?, Some(Chunk::Selection { .. })) {
            return Err(CommitError::NotComplete { missing: vec![release.selection] });
        }
        for (channel, header) in &release.headers {
            let head = ChannelHead {
                channel: channel.clone(),
                seq: release.seq,
                header: header.clone(),
                beacon: None,
                selection: release.selection,
            };
            self.heads.insert(channel.clone(), head);
        }
        self.releases.insert(release.seq, release);
        Ok(())
    }

    pub(super) fn prune(&mut self, now: Timestamp, retention: &Retention) -> Result<Pruned> {
        let objects = self.prune_sets();
        let tasks = self.prune_tasks(retention.finished_tasks);
        let nodes = self.prune_nodes(now.minus(retention.removed_nodes));
        let facts = self.prune_facts(retention);
        let releases = self.prune_releases(retention.releases);
        let nonces = self.prune_nonces(now.minus(crate::NONCE_KEPT));
        let roots = self.releases.values().map(|release| release.selection).collect();
        let (chunks, contents) = self.collect(roots, now.minus(retention.grace))?;
        Ok(Pruned { facts, releases, chunks, contents, nonces, nodes, objects, tasks })
    }

    fn prune_nodes(&mut self, cutoff: Timestamp) -> u64 {
        let before = self.nodes.len();
        self.nodes.retain(|_, node| node.record.removed.is_none_or(|removed| removed >= cutoff));
        let gone = before - self.nodes.len();
        self.logs.retain(|(node, _), _| self.nodes.contains_key(node));
        self.facts.retain(|_, record| self.nodes.contains_key(&record.node));
        gone as u64
    }

    fn prune_facts(&mut self, retention: &Retention) -> u64 {
        let before = self.facts.len();
        let mut seen: BTreeMap<(NodeId, Sort), usize> = BTreeMap::new();
        let mut kept = BTreeSet::new();
        for (id, record) in self.facts.iter().rev() {
            let sort = log::sort_of(&record.fact);
            let seen = seen.entry((record.node.clone(), sort)).or_default();
            *seen += 1;
            let limit = match sort {
                Sort::Run => retention.runs_per_node,
                Sort::Action => retention.action_facts_per_node,
                Sort::Other => retention.facts_per_node,
            };
            if *seen <= limit {
                kept.insert(*id);
            }
        }
        self.facts.retain(|id, _: &mut FactRecord| kept.contains(id));
        self.actions.retain(|_, ids| {
            ids.retain(|id| kept.contains(id));
            !ids.is_empty()
        });
        (before - self.facts.len()) as u64
    }

    fn prune_releases(&mut self, newest: usize) -> u64 {
        let before = self.releases.len();
        let mut kept: BTreeSet<u64> = self.releases.keys().rev().take(newest.max(1)).copied().collect();
        kept.extend(self.heads.values().map(|head| head.seq));
        self.releases.retain(|seq, _| kept.contains(seq));
        (before - self.releases.len()) as u64
    }

    fn prune_nonces(&mut self, cutoff: Timestamp) -> u64 {
        let before = self.nonces.len();
        self.nonces.retain(|_, expires_at| *expires_at >= cutoff);
        (before - self.nonces.len()) as u64
    }

    pub(super) fn integrity(&self) -> Vec<String> {
        let wrong = |digest: &Digest, body: &[u8]| {
            let hash = decode(body).ok().and_then(|chunk| chunk.hash().ok());
            (hash != Some(*digest)).then(|| format!("chunk {digest} is not what its name says"))
        };
        self.chunks.iter().filter_map(|(digest, chunk)| wrong(digest, &chunk.body)).collect()
    }
}
