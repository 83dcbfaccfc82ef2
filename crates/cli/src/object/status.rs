//! `muster object status` and `resync`: how synchronization stands, as the control plane says it.

use std::collections::BTreeMap;

use model::condition::{Attention, SyncState};
use model::replication::TransportKind;
use model::text::shell_word;
use server::api::objects::{ConditionView, RESYNC, ResyncNodes, Resynced, SYNC, SyncView, SyncsView};

use crate::clock::{ago, now};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::listing::PagedTable;
use crate::next_step::{muster, with_credentials};
use crate::operator::OperatorCallError;
use crate::screen::{Mark, Screen, name_of};
use crate::table::table;
use crate::whom::{self, WhomError, nodes, some_of};

/// The most nodes in one order to resync.
const RESYNC_BATCH: usize = 10_000;
/// How much a condition matters.
pub fn mark(condition: &ConditionView) -> Mark {
    match condition.attention {
        Attention::Act => Mark::Bad,
        Attention::None | Attention::Wait => mark_of(condition.state),
    }
}

/// It does not come right without somebody.
pub fn is_wrong(view: &SyncView) -> bool {
    view.condition.attention == Attention::Act
}

/// The state in a few words.
fn state(view: &SyncView) -> String {
    match view.condition.state {
        SyncState::Behind => format!("behind by {}", view.behind.max(1)),
        state => state.to_string(),
    }
}

/// How many nodes are in each state, in words; `None` when there are none.
pub fn counted(states: &BTreeMap<SyncState, usize>, screen: Screen) -> Option<String> {
    let notes: Vec<String> = states
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(state, count)| screen.mark(mark_of(*state), &format!("{count} {state}")))
        .collect();
    (!notes.is_empty()).then(|| notes.join(", "))
}

fn mark_of(state: SyncState) -> Mark {
    match state {
        SyncState::OutOfSync => Mark::Bad,
        SyncState::InSync => Mark::Good,
        SyncState::Off => Mark::Dim,
        SyncState::Behind | SyncState::Comparing | SyncState::Unknown | SyncState::Other => Mark::Warn,
    }
}

/// One node's synchronization, for `muster node show`.
pub fn one(view: &SyncView, screen: Screen) -> Vec<(&'static str, String)> {
    let condition = &view.condition;
    if condition.state == SyncState::Off {
        return vec![("sync", format!("off: {}", condition.message))];
    }
    let link = view.link.map(|link| format!(" over {link}")).unwrap_or_default();
    let since = condition.since.map(|since| format!(" since {}", ago(since, now()))).unwrap_or_default();
    let (mode, state) = (name_of(view.mode), screen.mark(mark(condition), &state(view)));
    let mut rows =
        vec![("sync", format!("{mode}: {state}{since}{link}; {} down, {} up", view.down, view.up))];
    let why = if condition.next_step.is_some() { "because " } else { "" };
    rows.push(("", format!("{why}{} ({})", condition.message, condition.reason)));
    rows.extend(condition.next_step.iter().map(|next| ("", format!("next: {}", with_credentials(next)))));
    rows
}

/// What is listed of how a node's synchronization stands.
const COLUMNS: [&str; 9] = ["NODE", "MODE", "STATE", "SINCE", "LINK", "DOWN", "UP", "CAUSE", "NEXT"];

/// How synchronization stands, as a table.
pub fn table_of(views: &[SyncView], screen: Screen) -> String {
    table(&COLUMNS, views.iter().map(|view| row(view, screen)))
}

/// A node as a row under [`COLUMNS`].
fn row(view: &SyncView, screen: Screen) -> [String; COLUMNS.len()] {
    let condition = &view.condition;
    let green = condition.state == SyncState::InSync;
    [
        view.node.to_string(),
        name_of(view.mode),
        screen.mark(mark(condition), &state(view)),
        condition.since.map(|since| ago(since, now())).unwrap_or_default(),
        view.link.map_or("-", TransportKind::as_str).to_owned(),
        view.down.to_string(),
        view.up.to_string(),
        if green { String::new() } else { condition.message.clone() },
        with_credentials(condition.next_step.as_deref().unwrap_or_default()).into_owned(),
    ]
}

/// Shows how synchronization fares.
pub(super) async fn status(
    connect: &Connect,
    selector: Option<&str>,
    wrong: bool,
    screen: Screen,
) -> Result<Exit, Failure> {
    selector.map(whom::check).transpose()?;
    let operator = connect.dial().await?;
    let mut pages = operator.pages(&SYNC, selector);
    let mut listing = PagedTable::new(screen, &COLUMNS);
    let (mut exit, mut count, mut is_first) = (Exit::Ok, 0, true);
    while let Some(mut page) = pages.next().await? {
        count += page.nodes.len();
        if is_first && !screen.is_json() {
            screen.text(&head(&page, screen))?;
        }
        is_first = false;
        if page.nodes.iter().any(is_wrong) {
            exit = Exit::SomeFailed;
        }
        if wrong {
            page.nodes.retain(|view| !matches!(mark(&view.condition), Mark::Good | Mark::Dim));
        }
        if !page.nodes.is_empty() {
            listing.page(&page.nodes, |view| row(view, screen))?;
        }
    }
    if let (Some(selector), 0) = (selector, count) {
        return Err(WhomError::Nobody(selector.to_owned()).into());
    }
    if screen.is_json() {
        listing.end()?;
    }
    Ok(exit)
}

/// How many nodes there are, and how many in each state; of a selector that is looked for page by page what
/// the first page found.
fn head(page: &SyncsView, screen: Screen) -> String {
    let all: usize = page.states.values().sum();
    let sign = if page.at_least { ">= " } else { "" };
    match counted(&page.states, screen) {
        Some(notes) => format!("{sign}{}: {notes}\n\n", nodes(all)),
        None if page.nodes.is_empty() && page.next.is_none() => "no node\n".to_owned(),
        None => String::new(),
    }
}

/// Has everything compared anew.
pub(super) async fn resync(
    connect: &Connect,
    selector: &str,
    approve_deletions: bool,
    yes: bool,
    screen: Screen,
) -> Result<Exit, Failure> {
    whom::check(selector)?;
    let operator = connect.dial().await?;
    let views = operator.all(&SYNC, Some(selector)).await?;
    if views.is_empty() {
        return Err(WhomError::Nobody(selector.to_owned()).into());
    }
    let names: Vec<String> = views.iter().map(|view| view.node.to_string()).collect();
    if names.len() > 1 || approve_deletions {
        let deletions = if approve_deletions { ", and what the source no longer has is deleted" } else { "" };
        let who = format!("{} ({})", nodes(names.len()), some_of(&names, names.len()));
        screen.confirm(&format!("{who} will be compared anew{deletions}"), yes)?;
    }
    let mut resynced = Resynced { now: 0, nodes: 0 };
    for batch in names.chunks(RESYNC_BATCH) {
        let part = operator.call(&RESYNC, ResyncNodes { nodes: batch.to_vec(), approve_deletions }).await?;
        resynced.now += part.now;
        resynced.nodes += part.nodes;
    }
    Ok(screen.result(&resynced, || {
        format!(
            "{} will be compared anew: {} now, the others when they connect\nnext: {}\n",
            nodes(resynced.nodes),
            resynced.now,
            muster(&format!("object status {}", shell_word(selector)))
        )
    })?)
}

/// The answer, or `None` from a control plane that does not know the question.
pub(crate) fn known<T>(answer: Result<T, OperatorCallError>) -> Result<Option<T>, OperatorCallError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(OperatorCallError::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
