//! A fleet to rehearse with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use activation::{HealthProbe, HealthProbeKind, HealthProbeMode, ProbeTopology};
use lang::{Selector, Value};
use model::Timestamp;
use rehearsal::{FaultShare, FaultShares, Rehearsal, RehearsedNode};
use trust::RolloutTerms;
use trust::rollout_terms::{BudgetTerms, GateTerms, WaveMembers, WaveTerms};

pub const BEGINS: Timestamp = Timestamp::from_secs(1_800_000_000);

pub fn selector(text: &str) -> Selector {
    Selector::parse(text).unwrap()
}

pub fn wave(name: &str, members: WaveMembers, soak_secs: u64, success: u8) -> WaveTerms {
    WaveTerms { name: name.to_owned(), members, not_before: None, gate: GateTerms { soak_secs, success } }
}

pub fn budget(of: &str, max: u32) -> BudgetTerms {
    BudgetTerms { of: selector(of), in_flight: None, max: Some(max) }
}

/// A canary of ring 0, a tenth after a day, and the rest.
pub fn terms() -> RolloutTerms {
    let ring = WaveMembers::Where(selector("ring=0"));
    let mut tenth = wave("tenth", WaveMembers::Percent(10), 300, 95);
    tenth.not_before = Some(BEGINS.plus(Duration::from_secs(24 * 3600)));
    let waves = vec![wave("canary", ring, 1800, 100), tenth, wave("rest", WaveMembers::Rest, 300, 90)];
    RolloutTerms { waves, seed: "stable".to_owned(), ..RolloutTerms::default() }
}

pub fn probe(mode: HealthProbeMode) -> HealthProbe {
    HealthProbe {
        name: "web".to_owned(),
        kind: HealthProbeKind::Tcp { address: "localhost:80".to_owned() },
        mode,
        grace: Duration::from_secs(30),
        sustained: Duration::from_secs(60),
        every: Duration::from_secs(10),
        timeout: Duration::from_secs(5),
    }
}

pub fn node(number: usize, labels: &[(&str, &str)], probes: Vec<HealthProbe>) -> RehearsedNode {
    let labels: BTreeMap<String, Value> =
        labels.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
    let groups: Vec<&str> = Vec::new();
    RehearsedNode {
        hostname: format!("node-{number:05}.example.com").parse().unwrap(),
        declared: Value::Map(BTreeMap::from([
            ("groups".to_owned(), Value::from(groups)),
            ("labels".to_owned(), Value::Map(labels)),
        ])),
        probes: ProbeTopology::declare(probes).unwrap(),
    }
}

/// So many nodes, of which every fiftieth is in ring 0 and every fourth has a database, all with a probe.
pub fn nodes(count: usize) -> Vec<RehearsedNode> {
    let of = |number: usize| {
        let ring = if number.is_multiple_of(50) { "0" } else { "1" };
        let tier = if number.is_multiple_of(4) { "db" } else { "web" };
        node(number, &[("ring", ring), ("tier", tier)], vec![probe(HealthProbeMode::Enforce)])
    };
    (0..count).map(of).collect()
}

pub fn rehearsal(terms: RolloutTerms, nodes: Vec<RehearsedNode>, faults: FaultShares) -> Rehearsal {
    Rehearsal {
        channel: "stable".parse().unwrap(),
        terms: Arc::new(terms),
        nodes,
        faults,
        seed: 7,
        begins: BEGINS,
    }
}

pub fn shares(fail: &str, offline: &str, slow: &str, cut_off: &str) -> FaultShares {
    let share = |text: &str| text.parse().unwrap();
    FaultShares {
        fail: share(fail),
        offline: share(offline),
        slow: share(slow),
        seldom: FaultShare::default(),
        cut_off: share(cut_off),
    }
}
