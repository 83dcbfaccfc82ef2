//! A control plane's part in a play: the offer that it makes, the contents that it serves, and
//! what it is told.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use agent::identity::Membership;
use agent::state::StateDir;
use bytes::Bytes;
use catalog::module::{Declared, DeclaredResource, FileRef, Params};
use http::StatusCode;
use http::request::Parts;
use model::exchange::{Answer, CheckIn, HeldRelease, Offer, SetOffer};
use model::log::{Cursor, Fact};
use model::object::ObjectKey;
use model::policy::Policy;
use model::selection::SelectionEntry;
use model::trie::Trie;
use model::{Digest, Hostname, Kind, ObjectSet, Selection, Stub, Timestamp};
use net::ServerUrl;
use net::issue::Ca;
use trust::feature::ROLLOUT_FEATURE;
use trust::release::Fallback;
use trust::token::KeySource;
use trust::{Header, RolloutTerms, SigningKey, Slots, TrustDocument, signed};
use wire::{Code, Problem, route};

use crate::agent_state;

use super::{Reply, ScriptedControl, json, key, now, problem, reply};

pub const DAY: Duration = Duration::from_secs(24 * 3600);
/// The most of a content in one response.
pub const BLOB_PART: usize = 100_000;

/// What becomes of a part of a content on its way out.
pub type Spoil = fn(Vec<u8>) -> Vec<u8>;

/// What becomes of an answer to a check-in on its way out.
pub type Twist = Arc<dyn Fn(&mut Answer) + Send + Sync>;

/// What the control plane says at the moment, and what it received.
#[derive(Default)]
pub struct Play {
    pub offer: Option<Offer>,
    pub contents: BTreeMap<Digest, Vec<u8>>,
    /// What becomes of a content on its way out.
    pub spoil: Option<Spoil>,
    pub blobs_asked: usize,
    pub check_ins: usize,
    /// It answers nothing that helps.
    pub gone: bool,
    /// When the node is to call again; a minute when it does not say.
    pub next_checkin_secs: Option<u64>,
    pub stream_requested: bool,
    /// What becomes of each answer to a check-in on its way out.
    pub twist: Option<Twist>,
    pub held: Option<HeldRelease>,
    /// What the last check-in said.
    pub said: Option<CheckIn>,
    pub facts: BTreeMap<u64, Fact>,
}

#[derive(Clone, Default)]
pub struct Stage(Arc<Mutex<Play>>);

impl Stage {
    pub fn answer(&self, parts: &Parts, body: &Bytes) -> Reply {
        let mut play = self.0.lock().unwrap();
        if play.gone {
            return problem(&Problem::new(Code::StoreUnavailable, "it is gone"));
        }
        if parts.uri.path() == route::CHECKIN {
            return play.check_in(serde_json::from_slice(body).unwrap());
        }
        let digest = parts.uri.path().rsplit('/').next().unwrap().parse().unwrap();
        play.blobs_asked += 1;
        let Some(bytes) = play.contents.get(&digest) else {
            return problem(&Problem::new(Code::NotEntitled, "nothing"));
        };
        let range = parts.headers.get("range").unwrap().to_str().unwrap();
        let from: usize = range.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap().parse().unwrap();
        let total = bytes.len();
        let end = (from + BLOB_PART).min(total);
        let part = bytes[from.min(total)..end].to_vec();
        let part = play.spoil.map_or(part.clone(), |spoil| spoil(part));
        let mut response = reply(StatusCode::PARTIAL_CONTENT, "application/octet-stream", part);
        let range = format!("bytes {from}-{}/{total}", end.saturating_sub(1));
        response.headers_mut().insert("content-range", range.parse().unwrap());
        response
    }

    pub fn play(&self) -> MutexGuard<'_, Play> {
        self.0.lock().unwrap()
    }

    /// The newest fact's number.
    pub fn last(&self) -> u64 {
        self.play().facts.keys().next_back().copied().unwrap_or(0)
    }
}

