//! ROL-5, ROL-7: what is told of another release with the set that a host runs, or that waits for its boot; and what is told
//! again to a control plane that was restored, and knows nothing of it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use activation::{
    Activation, ActivationEffect, ActivationInput, ActivationOrder, ActivationProcess, ActivationRecord,
    ActivationTerms, AfterConfirm, BootMoment, BootTime, FoundHost, Generation, GenerationId,
    GenerationLimits, HealthProbe, HealthProbeKind, HealthProbeMode, HealthProbeOutcome, HealthProbeResult,
    ProbeTopology, SwitchEnd,
};
use model::Digest;
use model::rollout::{ProbeOutcome, RolloutEventBody};
use node::{RolloutActivation, RolloutPart, TrialStage};
use trust::rollout_terms::OnFailure;

fn moment(boot: &str, secs: u64) -> BootMoment {
    BootMoment { boot: boot.parse().unwrap(), at: BootTime::after_boot(Duration::from_secs(secs)) }
}

fn of(content: &str, seq: u64) -> Generation {
    Generation { id: GenerationId(Digest::of(content.as_bytes())), seq, bytes: 1 }
}

fn probe(name: &str) -> HealthProbe {
    HealthProbe {
        name: name.to_owned(),
        kind: HealthProbeKind::Tcp { address: "127.0.0.1:80".to_owned() },
        mode: HealthProbeMode::Enforce,
        grace: Duration::ZERO,
        sustained: Duration::from_secs(10),
        every: Duration::from_secs(1),
        timeout: Duration::from_secs(1),
    }
}

/// A host, and what its rollouts heard: by the number of the release.
struct Host {
    activation: Activation,
    rollout: Option<RolloutActivation>,
    heard: Vec<(u64, RolloutEventBody)>,
}

fn start(
    record: ActivationRecord,
    runs: Generation,
    now: &BootMoment,
) -> (Activation, Vec<ActivationEffect>) {
    let found = FoundHost { process: ActivationProcess::Agent, runs: Some(runs.id) };
    Activation::start(record, GenerationLimits::default(), found, now)
}

impl Host {
    /// It holds release 1.
    fn new() -> Host {
        let record = ActivationRecord { confirmed: of("held", 1), ..ActivationRecord::default() };
        let activation = start(record, of("held", 1), &moment("b1", 0)).0;
        Host { activation, rollout: None, heard: Vec::new() }
    }

    /// As the owner of activations does it.
    fn begins(&mut self, target: Generation, now: &BootMoment) {
        let rollout = format!("stable@{:04}", target.seq).parse().unwrap();
        let on_failure = OnFailure::Halt;
        let part = RolloutPart { rollout, seq: target.seq, root: target.id.0, soak_secs: 120, on_failure };
        let probes = ProbeTopology::declare(vec![probe("dns"), probe("web")]).unwrap();
        let terms = ActivationTerms { after_confirm: AfterConfirm::Stay, ..ActivationTerms::default() };
        let order = ActivationOrder { target, terms, probes };
        if RolloutActivation::is_replaced(Some(self.activation.record()), target.id) {
            self.rollout = Some(RolloutActivation::new(part, order.clone()));
        }
        self.give(ActivationInput::Activate(Box::new(order)), now);
    }

    fn give(&mut self, input: ActivationInput, now: &BootMoment) {
        let effects = self.activation.handle(input, now.at);
        self.carry_out(effects, now);
    }

    fn carry_out(&mut self, effects: Vec<ActivationEffect>, now: &BootMoment) {
        for effect in effects {
            if let (ActivationEffect::Report(fact), Some(rollout)) = (effect, &mut self.rollout) {
                let told = rollout.told(&fact, self.activation.record().confirmed, now);
                self.heard.extend(told.into_iter().map(|event| (rollout.part.seq, event)));
            }
        }
    }

    fn switched(&mut self, target: Generation, end: SwitchEnd, now: &BootMoment) {
        self.give(ActivationInput::Switched { target: target.id, end }, now);
    }

    fn probed(&mut self, probe: &str, target: Generation, outcome: HealthProbeOutcome, now: &BootMoment) {
        let (probe, generation) = (probe.to_owned(), target.id);
        let result = HealthProbeResult { probe, generation, boot: now.boot.clone(), began: now.at, outcome };
        self.give(ActivationInput::Probe(result), now);
    }

    fn confirmed(&mut self, target: Generation, now: &BootMoment) {
        let (generation, boot) = (target.id, now.boot.clone());
        self.give(ActivationInput::ConfirmAnswered { generation, boot }, now);
    }

    fn heard(&mut self) -> Vec<(u64, RolloutEventBody)> {
        std::mem::take(&mut self.heard)
    }

    fn restated(&mut self, now: &BootMoment) -> Vec<RolloutEventBody> {
        self.rollout.as_mut().unwrap().restated(&self.activation, now)
    }

