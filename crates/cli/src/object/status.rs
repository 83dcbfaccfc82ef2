//! `muster object status` and `resync`: how synchronization fares, and what to do about it.

use std::collections::BTreeMap;

use model::replication::Mode;
use server::api::objects::{Resync, Resynced, SyncView};

use crate::clock::{ago, now};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::operator::CallError;
use crate::screen::{Mark, Screen};
use crate::table::table;
use crate::whom::{self, WhomError, nodes, some_of};

/// The most nodes in one order to resync.
const RESYNC_BATCH: usize = 10_000;
/// States in the order in which they are told, with the words for people.
const STATES: [(&str, &str, Mark); 6] = [
    ("diverged", "diverged", Mark::Bad),
    ("behind", "behind", Mark::Warn),
    ("resyncing", "resyncing", Mark::Warn),
    ("unknown", "not known", Mark::Warn),
    ("in-sync", "in sync", Mark::Good),
    ("off", "off", Mark::Dim),
];

/// How synchronization with a node fares, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// How much it matters.
    pub mark: Mark,
    /// In a few words.
    pub state: String,
    /// Why, unless all is well.
    pub cause: Option<String>,
    /// What to do, unless all is well.
    pub next: Option<String>,
}

/// Puts a node's synchronization into words: what is not green names a cause and a next step.
pub fn judge(view: &SyncView) -> Judged {
    let node = &view.node;
    let said = |mark, state: &str, cause: String, next: String| Judged {
        mark,
        state: state.to_owned(),
        cause: Some(cause),
        next: Some(next),
    };
    if view.duplicate {
        let next = "stop one, or enroll the copy anew: `muster help duplicate_identity`";
        return said(
            Mark::Bad,
            "two agents",
            "two agents use this node's identity".to_owned(),
            next.to_owned(),
        );
    }
    match view.state.as_str() {
        "in-sync" if view.reach == "offline" => {
            let cause = "it was at its last contact; the node is late".to_owned();
            said(Mark::Warn, "in sync", cause, format!("muster node show {node}"))
        }
        "in-sync" => Judged { mark: Mark::Good, state: "in sync".to_owned(), cause: None, next: None },
        "off" => said(
            Mark::Dim,
            "off",
            "its release synchronizes no objects".to_owned(),
            "declare `sync` for its channel and publish, if it should".to_owned(),
        ),
        "behind" => {
            let (cause, next) = behind(view);
            said(Mark::Warn, &format!("behind by {}", view.behind), cause, next)
        }
        "resyncing" => {
            let cause = view.why.clone().unwrap_or_else(|| "both sides compare what they have".to_owned());
            said(Mark::Warn, "resyncing", cause, "it ends by itself".to_owned())
        }
        "unknown" => said(
            Mark::Warn,
            "not known",
            view.why.clone().unwrap_or_else(|| "the sets were not compared yet".to_owned()),
            match view.reach.as_str() {
                "offline" => format!("look at the host and its network; `muster node show {node}`"),
                _ => format!("muster object resync {node}"),
            },
        ),
        "diverged" => {
            let cause = view.why.clone().unwrap_or_else(|| "no reason is told".to_owned());
            let next = if cause.contains("removal") || cause.contains("gone at the source") {
                format!("if they may go: muster object resync {node} --approve-deletions")
            } else if cause.contains("would not take") || cause.contains("are held otherwise there") {
                "put those objects right and apply them again; `muster object list` names them".to_owned()
            } else {
                format!("muster object resync {node}")
            };
            said(Mark::Bad, "diverged", cause, next)
        }
        other => said(
            Mark::Warn,
            other,
            view.why.clone().unwrap_or_else(|| "a state that a newer control plane knows".to_owned()),
            "use a muster of the control plane's version".to_owned(),
        ),
    }
}

/// Why a node is behind, and what to do.
fn behind(view: &SyncView) -> (String, String) {
    let node = &view.node;
    let told = |cause: &str| view.why.clone().unwrap_or_else(|| cause.to_owned());
    match view.reach.as_str() {
        "online" => (told("changes are on their way"), "it catches up by itself".to_owned()),
        "offline" => (
            told("the node did not call when it was to"),
            format!("look at the host and its network; `muster node show {node}`"),
        ),
        _ => (told("it takes them at its next contact"), format!("wait, or `muster node push {node}`")),
    }
}

