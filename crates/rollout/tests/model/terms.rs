//! Terms of rollouts, drawn by chance.

use std::collections::BTreeMap;
use std::time::Duration;

use lang::{Selector, Value};
use model::share::Share;
use model::window::DeclaredWindow;
use model::{Channel, Hostname, Timestamp};
use trust::RolloutTerms;
use trust::rollout_terms::{
    BudgetTerms, FreezeTerms, GateTerms, NodeEdge, OnFailure, PinTerms, WaveMembers, WaveTerms,
};

use super::Rng;

pub fn selector(text: &str) -> Selector {
    Selector::parse(text).unwrap()
}

/// What is declared of a node.
pub fn declared(labels: &[(&str, &str)]) -> Value {
    let labels: BTreeMap<String, Value> =
        labels.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
    let groups: Vec<&str> = vec!["all"];
    Value::Map(BTreeMap::from([
        ("groups".to_owned(), Value::from(groups)),
        ("labels".to_owned(), Value::Map(labels)),
    ]))
}

pub fn budget(of: &str, in_flight: Option<Share>, max: Option<u32>) -> BudgetTerms {
    BudgetTerms { of: selector(of), in_flight, max }
}

pub fn wave(name: &str, members: WaveMembers, soak_secs: u64, success: u8) -> WaveTerms {
    WaveTerms { name: name.to_owned(), members, not_before: None, gate: GateTerms { soak_secs, success } }
}

/// Terms with anything that there may be in them.
pub fn any(
    rng: &mut Rng,
    channels: &[Channel],
    own: &Channel,
    hosts: &[Hostname],
    now: Timestamp,
    nodes: usize,
) -> RolloutTerms {
    let many = u32::try_from(nodes / 8).unwrap().max(1);
    let mut terms = RolloutTerms { seed: "s".to_owned(), ..RolloutTerms::default() };
    let ring = WaveMembers::Where(selector("where:labels.ring == \"0\""));
    let all = [
        wave("canary", ring, 60 * rng.below(10), 100),
        wave("some", WaveMembers::Percent(40), 0, 0),
        wave("most", WaveMembers::Percent(80), 0, 0),
    ];
    for mut wave in all {
        if rng.chance(65) {
            let success = *rng.pick(&[100, 100, 75, 50]);
            wave.gate = GateTerms { soak_secs: 60 * rng.below(10), success };
            terms.waves.push(wave);
        }
    }
    if rng.chance(25) && !terms.waves.is_empty() {
        let at = now.plus(Duration::from_secs(rng.below(7200)));
        let from = rng.below(terms.waves.len() as u64) as usize;
        terms.waves.iter_mut().skip(from).for_each(|wave| wave.not_before = Some(at));
    }
    let budgets = [
        budget("tier=db", Some(Share::Count(many)), None),
        budget("*", Some(Share::Percent(30)), None),
        budget("@all", None, Some(2 * many)),
        budget("tier=web", Some(Share::Percent(50)), Some(3 * many)),
    ];
    terms.budgets = budgets.into_iter().filter(|_| rng.chance(35)).collect();
    let edges = [("tier=db", "tier=web"), ("ring=0", "tier=db"), ("tier=web", "ring=1")];
    let edges = edges.into_iter().filter(|_| rng.chance(25));
    terms.edges =
        edges.map(|(before, after)| NodeEdge { before: selector(before), after: selector(after) }).collect();
    terms.after = channels.iter().filter(|other| *other != own && rng.chance(20)).cloned().collect();
    terms.on_failure = *rng.pick(&[OnFailure::Halt, OnFailure::Rollback]);
    terms.confirm.window_secs = 300;
    if rng.chance(10) && !hosts.is_empty() {
        let until = now.plus(Duration::from_secs(3600));
        terms.pins =
            vec![PinTerms { nodes: vec![rng.pick(hosts).clone()], until, reason: "ticket".to_owned() }];
    }
    if rng.chance(10) {
        let window = DeclaredWindow {
            days: Vec::new(),
            from: "00:00".to_owned(),
            to: "02:00".to_owned(),
            zone: "UTC".to_owned(),
            rules: None,
        };
        terms.freeze = vec![FreezeTerms { name: "nights".to_owned(), window }];
    }
    let mistakes = terms.mistakes(own, now);
    assert!(mistakes.is_empty(), "{mistakes:?}");
    terms
}
