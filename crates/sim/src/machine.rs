//! One virtual host: the node's step with a shell over [`Disk`], and a fake host to converge.
//!
//! The shell does what the agent's does, in the same order. What must never happen is
//! looked at where it would: at an adoption and at the start of a run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use model::exchange::{HeldRelease, TraitReport};
use model::log::FactBody;
use model::policy::Policy;
use model::time::SLACK;
use model::{Digest, Hostname, Incarnation, NodeId, RunCounts, RunReport, Timestamp};
use node::{Adoption, HeldSettings, Identity, Node, NodeEffect, NodeInput, Restored, RunOrder};
use plane::Head;
use trust::{PublicKey, SigningKey};

use crate::control::{Body, Request, Response, micros};
use crate::disk::{Disk, WriteError};
use crate::publisher::{Publisher, entry_in};

/// The most facts in one check-in; few, so that one is not always enough.
const FACTS: usize = 4;
/// The tag that resources of every simulated node have.
pub(crate) const KNOWN_TAG: &str = "web";
/// The shell looks at the clock again at least this often.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// What a host's process wants of the world.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Collect traits.
    Traits,
    /// Send this, and say when nothing comes back.
    Send { call: u64, request: Request },
    /// Let a run take its time.
    Run(RunOrder),
    /// The power went.
    Died,
}

/// A request without an answer yet.
#[derive(Debug)]
struct Call {
    number: u64,
    body: Body,
    signed_again: bool,
}

/// What is gone when the power goes.
#[derive(Debug)]
struct Process {
    node: Node,
    /// What the control plane's clock is ahead, in milliseconds, by its own word.
    offset: i64,
    nonce: u64,
    /// Requests under way, by number: a check-in and contents go beside each other.
    under_way: BTreeMap<u64, Call>,
}

/// What the fake host is like.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    /// The set and the traits that it was converged on last.
    pub(crate) applied: Option<(Digest, u64)>,
    /// Someone changed it by hand.
    pub(crate) drifted: bool,
    /// Stands for its traits.
    pub(crate) traits: u64,
    pub(crate) runs: u64,
}

pub(crate) struct Machine {
    pub(crate) hostname: Hostname,
    pub(crate) id: NodeId,
    pub(crate) key: PublicKey,
    pub(crate) disk: Disk,
    pub(crate) host: Host,
    /// What its clock is ahead of the true time, in milliseconds.
    pub(crate) ahead: i64,
    /// How often it was started: what was asked for before the last start counts no more.
    pub(crate) incarnation: u64,
    /// Every fact that was durable in its log.
    pub(crate) appended: BTreeMap<(Incarnation, u64), FactBody>,
    /// Requests sent.
    pub(crate) sent: u64,
    /// What went wrong that never may.
    pub(crate) violation: Option<String>,
    /// When the run began that ended last or is under way, in true time.
    run_began: Timestamp,
    /// When the last run began that carried a requested tag out.
    pub(crate) carried_out: BTreeMap<String, Timestamp>,
    /// What it did, since the world looked last.
    pub(crate) notes: Vec<String>,
    process: Option<Process>,
    /// The highest release that was durable here.
    highest: Option<Arc<Head>>,
    calls: u64,
}

impl Machine {
    pub(crate) fn new(name: &str, number: u8) -> Machine {
        let key = SigningKey::from_seed(&[100 + number; 32]).public();
        Machine {
            hostname: name.parse().unwrap(),
            id: key.node_id(),
            key,
            disk: Disk::new("i1".parse().unwrap()),
            host: Host::default(),
            ahead: 0,
            incarnation: 0,
            appended: BTreeMap::new(),
            sent: 0,
            violation: None,
            run_began: Timestamp(0),
            carried_out: BTreeMap::new(),
            notes: vec![],
            process: None,
            highest: None,
            calls: 0,
        }
    }

    pub(crate) fn runs(&self) -> bool {
        self.process.is_some()
    }

    /// The release held, as it would say itself.
    pub(crate) fn held(&self) -> Option<HeldRelease> {
        self.disk.files().adoption.as_ref().map(Adoption::held)
    }

    /// What its own clock says.
    fn clock(&self, now: Timestamp) -> Timestamp {
        Timestamp(now.0 + self.ahead)
    }

