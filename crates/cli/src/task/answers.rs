//! Answers of many nodes, the equal ones put together.

use std::collections::BTreeMap;

use model::work::ActionOutcome;
use plane::work::NodeStage;
use serde::Serialize;
use serde_json::Value;
use server::api::work::TaskNodeView;

use super::outcome::{OutcomeGroup, groups};

/// What nodes answered.
#[derive(Clone, Debug, Serialize)]
pub struct Answers {
    /// How many were asked.
    pub asked: usize,
    /// The answers, the most frequent first.
    pub answers: Vec<SameAnswer>,
    /// Nodes that answered and have nothing under the path asked for, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
    /// Nodes without an answer, by why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<OutcomeGroup>,
}

/// Nodes with one answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SameAnswer {
    /// The answer.
    pub answer: Value,
    /// The nodes.
    pub nodes: Vec<String>,
}

/// Puts the answers of a task's nodes together; of each only what is under a path.
pub fn answers(task: &str, nodes: &[TaskNodeView], path: Option<&str>) -> Answers {
    let mut same: BTreeMap<String, SameAnswer> = BTreeMap::new();
    let (mut absent, mut without) = (Vec::new(), Vec::new());
    for node in nodes {
        let (NodeStage::Ended, Some(ActionOutcome::Answered { result })) = (node.stage, &node.outcome) else {
            without.push(node.clone());
            continue;
        };
        // Traits stand beside the collectors that failed.
        let traits = result.get("traits").unwrap_or(result);
        let name = node.hostname.as_ref().map_or_else(|| node.node.to_string(), ToString::to_string);
        let Some(answer) = path.map_or(Some(result), |path| within(traits, path)).cloned() else {
            absent.push(name);
            continue;
        };
        // Maps are in the order of their keys, so equal values have equal texts.
        let here = same.entry(answer.to_string()).or_insert_with(|| SameAnswer { answer, nodes: Vec::new() });
        here.nodes.push(name);
    }
    let mut answers: Vec<SameAnswer> = same.into_values().collect();
    answers.iter_mut().for_each(|same| same.nodes.sort());
    answers.sort_by_key(|same| std::cmp::Reverse(same.nodes.len()));
    absent.sort();
    Answers { asked: nodes.len(), answers, absent, without: groups(task, &without) }
}

/// What is under a path of names between dots; a number is an index of a list.
pub fn within<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |value, name| match value {
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        value => value.get(name),
    })
}