impl Play {
    fn check_in(&mut self, said: CheckIn) -> Reply {
        self.check_ins += 1;
        self.held = said.held.clone();
        self.said = Some(said.clone());
        let seq = said.facts.last().map(|fact| fact.seq);
        self.facts.extend(said.facts.into_iter().map(|fact| (fact.seq, fact)));
        let mut answer = Answer {
            next_checkin_secs: self.next_checkin_secs.unwrap_or(60),
            acked: seq.map(|seq| Cursor { incarnation: said.incarnation, seq }),
            offer: self.offer.clone().filter(|offer| {
                self.held.as_ref().is_none_or(|held| held.header != signed::digest(&offer.header))
            }),
            beacon: None,
            run_request: None,
            tagged_run: None,
            rollout: None,
            stream_requested: self.stream_requested,
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
        };
        if let Some(twist) = &self.twist {
            twist(&mut answer);
        }
        json(&answer)
    }
}

/// What an offer is made from; an honest one unless something is twisted.
#[derive(Clone)]
pub struct OfferPlan {
    pub fleet: &'static str,
    pub channel: &'static str,
    pub label: Option<&'static str>,
    pub seq: u64,
    pub created: Timestamp,
    pub freshness: Duration,
    pub fallbacks: Vec<Fallback>,
    pub motd: String,
    pub blob: Option<Vec<u8>>,
    /// The settings of the channel.
    pub policy: Policy,
    /// What else is in the node's set.
    pub objects: Vec<(ObjectKey, Vec<u8>)>,
    /// What else its module makes of the host.
    pub resources: Vec<DeclaredResource>,
    pub signer: u8,
    /// How it reaches its nodes; at once where there is nothing.
    pub rollout: Option<RolloutTerms>,
}

/// The release key's number; every other key is nobody's.
pub const RELEASE: u8 = 2;
/// The root key's number.
pub const ROOT: u8 = 3;
/// The seed of the key that signs objects and actions in the control plane's name.
pub const CONTROL_PLANE: u8 = 4;

pub fn plan(seq: u64, motd: &str) -> OfferPlan {
    let (motd, created) = (motd.to_owned(), now());
    OfferPlan {
        fleet: "test-1",
        channel: "stable",
        label: None,
        seq,
        created,
        freshness: DAY,
        fallbacks: Vec::new(),
        motd,
        blob: None,
        policy: Policy::default(),
        objects: Vec::new(),
        resources: Vec::new(),
        signer: RELEASE,
        rollout: None,
    }
}

pub struct MadeOffer {
    pub offer: Offer,
    /// What the release gives to another node, with its proof.
    pub of_another: (SelectionEntry, model::selection::Proof),
    pub contents: BTreeMap<Digest, Vec<u8>>,
}

/// What is in the node's set, and each content.
pub fn objects(plan: &OfferPlan) -> Vec<(ObjectKey, Vec<u8>)> {
    let mut module = agent_state::module("base");
    let motd = match &plan.blob {
        None => agent_state::file("/etc/motd", &plan.motd),
        Some(blob) => {
            let (digest, size) = (Digest::of(blob), blob.len() as u64);
            module.files.insert("files/motd".to_owned(), FileRef { digest, size, executable: false });
            module.blobs.insert(Digest::of(blob));
            let source = [("source", "motd".into()), ("mode", "0644".into())];
            agent_state::resource("file", "/etc/motd", &source)
        }
    };
    module.resources.push(motd);
    module.resources.extend(plan.resources.iter().cloned());
    let params = Params {
        node: Declared { channel: plan.channel.to_owned(), ..Declared::default() },
        modules: vec!["base".to_owned()],
        ..Params::default()
    };
    let mut objects = vec![
        (ObjectKey::of(Kind::PARAMS, "node"), model::canonical::to_bytes(&params).unwrap()),
        (ObjectKey::of(Kind::POLICY, "channel"), model::canonical::to_bytes(&plan.policy).unwrap()),
        (ObjectKey::of(Kind::MODULE, "base"), model::canonical::to_bytes(&module).unwrap()),
    ];
    objects.extend(plan.objects.iter().cloned());
    objects
}