    /// The agent starts from what the disk holds.
    pub(crate) fn start(&mut self, now: Timestamp, seed: u64, publisher: &Publisher) -> Vec<Ask> {
        self.incarnation += 1;
        let files = self.disk.files();
        let adoption = files.adoption.clone();
        let restored = Restored {
            content_missing: false,
            settings: if adoption.is_some() { settings() } else { HeldSettings::default() },
            adoption,
            freshness: files.freshness.clone(),
            last_run: files.last_run.clone(),
            facts_pending: !files.log.facts.is_empty(),
            pause: None,
            last_reboot: None,
            trust: None,
            certificate: None,
            rollout: None,
            trial: node::TrialStage::default(),
        };
        let identity = Identity {
            hostname: self.hostname.clone(),
            incarnation: files.log.incarnation.clone(),
            trust: publisher.trust.clone(),
            built: Timestamp(0),
        };
        let node = Node::new(identity, restored, seed, self.clock(now));
        self.process = Some(Process { node, offset: 0, nonce: 0, under_way: BTreeMap::new() });
        let body = FactBody::Started {
            version: "0.1.0".to_owned(),
            boot_id: self.incarnation.to_string(),
            invocation: None,
            cut_off_run: None,
        };
        if self.append(body, now) == Err(WriteError::PowerLost) {
            return self.die();
        }
        self.take(NodeInput::Tick, now, publisher)
    }

    /// The process is gone at once.
    pub(crate) fn die(&mut self) -> Vec<Ask> {
        self.process = None;
        self.notes.push("dies".to_owned());
        vec![Ask::Died]
    }

    /// When it next wakes up by itself, in true time.
    pub(crate) fn wakes(&self, now: Timestamp) -> Option<Timestamp> {
        let (at, _) = self.process.as_ref()?.node.next_deadline()?;
        let at = Timestamp(at.0.saturating_sub(self.ahead));
        Some(at.min(now.plus(LOOK_AGAIN)).max(Timestamp(now.0 + 1)))
    }

    /// Lets the step take an input, and carries out what it asks for.
    pub(crate) fn take(&mut self, input: NodeInput, now: Timestamp, publisher: &Publisher) -> Vec<Ask> {
        let (mut queue, mut asks) = (VecDeque::from([input]), vec![]);
        while let Some(input) = queue.pop_front() {
            let clock = self.clock(now);
            let Some(process) = &mut self.process else { break };
            for effect in process.node.handle(input, clock) {
                match self.perform(effect, now, publisher, &mut asks) {
                    Ok(next) => queue.extend(next),
                    Err(WriteError::Full) => self.notes.push("the disk is full".to_owned()),
                    Err(WriteError::PowerLost) => {
                        asks.extend(self.die());
                        return asks;
                    }
                }
            }
        }
        asks
    }

    fn perform(
        &mut self,
        effect: NodeEffect,
        now: Timestamp,
        publisher: &Publisher,
        asks: &mut Vec<Ask>,
    ) -> Result<Option<NodeInput>, WriteError> {
        match effect {
            NodeEffect::CollectTraits => asks.push(Ask::Traits),
            NodeEffect::CheckIn(mut message, _) => {
                message.facts = self.disk.files().log.facts.iter().take(FACTS).cloned().collect();
                asks.extend(self.call(Body::CheckIn(message), now));
            }
            NodeEffect::Fetch { contents, inline } => return self.fetch(contents, inline, now, asks),
            NodeEffect::Adopt(adoption) => return self.adopt(*adoption, publisher),
            NodeEffect::Run(order) => {
                let durable = self.disk.files().adoption.as_ref().map(|adoption| adoption.root);
                if durable != Some(order.root) {
                    self.violation = Some("it converges on a set that is not durable".to_owned());
                }
                self.run_began = now;
                asks.push(Ask::Run(order));
            }
            NodeEffect::Append(body) => match self.append(body, now) {
                Err(WriteError::Full) => return Ok(Some(NodeInput::NotAppended)),
                other => other?,
            },
            NodeEffect::Ack(cursor) => {
                if cursor.incarnation == self.disk.files().log.incarnation {
                    self.disk.write(|files| files.log.ack(cursor.seq))?;
                }
                let waits = !self.disk.files().log.facts.is_empty();
                return Ok(waits.then_some(NodeInput::FactsWait));
            }
            // No simulated host is paused, no channel has a window for reboots, and proxies end TLS.
            NodeEffect::SavePause(_)
            | NodeEffect::Renew(_)
            | NodeEffect::Reboot(_)
            | NodeEffect::SaveReboot(_)
            | NodeEffect::SaveTrust(_)
            | NodeEffect::FetchTrustLinks(_)
            | NodeEffect::WatchCulprits(_)
            // Its releases have no rollouts: `rollout` and `activation` have worlds of their own.
            | NodeEffect::Prepare(_)
            | NodeEffect::ReportDispatch(..)
            | NodeEffect::Activate(_)
            | NodeEffect::Supersede(_)
            | NodeEffect::Switched(_)
            | NodeEffect::HostIsFree
            | NodeEffect::ConfirmTried(_)
            | NodeEffect::HurryCheckIn
            | NodeEffect::GoBack(_)
            | NodeEffect::RolloutEnded(_)
            | NodeEffect::RestateRollout(_)
            | NodeEffect::AdoptedAtOnce(_) => {}
            NodeEffect::SaveFreshness(held) => self.disk.write(|files| files.freshness = Some(held))?,
            NodeEffect::SaveRun(last) => self.disk.write(|files| files.last_run = Some(last))?,
            NodeEffect::Warn(text) => self.notes.push(text),
        }
        Ok(None)
    }

