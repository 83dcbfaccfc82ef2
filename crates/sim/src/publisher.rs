//! Operators: releases with random content, signed; what each node should hold.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::policy::RunTimes;
use model::selection::PatternEntry;
use model::trie::Trie;
use model::{
    Channel, Digest, Hostname, Kind, ObjectKey, ObjectSet, Selection, SelectionEntry, Stub, Timestamp,
};
use plane::heads::Patterns;
use plane::{Head, Heads};
use trust::adopt::takes;
use trust::release::Fallback;
use trust::signed::{digest, sign};
use trust::{Beacon, Header, SigningKey, Slots, TrustDocument};

use crate::chance::Chance;

/// How long a release is fresh without a beacon.
pub(crate) const FRESH: Duration = Duration::from_secs(2 * 3600);
/// Seconds between contacts that nodes are asked for.
const CONTACT_SECS: u64 = 120;
const CHANNELS: [&str; 2] = ["main", "canary"];
/// The most modules that a node gets.
const MODULES: usize = 12;

pub(crate) struct Publisher {
    key: SigningKey,
    pub(crate) trust: TrustDocument,
    /// What the channels point to now.
    pub(crate) heads: Heads,
    /// Every header ever signed, by its digest.
    pub(crate) signed: BTreeMap<Digest, Arc<Head>>,
    pub(crate) sets: BTreeMap<Digest, ObjectSet>,
    pub(crate) contents: BTreeMap<Digest, String>,
    /// For each host named in releases: its channel and the version of each module, 0 for none.
    hosts: BTreeMap<String, (usize, [u32; MODULES])>,
    seq: u64,
}

impl Publisher {
    /// An operator of hosts by name, and of all that are called `edge-*`.
    pub(crate) fn new(names: &[Hostname], chance: &mut Chance) -> Publisher {
        let key = SigningKey::from_seed(&[1; 32]);
        let (fleet, root) = ("sim-1".parse().unwrap(), SigningKey::from_seed(&[2; 32]).public());
        let trust = TrustDocument::first(fleet, Slots::of(key.public()), Slots::of(root));
        let named = names.iter().map(Hostname::as_str).filter(|name| !name.starts_with("edge-"));
        let hosts = named.chain(["edge-*"]).map(|name| (name.to_owned(), (0, [0; MODULES]))).collect();
        let mut publisher = Publisher {
            key,
            trust,
            heads: Heads::default(),
            signed: BTreeMap::new(),
            sets: BTreeMap::new(),
            contents: BTreeMap::new(),
            hosts,
            seq: 0,
        };
        for (_, modules) in publisher.hosts.values_mut() {
            modules.iter_mut().for_each(|version| *version = chance.below(3) as u32);
        }
        publisher
    }

    /// What a hostname is to hold: the newest release of its channel.
    pub(crate) fn expected(&self, hostname: &Hostname) -> Option<(Arc<Head>, SelectionEntry)> {
        self.heads.pointed(hostname)
    }

    /// Publishes a new release; sometimes with the same content, sometimes naming a fallback.
    pub(crate) fn publish(&mut self, now: Timestamp, chance: &mut Chance) {
        self.seq += 1;
        for (channel, modules) in self.hosts.values_mut() {
            for _ in 0..chance.below(3) {
                modules[chance.below(MODULES)] = chance.below(6) as u32;
            }
            if chance.one_in(6) {
                *channel = chance.below(CHANNELS.len());
            }
        }
        let selection = Arc::new(self.selection());
        let patterns = Arc::new(Patterns::read(&selection).unwrap());
        let mut heads = Heads {
            version: self.heads.version + 1,
            channels: BTreeMap::new(),
            earlier: BTreeMap::new(),
            node_header: None,
        };
        for channel in CHANNELS {
            let channel: Channel = channel.parse().unwrap();
            let before = self.heads.channels.get(&channel);
            let named = before.filter(|_| chance.one_in(3));
            let fallbacks = named
                .map(|head| Fallback { seq: head.header.seq, header: head.digest })
                .into_iter()
                .collect();
            let header = Header {
                fleet: self.trust.fleet.clone(),
                channel: channel.clone(),
                seq: self.seq,
                label: None,
                created: now,
                selection: selection.root().unwrap(),
                freshness_secs: FRESH.as_secs(),
                fallbacks,
                requires: Vec::new(),
                rollout: None,
            };
            let signed = sign(&header, &[&self.key]).unwrap();
            let head = Arc::new(Head {
                digest: digest(&signed),
                signed: Arc::new(signed),
                beacon: None,
                signed_at: now,
                contact_secs: CONTACT_SECS,
                minimum_agent: None,
                runs: Some(RunTimes::default()),
                selection: selection.clone(),
                patterns: patterns.clone(),
                header,
            });
            self.signed.insert(head.digest, head.clone());
            heads.channels.insert(channel, head);
        }
        self.heads = heads;
    }

    /// Says of the heads that they still count.
    pub(crate) fn beacon(&mut self, now: Timestamp) {
        self.heads.version += 1;
        for head in self.heads.channels.values_mut() {
            let beacon = Beacon {
                fleet: head.header.fleet.clone(),
                channel: head.header.channel.clone(),
                seq: head.header.seq,
                header: head.digest,
                at: now,
            };
            let mut renewed = (**head).clone();
            renewed.beacon = Some(Arc::new(sign(&beacon, &[&self.key]).unwrap()));
            renewed.signed_at = now;
            *head = Arc::new(renewed);
        }
    }

    fn selection(&mut self) -> Selection {
        let (mut exact, mut patterns) = (vec![], vec![]);
        for (name, (channel, modules)) in self.hosts.clone() {
            let entry =
                SelectionEntry { channel: CHANNELS[channel].parse().unwrap(), root: self.set(&modules) };
            match name.parse::<Hostname>() {
                Ok(hostname) => exact.push(Selection::leaf(&hostname, &entry)),
                Err(_) => patterns.push(PatternEntry { pattern: name, except: vec![], entry }),
            }
        }
        Selection::new(Trie::build(exact), patterns)
    }

    fn set(&mut self, modules: &[u32; MODULES]) -> Digest {
        let mut set = ObjectSet::new();
        for (module, version) in modules.iter().enumerate().filter(|(_, version)| **version > 0) {
            let content = format!(r#"{{"module":{module},"version":{version}}}"#);
            let stub = Stub::of(content.as_bytes());
            self.contents.insert(stub.digest, content);
            set.insert(ObjectKey::of(Kind::MODULE, &format!("m{module}")), stub);
        }
        let root = set.root();
        self.sets.insert(root, set);
        root
    }
}

/// What a release gives to a hostname.
pub(crate) fn entry_in(head: &Head, hostname: &Hostname) -> Option<SelectionEntry> {
    head.selection.entry(hostname.as_str(), &takes)
}
