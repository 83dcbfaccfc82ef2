//! Heads as the control plane loads them, from signed headers.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

use std::sync::Arc;

use model::exchange::{CheckIn, HeldRelease};
use model::policy::RunTimes;
use model::selection::PatternEntry;
use model::trie::Trie;
use model::{Channel, Digest, Hostname, Selection, SelectionEntry, Timestamp};
use plane::heads::Patterns;
use plane::{Head, Heads, NodeState};
use trust::signed::{digest, sign};
use trust::{Header, SigningKey};

pub const CREATED: Timestamp = Timestamp::from_secs(1_800_000_000);
pub const FRESH_SECS: u64 = 86_400;
pub const CONTACT_SECS: u64 = 120;

pub fn release_key() -> SigningKey {
    SigningKey::from_seed(&[1; 32])
}

pub fn name(text: &str) -> Hostname {
    text.parse().unwrap()
}

pub fn channel(text: &str) -> Channel {
    text.parse().unwrap()
}

pub fn root(content: &str) -> Digest {
    Digest::of(content.as_bytes())
}

pub fn entry(channel_name: &str, content: &str) -> SelectionEntry {
    SelectionEntry { channel: channel(channel_name), root: root(content) }
}

pub fn pattern(pattern: &str, except: &[&str], entry: SelectionEntry) -> PatternEntry {
    let except = except.iter().map(|text| (*text).to_owned()).collect();
    PatternEntry { pattern: pattern.to_owned(), except, entry }
}

pub fn selection(exact: &[(&str, SelectionEntry)], patterns: Vec<PatternEntry>) -> Selection {
    let leaves = exact.iter().map(|(hostname, entry)| Selection::leaf(&name(hostname), entry));
    Selection::new(Trie::build(leaves), patterns)
}

pub fn head(seq: u64, channel_name: &str, selection: &Selection) -> Arc<Head> {
    let header = Header {
        fleet: "acme-1".parse().unwrap(),
        channel: channel(channel_name),
        seq,
        label: None,
        created: CREATED,
        selection: selection.root().unwrap(),
        freshness_secs: FRESH_SECS,
        fallbacks: vec![],
        requires: vec![],
        rollout: None,
    };
    let signed = sign(&header, &[&release_key()]).unwrap();
    Arc::new(Head {
        digest: digest(&signed),
        signed: Arc::new(signed),
        beacon: None,
        signed_at: header.created,
        contact_secs: CONTACT_SECS,
        minimum_agent: None,
        runs: Some(RunTimes::default()),
        patterns: Arc::new(Patterns::read(selection).unwrap()),
        selection: Arc::new(selection.clone()),
        header,
    })
}

pub fn heads(version: u64, of: Vec<Arc<Head>>) -> Heads {
    let channels = of.into_iter().map(|head| (head.header.channel.clone(), head)).collect();
    Heads { version, channels, earlier: Default::default(), node_header: None }
}

/// The key of [`node`].
pub fn node_key() -> SigningKey {
    SigningKey::from_seed(&[7; 32])
}

pub fn node(hostname: &str) -> NodeState {
    let key = node_key().public();
    NodeState::new(key.node_id(), name(hostname), key, CREATED)
}

/// A check-in that says what is held.
pub fn holding(held: Option<HeldRelease>) -> CheckIn {
    CheckIn {
        held,
        incarnation: "i1".parse().unwrap(),
        facts: vec![],
        run: None,
        unmade_run: None,
        freshness: None,
        running_since: None,
        traits: None,
        full: false,
        run_confirmed: None,
        tagged_run_confirmed: None,
        seen: None,
        header: None,
        acked: None,
        trust: None,
        renewal_failure: None,
        unadopted: None,
        instance: None,
        capabilities: None,
    }
}

/// A head as a node holds it.
pub fn held(head: &Head, content: &str) -> HeldRelease {
    let (channel, seq) = (head.header.channel.clone(), head.header.seq);
    HeldRelease { channel, seq, header: head.digest, root: root(content) }
}