    fn append(&mut self, body: FactBody, now: Timestamp) -> Result<(), WriteError> {
        let at = self.clock(now);
        let before = self.disk.files().log.last;
        let written = self.disk.write(|files| files.log.append(body.clone(), at));
        let log = &self.disk.files().log;
        // Also when the power went just after: it is on the disk.
        if log.last > before {
            self.notes.push(format!("fact {}: {}", log.last, body.kind()));
            self.appended.insert((log.incarnation.clone(), log.last), body);
        }
        written
    }

    fn fetch(
        &mut self,
        contents: BTreeSet<Digest>,
        inline: Vec<String>,
        now: Timestamp,
        asks: &mut Vec<Ask>,
    ) -> Result<Option<NodeInput>, WriteError> {
        if let Err(error) = self.keep(&contents, inline) {
            return given_up(error).map(|why| Some(NodeInput::FetchFailed(why)));
        }
        let missing: BTreeSet<Digest> =
            contents.into_iter().filter(|digest| !self.disk.files().contents.contains_key(digest)).collect();
        if missing.is_empty() {
            return Ok(Some(NodeInput::Fetched));
        }
        asks.extend(self.call(Body::Contents(missing), now));
        Ok(None)
    }

    fn keep(&mut self, wanted: &BTreeSet<Digest>, texts: Vec<String>) -> Result<(), WriteError> {
        for text in texts {
            let digest = Digest::of(text.as_bytes());
            if wanted.contains(&digest) {
                self.disk.write(|files| drop(files.contents.insert(digest, text)))?;
            }
        }
        Ok(())
    }

    fn adopt(&mut self, adoption: Adoption, publisher: &Publisher) -> Result<Option<NodeInput>, WriteError> {
        if let Err(why) = self.may_adopt(&adoption, publisher) {
            self.violation = Some(format!("it adopts release {}: {why}", adoption.seq));
        }
        let keep: BTreeSet<Digest> = adoption.objects.values().map(|stub| stub.digest).collect();
        let back = self.highest.as_ref().is_some_and(|highest| adoption.seq < highest.header.seq);
        let what = if back { "goes back to" } else { "adopts" };
        self.notes.push(format!("{what} release {} of {}", adoption.seq, adoption.channel));
        let head = publisher.signed.get(&adoption.digest).cloned();
        let written = self.disk.write(|files| files.adoption = Some(adoption.clone()));
        if self.held() == Some(adoption.held()) {
            self.highest = self.highest.take().max_by_seq(head);
        }
        match written {
            Ok(()) => {
                self.disk.write(|files| files.contents.retain(|digest, _| keep.contains(digest)))?;
                Ok(Some(NodeInput::Adopted(settings())))
            }
            Err(error) => given_up(error).map(|why| Some(NodeInput::AdoptFailed(why))),
        }
    }