    fn is_over(&self) -> bool {
        self.rollout.as_ref().unwrap().is_over(self.activation.record())
    }

    /// It runs release 2, which is confirmed.
    fn running() -> Host {
        let mut host = Host::new();
        let next = of("next", 2);
        host.begins(next, &moment("b1", 100));
        host.switched(next, SwitchEnd::Done, &moment("b1", 110));
        host.probed("web", next, HealthProbeOutcome::Passed, &moment("b1", 111));
        host.probed("dns", next, HealthProbeOutcome::Passed, &moment("b1", 111));
        host.confirmed(next, &moment("b1", 112));
        host.heard();
        host
    }

    /// Release 2 waits for its boot.
    fn waiting() -> Host {
        let mut host = Host::new();
        host.begins(of("next", 2), &moment("b1", 100));
        host.switched(of("next", 2), needs_reboot(), &moment("b1", 110));
        host.heard();
        host
    }
}

fn needs_reboot() -> SwitchEnd {
    SwitchEnd::NeedsReboot { component: "kernel".to_owned() }
}

fn failed() -> SwitchEnd {
    SwitchEnd::Failed { reason: "no room".to_owned() }
}

fn complete(release: u64, boot: &str) -> RolloutEventBody {
    RolloutEventBody::ActivationComplete { release, boot: boot.to_owned() }
}

fn waits() -> RolloutEventBody {
    RolloutEventBody::ActivationDeferred { component: "kernel".to_owned() }
}

fn result(probe: &str, outcome: ProbeOutcome) -> RolloutEventBody {
    RolloutEventBody::ProbeResult { probe: probe.to_owned(), outcome, boot: "b1".to_owned() }
}

/// The rollout of release 2 is through, as it waits for no boot. That of release 3, which has the same set on this host, hears
/// how it stands; it would hear nothing until the boot otherwise, and count the host as silent.
#[test]
fn the_next_release_with_the_set_that_waits_for_its_boot_is_told() {
    let mut host = Host::waiting();
    host.begins(of("next", 3), &moment("b1", 200));
    assert_eq!(host.restated(&moment("b1", 205)), [], "it does not run it, and is said at its end");
    host.switched(of("next", 3), needs_reboot(), &moment("b1", 210));
    assert_eq!(host.heard(), [(3, RolloutEventBody::ActivationStarted), (3, waits())]);
    assert!(!host.is_over());
    let found = host.activation.record().clone();
    let (activation, effects) = start(found, of("next", 3), &moment("b2", 5));
    host.activation = activation;
    host.carry_out(effects, &moment("b2", 5));
    assert_eq!(host.heard()[0], (3, complete(3, "b2")));
    // One with another set is told once the host is back.
    let mut host = Host::waiting();
    host.begins(of("other", 3), &moment("b1", 200));
    assert!(host.heard().iter().all(|(seq, _)| *seq == 2), "it is left first");
}

/// Its process ended before the release took the place of the one that waits.
#[test]
fn a_process_that_begins_goes_on_with_the_next_release() {
    let host = Host::waiting();
    let (record, own) = (host.activation.record(), host.rollout.as_ref().unwrap());
    assert!(!own.is_to_be_asked_again(record), "it waits as it is");
    let mut next = Host::new();
    next.begins(of("next", 3), &moment("b1", 200));
    assert!(next.rollout.unwrap().is_to_be_asked_again(record));
    let mut other = Host::new();
    other.begins(of("other", 3), &moment("b1", 200));
    assert!(!other.rollout.unwrap().is_to_be_asked_again(record));
}

/// The host runs the set already, and the switch to the next release with it ends otherwise than it should.
#[test]
fn what_the_switch_to_the_same_set_comes_to_is_told() {
    let next = of("next", 3);
    let message = "the switch failed: no room".to_owned();
    for (is_settled, end, told) in [
        (false, failed(), RolloutEventBody::Failed { message: message.clone() }),
        (true, failed(), RolloutEventBody::Failed { message }),
        (false, needs_reboot(), waits()),
        (true, needs_reboot(), waits()),
    ] {
        let mut host = Host::running();
        if is_settled {
            host.give(ActivationInput::RolloutEnded(next.id), &moment("b1", 150));
        }
        host.begins(next, &moment("b1", 200));
        host.switched(next, end.clone(), &moment("b1", 210));
        assert_eq!(host.heard(), [(3, RolloutEventBody::ActivationStarted), (3, told)], "{end:?}");
        let is_failed = end == failed();
        // It is no part of the node any more, so that it begins anew where it is asked for again; one with a way back keeps
        // its part, and is tried again.
        assert_eq!(host.is_over(), is_failed && is_settled, "{end:?}");
        let rollout = host.rollout.as_ref().unwrap();
        assert_eq!(rollout.is_to_be_tried_again(host.activation.record()), is_failed, "{end:?}");
        let again = host.restated(&moment("b1", 220));
        assert_eq!(
            again,
            if is_failed { vec![] } else { vec![waits()] },
            "{end:?}: the host does not run it"
        );
        host.begins(next, &moment("b1", 300));
        host.switched(next, SwitchEnd::Done, &moment("b1", 310));
        assert_eq!(host.heard()[1], (3, complete(3, "b1")), "{end:?}");
        assert!(!host.is_over() && host.restated(&moment("b1", 311)).contains(&complete(3, "b1")));
    }
}

