//! `muster object status` and `resync`: how synchronization stands, as the control plane says it.

use std::collections::BTreeMap;

use model::condition::{Attention, SyncState};
use model::replication::TransportKind;
use model::text::shell_word;
use server::api::objects::{ConditionView, RESYNC, ResyncNodes, Resynced, SYNC, SyncView};

use crate::clock::{ago, now};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
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

/// How synchronization stands, as a table.
pub fn table_of(views: &[SyncView], screen: Screen) -> String {
    let now = now();
    let row = |view: &SyncView| {
        let condition = &view.condition;
        let green = condition.state == SyncState::InSync;
        [
            view.node.to_string(),
            name_of(view.mode),
            screen.mark(mark(condition), &state(view)),
            condition.since.map(|since| ago(since, now)).unwrap_or_default(),
            view.link.map_or("-", TransportKind::as_str).to_owned(),
            view.down.to_string(),
            view.up.to_string(),
            if green { String::new() } else { condition.message.clone() },
            with_credentials(condition.next_step.as_deref().unwrap_or_default()).into_owned(),
        ]
    };
    table(&["NODE", "MODE", "STATE", "SINCE", "LINK", "DOWN", "UP", "CAUSE", "NEXT"], views.iter().map(row))
}

/// Shows how synchronization fares.
pub(super) async fn status(
    connect: &Connect,
    selector: Option<&str>,
    wrong: bool,
    screen: Screen,
) -> Result<Exit, Failure> {
    selector.map(whom::check).transpose()?;
    let mut views = connect.dial().await?.all(&SYNC, selector).await?;
    if let (Some(selector), true) = (selector, views.is_empty()) {
        return Err(WhomError::Nobody(selector.to_owned()).into());
    }
    let mut states = BTreeMap::new();
    for view in &views {
        *states.entry(view.condition.state).or_insert(0) += 1;
    }
    let all = views.len();
    let exit = if views.iter().any(is_wrong) { Exit::SomeFailed } else { Exit::Ok };
    if wrong {
        views.retain(|view| !matches!(mark(&view.condition), Mark::Good | Mark::Dim));
    }
    screen.result(&views, || {
        let head = match counted(&states, screen) {
            Some(notes) => format!("{}: {notes}\n", nodes(all)),
            None => "no node\n".to_owned(),
        };
        if views.is_empty() { head } else { format!("{head}\n{}", table_of(&views, screen)) }
    })?;
    Ok(exit)
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
