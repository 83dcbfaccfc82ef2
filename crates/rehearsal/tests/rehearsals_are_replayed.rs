//! ROL-11: the same seed and input give the same bytes, and a host draws nothing that another one changes.

use rehearsal::{Rehearsal, rehearse};

use crate::fleet::{nodes, rehearsal, shares, terms};

fn bytes(rehearsal: &Rehearsal) -> String {
    let report = rehearse(rehearsal).unwrap();
    format!("{report}{}", serde_json::to_string(&report).unwrap())
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let seeded =
        |seed: u64| Rehearsal { seed, ..rehearsal(terms(), nodes(300), shares("5%", "10%", "5%", "1%")) };
    assert_eq!(bytes(&seeded(1)), bytes(&seeded(1)));
    assert_ne!(bytes(&seeded(1)), bytes(&seeded(2)));
}

#[test]
fn the_order_of_the_nodes_is_none_of_the_input() {
    let faults = shares("5%", "10%", "5%", "1%");
    let mut turned = nodes(300);
    turned.reverse();
    let one = rehearse(&rehearsal(terms(), nodes(300), faults)).unwrap();
    let other = rehearse(&rehearsal(terms(), turned, faults)).unwrap();
    let faults_of = |report: &rehearsal::RehearsalReport| {
        report.nodes.iter().map(|node| (node.hostname.clone(), node.fault, node.slow)).collect::<Vec<_>>()
    };
    assert_eq!(faults_of(&one), faults_of(&other));
    assert_eq!((one.outcome, one.waves.len()), (other.outcome, other.waves.len()));
}

/// The figure of docs/benchmarks.md is of a release build; this one says that a large fleet can be rehearsed at all.
#[test]
fn ten_thousand_nodes_are_rehearsed() {
    let began = std::time::Instant::now();
    let report = rehearse(&rehearsal(terms(), nodes(10_000), shares("0.1%", "10%", "5%", "0.1%"))).unwrap();
    println!("10,000 nodes in {:?}: {:?}", began.elapsed(), report.outcome);
    assert_eq!(report.nodes.len(), 10_000);
}
