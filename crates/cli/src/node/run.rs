//! `muster node run`: requests that nodes run now, all of what they hold or what has a tag.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use model::collect::CollectInserting;
use model::exchange::{TAGGED_RUNS, TraitReport};
use model::tags::{MAX_RUN_TAGS, TaggedRun};
use model::{Hostname, NodeId};
use serde::Serialize;
use server::api::{self, NodeView, RunRequest, TaggedRunRequest};

use super::NoNode;
use super::wait::{self, AwaitedRequest, AwaitedRuns};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::next_step::{muster, with_credentials};
use crate::operator::Operator;
use crate::screen::Screen;

/// The most nodes of one request.
const MAX_REQUESTED: usize = 10_000;
/// The most nodes that are named of those that are not asked.
const MAX_NAMED: usize = 10;

/// What was requested.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRequestView {
    /// How many nodes are requested to run.
    pub nodes: usize,
    /// What has one of these tags; all when there are none.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub tags: BTreeSet<String>,
    /// Nodes whose agents do not know runs by tag.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub too_old: Vec<Hostname>,
    /// Nodes that have not confirmed earlier requests, whose tags would be too many together with these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub too_many_tags: Vec<Hostname>,
    /// What it came to, where that was waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub awaited: Option<AwaitedRuns>,
}

pub(super) async fn request(
    operator: &Operator,
    pattern: &str,
    tags: &[String],
    limit: Option<Duration>,
    yes: bool,
    screen: Screen,
) -> Result<Exit, Failure> {
    let meant = count(operator, pattern).await?;
    if meant == 0 {
        return Err(NoNode(pattern.to_owned()).into());
    }
    let tags: BTreeSet<String> = tags.iter().cloned().collect();
    if meant > 1 {
        screen.confirm(&format!("{meant} nodes will run{} now", about(&tags)), yes)?;
    }
    let mut requester = RunRequester::new(operator, tags, limit.is_some());
    requester.request_all(pattern).await?;
    let RunRequester { mut view, number, awaited, .. } = requester;
    if let (Some(limit), Some(nodes)) = (limit.filter(|_| view.nodes > 0), awaited) {
        let request = AwaitedRequest { pattern, nodes, tags: &view.tags, number };
        view.awaited = Some(wait::wait(operator, request, limit, screen).await?);
    }
    screen.result(&view, || view.text())?;
    let asked_all = view.too_old.is_empty() && view.too_many_tags.is_empty();
    let succeeded = asked_all && view.awaited.as_ref().is_none_or(AwaitedRuns::succeeded);
    Ok(if succeeded { Exit::Ok } else { Exit::SomeFailed })
}

/// How many nodes a pattern means. Nothing of them is held: a fleet is larger than a page of it.
async fn count(operator: &Operator, pattern: &str) -> Result<usize, Failure> {
    let (mut pages, mut count) = (operator.pages(&api::NODES, Some(pattern)), 0);
    while let Some(page) = pages.next().await? {
        count += page.nodes.len();
    }
    Ok(count)
}

/// Requests runs while nodes are listed: holds the names of at most [`MAX_REQUESTED`] of them.
struct RunRequester<'a> {
    operator: &'a Operator,
    view: RunRequestView,
    /// Of the first request.
    number: u64,
    /// The next request.
    batch: Vec<(NodeId, Hostname)>,
    /// Who was asked, where that is waited for: ids alone, some 6 MB for 100,000 nodes.
    awaited: Option<BTreeSet<NodeId>>,
}

