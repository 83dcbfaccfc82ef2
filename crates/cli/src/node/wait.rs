//! `muster node run --wait`: waits for requested runs, and says what they came to.
//!
//! ```text
//! each round: pages from the first one with an unconfirmed node on, until the first that has one
//! at the end: all pages, one at a time
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::{Duration, Instant};

use model::{Hostname, NodeId, RunCounts, RunReport};
use serde::Serialize;
use server::api::{self, History, NodeView};

use crate::clock::short;
use crate::failure::Failure;
use crate::next_step::muster;
use crate::operator::{Operator, PageStart};
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
/// The most nodes that the result lists of each sort; of more there is only the number.
const MAX_LISTED: usize = 1000;
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
    /// Those of them on which something failed; the first [`MAX_LISTED`].
    pub failed: Vec<Hostname>,
    /// How many those are.
    pub failed_nodes: usize,
    /// Nodes that did not confirm it in time; the first [`MAX_LISTED`].
    pub unconfirmed: Vec<Hostname>,
    /// How many those are.
    pub unconfirmed_nodes: usize,
    /// Tags that no resource has, with the number of nodes that say so.
    pub unknown_tags: BTreeMap<String, usize>,
}

impl AwaitedRuns {
    /// Whether each node did what was asked for: a tag that some nodes have is no failure of the others.
    pub fn succeeded(&self) -> bool {
        let nowhere = |count: &usize| *count >= self.confirmed;
        self.failed_nodes == 0 && self.unconfirmed_nodes == 0 && !self.unknown_tags.values().any(nowhere)
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
            let (count, names) = (self.failed_nodes, named(&self.failed, self.failed_nodes));
            let _ = writeln!(out, "on {count} of them something failed: {names}");
            let _ = writeln!(out, "next: {}", muster(&format!("run show {first}")));
        }
        if let Some(first) = self.unconfirmed.first() {
            let waited = short(Duration::from_secs(self.wait_secs));
            let (count, names) = (self.unconfirmed_nodes, named(&self.unconfirmed, self.unconfirmed_nodes));
            let _ = writeln!(out, "{count} node(s) did not confirm it within {waited}: {names}");
            let _ = writeln!(out, "next: {}; they run when they call", muster(&format!("node show {first}")));
        }
        out
    }
}