pub fn make(plan: &OfferPlan) -> MadeOffer {
    let objects = objects(plan);
    let set = ObjectSet::of(objects.iter().map(|(key, bytes)| (key.clone(), Stub::of(bytes))));
    let entry = SelectionEntry { channel: plan.channel.parse().unwrap(), root: set.root() };
    let stranger = SelectionEntry { root: Digest::of(b"another node's"), ..entry.clone() };
    let leaves = [("web-1", &entry), ("web-2", &stranger)];
    let leaves = leaves.map(|(name, entry)| Selection::leaf(&name.parse().unwrap(), entry));
    let selection = Selection::new(Trie::build(leaves), Vec::new());
    let header = Header {
        fleet: plan.fleet.parse().unwrap(),
        channel: plan.channel.parse().unwrap(),
        seq: plan.seq,
        label: plan.label.map(str::to_owned),
        created: plan.created,
        selection: selection.root().unwrap(),
        freshness_secs: plan.freshness.as_secs(),
        fallbacks: plan.fallbacks.clone(),
        requires: plan.rollout.iter().map(|_| ROLLOUT_FEATURE.to_owned()).collect(),
        rollout: plan.rollout.clone().map(Arc::new),
    };
    let delta = ObjectSet::new().delta_to(&set);
    let texts = objects.iter().map(|(_, bytes)| String::from_utf8(bytes.clone()).unwrap());
    let offer = Offer {
        header: signed::sign(&header, &[&key(plan.signer)]).unwrap(),
        beacon: None,
        proof: selection.prove("web-1", None).unwrap(),
        entry,
        set: Some(SetOffer { base: None, delta, contents: texts.collect() }),
    };
    let contents = objects.into_iter().map(|(_, bytes)| bytes).chain(plan.blob.clone());
    let of_another = (stranger, selection.prove("web-2", None).unwrap());
    MadeOffer { offer, of_another, contents: contents.map(|bytes| (Digest::of(&bytes), bytes)).collect() }
}

/// A host that joined this control plane, as `web-1`.
pub fn join(control: &ScriptedControl, state: &Path, root: &Path) {
    joined(control.url(), control.ca(), state, root, Commands::Refused);
}

/// Whether commands may run on a host whose root is a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Commands {
    Refused,
    Allowed,
}

/// Whom the fleet's hosts believe.
pub fn trust() -> TrustDocument {
    let (release, root) = (Slots::of(key(RELEASE).public()), Slots::of(key(ROOT).public()));
    TrustDocument {
        control_plane: Some(Slots::of(key(CONTROL_PLANE).public())),
        ..TrustDocument::first("test-1".parse().unwrap(), release, root)
    }
}

/// A host that joined the fleet of this CA, as `web-1`, and calls there.
pub fn joined(url: ServerUrl, ca: &Ca, state: &Path, root: &Path, commands: Commands) {
    let hostname: Hostname = "web-1".parse().unwrap();
    let own = key(1);
    let membership = Membership {
        node_id: own.public().node_id(),
        servers: vec![url],
        tls_termination: Default::default(),
        proxy: None,
        ca_pem: ca.cert_pem().to_owned(),
        cert_pem: super::certificate(ca, &own, &hostname),
        trust: trust(),
        hostname,
        key: KeySource::Own,
        root: Some(root.to_owned()),
        allow_exec: commands == Commands::Allowed,
    };
    StateDir::create(state).unwrap().save_membership(&membership).unwrap();
    write_key(&state.join("identity.key"), &own);
}

pub fn write_key(path: &Path, key: &SigningKey) {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(key.to_file().as_bytes()).unwrap();
}
