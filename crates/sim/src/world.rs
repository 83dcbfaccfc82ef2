//! The world: a queue of events in virtual time, and the network between nodes and control plane.

use std::collections::BTreeMap;
use std::time::Duration;

use model::Timestamp;
use node::{NodeInput, ObservedTraits, RunOrder};

use crate::chance::Chance;
use crate::control::{Body, ControlPlane, Request, Response};
use crate::hostile;
use crate::machine::{Ask, Machine};
use crate::publisher::Publisher;

/// How long there are faults.
const FAULTS: Duration = Duration::from_secs(2 * 3600);
/// How long there are none, at the end.
const CALM: Duration = Duration::from_secs(75 * 60);
/// How long a node waits for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How many faults are sown.
const FAULT_COUNT: usize = 30;
const START: Timestamp = Timestamp::from_secs(1_800_000_000);
pub(crate) const NAMES: [&str; 5] = ["web-1", "web-2", "db-1", "edge-1", "edge-2"];

/// How one simulation of a fleet went.
#[derive(Debug)]
pub struct Report {
    /// The first thing that must not happen and did.
    pub failure: Option<String>,
    /// How often each fault and each state was reached.
    pub tally: BTreeMap<&'static str, u64>,
    /// What happened, line by line, when that was asked for.
    pub trace: Vec<String>,
}

/// Simulates a fleet. The same seed gives the same simulation.
pub fn run(seed: u64, trace: bool) -> Report {
    let mut world = World::new(seed, trace);
    world.live();
    Report { failure: world.failure, tally: world.tally, trace: world.trace.unwrap_or_default() }
}

#[derive(Debug)]
pub(crate) enum Event {
    /// Of a machine, since one of its starts.
    Of(usize, u64, Own),
    Start(usize),
    /// A request reaches the control plane; somebody waits for the answer, or nobody.
    Arrive {
        machine: usize,
        incarnation: u64,
        call: u64,
        request: Request,
        answered: bool,
    },
    Fault,
    Flush,
    ControlStarts,
    Calm,
}

#[derive(Debug)]
pub(crate) enum Own {
    Wake,
    Traits,
    Returns(u64, Option<Response>),
    RunEnds(RunOrder),
}

pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) chance: Chance,
    pub(crate) events: BTreeMap<(Timestamp, u64), Event>,
    pub(crate) count: u64,
    pub(crate) machines: Vec<Machine>,
    /// The wake-up that counts, of each machine.
    pub(crate) wake: Vec<Option<(Timestamp, u64)>>,
    pub(crate) cut_until: Vec<Timestamp>,
    pub(crate) full_until: Vec<Timestamp>,
    pub(crate) hostile_until: Timestamp,
    pub(crate) control: ControlPlane,
    pub(crate) publisher: Publisher,
    pub(crate) run_requests: u64,
    pub(crate) calm: bool,
    pub(crate) failure: Option<String>,
    pub(crate) tally: BTreeMap<&'static str, u64>,
    pub(crate) trace: Option<Vec<String>>,
}

impl World {
    fn new(seed: u64, trace: bool) -> World {
        let mut chance = Chance::new(seed);
        let machines: Vec<Machine> =
            NAMES.iter().zip(0..).map(|(name, number)| Machine::new(name, number)).collect();
        let names: Vec<_> = machines.iter().map(|machine| machine.hostname.clone()).collect();
        let mut control = ControlPlane::new(START.minus(Duration::from_secs(60)));
        for machine in &machines {
            control.enroll(machine.id.clone(), machine.hostname.clone(), machine.key, START);
        }
        let publisher = Publisher::new(&names, &mut chance);
        let mut world = World {
            now: START,
            events: BTreeMap::new(),
            count: 0,
            wake: vec![None; machines.len()],
            cut_until: vec![START; machines.len()],
            full_until: vec![START; machines.len()],
            machines,
            hostile_until: START,
            control,
            publisher,
            run_requests: 0,
            calm: false,
            failure: None,
            tally: BTreeMap::new(),
            trace: trace.then(Vec::new),
            chance,
        };
        world.publish();
        for machine in 0..world.machines.len() {
            world.after(1, 60, Event::Start(machine));
        }
        for _ in 0..FAULT_COUNT {
            world.after(1, FAULTS.as_secs(), Event::Fault);
        }
        world.after(30, 30, Event::Flush);
        world.after(FAULTS.as_secs(), FAULTS.as_secs(), Event::Calm);
        world
    }