fn named(nodes: &[Hostname], count: usize) -> String {
    let first = nodes.iter().take(MAX_NAMED).map(Hostname::as_str).collect::<Vec<_>>().join(", ");
    match count.saturating_sub(MAX_NAMED) {
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
    let (mut pages, mut confirmed_since) = (ConfirmedPages::default(), None);
    loop {
        let asked = Instant::now();
        if !pages.go_on(operator, &request).await? && began.elapsed() < limit {
            let (ran, of) = (pages.confirmed(), request.nodes.len());
            ticker.show(&format!("at least {ran} of {of} nodes ran"));
            pause(asked, began, limit).await;
            continue;
        }
        let LastListing { runs, unreported } = LastListing::read(operator, &request, limit).await?;
        let is_over = began.elapsed() >= limit;
        if runs.unconfirmed_nodes > 0 && !is_over {
            // Somebody requested another run meanwhile.
            pages = ConfirmedPages::default();
            pause(asked, began, limit).await;
            continue;
        }
        let waited = confirmed_since.get_or_insert_with(Instant::now).elapsed();
        if unreported == 0 || waited >= REPORT_WAIT || is_over {
            return Ok(runs);
        }
        pause(asked, began, limit).await;
    }
}

/// Whoever waits for a large fleet asks no more often than that is answered.
async fn pause(asked: Instant, began: Instant, limit: Duration) {
    let pause = PACE.max(asked.elapsed());
    tokio::time::sleep(pause.min(limit.saturating_sub(began.elapsed()))).await;
}

/// Up to where all nodes are known to have confirmed a request: they are not asked for again.
#[derive(Debug, PartialEq, Eq)]
struct ConfirmedPages {
    /// Where the first page begins of which that is not known; `None`: there is none.
    next: Option<PageStart>,
    /// Confirmed nodes of the pages before it.
    before: usize,
    /// Confirmed nodes of that page.
    on_page: usize,
}

impl Default for ConfirmedPages {
    fn default() -> ConfirmedPages {
        ConfirmedPages { next: Some(PageStart::default()), before: 0, on_page: 0 }
    }
}

impl ConfirmedPages {
    /// Reads on up to the first page with an unconfirmed node; whether there is none.
    async fn go_on(&mut self, operator: &Operator, request: &AwaitedRequest<'_>) -> Result<bool, Failure> {
        while let Some(start) = self.next.clone() {
            let mut pages = operator.pages_from(&api::NODES, Some(request.pattern), start);
            let nodes = pages.next().await?.map(|page| page.nodes).unwrap_or_default();
            let asked = nodes.iter().filter(|node| request.nodes.contains(&node.id));
            let (waiting, confirmed): (Vec<_>, Vec<_>) = asked.partition(|node| request.is_awaited(node));
            if !self.read(confirmed.len(), waiting.len(), pages.next_start()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes in the page at which it stands; whether the next one is to be read.
    fn read(&mut self, confirmed: usize, unconfirmed: usize, next: Option<&PageStart>) -> bool {
        if unconfirmed > 0 {
            self.on_page = confirmed;
            return false;
        }
        self.before += confirmed;
        self.on_page = 0;
        self.next = next.cloned();
        true
    }

    fn confirmed(&self) -> usize {
        self.before + self.on_page
    }
}

impl AwaitedRequest<'_> {
    /// The node has not confirmed it.
    fn is_awaited(&self, node: &NodeView) -> bool {
        match self.tags.is_empty() {
            true => node.run_request.is_some(),
            false => node.tagged_run.is_some(),
        }
    }
}

/// What the runs came to, over all pages.
#[derive(Default)]
struct LastListing {
    runs: AwaitedRuns,
    /// How many of the runs that are looked at are not reported, yet or at all.
    unreported: usize,
}

impl LastListing {
    async fn read(
        operator: &Operator,
        request: &AwaitedRequest<'_>,
        limit: Duration,
    ) -> Result<LastListing, Failure> {
        let mut listing = LastListing::default();
        listing.runs.wait_secs = limit.as_secs();
        let mut pages = operator.pages(&api::NODES, Some(request.pattern));
        while let Some(page) = pages.next().await? {
            for node in page.nodes.into_iter().filter(|node| request.nodes.contains(&node.id)) {
                match request.is_awaited(&node) {
                    true => listing.unconfirmed(node),
                    false => listing.confirmed(operator, request, node).await?,
                }
            }
        }
        Ok(listing)
    }

    fn unconfirmed(&mut self, node: NodeView) {
        self.runs.unconfirmed_nodes += 1;
        list(&mut self.runs.unconfirmed, node.hostname);
    }

    /// A full run came to the node's state, one by tag to what its report says.
    async fn confirmed(
        &mut self,
        operator: &Operator,
        request: &AwaitedRequest<'_>,
        node: NodeView,
    ) -> Result<(), Failure> {
        let is_looked_at = self.runs.confirmed < MAX_LOOKED_AT;
        self.runs.confirmed += 1;
        let report = match is_looked_at {
            true => reported_since(operator, &node.id, request.number).await?,
            false => None,
        };
        self.unreported += usize::from(report.is_none() && is_looked_at);
        let failed = match request.tags.is_empty() {
            true => crate::status::is_failed(node.state),
            false => report.as_ref().is_some_and(|report| report.counts.failed > 0),
        };
        if let Some(report) = report.as_ref().filter(|_| !request.tags.is_empty()) {
            add(self.runs.counts.get_or_insert_default(), &report.counts);
        }
        let unknown = report.map(|report| report.unknown_tags).unwrap_or_default();
        for tag in unknown.into_iter().filter(|tag| request.tags.contains(tag)) {
            *self.runs.unknown_tags.entry(tag).or_default() += 1;
        }
        if failed {
            self.runs.failed_nodes += 1;
            list(&mut self.runs.failed, node.hostname);
        }
        Ok(())
    }
}

fn list(nodes: &mut Vec<Hostname>, node: Hostname) {
    if nodes.len() < MAX_LISTED {
        nodes.push(node);
    }
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
    node: &NodeId,
    request: u64,
) -> Result<Option<RunReport>, Failure> {
    let newest = History { node: Some(node.to_string()), before: None, limit: 1.into() };
    let newest = operator.call(&api::RUNS, newest).await?.into_iter().next();
    let since = newest.filter(|run| u64::try_from(run.received.0).is_ok_and(|at| at >= request));
    Ok(since.map(|run| run.report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_whose_nodes_all_confirmed_are_read_once() {
        let (first, second) = (Some(PageStart::default()), PageStart::default());
        let mut pages = ConfirmedPages::default();
        assert!(pages.read(500, 0, Some(&second)));
        assert!(!pages.read(10, 1, None), "one of the second page is waited for");
        assert_eq!((pages.confirmed(), &pages.next), (510, &first));
        assert!(!pages.read(10, 1, None));
        assert_eq!(pages.confirmed(), 510, "what is read twice counts once");
        assert!(pages.read(11, 0, None));
        assert_eq!((pages.confirmed(), pages.next), (511, None));
    }

    #[test]
    fn what_is_listed_has_a_bound_and_its_number_has_none() {
        let mut names = Vec::new();
        (0..=MAX_LISTED).for_each(|n| list(&mut names, format!("web-{n}").parse().unwrap()));
        assert_eq!(names.len(), MAX_LISTED);
        let runs = AwaitedRuns { unconfirmed_nodes: 100_000, unconfirmed: names, ..AwaitedRuns::default() };
        assert!(runs.text().starts_with("0 node(s) ran\n100000 node(s) did not confirm it"));
        assert!(runs.text().contains("web-9 and 99990 more"), "{}", runs.text());
    }
}
