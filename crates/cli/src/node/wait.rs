//! `muster node run --wait`: waits for requested runs, and says what they came to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::{Duration, Instant};

use model::status::Overall;
use model::{Hostname, NodeId, RunCounts, RunReport};
use serde::Serialize;
use server::api::{self, History};

use crate::clock::short;
use crate::failure::Failure;
use crate::next_step::muster;
use crate::operator::Operator;
use crate::run::counts;
use crate::screen::Screen;
use crate::task::ticker::Ticker;

/// How long the control plane is left alone between two questions.
const PACE: Duration = Duration::from_secs(1);
/// How long after the last confirmation reports are waited for: they travel beside check-ins, and a run that
/// changed nothing and failed nowhere has none.
const REPORT_WAIT: Duration = Duration::from_secs(3);
/// The most nodes that are named of each sort.
const MAX_NAMED: usize = 10;
/// The most nodes whose run is looked at for failures and tags of a run by tag.
const MAX_LOOKED_AT: usize = 1000;

/// Requests that are waited for.
pub(super) struct AwaitedRequest<'a> {
    pub(super) pattern: &'a str,
    pub(super) nodes: BTreeSet<NodeId>,
    /// What has one of these tags; all when there are none.
    pub(super) tags: &'a BTreeSet<String>,
    /// The request's number, which is the control plane's time of it in milliseconds.
    pub(super) number: u64,
}

/// What requested runs came to.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AwaitedRuns {
    /// How long they were waited for, in seconds.
    pub wait_secs: u64,
    /// How many nodes carried the request out.
    pub confirmed: usize,
    /// What runs by tag came to, all nodes that reported theirs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<RunCounts>,
    /// Those of them on which something failed.
    pub failed: Vec<Hostname>,
    /// Nodes that did not confirm it in time.
    pub unconfirmed: Vec<Hostname>,
    /// Tags that no resource has, with the number of nodes that say so.
    pub unknown_tags: BTreeMap<String, usize>,
}

impl AwaitedRuns {
    /// Whether each node did what was asked for: a tag that some nodes have is no failure of the others.
    pub fn succeeded(&self) -> bool {
        let nowhere = |count: &usize| *count >= self.confirmed;
        self.failed.is_empty() && self.unconfirmed.is_empty() && !self.unknown_tags.values().any(nowhere)
    }

    /// For people.
    pub fn text(&self) -> String {
        let counts = self.counts.as_ref().map(|totals| format!(": {}", counts(totals))).unwrap_or_default();
        let mut out = format!("{} node(s) ran{counts}\n", self.confirmed);
        for (tag, count) in &self.unknown_tags {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "no resource is tagged {tag} on {count} of them");
        }
        if let Some(first) = self.failed.first() {
            let _ =
                writeln!(out, "on {} of them something failed: {}", self.failed.len(), named(&self.failed));
            let _ = writeln!(out, "next: {}", muster(&format!("run show {first}")));
        }
        if let Some(first) = self.unconfirmed.first() {
            let waited = short(Duration::from_secs(self.wait_secs));
            let (count, names) = (self.unconfirmed.len(), named(&self.unconfirmed));
            let _ = writeln!(out, "{count} node(s) did not confirm it within {waited}: {names}");
            let _ = writeln!(out, "next: {}; they run when they call", muster(&format!("node show {first}")));
        }
        out
    }
}

