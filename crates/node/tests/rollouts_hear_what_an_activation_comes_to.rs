//! ROL-5, ROL-7: what an activation comes to is told to its rollout, also after a start; that it converged only once it is
//! confirmed, with its enforcing probes passing, after its soak in one boot. SEC-3: nothing that a probe's command printed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use activation::{
    Activation, ActivationEffect, ActivationInput, ActivationOrder, ActivationProcess, ActivationRecord,
    ActivationTerms, AfterConfirm, BootMoment, BootTime, FoundHost, Generation, GenerationId,
    GenerationLimits, HealthProbe, HealthProbeKind, HealthProbeMode, HealthProbeOutcome, HealthProbeResult,
    ProbeTopology, SwitchEnd,
};
use model::rollout::{MAX_EVENT_TEXT, RolloutEventBody};
use model::{Digest, Timestamp};
use node::{ActivationRequest, Adoption, RequestNumber, RolloutActivation, RolloutPart};
use trust::Floor;
use trust::rollout_terms::OnFailure;

const SOAK: u64 = 120;

fn id(name: &str) -> GenerationId {
    GenerationId(Digest::of(name.as_bytes()))
}

fn moment(boot: &str, secs: u64) -> BootMoment {
    BootMoment { boot: boot.parse().unwrap(), at: BootTime::after_boot(Duration::from_secs(secs)) }
}

fn request() -> ActivationRequest {
    let root = id("next").0;
    let probe = HealthProbe {
        name: "web".to_owned(),
        kind: HealthProbeKind::Tcp { address: "127.0.0.1:80".to_owned() },
        mode: HealthProbeMode::Enforce,
        grace: Duration::ZERO,
        sustained: Duration::from_secs(10),
        every: Duration::from_secs(1),
        timeout: Duration::from_secs(1),
    };
    let adoption = Adoption {
        header: serde_json::from_value(serde_json::json!({"payload": "e30=", "signatures": []})).unwrap(),
        digest: Digest::of(b"header"),
        channel: "stable".parse().unwrap(),
        seq: 2,
        root,
        objects: Default::default(),
        floor: Floor::default(),
        freshness: None,
        adopted_at: Timestamp(0),
        same_as: None,
    };
    let rollout = "stable@4f1c".parse().unwrap();
    let part = RolloutPart { rollout, seq: 2, root, soak_secs: SOAK, on_failure: OnFailure::Halt };
    let probes = ProbeTopology::declare(vec![probe]).unwrap();
    let number = RequestNumber::default();
    ActivationRequest { number, part, adoption, terms: ActivationTerms::default(), probes }
}

/// One that goes back where its probes go on failing after it was confirmed.
fn returning() -> ActivationRequest {
    let terms = ActivationTerms { after_confirm: AfterConfirm::Return, ..ActivationTerms::default() };
    ActivationRequest { terms, ..request() }
}

/// A host on its confirmed generation, and what its rollout heard.
struct Host {
    activation: Activation,
    rollout: RolloutActivation,
    heard: Vec<RolloutEventBody>,
}

impl Host {
    fn new(now: &BootMoment) -> Host {
        Host::of(request(), now)
    }

    fn of(request: ActivationRequest, now: &BootMoment) -> Host {
        let confirmed = Generation { id: id("held"), seq: 1, bytes: 1 };
        let record = ActivationRecord { confirmed, ..ActivationRecord::default() };
        let next = Generation { id: id("next"), seq: 2, bytes: 1 };
        let ActivationRequest { part, terms, probes, .. } = request;
        let rollout = RolloutActivation::new(part, ActivationOrder { target: next, terms, probes });
        let mut host = Host { activation: start(record, now).0, rollout, heard: Vec::new() };
        host.give(ActivationInput::Activate(Box::new(host.rollout.order())), now);
        host
    }

    fn give(&mut self, input: ActivationInput, now: &BootMoment) {
        let effects = self.activation.handle(input, now.at);
        self.carry_out(effects, now);
    }

    fn carry_out(&mut self, effects: Vec<ActivationEffect>, now: &BootMoment) {
        for effect in effects {
            if let ActivationEffect::Report(fact) = effect {
                let confirmed = self.activation.record().confirmed;
                self.heard.extend(self.rollout.told(&fact, confirmed, now));
            }
        }
    }