    /// What adoption promises (ROL-4, DLT-4), judged by what operators really signed.
    fn may_adopt(&self, adoption: &Adoption, publisher: &Publisher) -> Result<(), &'static str> {
        let head = publisher.signed.get(&adoption.digest).ok_or("nobody signed it")?;
        if *head.signed != adoption.header || head.header.seq != adoption.seq {
            return Err("its header is not the one signed");
        }
        let entry = entry_in(head, &self.hostname).ok_or("it has nothing for this node")?;
        if entry.root != adoption.root || entry.channel != adoption.channel {
            return Err("that is not this node's entry");
        }
        if adoption.set().root() != adoption.root {
            return Err("the set is another one");
        }
        let contents = &self.disk.files().contents;
        if adoption.objects.values().any(|stub| !contents.contains_key(&stub.digest)) {
            return Err("contents are missing");
        }
        let Some(highest) = &self.highest else { return Ok(()) };
        let named = highest.header.fallbacks.iter().any(|named| named.header == adoption.digest);
        if adoption.seq < highest.header.seq && !named {
            return Err("it is older than one adopted before");
        }
        Ok(())
    }

    /// Signs a request by its own clock and what it learned of the control plane's.
    fn call(&mut self, body: Body, now: Timestamp) -> Option<Ask> {
        let clock = self.clock(now);
        let process = self.process.as_mut()?;
        self.calls += 1;
        let call = Call { number: self.calls, body, signed_again: false };
        process.under_way.insert(call.number, call);
        self.send(self.calls, clock)
    }

    fn send(&mut self, number: u64, clock: Timestamp) -> Option<Ask> {
        let process = self.process.as_mut()?;
        let call = process.under_way.get(&number)?;
        let created = Timestamp(clock.0 + process.offset);
        process.nonce = next_number(process.nonce, created);
        self.sent += 1;
        let request =
            Request { node: self.id.clone(), created, nonce: process.nonce, body: call.body.clone() };
        Some(Ask::Send { call: call.number, request })
    }

    /// What came back, or that nothing did.
    pub(crate) fn returned(
        &mut self,
        number: u64,
        response: Option<Response>,
        now: Timestamp,
        publisher: &Publisher,
    ) -> Vec<Ask> {
        let clock = self.clock(now);
        let Some(process) = &mut self.process else { return vec![] };
        let Some(mut call) = process.under_way.remove(&number) else { return vec![] };
        let learned = match response {
            Some(Response::Skewed(theirs)) => {
                process.offset = theirs.0 - clock.0;
                true
            }
            Some(Response::Replayed(next)) if next > process.nonce => {
                process.nonce = next - 1;
                true
            }
            _ => false,
        };
        if learned && !call.signed_again {
            call.signed_again = true;
            process.under_way.insert(number, call);
            return self.send(number, clock).into_iter().collect();
        }
        let theirs = Timestamp(clock.0 + process.offset);
        let mut asks = Vec::new();
        let why = match &response {
            None => "no answer".to_owned(),
            Some(response) => format!("{response:?}").chars().take(40).collect(),
        };
        let input = match (call.body, response) {
            (Body::CheckIn(_), Some(Response::Answer(answer))) => {
                // As the agent: it is judged by the time that it tells.
                asks = self.take(NodeInput::ServerTime(theirs), now, publisher);
                NodeInput::Answered(answer)
            }
            (Body::CheckIn(_), _) => NodeInput::Unreachable(why),
            (Body::Contents(wanted), Some(Response::Contents(contents))) => {
                match self.keep(&wanted, contents.into_values().collect()) {
                    Ok(()) => NodeInput::Fetched,
                    Err(WriteError::Full) => NodeInput::FetchFailed("the disk is full".to_owned()),
                    Err(WriteError::PowerLost) => return self.die(),
                }
            }
            (Body::Contents(_), _) => NodeInput::FetchFailed(why),
        };
        asks.extend(self.take(input, now, publisher));
        asks
    }

    pub(crate) fn traits(&self) -> TraitReport {
        let text = self.host.traits.to_string();
        TraitReport::whole(Digest::of(text.as_bytes()), serde_json::json!({ "traits": text }))
    }

    /// The fake runner makes the host what the held set and the traits say.
    pub(crate) fn run_ends(&mut self, order: &RunOrder, now: Timestamp) -> RunReport {
        let partial = order.scope.partial();
        let mut unknown_tags: Vec<String> = order.requested_tags.iter().cloned().collect();
        self.carried_out.extend(unknown_tags.iter().map(|tag| (tag.clone(), self.run_began)));
        unknown_tags.retain(|tag| tag != KNOWN_TAG);
        let mut changed = 0;
        // What has the tag is right; a run by tag leaves the rest of the host as it is.
        if partial.is_none() {
            let want = Some((order.root, self.host.traits));
            changed = u32::from(self.host.applied != want) + u32::from(self.host.drifted);
            (self.host.applied, self.host.drifted) = (want, false);
            self.host.runs += 1;
        }
        RunReport {
            started: self.clock(now),
            duration_ms: 1,
            seq: order.seq,
            root: order.root,
            intended: order.intended,
            paused: None,
            partial,
            unknown_tags,
            unswitched: Vec::new(),
            counts: RunCounts { ok: 3, changed, ..RunCounts::default() },
            items: vec![],
        }
    }
}

/// A full disk is told to the step; without power there is nobody to tell.
fn given_up(error: WriteError) -> Result<String, WriteError> {
    match error {
        WriteError::Full => Ok("the disk is full".to_owned()),
        WriteError::PowerLost => Err(error),
    }
}

/// Numbers rise with the time; one from a clock that was far ahead is forgotten, as it was
/// never accepted. One is left between two, for a request that is sent twice.
fn next_number(last: u64, now: Timestamp) -> u64 {
    if last < micros(now.plus(SLACK * 2)) { micros(now).max(last + 2) } else { micros(now) }
}

/// The settings in every channel of the simulation.
fn settings() -> HeldSettings {
    let policy = Policy {
        contact_secs: 120,
        converge_secs: 300,
        bundle_max_age_secs: 3600,
        offline_grace_secs: 1800,
        ..Policy::default()
    };
    HeldSettings { policy, only_observes: false }
}

trait MaxBySeq {
    fn max_by_seq(self, other: Self) -> Self;
}

impl MaxBySeq for Option<Arc<Head>> {
    fn max_by_seq(self, other: Self) -> Self {
        self.into_iter().chain(other).max_by_key(|head| head.header.seq)
    }
}