/// It needs somebody: it does not come right by itself.
pub fn is_wrong(view: &SyncView) -> bool {
    view.duplicate || view.state == "diverged"
}

/// How many nodes are in each state, in words; `None` when there are none.
pub fn counted(states: &BTreeMap<String, usize>, screen: Screen) -> Option<String> {
    let known = STATES.iter().map(|(state, word, mark)| (*state, *word, *mark));
    let other = states.keys().map(String::as_str).filter(|state| STATES.iter().all(|it| it.0 != *state));
    let said: Vec<String> = known
        .chain(other.map(|state| (state, state, Mark::Warn)))
        .filter_map(|(state, word, mark)| {
            let count = states.get(state).filter(|count| **count > 0)?;
            Some(screen.mark(mark, &format!("{count} {word}")))
        })
        .collect();
    (!said.is_empty()).then(|| said.join(", "))
}

/// One node's synchronization, for `muster node show`.
pub fn one(view: &SyncView, screen: Screen) -> Vec<(&'static str, String)> {
    let judged = judge(view);
    let mut rows = vec![(
        "sync",
        format!(
            "{}: {}{}; {} down, {} up",
            mode(view.mode),
            screen.mark(judged.mark, &judged.state),
            view.link.as_ref().map(|link| format!(" over {link}")).unwrap_or_default(),
            view.down,
            view.up,
        ),
    )];
    if view.mode == Mode::Off && !is_wrong(view) {
        return vec![("sync", "off: its release synchronizes no objects".to_owned())];
    }
    rows.extend(judged.cause.map(|cause| ("", format!("because {cause}"))));
    rows.extend(judged.next.map(|next| ("", format!("next: {next}"))));
    rows
}

/// How synchronization fares, as a table.
pub fn table_of(views: &[SyncView], screen: Screen) -> String {
    let now = now();
    let row = |view: &SyncView| {
        let judged = judge(view);
        let since = view.since.map(|since| ago(since, now)).unwrap_or_default();
        vec![
            view.node.to_string(),
            mode(view.mode).to_owned(),
            screen.mark(judged.mark, &judged.state),
            view.link.clone().unwrap_or_else(|| "-".to_owned()),
            since,
            view.down.to_string(),
            view.up.to_string(),
            judged.cause.unwrap_or_default(),
            judged.next.unwrap_or_default(),
        ]
    };
    let rows: Vec<Vec<String>> = views.iter().map(row).collect();
    table(&["NODE", "MODE", "STATE", "LINK", "SINCE", "DOWN", "UP", "CAUSE", "NEXT"], &rows)
}

/// Shows how synchronization fares.
pub(super) async fn status(
    connect: &Connect,
    selector: Option<&str>,
    wrong: bool,
    screen: Screen,
) -> Result<Exit, Failure> {
    selector.map(whom::check).transpose()?;
    let mut views = connect.dial().await?.all_sync(selector).await?;
    if let (Some(selector), true) = (selector, views.is_empty()) {
        return Err(WhomError::Nobody(selector.to_owned()).into());
    }
    let mut states = BTreeMap::new();
    for view in &views {
        *states.entry(view.state.clone()).or_insert(0) += 1;
    }
    let all = views.len();
    let exit = if views.iter().any(is_wrong) { Exit::SomeFailed } else { Exit::Ok };
    if wrong {
        views.retain(|view| !matches!(judge(view).mark, Mark::Good | Mark::Dim));
    }
    screen.result(&views, || {
        let head = match counted(&states, screen) {
            Some(said) => format!("{}: {said}\n", nodes(all)),
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
    let views = operator.all_sync(Some(selector)).await?;
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
        let part = operator.resync(&Resync { nodes: batch.to_vec(), approve_deletions }).await?;
        resynced.now += part.now;
        resynced.nodes += part.nodes;
    }
    screen.result(&resynced, || {
        format!(
            "{} will be compared anew: {} now, the others when they connect\nnext: muster object status {selector:?}\n",
            nodes(resynced.nodes),
            resynced.now
        )
    })?;
    Ok(Exit::Ok)
}

/// The answer, or `None` from a control plane that does not know the question.
pub(crate) fn known<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.refusal().is_some() => Ok(None),
        Err(error) => Err(error),
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Off => "off",
        Mode::Managed => "managed",
        Mode::Autonomous => "autonomous",
    }
}
