//! A node on a bench: its inputs given by hand, its effects looked at.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

pub mod rollouts;

use std::collections::BTreeSet;
use std::time::Duration;

use converge::ResourceId;
use model::exchange::{Answer, CheckIn, Offer, SetOffer, TraitReport};
use model::log::FactBody;
use model::report::PartialRun;
use model::trie::Trie;
use model::{
    Action, Digest, Kind, ObjectKey, ObjectSet, ResourceReport, RunCounts, RunReport, Selection,
    SelectionEntry, Stub, Timestamp,
};
use node::{
    Adoption, CheckInWay, HeldSettings, Identity, Node, NodeEffect, NodeInput, ObservedTraits, RequestNumber,
    Restored, RunOrder, TrialReport, TrialStage,
};
use trust::adopt::takes;
use trust::signed::sign;
use trust::{Header, SigningKey, Slots, TrustDocument};

pub const START: Timestamp = Timestamp::from_secs(1_800_000_000);
pub const HOST: &str = "web-1";
pub const FRESH: Duration = Duration::from_secs(86_400);

pub fn release_key() -> SigningKey {
    SigningKey::from_seed(&[1; 32])
}

/// A release that gives web-1 these modules.
pub struct Release {
    pub header: Header,
    pub set: ObjectSet,
    selection: Selection,
    contents: Vec<String>,
}

impl Release {
    pub fn new(seq: u64, created: Timestamp, modules: &[&str]) -> Release {
        let objects = modules
            .iter()
            .map(|content| (ObjectKey::of(Kind::MODULE, content), Stub::of(content.as_bytes())));
        let set = ObjectSet::of(objects);
        let entry = SelectionEntry { channel: "main".parse().unwrap(), root: set.root() };
        let leaf = Selection::leaf(&HOST.parse().unwrap(), &entry);
        let selection = Selection::new(Trie::build([leaf]), vec![]);
        let header = Header {
            fleet: "acme-1".parse().unwrap(),
            channel: entry.channel,
            seq,
            label: None,
            created,
            selection: selection.root().unwrap(),
            freshness_secs: FRESH.as_secs(),
            fallbacks: vec![],
            requires: vec![],
            rollout: None,
        };
        let contents = modules.iter().map(|content| (*content).to_owned()).collect();
        Release { header, set, selection, contents }
    }

    /// As offered to a node that holds a set; `None` offers the whole.
    pub fn offer(&self, base: Option<&ObjectSet>) -> Offer {
        let entry = self.selection.entry(HOST, &takes).unwrap();
        let delta = base.cloned().unwrap_or_default().delta_to(&self.set);
        let set = SetOffer { base: base.map(ObjectSet::root), delta, contents: self.contents.clone() };
        let same = base.is_some_and(|base| base.root() == self.set.root());
        Offer {
            header: sign(&self.header, &[&release_key()]).unwrap(),
            beacon: None,
            entry,
            proof: self.selection.prove(HOST, None).unwrap(),
            set: (!same).then_some(set),
        }
    }
}

pub fn answer() -> Answer {
    Answer {
        next_checkin_secs: 300,
        acked: None,
        offer: None,
        beacon: None,
        run_request: None,
        tagged_run: None,
        rollout: None,
        stream_requested: false,
        want_traits: false,
        want_seen: false,
        want_header: false,
        want_run: false,
        unassigned: false,
        same_cause: Default::default(),
        server_time: None,
        trust_links: Vec::new(),
        renew_certificate: false,
        want_capabilities: false,
        identity_copied: false,
    }
}

pub fn offering(offer: Offer) -> Answer {
    Answer { offer: Some(offer), ..answer() }
}

pub fn traits(text: &str) -> TraitReport {
    TraitReport::whole(Digest::of(text.as_bytes()), serde_json::json!({ "os": text }))
}

/// All of them count.
pub fn observed(report: &TraitReport) -> NodeInput {
    NodeInput::Traits(ObservedTraits { report: report.clone(), read: None })
}

pub fn report(changed: u32, ok: u32) -> RunReport {
    let counts = RunCounts { ok, changed, ..RunCounts::default() };
    RunReport {
        started: START,
        duration_ms: 3,
        seq: 1,
        root: Digest::ZERO,
        intended: false,
        paused: None,
        partial: None,
        unknown_tags: vec![],
        unswitched: Vec::new(),
        counts,
        items: vec![],
    }
}

/// Files of the module `m`.
pub fn ids(names: &[&str]) -> BTreeSet<ResourceId> {
    names.iter().map(|name| ResourceId::new("m", "file", name)).collect()
}

/// What a run over these reports: each with this action, where it is not simply right.
pub fn healed(found: &[(&str, Action)]) -> RunReport {
    let items: Vec<ResourceReport> = found
        .iter()
        .filter(|(_, action)| *action != Action::Ok)
        .map(|(name, action)| ResourceReport {
            resource: ResourceId::new("m", "file", name).to_string(),
            action: *action,
            edit: None,
            reason: None,
            cause: None,
            duration_ms: 0,
        })
        .collect();
    let count = |wanted: Action| u32::try_from(found.iter().filter(|(_, a)| *a == wanted).count()).unwrap();
    let counts = RunCounts {
        ok: count(Action::Ok),
        changed: count(Action::Changed),
        failed: count(Action::Failed),
        would_change: count(Action::WouldChange),
        ..RunCounts::default()
    };
    let partial = Some(PartialRun::Resources(u32::try_from(found.len()).unwrap()));
    RunReport { counts, items, partial, ..report(0, 0) }
}