    fn live(&mut self) {
        let end = START.plus(FAULTS).plus(CALM);
        while let Some(((at, number), event)) = self.events.pop_first() {
            if at > end {
                break;
            }
            self.now = at;
            self.count += 1;
            self.happens(number, event);
            self.look_around();
            if self.failure.is_some() {
                return;
            }
        }
        self.now = end;
        if let Err(why) = self.all_is_well() {
            self.fail(why);
        }
    }

    fn at(&mut self, at: Timestamp, event: Event) -> (Timestamp, u64) {
        self.count += 1;
        let key = (at, self.count);
        self.events.insert(key, event);
        key
    }

    pub(crate) fn after(&mut self, least: u64, most: u64, event: Event) {
        let at = self.now.plus(self.chance.secs(least, most));
        self.at(at, event);
    }

    fn happens(&mut self, number: u64, event: Event) {
        match event {
            Event::Start(machine) => self.start(machine),
            Event::Of(machine, incarnation, own) => {
                let current =
                    self.machines[machine].incarnation == incarnation && self.machines[machine].runs();
                let stale_wake = matches!(own, Own::Wake) && self.wake[machine] != Some((self.now, number));
                if current && !stale_wake {
                    self.own(machine, own);
                }
            }
            Event::Arrive { machine, incarnation, call, request, answered } => {
                self.arrive(machine, incarnation, call, request, answered);
            }
            Event::Fault => self.fault(),
            Event::Flush => {
                if self.control.up {
                    self.control.flush();
                }
                self.after(30, 30, Event::Flush);
            }
            Event::ControlStarts => {
                self.say("control plane", "starts");
                self.control.start(self.now);
            }
            Event::Calm => self.calm_down(),
        }
    }

    fn start(&mut self, machine: usize) {
        if self.machines[machine].runs() {
            return;
        }
        self.say_of(machine, "starts");
        self.machines[machine].disk.full = self.now < self.full_until[machine];
        let seed = self.chance.number();
        let asks = self.machines[machine].start(self.now, seed, &self.publisher);
        self.asked(machine, asks);
    }

    fn own(&mut self, index: usize, own: Own) {
        let now = self.now;
        let machine = &mut self.machines[index];
        machine.disk.full = now < self.full_until[index];
        let asks = match own {
            Own::Wake => machine.take(NodeInput::Tick, now, &self.publisher),
            Own::Traits => {
                let traits = machine.traits();
                machine.take(
                    NodeInput::Traits(ObservedTraits { report: traits, read: None }),
                    now,
                    &self.publisher,
                )
            }
            Own::Returns(call, response) => machine.returned(call, response, now, &self.publisher),
            Own::RunEnds(_) if !self.calm && self.chance.one_in(30) => {
                machine.take(NodeInput::RunFailed(node::RunFailure::other("no memory")), now, &self.publisher)
            }
            Own::RunEnds(order) => {
                let report = machine.run_ends(&order, now);
                *self.tally.entry("runs").or_default() += 1;
                if report.counts.changed > 0 {
                    let what =
                        if report.intended { "runs: intended change" } else { "runs: drift put right" };
                    *self.tally.entry(what).or_default() += 1;
                }
                if report.partial.is_some() {
                    *self.tally.entry("runs: by tag").or_default() += 1;
                }
                if !report.unknown_tags.is_empty() {
                    *self.tally.entry("runs: by a tag that nothing has").or_default() += 1;
                }
                machine.take(NodeInput::Ran(Box::new(report)), now, &self.publisher)
            }
        };
        self.asked(index, asks);
    }

