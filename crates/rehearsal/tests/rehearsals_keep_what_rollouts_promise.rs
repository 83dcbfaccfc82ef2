//! ROL-1, ROL-11: what the core of rollouts promises is seen in every rehearsal: no budget is exceeded, no wave opens
//! before its time or before the wave before it is settled, nobody begins after a stop or before the wave opened, and who
//! can be reached is confirmed unless something stops it.
//!
//! Judged by what the report says of each node, and not by what the core counts.

use rehearsal::{
    FaultShare, FaultShares, NodeFault, NodeForecast, RehearsalOutcome, RehearsalReport, rehearse,
};
use rollout::member::FAILED_SLOT_LIMIT;
use rollout::{NodeRolloutState, RolloutRules};
use std::sync::Arc;
use std::time::Duration;
use trust::RolloutTerms;
use trust::rollout_terms::{NodeEdge, OnFailure, WaveMembers};

use crate::fleet::{BEGINS, budget, nodes, rehearsal, selector, wave};

/// A source of choices that a seed replays.
struct Choices(u64);

impl Choices {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }
    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    fn share(&mut self, most: u64) -> FaultShare {
        if self.chance(40) {
            FaultShare::default()
        } else {
            format!("{}%", self.below(most)).parse().unwrap()
        }
    }
}

fn any_terms(choices: &mut Choices) -> RolloutTerms {
    let all = [
        ("canary", WaveMembers::Where(selector("ring=0"))),
        ("some", WaveMembers::Percent(40)),
        ("most", WaveMembers::Percent(80)),
    ];
    let mut terms = RolloutTerms { seed: "s".to_owned(), ..RolloutTerms::default() };
    let mut at = None;
    for (name, members) in all {
        if choices.chance(70) {
            let success = [100, 90, 50, 1][choices.below(4) as usize];
            let mut wave = wave(name, members, 60 * choices.below(40), success);
            if choices.chance(20) {
                at = Some(BEGINS.plus(Duration::from_secs(choices.below(200_000))).max(at.unwrap_or(BEGINS)));
            }
            wave.not_before = at;
            terms.waves.push(wave);
        }
    }
    let budgets = [budget("tier=db", 2), budget("*", 9), budget("tier=web", 30)];
    terms.budgets = budgets.into_iter().filter(|_| choices.chance(40)).collect();
    if choices.chance(25) {
        terms.edges = vec![NodeEdge { before: selector("tier=db"), after: selector("tier=web") }];
    }
    if choices.chance(50) {
        terms.on_failure = OnFailure::Rollback;
    }
    terms
}

/// From when to when a node was not as it should be on its way there, by the report.
fn disrupted(node: &NodeForecast) -> Option<(u64, u64)> {
    let ended = match node.state {
        NodeRolloutState::Converged | NodeRolloutState::Reverted => node.ended_secs?,
        // Who says that it failed and is not back by then counts no longer.
        NodeRolloutState::Failed => {
            node.failed_secs.map_or(u64::MAX, |failed| failed + FAILED_SLOT_LIMIT.as_secs())
        }
        _ => u64::MAX,
    };
    Some((node.began_secs?, node.confirmed_secs.unwrap_or(ended)))
}

/// When it was confirmed, failed or was back the first time.
fn settled(node: &NodeForecast) -> Option<u64> {
    [node.confirmed_secs, node.failed_secs, node.ended_secs].into_iter().flatten().min()
}

/// The most of some intervals that overlap.
fn most_at_once(intervals: &[(u64, u64)]) -> usize {
    // What ends in a second is over before what begins in it.
    let begins = intervals.iter().map(|(began, _)| *began);
    begins
        .map(|at| intervals.iter().filter(|(began, ended)| *began <= at && at < *ended).count())
        .max()
        .unwrap_or(0)
}

