//! ROL-5: which events take effect in which state of a node, by one table; and what is kept of each.

use std::time::Duration;

use ::model::share::Share;
use ::model::status::Contact;
use ::model::time::SLACK;
use rollout::event::{DeclaredProbe, MAX_PROBE_NAME, MAX_PROBES, ProbeMode, ProbeOutcome};
use rollout::member::{ACTIVATION_LIMIT, ASK_LEASE, DEFER_SLOT, RETRY_WAIT, SOAK_SILENCE};
use rollout::{
    ConfirmEvidence, EventAnswer, EventRefusal, MemberFailure, NodeRolloutState, OffRelease, RolloutCommand,
    RolloutEventBody,
};
use trust::RolloutTerms;
use trust::rollout_terms::{OnFailure, WaveMembers};

use crate::model::driven::{Driven, node_id};
use crate::model::terms::{budget, wave};

fn boot() -> String {
    "boot-1".to_owned()
}

fn declare(probes: &[(&str, ProbeMode)]) -> RolloutEventBody {
    let probe = |(name, mode): &(&str, ProbeMode)| DeclaredProbe { name: (*name).to_owned(), mode: *mode };
    RolloutEventBody::ProbeTopologyDeclared { probes: probes.iter().map(probe).collect() }
}

fn found(probe: &str, outcome: ProbeOutcome) -> RolloutEventBody {
    RolloutEventBody::ProbeResult { probe: probe.to_owned(), outcome, boot: boot() }
}

fn failed() -> RolloutEventBody {
    RolloutEventBody::Failed { message: "no".to_owned() }
}

fn back() -> RolloutEventBody {
    RolloutEventBody::RollbackComplete { release: 40 }
}

/// In the order of the table's columns.
fn events() -> [RolloutEventBody; 14] {
    [
        RolloutEventBody::DispatchAck,
        RolloutEventBody::DispatchReject { code: "proof".to_owned() },
        RolloutEventBody::DispatchReject { code: "frozen".to_owned() },
        RolloutEventBody::ActivationStarted,
        RolloutEventBody::ActivationComplete { release: 41, boot: boot() },
        RolloutEventBody::ActivationFailed { message: "no".to_owned() },
        RolloutEventBody::ActivationDeferred { component: "kernel".to_owned() },
        declare(&[("web", ProbeMode::Enforce)]),
        found("web", ProbeOutcome::Pass),
        RolloutEventBody::ProbeFailureFirst { probe: "web".to_owned() },
        failed(),
        back(),
        RolloutEventBody::Converged { release: 41, boot: boot(), soaked_secs: 0 },
        RolloutEventBody::Unknown,
    ]
}

/// All may fail; what is rolled back goes back.
fn terms() -> RolloutTerms {
    RolloutTerms {
        waves: vec![wave("rest", WaveMembers::Rest, 0, 0)],
        on_failure: OnFailure::Rollback,
        ..RolloutTerms::default()
    }
}

/// `b` keeps the rollout from being through.
fn world() -> Driven {
    Driven::new(terms(), &[("a", &[]), ("b", &[])])
}

fn deferred(world: &mut Driven) {
    world.say("a", RolloutEventBody::DispatchAck);
    let component = "kernel".to_owned();
    assert_eq!(world.say("a", RolloutEventBody::ActivationDeferred { component }), EventAnswer::Accepted);
}

fn soaking(world: &mut Driven) {
    world.activate("a");
    world.pass("a");
}