    fn switched(&mut self, now: &BootMoment) {
        self.give(ActivationInput::Switched { target: id("next"), end: SwitchEnd::Done }, now);
    }

    fn probed(&mut self, outcome: HealthProbeOutcome, now: &BootMoment) {
        let (probe, generation) = ("web".to_owned(), id("next"));
        let result = HealthProbeResult { probe, generation, boot: now.boot.clone(), began: now.at, outcome };
        self.give(ActivationInput::Probe(result), now);
    }

    fn confirmed(&mut self, now: &BootMoment) {
        let (generation, boot) = (id("next"), now.boot.clone());
        self.give(ActivationInput::ConfirmAnswered { generation, boot }, now);
    }

    fn converges(&mut self, now: &BootMoment) -> bool {
        self.rollout.converges(&self.activation, now).is_some()
    }

    /// The agent starts anew.
    fn starts(&mut self, now: &BootMoment) {
        // It is durable as it is.
        let kept = serde_json::to_vec(&self.rollout).unwrap();
        self.rollout = serde_json::from_slice(&kept).unwrap();
        let found = self.activation.record().clone();
        let (activation, effects) = start(found.clone(), now);
        self.activation = activation;
        self.heard.clear();
        self.heard.extend(self.rollout.resumed(&found, now));
        self.carry_out(effects, now);
    }
}

fn start(record: ActivationRecord, now: &BootMoment) -> (Activation, Vec<ActivationEffect>) {
    let found = FoundHost { process: ActivationProcess::Agent, runs: Some(id("next")) };
    Activation::start(record, GenerationLimits::default(), found, now)
}

#[test]
fn it_converges_after_its_soak_and_once() {
    let mut host = Host::new(&moment("b1", 100));
    assert_eq!(host.heard, [RolloutEventBody::ActivationStarted]);
    host.switched(&moment("b1", 110));
    let boot = "b1".to_owned();
    assert_eq!(host.heard[1], RolloutEventBody::ActivationComplete { release: 2, boot: boot.clone() });
    assert!(matches!(host.heard[2], RolloutEventBody::ProbeTopologyDeclared { .. }));
    host.probed(HealthProbeOutcome::Passed, &moment("b1", 111));
    assert!(matches!(&host.heard[3], RolloutEventBody::ProbeResult { boot, .. } if boot == "b1"));
    assert!(!host.converges(&moment("b1", 300)), "nobody confirmed it yet");
    // Who waits for it would wait no time at all, for the whole window.
    assert_eq!(host.rollout.converges_at(&host.activation, &moment("b1", 300)), None);
    host.confirmed(&moment("b1", 112));
    assert!(!host.converges(&moment("b1", 110 + SOAK - 1)), "its soak is not over");
    assert_eq!(host.rollout.soak_ends(&moment("b1", 112)), Some(moment("b1", 110 + SOAK).at));
    assert_eq!(
        host.rollout.converges_at(&host.activation, &moment("b1", 112)),
        Some(moment("b1", 110 + SOAK).at)
    );
    host.probed(HealthProbeOutcome::TimedOut, &moment("b1", 120));
    assert!(!host.converges(&moment("b1", 110 + SOAK)), "its probe fails");
    host.probed(HealthProbeOutcome::Passed, &moment("b1", 125));
    let event = host.rollout.converges(&host.activation, &moment("b1", 110 + SOAK)).unwrap();
    assert_eq!(event, RolloutEventBody::Converged { release: 2, boot, soaked_secs: SOAK });
    assert!(!host.converges(&moment("b1", 900)), "once");
    assert!(!host.rollout.is_over(host.activation.record()), "its rollout goes on");
    host.give(ActivationInput::RolloutEnded(id("next")), &moment("b1", 901));
    assert!(host.rollout.is_over(host.activation.record()));
}