    pub(crate) fn asked(&mut self, index: usize, asks: Vec<Ask>) {
        let incarnation = self.machines[index].incarnation;
        for ask in asks {
            match ask {
                Ask::Traits => self.after(0, 1, Event::Of(index, incarnation, Own::Traits)),
                Ask::Run(order) => self.after(1, 20, Event::Of(index, incarnation, Own::RunEnds(order))),
                Ask::Send { call, request } => self.send(index, incarnation, call, request),
                Ask::Died => {
                    self.seen("machine: died");
                    self.after(1, if self.calm { 60 } else { 600 }, Event::Start(index));
                }
            }
        }
        if let Some(at) = self.machines[index].wakes(self.now) {
            let key = self.at(at, Event::Of(index, incarnation, Own::Wake));
            self.wake[index] = Some(key);
        }
    }

    /// A request on its way: it may be lost, come late, or come twice.
    fn send(&mut self, machine: usize, incarnation: u64, call: u64, request: Request) {
        self.seen("network: requests");
        let expires = self.now.plus(ANSWER_TIMEOUT);
        self.at(expires, Event::Of(machine, incarnation, Own::Returns(call, None)));
        if self.now < self.cut_until[machine] || (!self.calm && self.chance.one_in(12)) {
            return self.seen("network: request lost");
        }
        let at = self.latency();
        let arrive = |request, answered| Event::Arrive { machine, incarnation, call, request, answered };
        if !self.calm && self.chance.one_in(15) {
            self.seen("network: request replayed");
            let later = self.latency();
            self.at(at.max(later).plus(Duration::from_millis(1)), arrive(request.clone(), false));
        } else if !self.calm && self.chance.one_in(15) {
            self.seen("network: request sent twice");
            let again = Request { nonce: request.nonce + 1, ..request.clone() };
            let before = self.latency();
            self.at(before, arrive(request, false));
            self.at(at, arrive(again, true));
            return;
        }
        self.at(at, arrive(request, true));
    }

    fn latency(&mut self) -> Timestamp {
        let late = !self.calm && self.chance.one_in(12);
        let most = Duration::from_millis(if late { 90_000 } else { 300 });
        self.now.plus(self.chance.between(Duration::from_millis(5), most))
    }

    fn arrive(&mut self, index: usize, incarnation: u64, call: u64, request: Request, answered: bool) {
        if !self.control.up {
            return self.seen("control plane: not there");
        }
        let is_check_in = matches!(request.body, Body::CheckIn(_));
        let mut response = self.control.receive(request, self.now, &self.publisher);
        self.seen(match &response {
            Response::Answer(answer) if answer.offer.is_some() => "answer: offer",
            Response::Answer(_) => "answer: no change",
            Response::Contents(_) => "answer: contents",
            Response::Skewed(_) => "answer: skewed",
            Response::Replayed(_) => "answer: replayed",
            Response::Refused(code) => code,
        });
        if is_check_in && self.now < self.hostile_until {
            self.twist(index, &mut response);
        }
        if !answered || self.now < self.cut_until[index] || (!self.calm && self.chance.one_in(12)) {
            return self.seen("network: answer lost");
        }
        let at = self.latency();
        self.at(at, Event::Of(index, incarnation, Own::Returns(call, Some(response))));
    }

    fn twist(&mut self, index: usize, response: &mut Response) {
        let Response::Answer(answer) = response else { return };
        let hostname = self.machines[index].hostname.clone();
        if let Some((name, offer)) =
            hostile::offer(&self.control, &self.publisher, &hostname, &mut self.chance)
        {
            self.seen(name);
            self.say_of(index, name);
            answer.offer = Some(offer);
        }
    }

    pub(crate) fn publish(&mut self) {
        self.publisher.publish(self.now, &mut self.chance);
        self.say("operator", "publishes");
    }

    pub(crate) fn fail(&mut self, why: String) {
        self.say("world", &format!("FAILED: {why}"));
        self.failure.get_or_insert(why);
    }

    pub(crate) fn seen(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    pub(crate) fn say_of(&mut self, index: usize, text: &str) {
        self.say(NAMES[index], text);
    }

    pub(crate) fn say(&mut self, who: &str, text: &str) {
        if let Some(trace) = &mut self.trace {
            let secs = self.now.since(START).as_millis();
            trace.push(format!("{:>6}.{:03} {who:<13} {text}", secs / 1000, secs % 1000));
        }
    }
}