/// The trust document that the node joined with.
pub fn trust() -> TrustDocument {
    let root = Slots::of(SigningKey::from_seed(&[2; 32]).public());
    TrustDocument::first("acme-1".parse().unwrap(), Slots::of(release_key().public()), root)
}

/// The node, and the time.
pub struct Bench {
    pub node: Node,
    pub now: Timestamp,
    pub traits: TraitReport,
    /// What was to be kept and told of freshness, all of it.
    pub freshness: Vec<NodeEffect>,
    /// Runs begun.
    pub runs: u32,
    /// How each check-in was sent.
    pub ways: Vec<CheckInWay>,
    /// The newest request to activate a release.
    pub requests: RequestNumber,
    collecting: bool,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::restored(Restored::default())
    }

    pub fn restored(restored: Restored) -> Bench {
        Bench::restored_at(restored, START)
    }

    /// The agent starts at this time.
    pub fn restored_at(restored: Restored, now: Timestamp) -> Bench {
        let trust = trust();
        let (hostname, incarnation) = (HOST.parse().unwrap(), "i1".parse().unwrap());
        let identity = Identity { hostname, incarnation, trust, built: Timestamp(0) };
        Bench {
            node: Node::new(identity, restored, 7, now),
            now,
            traits: traits("debian"),
            freshness: Vec::new(),
            runs: 0,
            ways: Vec::new(),
            requests: RequestNumber::default(),
            collecting: false,
        }
    }

    /// A node that adopted this release and made its first run.
    pub fn holding(release: &Release) -> Bench {
        let mut bench = Bench::new();
        bench.adopt(release);
        bench.give(NodeInput::Ran(Box::new(report(0, 1))));
        bench
    }

    pub fn give(&mut self, input: NodeInput) -> Vec<NodeEffect> {
        let got_traits = matches!(input, NodeInput::Traits(_));
        let effects = self.node.handle(input, self.now);
        let of_freshness = |effect: &&NodeEffect| {
            matches!(effect, NodeEffect::SaveFreshness(_) | NodeEffect::Append(FactBody::Freshness { .. }))
        };
        self.freshness.extend(effects.iter().filter(of_freshness).cloned());
        self.runs += u32::from(run_of(&effects).is_some());
        self.requests = rollouts::begun(&effects).map_or(self.requests, |request| request.number);
        self.ways.extend(effects.iter().filter_map(|effect| match effect {
            NodeEffect::CheckIn(_, way) => Some(*way),
            _ => None,
        }));
        self.collecting = effects.contains(&NodeEffect::CollectTraits) || (self.collecting && !got_traits);
        effects
    }

    /// How the activation stands after all requests.
    pub fn trial(&mut self, stage: TrialStage) -> Vec<NodeEffect> {
        self.give(NodeInput::Trial(TrialReport { stage, heard: self.requests }))
    }

    pub fn pass(&mut self, time: Duration) -> Vec<NodeEffect> {
        self.now = self.now.plus(time);
        self.give(NodeInput::Tick)
    }

    /// Waits until a check-in is due, and lets it be sent. Runs on the way change nothing.
    pub fn check_in(&mut self) -> CheckIn {
        for _ in 0..5000 {
            let input = if self.collecting { observed(&self.traits) } else { NodeInput::Tick };
            if !self.collecting {
                let (at, _) = self.node.next_deadline().expect("something is due");
                self.now = self.now.max(at);
            }
            let effects = self.give(input);
            if run_of(&effects).is_some() {
                self.give(NodeInput::Ran(Box::new(report(0, 1))));
            }
            if let Some(check_in) = sent(&effects) {
                return check_in.clone();
            }
        }
        panic!("no check-in");
    }

    /// A whole exchange; what the answer leads to.
    pub fn exchange(&mut self, answer: Answer) -> Vec<NodeEffect> {
        self.check_in();
        self.give(NodeInput::Answered(Box::new(answer)))
    }

    /// Adopts a release, with all in between.
    pub fn adopt(&mut self, release: &Release) -> Vec<NodeEffect> {
        let held = self.node.adoption().map(Adoption::set);
        self.exchange(offering(release.offer(held.as_ref())));
        assert!(adoption_of(&self.give(NodeInput::Fetched)).is_some());
        self.give(NodeInput::Adopted(HeldSettings::default()))
    }

    /// How long until the next check-in or run.
    pub fn wait(&self) -> Option<Duration> {
        self.node.next_deadline().map(|(at, _)| at.since(self.now))
    }
}

pub fn sent(effects: &[NodeEffect]) -> Option<&CheckIn> {
    effects.iter().find_map(|effect| match effect {
        NodeEffect::CheckIn(check_in, _) => Some(&**check_in),
        _ => None,
    })
}

pub fn run_of(effects: &[NodeEffect]) -> Option<&RunOrder> {
    effects.iter().find_map(|effect| match effect {
        NodeEffect::Run(order) => Some(order),
        _ => None,
    })
}

pub fn adoption_of(effects: &[NodeEffect]) -> Option<&Adoption> {
    effects.iter().find_map(|effect| match effect {
        NodeEffect::Adopt(adoption) => Some(&**adoption),
        _ => None,
    })
}

pub fn facts(effects: &[NodeEffect]) -> Vec<&FactBody> {
    let facts = effects.iter().filter_map(|effect| match effect {
        NodeEffect::Append(body) => Some(body),
        _ => None,
    });
    facts.collect()
}

pub fn warnings(effects: &[NodeEffect]) -> Vec<&str> {
    let warnings = effects.iter().filter_map(|effect| match effect {
        NodeEffect::Warn(text) => Some(text.as_str()),
        _ => None,
    });
    warnings.collect()
}