fn named(nodes: &[Hostname]) -> String {
    let first = nodes.iter().take(MAX_NAMED).map(Hostname::as_str).collect::<Vec<_>>().join(", ");
    match nodes.len().saturating_sub(MAX_NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Waits until every node confirmed its request, or for so long.
///
/// # Errors
/// When the control plane cannot be asked.
pub(super) async fn wait(
    operator: &Operator,
    request: AwaitedRequest<'_>,
    limit: Duration,
    screen: Screen,
) -> Result<AwaitedRuns, Failure> {
    let (began, mut ticker) = (Instant::now(), Ticker::new(screen));
    let mut confirmed_since = None;
    loop {
        let asked = Instant::now();
        let (unconfirmed, confirmed) = confirmations(operator, &request).await?;
        let left = unconfirmed.len();
        if left > 0 && began.elapsed() < limit {
            ticker.show(&format!("{left} of {} nodes did not run yet", left + confirmed.len()));
            // Whoever waits for a large fleet asks no more often than that is answered.
            let pause = PACE.max(asked.elapsed());
            tokio::time::sleep(pause.min(limit.saturating_sub(began.elapsed()))).await;
            continue;
        }
        let mut runs = AwaitedRuns {
            wait_secs: limit.as_secs(),
            confirmed: confirmed.len(),
            unconfirmed,
            ..AwaitedRuns::default()
        };
        let unreported = look_at(operator, &request, confirmed, &mut runs).await?;
        let waited = confirmed_since.get_or_insert_with(Instant::now).elapsed();
        if unreported == 0 || waited >= REPORT_WAIT || began.elapsed() >= limit {
            return Ok(runs);
        }
        tokio::time::sleep(PACE).await;
    }
}

/// A node that confirmed a request.
struct ConfirmedNode {
    id: NodeId,
    hostname: Hostname,
    state: Overall,
}

/// Who has not confirmed a request, and who has.
async fn confirmations(
    operator: &Operator,
    request: &AwaitedRequest<'_>,
) -> Result<(Vec<Hostname>, Vec<ConfirmedNode>), Failure> {
    let (mut unconfirmed, mut confirmed) = (Vec::new(), Vec::new());
    let mut pages = operator.pages(&api::NODES, Some(request.pattern));
    while let Some(page) = pages.next().await? {
        for node in page.nodes.into_iter().filter(|node| request.nodes.contains(&node.id)) {
            let waits = match request.tags.is_empty() {
                true => node.run_request.is_some(),
                false => node.tagged_run.is_some(),
            };
            let api::NodeView { id, hostname, state, .. } = node;
            match waits {
                true => unconfirmed.push(hostname),
                false => confirmed.push(ConfirmedNode { id, hostname, state }),
            }
        }
    }
    Ok((unconfirmed, confirmed))
}

/// What the runs came to: a full run by the node's state, one by tag by its report. How many of those that are
/// looked at are not reported, yet or at all.
async fn look_at(
    operator: &Operator,
    request: &AwaitedRequest<'_>,
    confirmed: Vec<ConfirmedNode>,
    runs: &mut AwaitedRuns,
) -> Result<usize, Failure> {
    let mut unreported = 0;
    for (position, node) in confirmed.into_iter().enumerate() {
        let report = match position < MAX_LOOKED_AT {
            true => reported_since(operator, &node, request.number).await?,
            false => None,
        };
        unreported += usize::from(report.is_none() && position < MAX_LOOKED_AT);
        let failed = match request.tags.is_empty() {
            true => crate::status::is_failed(node.state),
            false => report.as_ref().is_some_and(|report| report.counts.failed > 0),
        };
        if let Some(report) = report.as_ref().filter(|_| !request.tags.is_empty()) {
            add(runs.counts.get_or_insert_default(), &report.counts);
        }
        let unknown = report.map(|report| report.unknown_tags).unwrap_or_default();
        for tag in unknown.into_iter().filter(|tag| request.tags.contains(tag)) {
            *runs.unknown_tags.entry(tag).or_default() += 1;
        }
        if failed {
            runs.failed.push(node.hostname);
        }
    }
    Ok(unreported)
}

/// Adds the totals of one more node.
fn add(sum: &mut RunCounts, node: &RunCounts) {
    let RunCounts { modules, ok, changed, failed, skipped, would_change } = sum;
    for (sum, more) in [
        (modules, node.modules),
        (ok, node.ok),
        (changed, node.changed),
        (failed, node.failed),
        (skipped, node.skipped),
        (would_change, node.would_change),
    ] {
        *sum = sum.saturating_add(more);
    }
}

/// The newest run of a node that was received since a request.
async fn reported_since(
    operator: &Operator,
    node: &ConfirmedNode,
    request: u64,
) -> Result<Option<RunReport>, Failure> {
    let newest = History { node: Some(node.id.to_string()), before: None, limit: 1.into() };
    let newest = operator.call(&api::RUNS, newest).await?.into_iter().next();
    let since = newest.filter(|run| u64::try_from(run.received.0).is_ok_and(|at| at >= request));
    Ok(since.map(|run| run.report))
}
