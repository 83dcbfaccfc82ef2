//! Releases in waves, and what an answer asks of them.

use std::sync::Arc;
use std::time::Duration;

use activation::ReturnCause;
use lang::{Selector, Value};
use model::exchange::Answer;
use model::log::Cursor;
use model::policy::Policy;
use model::rollout::{RolloutDispatch, RolloutEventBody, RolloutId, RolloutTask};
use node::{ActivationRequest, NodeEffect, NodeInput, PreparedRelease};
use trust::feature::ROLLOUT_FEATURE;
use trust::rollout_terms::{
    ConfirmTerms, GateTerms, OfflineConfirm, OnFailure, RolloutTerms, WaveMembers, WaveTerms,
};
use trust::signed::{digest, sign};

use super::{Bench, Release, START, offering, release_key};

pub const MINUTE: Duration = Duration::from_secs(60);

/// Two waves: the canaries, which `group` of the node decides, and the rest, which begins a day later.
pub fn terms(on_failure: OnFailure) -> RolloutTerms {
    let canary = WaveTerms {
        name: "canary".to_owned(),
        members: WaveMembers::Where(Selector::parse("@canary").unwrap()),
        not_before: None,
        gate: GateTerms { soak_secs: 120, success: 100 },
    };
    let rest = WaveTerms {
        name: "late".to_owned(),
        members: WaveMembers::Rest,
        not_before: Some(START.plus(Duration::from_secs(86_400))),
        gate: GateTerms::default(),
    };
    let confirm = ConfirmTerms { window_secs: 90, tries: 3, offline: OfflineConfirm::Confirm };
    RolloutTerms { waves: vec![canary, rest], on_failure, confirm, ..RolloutTerms::default() }
}

pub fn in_waves(seq: u64, modules: &[&str], on_failure: OnFailure) -> Release {
    let mut release = Release::new(seq, START, modules);
    release.header.rollout = Some(Arc::new(terms(on_failure)));
    release.header.requires = vec![ROLLOUT_FEATURE.to_owned()];
    release
}

/// What the node's set says: that it is in these groups.
pub fn of_groups(groups: &[&str]) -> NodeInput {
    of_groups_in_quarantine(groups, None)
}

/// The same of a set that the host's quarantine holds, for this cause.
pub fn of_groups_in_quarantine(groups: &[&str], quarantined: Option<ReturnCause>) -> NodeInput {
    let groups = groups.iter().map(|group| Value::from(*group)).collect();
    let declared = Value::Map([("groups".to_owned(), Value::List(groups))].into());
    NodeInput::Prepared(Ok(Box::new(PreparedRelease { policy: Policy::default(), declared, quarantined })))
}

pub fn id_of(release: &Release) -> RolloutId {
    let header = digest(&sign(&release.header, &[&release_key()]).unwrap());
    RolloutId::of_release(&release.header.channel, None, &header, |_| false)
}

pub fn dispatch(release: &Release, task: RolloutTask) -> RolloutDispatch {
    RolloutDispatch {
        rollout: id_of(release),
        seq: release.header.seq,
        wave: "canary".to_owned(),
        task,
        soak_secs: 0,
        through: None,
    }
}

pub fn acked(seq: u64) -> Cursor {
    Cursor { incarnation: "i1".parse().unwrap(), seq }
}

/// An answer that points to a release and asks for this.
pub fn asks(bench: &Bench, release: &Release, task: RolloutTask) -> Answer {
    let held = bench.node.adoption().map(|held| held.set());
    Answer { rollout: Some(dispatch(release, task)), ..offering(release.offer(held.as_ref())) }
}

pub fn until(bench: &Bench) -> RolloutTask {
    RolloutTask::Acknowledge { until: bench.now.plus(10 * MINUTE) }
}

pub fn said(effects: &[NodeEffect]) -> Vec<&RolloutEventBody> {
    let said = effects.iter().filter_map(|effect| match effect {
        NodeEffect::ReportDispatch(_, event) => Some(event),
        _ => None,
    });
    said.collect()
}

pub fn begun(effects: &[NodeEffect]) -> Option<&ActivationRequest> {
    effects.iter().find_map(|effect| match effect {
        NodeEffect::Activate(request) => Some(&**request),
        _ => None,
    })
}

/// Everything of the release is here, and the node knows its wave.
pub fn prepare(bench: &mut Bench, release: &Release, groups: &[&str]) {
    let answer = asks(bench, release, until(bench));
    let effects = bench.exchange(answer);
    assert!(effects.iter().any(|effect| matches!(effect, NodeEffect::Fetch { .. })), "{effects:?}");
    let effects = bench.give(NodeInput::Fetched);
    assert!(matches!(effects[..], [NodeEffect::Prepare(_)]), "{effects:?}");
    let effects = bench.give(of_groups(groups));
    assert!(effects.contains(&NodeEffect::CollectTraits), "it calls at once, as it was asked before");
}

/// The node said that it will begin, as the fact of this number.
pub fn acknowledge(bench: &mut Bench, release: &Release, fact: u64) {
    let answer = asks(bench, release, until(bench));
    assert_eq!(said(&bench.exchange(answer)), [&RolloutEventBody::DispatchAck]);
    let effects = bench.give(NodeInput::DispatchReported(id_of(release), acked(fact)));
    let is_said_soon = effects.contains(&NodeEffect::CollectTraits);
    assert!(is_said_soon || bench.wait().unwrap() <= Duration::from_secs(1), "it says so at once");
}

pub fn proceeds(bench: &mut Bench, release: &Release, taken: Option<u64>) -> Vec<NodeEffect> {
    let answer = Answer { acked: taken.map(acked), ..asks(bench, release, RolloutTask::Proceed) };
    bench.exchange(answer)
}
