//! What may follow what is what the tables in the documentation of `rollout::state` say.

use std::collections::BTreeSet;

use rollout::{NodeRolloutState, RolloutState};

const DOCUMENTED: &str = include_str!("../src/state.rs");

/// The pairs of the table after a line.
fn table(after: &str) -> BTreeSet<(String, String)> {
    let lines = DOCUMENTED.lines().skip_while(|line| !line.starts_with(after)).skip(4);
    let rows = lines.take_while(|line| line.starts_with("//! |"));
    let pairs = rows.map(|row| {
        let cells: Vec<&str> = row.trim_start_matches("//! |").split('|').map(str::trim).collect();
        assert!(cells.len() >= 3 && !cells[2].is_empty(), "{row}");
        (cells[0].to_owned(), cells[1].to_owned())
    });
    pairs.collect()
}

#[test]
fn of_nodes() {
    let all = NodeRolloutState::ALL;
    let pairs = all.iter().flat_map(|from| all.iter().map(move |to| (from, to)));
    let allowed: BTreeSet<(String, String)> = pairs
        .filter(|(from, to)| from.may_become(**to))
        .map(|(from, to)| (from.to_string(), to.to_string()))
        .collect();
    assert_eq!(allowed, table("//! A node in a rollout:"));
    assert!(allowed.len() > 10);
}

#[test]
fn of_rollouts() {
    let all = RolloutState::ALL;
    let pairs = all.iter().flat_map(|from| all.iter().map(move |to| (from, to)));
    let allowed: BTreeSet<(String, String)> = pairs
        .filter(|(from, to)| from.may_become(**to))
        .map(|(from, to)| (from.to_string(), to.to_string()))
        .collect();
    assert_eq!(allowed, table("//! A rollout:"));
    assert!(allowed.len() > 10);
}
