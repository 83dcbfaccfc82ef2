//! `muster workflow run`, and following one.

use std::collections::BTreeMap;
use std::path::Path;

use plane::work::WorkflowSpec;
use serde_json::json;
use server::api::work::{BEGIN_WORKFLOW, NewWorkflow, WORKFLOW, WorkflowView};

use super::show::{line, show};
use super::{answers, file};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::next_step::muster;
use crate::operator::Operator;
use crate::screen::Screen;
use crate::task::{Caller, Interrupted, Ticker, changes_after, in_words, wait_between_requests};
use crate::whom::{self, phrase};

/// Whether a workflow goes on by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkflowProgress {
    /// It does.
    GoesOn,
    /// Somebody has to say how.
    Still,
    /// It came to its end as it was wanted.
    Done,
    /// It was called off.
    Aborted,
}

/// What a workflow's word means; a word that is not known is taken for one that goes on.
pub fn progress_of(view: &WorkflowView) -> WorkflowProgress {
    match view.state.as_str() {
        "done" => WorkflowProgress::Done,
        "aborted" => WorkflowProgress::Aborted,
        "failed" => WorkflowProgress::Still,
        _ if view.finished.is_some() => WorkflowProgress::Aborted,
        _ => WorkflowProgress::GoesOn,
    }
}

/// What a workflow's word means for scripts.
pub fn exit(view: &WorkflowView) -> Exit {
    match progress_of(view) {
        WorkflowProgress::Done | WorkflowProgress::GoesOn => Exit::Ok,
        WorkflowProgress::Still | WorkflowProgress::Aborted => Exit::SomeFailed,
    }
}

/// Begins a workflow.
pub(super) async fn run(
    connect: &Connect,
    file: &Path,
    yes: bool,
    detach: bool,
    screen: Screen,
) -> Result<Exit, Failure> {
    let spec = file::read(file)?;
    let operator = connect.dial().await?;
    let (expected, plan) = plan(&operator, &spec).await?;
    screen.confirm(&format!("workflow {}:\n{plan}It will be begun", spec.name), yes)?;
    let begun = operator.call(&BEGIN_WORKFLOW, NewWorkflow { spec: json!(spec), expected }).await?;
    if detach {
        return Ok(screen.result(&begun, || {
            let next = muster(&format!("workflow show {}", begun.id));
            format!("workflow {} goes on\nnext: {next}\n", begun.id)
        })?);
    }
    follow(connect, operator, begun, screen).await
}

/// How many nodes each step means now, and the steps in words.
async fn plan(
    operator: &Operator,
    spec: &WorkflowSpec,
) -> Result<(BTreeMap<String, usize>, String), Failure> {
    let (mut expected, mut text) = (BTreeMap::new(), String::new());
    for (number, step) in spec.steps.iter().enumerate() {
        let selected = whom::select(operator, step.on.as_str()).await?;
        let what = step.work().map(|work| in_words(&work)).unwrap_or_default();
        text.push_str(&format!("  {}. {}: {} {what}\n", number + 1, step.name, phrase(&selected)));
        expected.insert(step.name.clone(), selected.count);
    }
    Ok((expected, text))
}

/// Follows a workflow until it ends, or stands still.
pub(super) async fn follow(
    connect: &Connect,
    operator: Operator,
    mut view: WorkflowView,
    screen: Screen,
) -> Result<Exit, Failure> {
    let (mut caller, mut ticker) = (Caller::new(connect, operator), Ticker::new(screen));
    let id = view.id.clone();
    let mut announced = String::new();
    while progress_of(&view) == WorkflowProgress::GoesOn {
        if view.state == "awaiting-approval" && announced != view.state {
            let approve = muster(&format!("workflow approve {id}"));
            ticker.say(&format!("workflow {id} waits for a yes: {approve}"));
        }
        announced.clone_from(&view.state);
        ticker.show(&line(&view));
        let update = async {
            wait_between_requests(0).await;
            let request = changes_after(&id, view.version);
            let view = async |operator: &Operator| operator.call(&WORKFLOW, request.clone()).await;
            caller.ask(&mut ticker, view).await
        };
        tokio::select! {
            update = update => view = update?,
            _ = tokio::signal::ctrl_c() => {
                return Err(Interrupted { what: "workflow", id, off: "abort" }.into());
            }
        }
    }
    ticker.clear();
    let answers = answers::of_steps(caller.operator(), &view, screen).await?;
    screen.result(&view, || format!("{}{answers}", show(&view, screen)))?;
    Ok(exit(&view))
}