impl<'a> RunRequester<'a> {
    fn new(operator: &'a Operator, tags: BTreeSet<String>, waits: bool) -> RunRequester<'a> {
        let (too_old, too_many_tags) = (Vec::new(), Vec::new());
        let view = RunRequestView { nodes: 0, tags, too_old, too_many_tags, awaited: None };
        let awaited = waits.then(BTreeSet::new);
        RunRequester { operator, view, number: u64::MAX, batch: Vec::new(), awaited }
    }

    async fn request_all(&mut self, pattern: &str) -> Result<(), Failure> {
        let mut pages = self.operator.pages(&api::NODES, Some(pattern));
        while let Some(page) = pages.next().await? {
            for node in page.nodes {
                self.batch.push((node.id, node.hostname));
                if self.batch.len() == MAX_REQUESTED {
                    self.request_batch().await?;
                }
            }
        }
        if self.batch.is_empty() { Ok(()) } else { self.request_batch().await }
    }

    async fn request_batch(&mut self) -> Result<(), Failure> {
        let batch = std::mem::take(&mut self.batch);
        let nodes = batch.iter().map(|(id, _)| id.to_string()).collect();
        let not_asked = if self.view.tags.is_empty() {
            let requested = self.operator.call(&api::REQUEST_RUN, RunRequest { nodes }).await?;
            self.requested(requested.nodes, requested.number);
            BTreeSet::new()
        } else {
            let request = TaggedRunRequest { nodes, tags: self.view.tags.clone() };
            let requested = self.operator.call(&api::REQUEST_TAGGED_RUN, request).await?;
            self.requested(requested.nodes, requested.number);
            let not_asked = requested.too_old.iter().chain(&requested.too_many_tags).cloned();
            let not_asked: BTreeSet<Hostname> = not_asked.collect_inserting();
            self.view.too_old.extend(requested.too_old);
            self.view.too_many_tags.extend(requested.too_many_tags);
            not_asked
        };
        if let Some(awaited) = &mut self.awaited {
            let asked = batch.into_iter().filter(|(_, hostname)| !not_asked.contains(hostname));
            awaited.extend(asked.map(|(id, _)| id));
        }
        Ok(())
    }

    fn requested(&mut self, nodes: usize, number: u64) {
        self.view.nodes += nodes;
        self.number = self.number.min(number);
    }
}

impl RunRequestView {
    /// What was requested, what that waits for, and who cannot do it, for people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        if let Some(awaited) = &self.awaited {
            out.push_str(&awaited.text());
        } else if self.nodes > 0 || self.too_old.is_empty() && self.too_many_tags.is_empty() {
            let _ = writeln!(
                out,
                "{} node(s) are requested to run{} now; those that cannot be reached do it when they call",
                self.nodes,
                about(&self.tags)
            );
        }
        if self.nodes > 0 && !self.tags.is_empty() && self.awaited.is_none() {
            out.push_str(&with_credentials(
                "`muster node show NODE` says what a node has not confirmed yet, `muster run show NODE` what \
                 changed, and a tag that no resource of the node has\n",
            ));
        }
        if !self.too_old.is_empty() {
            let _ = writeln!(
                out,
                "{} node(s) are not: their agents do not know runs by tag: {}\n\
                 next: install a newer muster-agent there, or request a run of all, without --tags",
                self.too_old.len(),
                named(&self.too_old)
            );
        }
        if !self.too_many_tags.is_empty() {
            let _ = writeln!(
                out,
                "{} node(s) are not: they have not confirmed earlier requests, and with their tags there would be \
                 more than {MAX_RUN_TAGS}: {}\n\
                 next: wait until they have called, or request a run of all, without --tags",
                self.too_many_tags.len(),
                named(&self.too_many_tags)
            );
        }
        out
    }
}

fn named(nodes: &[Hostname]) -> String {
    let first: Vec<&str> = nodes.iter().take(MAX_NAMED).map(Hostname::as_str).collect();
    match nodes.len().saturating_sub(MAX_NAMED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

fn about(tags: &BTreeSet<String>) -> String {
    if tags.is_empty() { String::new() } else { format!(" what is tagged {}", joined(tags)) }
}

fn joined(tags: &BTreeSet<String>) -> String {
    tags.iter().map(String::as_str).collect::<Vec<_>>().join(" or ")
}

/// Whether a run by tag is requested of a node whose agent does not say that it knows that.
pub(super) fn agent_too_old(node: &NodeView, traits: Option<&TraitReport>) -> bool {
    node.tagged_run.is_some() && traits.is_some_and(|traits| !traits.has_feature(TAGGED_RUNS))
}

/// How a request for a run by tag stands that is not confirmed.
pub fn waiting(run: &TaggedRun, agent_too_old: bool) -> String {
    let tags = joined(&run.tags);
    match agent_too_old {
        false => format!("requested for what is tagged {tags}; not confirmed yet"),
        true => format!(
            "requested for what is tagged {tags}; its agent does not know runs by tag: install a newer \
             muster-agent, or `{}` without --tags",
            muster("node run NODE")
        ),
    }
}