/// A clock since the boot that begins anew is another boot, in which nothing was soaked.
#[test]
fn a_boot_in_mid_soak_begins_it_anew() {
    let mut host = Host::new(&moment("b1", 100));
    host.switched(&moment("b1", 110));
    host.probed(HealthProbeOutcome::Passed, &moment("b1", 111));
    host.confirmed(&moment("b1", 112));
    host.starts(&moment("b2", 5));
    let boot = "b2".to_owned();
    assert_eq!(host.heard[0], RolloutEventBody::ActivationComplete { release: 2, boot });
    assert!(matches!(host.heard[1], RolloutEventBody::ProbeTopologyDeclared { .. }), "{:?}", host.heard);
    host.probed(HealthProbeOutcome::Passed, &moment("b2", 6));
    assert!(!host.converges(&moment("b2", 4 + SOAK)));
    assert!(host.converges(&moment("b2", 5 + SOAK)));
    // The same boot again says nothing twice.
    host.starts(&moment("b2", 6 + SOAK));
    assert!(!host.heard.iter().any(|event| matches!(event, RolloutEventBody::ActivationComplete { .. })));
}

/// The switch asked for a boot: that it runs since is said once, by whoever counts the boot or comes after that one.
#[test]
fn a_boot_that_the_switch_asked_for_completes_it_once() {
    let mut host = Host::new(&moment("b1", 100));
    let end = SwitchEnd::NeedsReboot { component: "kernel".to_owned() };
    host.give(ActivationInput::Switched { target: id("next"), end }, &moment("b1", 110));
    let deferred = host.activation.record().clone();
    let complete = RolloutEventBody::ActivationComplete { release: 2, boot: "b2".to_owned() };
    let times = |host: &Host| host.heard.iter().filter(|event| **event == complete).count();
    host.starts(&moment("b2", 5));
    assert_eq!(times(&host), 1, "{:?}", host.heard);
    host.starts(&moment("b2", 9));
    assert_eq!(times(&host), 0, "it was said in this boot: {:?}", host.heard);
    // A process that counted the boot, and ended before it said so.
    let counted = start(deferred, &moment("b3", 5)).0;
    host.activation = counted;
    host.starts(&moment("b3", 9));
    let heard =
        host.heard.iter().filter(|event| matches!(event, RolloutEventBody::ActivationComplete { .. }));
    assert_eq!(heard.count(), 1, "{:?}", host.heard);
}

#[test]
fn a_return_is_told_by_whoever_hears_of_it() {
    let back = RolloutEventBody::RollbackComplete { release: 1 };
    let mut host = Host::new(&moment("b1", 100));
    host.switched(&moment("b1", 110));
    let said = "the probe web failed: it answers 503 Service Unavailable, not 200";
    for at in [111, 125] {
        let reason = "it answers 503 Service Unavailable, not 200".to_owned();
        host.probed(HealthProbeOutcome::Failed { reason }, &moment("b1", at));
        host.give(ActivationInput::Tick, &moment("b1", at));
    }
    let RolloutEventBody::Failed { message } = host.heard.last().unwrap() else { panic!("{:?}", host.heard) };
    assert_eq!(message, said);
    let told = host.heard.len();
    let mut by_watchdog = Host {
        activation: start(host.activation.record().clone(), &moment("b1", 126)).0,
        ..Host::new(&moment("b1", 100))
    };
    host.give(ActivationInput::Returned, &moment("b1", 130));
    assert_eq!(host.heard[told..], *std::slice::from_ref(&back));
    assert!(host.rollout.is_over(host.activation.record()));
    // Where the watchdog was there first, the agent says so at its start.
    by_watchdog.activation.handle(ActivationInput::Returned, moment("b1", 130).at);
    by_watchdog.starts(&moment("b1", 140));
    let message = said.to_owned();
    assert_eq!(by_watchdog.heard, [RolloutEventBody::Failed { message }, back]);
}