/// The rollout of release 2 is through, and the host soaks anew, as it booted. The next release with its set takes its place
/// all the same, and leads back to nothing: not to the release before both.
#[test]
fn the_next_release_with_the_set_of_one_that_was_through_leads_no_further_back() {
    let next = of("next", 3);
    let mut host = Host::running();
    host.begins(next, &moment("b1", 200));
    // The node says so right after.
    assert!(host.rollout.as_ref().unwrap().may_end(next.id, &moment("b1", 200)));
    host.give(ActivationInput::RolloutEnded(next.id), &moment("b1", 200));
    host.switched(next, SwitchEnd::Done, &moment("b1", 210));
    assert_eq!(host.heard()[..2], [(3, RolloutEventBody::ActivationStarted), (3, complete(3, "b1"))]);
    assert!(!host.is_over(), "it is watched as any other");
    host.give(ActivationInput::Halted(next.id), &moment("b1", 220));
    assert!(matches!(host.heard()[..], [(3, RolloutEventBody::Failed { .. })]), "there is no way back");
    assert_eq!(TrialStage::of(host.activation.record()), TrialStage::Settled);
}

/// ROL-7: a control plane that was restored takes no confirmation without the results of enforcing probes, which are said
/// where they change alone.
#[test]
fn a_restored_control_plane_hears_what_probes_came_to() {
    let passed = |probe| result(probe, ProbeOutcome::Pass);
    let next = of("next", 2);
    let mut host = Host::running();
    let said = host.restated(&moment("b1", 500));
    assert_eq!(said[0], complete(2, "b1"));
    assert!(matches!(said[1], RolloutEventBody::ProbeTopologyDeclared { .. }), "{said:?}");
    assert_eq!(said[2..], [passed("dns"), passed("web")]);
    assert_eq!(TrialStage::of(host.activation.record()), TrialStage::OnProbation);
    // It soaks anew, and that ends as it did.
    let rollout = host.rollout.as_mut().unwrap();
    assert_eq!(rollout.converges(&host.activation, &moment("b1", 500 + 119)), None);
    assert!(rollout.converges(&host.activation, &moment("b1", 500 + 120)).is_some());

    // One of them fails, and the release stays as its terms say: that was said once as well.
    host.probed("web", next, HealthProbeOutcome::TimedOut, &moment("b1", 700));
    assert_eq!(host.restated(&moment("b1", 705))[2..], [passed("dns"), result("web", ProbeOutcome::Fail)]);
    host.give(ActivationInput::Tick, &moment("b1", 710));
    let said = host.restated(&moment("b1", 715));
    let failed = said.last().unwrap();
    assert!(matches!(failed, RolloutEventBody::Failed { message } if message.contains("web")), "{said:?}");

    // One that is not confirmed yet, of which one probe did not answer yet.
    let mut host = Host::new();
    host.begins(next, &moment("b1", 100));
    assert_eq!(host.restated(&moment("b1", 105)), [], "it is said at its end");
    host.switched(next, SwitchEnd::Done, &moment("b1", 110));
    host.probed("dns", next, HealthProbeOutcome::Passed, &moment("b1", 111));
    assert_eq!(host.restated(&moment("b1", 112))[2..], [passed("dns")]);
    assert_eq!(Host::waiting().restated(&moment("b1", 200)), [waits()]);
}

/// ROL-12: a control plane that was restored calls back who gave up the release before: that is said once, with its reason,
/// and its part is over.
#[test]
fn a_host_without_a_way_back_says_so() {
    let mut host = Host::running();
    host.give(ActivationInput::RolloutEnded(of("next", 2).id), &moment("b1", 200));
    host.begins(of("next", 2), &moment("b1", 300));
    host.switched(of("next", 2), SwitchEnd::Done, &moment("b1", 310));
    host.heard();
    for expected in [1, 0] {
        host.give(ActivationInput::Halted(of("next", 2).id), &moment("b1", 320));
        let heard = host.heard();
        assert_eq!(heard.len(), expected, "{heard:?}");
        let says = |event: &RolloutEventBody| matches!(event, RolloutEventBody::Failed { message } if message.contains("nothing to go back to"));
        assert!(heard.iter().all(|(seq, event)| *seq == 2 && says(event)), "{heard:?}");
        assert!(host.is_over());
    }
}
