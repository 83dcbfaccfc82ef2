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
    let nodes = meant(operator, pattern).await?;
    if nodes.is_empty() {
        return Err(NoNode(pattern.to_owned()).into());
    }
    let tags: BTreeSet<String> = tags.iter().cloned().collect();
    if nodes.len() > 1 {
        screen.confirm(&format!("{} nodes will run{} now", nodes.len(), about(&tags)), yes)?;
    }
    let mut view =
        RunRequestView { nodes: 0, tags, too_old: Vec::new(), too_many_tags: Vec::new(), awaited: None };
    let mut number = u64::MAX;
    for batch in nodes.chunks(MAX_REQUESTED) {
        let nodes = batch.iter().map(|(id, _)| id.to_string()).collect();
        if view.tags.is_empty() {
            let requested = operator.call(&api::REQUEST_RUN, RunRequest { nodes }).await?;
            view.nodes += requested.nodes;
            number = number.min(requested.number);
        } else {
            let request = TaggedRunRequest { nodes, tags: view.tags.clone() };
            let requested = operator.call(&api::REQUEST_TAGGED_RUN, request).await?;
            view.nodes += requested.nodes;
            number = number.min(requested.number);
            view.too_old.extend(requested.too_old);
            view.too_many_tags.extend(requested.too_many_tags);
        }
    }
    if let Some(limit) = limit.filter(|_| view.nodes > 0) {
        let is_asked = |(_, hostname): &(NodeId, Hostname)| {
            !view.too_old.contains(hostname) && !view.too_many_tags.contains(hostname)
        };
        let nodes = nodes.into_iter().filter(is_asked).map(|(id, _)| id).collect_inserting();
        let request = AwaitedRequest { pattern, nodes, tags: &view.tags, number };
        view.awaited = Some(wait::wait(operator, request, limit, screen).await?);
    }
    screen.result(&view, || view.text())?;
    let asked_all = view.too_old.is_empty() && view.too_many_tags.is_empty();
    let succeeded = asked_all && view.awaited.as_ref().is_none_or(AwaitedRuns::succeeded);
    Ok(if succeeded { Exit::Ok } else { Exit::SomeFailed })
}

/// The nodes that a pattern means. Of what else is known of a node nothing is held: a fleet is larger than a page of
/// it.
async fn meant(operator: &Operator, pattern: &str) -> Result<Vec<(NodeId, Hostname)>, Failure> {
    let (mut pages, mut nodes) = (operator.pages(&api::NODES, Some(pattern)), Vec::new());
    while let Some(page) = pages.next().await? {
        nodes.extend(page.nodes.into_iter().map(|node| (node.id, node.hostname)));
    }
    Ok(nodes)
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