/// ROL-12: its rollout counts it as confirmed, and was not through yet; then its service hangs. That it failed and that it is
/// back is said, each once, whoever of the agent's processes comes to say it.
#[test]
fn one_that_converged_and_is_left_later_is_told_once() {
    let kinds = |heard: &[RolloutEventBody]| -> Vec<&'static str> {
        let kind = |event: &RolloutEventBody| match event {
            RolloutEventBody::Failed { message } => {
                assert_eq!(message, "the probe web failed: it did not end in its time");
                Some("failed")
            }
            RolloutEventBody::RollbackComplete { release: 1 } => Some("back"),
            _ => None,
        };
        heard.iter().filter_map(kind).collect()
    };
    // Where the process ends that goes back: whether it had said that it failed.
    for ends in [None, Some(false), Some(true)] {
        let mut host = Host::of(returning(), &moment("b1", 100));
        host.switched(&moment("b1", 110));
        host.probed(HealthProbeOutcome::Passed, &moment("b1", 111));
        host.confirmed(&moment("b1", 112));
        assert!(host.converges(&moment("b1", 110 + SOAK)));
        host.probed(HealthProbeOutcome::TimedOut, &moment("b1", 7200));
        host.heard.clear();
        let unsaid = host.rollout.clone();
        host.give(ActivationInput::Tick, &moment("b1", 7210));
        assert_eq!(kinds(&host.heard), ["failed"]);
        if let Some(is_said) = ends {
            host.rollout = if is_said { host.rollout } else { unsaid };
            host.starts(&moment("b1", 7220));
            assert_eq!(kinds(&host.heard).len(), usize::from(!is_said), "{ends:?} {:?}", host.heard);
        }
        host.heard.clear();
        host.give(ActivationInput::Returned, &moment("b1", 7300));
        assert_eq!(kinds(&host.heard), ["back"], "{ends:?}");
        let record = host.activation.record();
        assert!(host.rollout.is_over(record), "{ends:?}: it is no part of the node any more");
        assert!(record.quarantine.of(id("next")).is_some(), "{ends:?}: it is refused from now on");
    }
}

/// It is confirmed, and stays as its terms say. What its probe came to is within the bound of an event, and has nothing
/// of what a command printed.
#[test]
fn a_failure_that_stays_says_what_its_probe_came_to() {
    const SECRET: &str = "planted-77e9";
    let long = HealthProbeOutcome::Failed { reason: "x".repeat(2 * MAX_EVENT_TEXT) };
    let exited = HealthProbeOutcome::Exited { code: 3, printed: SECRET.to_owned() };
    for (outcome, said) in
        [(long, "the probe web failed: xxx"), (exited, "the probe web failed: it exits with 3")]
    {
        let mut host = Host::new(&moment("b1", 100));
        host.switched(&moment("b1", 110));
        host.probed(HealthProbeOutcome::Passed, &moment("b1", 111));
        host.confirmed(&moment("b1", 112));
        host.probed(outcome, &moment("b1", 120));
        host.give(ActivationInput::Tick, &moment("b1", 130));
        let RolloutEventBody::Failed { message } = host.heard.last().unwrap() else {
            panic!("{:?}", host.heard)
        };
        assert!(message.starts_with(said) && message.len() <= MAX_EVENT_TEXT, "{message}");
        let heard = serde_json::to_string(&host.heard).unwrap();
        assert!(!heard.contains(SECRET), "{heard}");
    }
}

/// Nothing is under way where nothing could be begun, and the control plane does not wait for it.
#[test]
fn a_release_that_cannot_be_begun_is_given_up() {
    let mut host = Host::new(&moment("b1", 100));
    host.heard.clear();
    let reason = "no room".to_owned();
    let armed = Activation::start(
        ActivationRecord { confirmed: Generation { id: id("held"), seq: 1, bytes: 1 }, ..Default::default() },
        GenerationLimits::default(),
        FoundHost { process: ActivationProcess::Agent, runs: None },
        &moment("b1", 100),
    );
    host.activation = armed.0;
    host.give(ActivationInput::Activate(Box::new(host.rollout.order())), &moment("b1", 100));
    host.heard.clear();
    host.give(ActivationInput::NotArmed { reason }, &moment("b1", 101));
    let [RolloutEventBody::Failed { message }, RolloutEventBody::RollbackComplete { release: 1 }] =
        &host.heard[..]
    else {
        panic!("{:?}", host.heard)
    };
    assert!(message.contains("no room"), "{message}");
    assert!(host.rollout.is_over(host.activation.record()));
}