/// Where a node stands, and how it comes there.
type Standing = (&'static str, fn(&mut Driven));

const STANDS: [Standing; 12] = [
    ("not asked", |world| drop(world.command(RolloutCommand::Pause))),
    ("asked", |_| {}),
    ("activating", |world| drop(world.say("a", RolloutEventBody::DispatchAck))),
    ("deferred", deferred),
    ("soaking", soaking),
    ("confirmed", |world| {
        soaking(world);
        assert_eq!(world.converged("a", 0), EventAnswer::Accepted);
    }),
    ("failed", |world| {
        world.activate("a");
        world.fail("a");
    }),
    ("back", |world| {
        world.activate("a");
        assert_eq!(world.back("a"), EventAnswer::Accepted);
    }),
    ("activating, called back", |world| {
        world.say("a", RolloutEventBody::DispatchAck);
        world.command(RolloutCommand::Rollback);
    }),
    ("soaking, called back", |world| {
        soaking(world);
        world.command(RolloutCommand::Rollback);
    }),
    ("confirmed, called back", |world| {
        soaking(world);
        assert_eq!(world.converged("a", 0), EventAnswer::Accepted);
        world.command(RolloutCommand::Rollback);
    }),
    ("started", |world| {
        world.say("a", RolloutEventBody::DispatchAck);
        assert_eq!(world.say("a", RolloutEventBody::ActivationStarted), EventAnswer::Accepted);
    }),
];

/// `+` takes effect, `n` was not asked for, `-` does not go with the state.
#[test]
fn by_one_table() {
    // acknowledged, refused, kept from it, started, complete, switch failed, deferred, declared, probed, first failure, failed,
    // back, converged, of a newer agent
    let table = "
        nnnn-nnnnnn-n+  not asked
        +++n-nnnnnn-n+  asked
        +n+++++---++-+  activating
        nnn-++----++-+  deferred
        nnn-+--+++++++  soaking
        nnn-------++-+  confirmed
        nnn--------+-+  failed
        nnn----------+  back
        +nn+-+----++-+  activating, called back
        nnn----+++++-+  soaking, called back
        +++-------++-+  confirmed, called back
        +nn++++---++-+  started
    ";
    let mut rows = String::new();
    for (name, stand) in STANDS {
        let mut row = String::new();
        for event in events() {
            let mut world = world();
            stand(&mut world);
            let state = world.member("a").state;
            row.push(match world.say("a", event) {
                EventAnswer::Accepted => '+',
                EventAnswer::Refused(EventRefusal::NotAsked) => 'n',
                EventAnswer::Refused(EventRefusal::OtherState { state: said }) if said == state => '-',
                other => panic!("{name}: {other:?}"),
            });
        }
        rows.push_str(&format!("        {row}  {name}\n"));
    }
    assert_eq!(rows.trim(), table.trim(), "\n{rows}");
}

/// What made a node fail is not forgotten when it is back, and a node that was called back did not fail.
#[test]
fn a_return_keeps_its_reason() {
    let failure = |stand: fn(&mut Driven)| {
        let mut world = world();
        stand(&mut world);
        assert_eq!(world.say("a", back()), EventAnswer::Accepted);
        world.member("a").failure.clone()
    };
    assert_eq!(failure(soaking), Some(MemberFailure::Returned));
    let said = Some(MemberFailure::Reported { message: "probe web failed".to_owned() });
    assert_eq!(failure(STANDS[6].1), said);
    assert_eq!(failure(STANDS[5].1), Some(MemberFailure::Returned), "it was confirmed");
    assert_eq!((failure(STANDS[9].1), failure(STANDS[10].1)), (None, None));
}

/// A node that stays off the release of its rollout says why: it counts as well there, on what it had.
#[test]
fn people_are_told_why_a_node_is_not_on_the_release() {
    let mut world = world();
    let told = |world: &Driven| world.rollouts.pointer(&node_id("a")).unwrap().off_release;
    world.activate("a");
    assert_eq!(told(&world), None);
    world.fail("a");
    let failed = format!("failed in rollout {}: it says: probe web failed", world.id);
    assert_eq!(told(&world), Some(OffRelease::Failed(failed)));
    world.back("a");
    let why = "went back from release 41: it says: probe web failed".to_owned();
    assert_eq!(told(&world), Some(OffRelease::WentBack(why)));
}

#[test]
fn a_confirmation_names_the_enforcing_probes_that_passed() {
    let mut world = world();
    let evidence = |world: &Driven| world.rollouts.explain(&node_id("a")).unwrap().evidence;
    world.activate("a");
    world.say("a", declare(&[("web", ProbeMode::Enforce), ("eye", ProbeMode::Observe)]));
    for probe in ["web", "eye"] {
        assert_eq!(world.say("a", found(probe, ProbeOutcome::Pass)), EventAnswer::Accepted);
    }
    assert_eq!(evidence(&world), None, "it soaks");
    assert_eq!(world.converged("a", 0), EventAnswer::Accepted);
    let passed = vec!["web".to_owned()];
    assert_eq!(evidence(&world), Some(ConfirmEvidence { boot: Some(boot()), passed }));
}

#[test]
fn declared_probes_have_a_bound() {
    let refused = EventAnswer::Refused(EventRefusal::TooManyProbes);
    let mut world = world();
    world.activate("a");
    let named = |length: usize| ("n".repeat(length), ProbeMode::Observe);
    let say = |world: &mut Driven, others: &[(String, ProbeMode)]| {
        let mut probes = vec![("web", ProbeMode::Enforce)];
        probes.extend(others.iter().map(|(name, mode)| (name.as_str(), *mode)));
        world.say("a", declare(&probes))
    };
    assert_eq!(say(&mut world, &vec![named(1); MAX_PROBES - 1]), EventAnswer::Accepted);
    assert_eq!(say(&mut world, &vec![named(1); MAX_PROBES]), refused);
    assert_eq!(say(&mut world, &[named(MAX_PROBE_NAME)]), EventAnswer::Accepted);
    assert_eq!(say(&mut world, &[named(MAX_PROBE_NAME + 1)]), refused);
}

#[test]
fn an_acknowledgement_counts_until_its_request_lapses() {
    let asked = |after: Duration| {
        let mut world = world();
        world.wait(ASK_LEASE.as_secs() - 60);
        world.now = world.now.plus(after);
        world.say("a", RolloutEventBody::DispatchAck)
    };
    assert_eq!(asked(Duration::from_secs(60)), EventAnswer::Accepted);
    assert_eq!(asked(Duration::from_secs(61)), EventAnswer::Refused(EventRefusal::NotAsked));
}

#[test]
fn each_state_has_its_own_patience() {
    let mut world = Driven::new(terms(), &[("a", &[])]);
    let window = Duration::from_secs(terms().confirm.window_secs);
    world.say("a", RolloutEventBody::DispatchAck);
    let member = world.member("a");
    assert_eq!(member.deadline, Some(world.now.plus(ACTIVATION_LIMIT + window + SLACK)));
    assert_eq!(member.slot_until, None);
    let component = "kernel".to_owned();
    world.say("a", RolloutEventBody::ActivationDeferred { component });
    assert_eq!(world.member("a").slot_until, Some(world.now.plus(DEFER_SLOT)));
    world.say("a", RolloutEventBody::ActivationComplete { release: 41, boot: boot() });
    let member = world.member("a");
    assert_eq!((member.deadline, member.slot_until), (Some(world.now.plus(SOAK_SILENCE)), None));
}

/// Who refuses is asked later and later; who refused for good did not begin, and holds no slot.
#[test]
fn a_refusal_doubles_the_wait() {
    let terms = RolloutTerms { budgets: vec![budget("*", Some(Share::Count(1)), None)], ..terms() };
    let mut world = Driven::new(terms, &[("a", &[])]);
    for doubled in 0..5 {
        let code = "proof".to_owned();
        assert_eq!(world.say("a", RolloutEventBody::DispatchReject { code }), EventAnswer::Accepted);
        let member = world.member("a");
        if doubled < 4 {
            assert_eq!(member.retry_at, Some(world.now.plus(RETRY_WAIT * 2u32.pow(doubled))));
            world.now = member.retry_at.unwrap();
            world.give(rollout::RolloutInput::Tick);
        }
    }
    let member = world.member("a");
    assert_eq!((member.state, member.in_flight()), (NodeRolloutState::Failed, false));
}

/// A node that left the fleet and came again is not taken for the one that was online.
#[test]
fn who_comes_again_is_heard_first() {
    let mut world = world();
    let channel = world.key.channel.clone();
    let node = crate::model::driven::joining("b", &[], Some(40));
    world.give(rollout::RolloutInput::Removed { channel: channel.clone(), node: node_id("b") });
    world.give(rollout::RolloutInput::Joined { channel, node });
    assert!(!world.is_asked("b"));
    assert!(world.why("b").ends_with("it was not heard of since the control plane started"));
    world.contact("b", Contact::Online);
    assert!(world.is_asked("b"));
}

#[test]
fn each_state_has_words() {
    let words = NodeRolloutState::ALL.map(NodeRolloutState::words);
    let known = ["pending", "activating", "soaking", "confirmed", "deferred to its boot", "failed", "back"];
    assert_eq!(words, known);
}