fn judge(report: &RehearsalReport, terms: &Arc<RolloutTerms>, count: usize) {
    let rules = RolloutRules::new(Arc::clone(terms));
    let placed: Vec<_> =
        nodes(count).iter().map(|node| rules.place(&node.hostname, &node.declared)).collect();
    for (bit, terms) in terms.budgets.iter().enumerate() {
        let is_in = |index: &usize| placed[*index].budgets & (1 << bit) != 0;
        let members: Vec<usize> = (0..count).filter(is_in).collect();
        let intervals: Vec<_> = members.iter().filter_map(|index| disrupted(&report.nodes[*index])).collect();
        assert!(most_at_once(&intervals) <= terms.limit(members.len()), "budget {bit} is exceeded");
        // One that was confirmed and goes back by itself takes a slot that nobody gave it.
        let goes_back = |index: &&usize| {
            let node = &report.nodes[**index];
            node.confirmed_secs.is_some()
                && (node.failed_secs.is_some() || node.state == NodeRolloutState::Reverted)
        };
        let late = members.iter().filter(goes_back).count();
        assert!(
            report.budgets[bit].peak.most <= report.budgets[bit].limit + late,
            "budget {bit} is told to be exceeded"
        );
    }
    let opened =
        |wave: &str| report.waves.iter().find(|known| known.name == wave).and_then(|wave| wave.opened_secs);
    let stopped = report.stop.as_ref().map_or(u64::MAX, |stop| stop.at_secs);
    for node in &report.nodes {
        if let Some(began) = node.began_secs {
            assert!(
                opened(&node.wave).is_some_and(|opened| opened <= began),
                "{node:?} begins before its wave"
            );
            assert!(began <= stopped, "{node:?} begins after the stop");
        }
        if node.state == NodeRolloutState::Converged {
            assert_eq!(node.fault.filter(|fault| *fault != NodeFault::Fails), None, "{node:?}");
        }
    }
    for pair in report.waves.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        let Some(at) = after.opened_secs else { continue };
        let of_before = report.nodes.iter().filter(|node| node.wave == before.name);
        for node in of_before.filter(|node| node.fault != Some(NodeFault::Offline)) {
            assert!(
                settled(node).is_some_and(|settled| settled <= at) || node.began_secs.is_none(),
                "{node:?} {at}"
            );
        }
        let earliest = after.not_before.map_or(0, |earliest| earliest.since(BEGINS).as_secs());
        assert!(at >= earliest, "wave {} opens before its time", after.name);
    }
    match report.outcome {
        RehearsalOutcome::Through => {
            for node in report.nodes.iter().filter(|node| node.fault.is_none()) {
                assert_eq!(node.state, NodeRolloutState::Converged, "{node:?} is stranded");
            }
        }
        RehearsalOutcome::WentBack => {
            let is_back = |node: &NodeForecast| {
                matches!(node.state, NodeRolloutState::Pending | NodeRolloutState::Reverted)
            };
            assert!(report.nodes.iter().all(is_back), "somebody is not back");
        }
        RehearsalOutcome::Halted => assert!(report.stop.is_some()),
        // Nodes that failed, may fail and stay hold their slots and those that wait by edges for ever.
        RehearsalOutcome::Unfinished => {
            assert!(report.nodes.iter().any(|node| node.state == NodeRolloutState::Failed), "{report}");
            let holds = |cause: &str| cause.contains("at most") || cause.contains("go before it");
            assert!(report.waiting.iter().any(|group| holds(&group.cause)), "{report}");
        }
        RehearsalOutcome::GoingBack => panic!("{report}"),
    }
}

#[test]
fn in_random_rehearsals() {
    let (mut through, mut halted, mut back, mut held) = (0, 0, 0, 0);
    for seed in 0..150 {
        let mut choices = Choices(seed);
        let terms = any_terms(&mut choices);
        let faults = FaultShares {
            fail: choices.share(20),
            offline: choices.share(30),
            slow: choices.share(30),
            cut_off: choices.share(10),
            seldom: choices.share(50),
        };
        let count = 20 + choices.below(150) as usize;
        let mut rehearsal = rehearsal(terms, nodes(count), faults);
        rehearsal.seed = seed;
        let report = rehearse(&rehearsal).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        println!("seed {seed}: {:?}", report.outcome);
        judge(&report, &rehearsal.terms, count);
        match report.outcome {
            RehearsalOutcome::Through => through += 1,
            RehearsalOutcome::Halted => halted += 1,
            RehearsalOutcome::WentBack => back += 1,
            RehearsalOutcome::GoingBack | RehearsalOutcome::Unfinished => held += 1,
        }
    }
    println!("{through} through, {halted} halted, {back} back, {held} held for ever");
    assert!(through > 20 && halted > 10 && back > 10);
    // Nodes that failed and stay hold no rollout for ever.
    assert_eq!(held, 0);
}

/// What takes longer than a rehearsal lasts is not through, though nothing stops it: a year until the first wave may begin, and
/// the longest soak of that one and of the next.
#[test]
fn what_takes_longer_than_a_rehearsal_is_not_through() {
    const DAY: u64 = 24 * 3600;
    for (not_before_days, outcome) in [(300, RehearsalOutcome::Through), (366, RehearsalOutcome::Unfinished)]
    {
        let mut first = wave("first", WaveMembers::Percent(50), 30 * DAY, 100);
        first.not_before = Some(BEGINS.plus(Duration::from_secs(not_before_days * DAY)));
        let rest = wave("rest", WaveMembers::Rest, 30 * DAY, 100);
        let terms =
            RolloutTerms { waves: vec![first, rest], seed: "stable".into(), ..RolloutTerms::default() };
        let report = rehearse(&rehearsal(terms, nodes(20), FaultShares::default())).unwrap();
        assert_eq!(report.outcome, outcome, "{report}");
        let is_said = report.to_string().contains("it is not through after 400 days");
        assert_eq!(is_said, outcome == RehearsalOutcome::Unfinished, "{report}");
        assert!(
            report.stop.is_none() && report.waves[0].opened_secs == Some(not_before_days * DAY),
            "{report}"
        );
        let last = report.nodes.iter().filter_map(|node| node.confirmed_secs).max();
        assert!(last.is_some_and(|last| last <= 400 * DAY), "{report}");
    }
}
