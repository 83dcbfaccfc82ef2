//! Following what goes on in the control plane, over interruptions of the connection.

use server::api::work::{CANCEL_TASK, TASK, TASK_NODES, TaskView};

use super::caller::{Caller, changes_after, wait_between_requests};
use super::outcome::line;
use super::output::{Outputs, TaskReport};
use super::ticker::Ticker;
use super::waits::Waits;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::operator::Operator;
use crate::screen::Screen;

/// Somebody stopped following.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {id} is not followed any more; it goes on")]
pub struct Interrupted {
    /// `task` or `workflow`.
    pub what: &'static str,
    /// Its id.
    pub id: String,
    /// The verb that calls it off.
    pub off: &'static str,
}

impl UserError for Interrupted {
    fn exit(&self) -> Exit {
        Exit::Error
    }

    fn hint(&self) -> Option<String> {
        let Interrupted { what, id, off } = self;
        Some(format!("`muster {what} show {id} --follow`; `muster {what} {off} {id}` calls it off"))
    }
}

/// Follows a task to its end: shows how far it is, and shows its output.
///
/// # Errors
/// When the control plane cannot be asked any more, or somebody interrupts.
pub(crate) async fn follow(
    caller: &mut Caller<'_>,
    mut task: TaskView,
    mut outputs: Outputs,
    cancel_on_interrupt: bool,
    screen: Screen,
) -> Result<TaskReport, Failure> {
    let mut ticker = Ticker::new(screen);
    let mut waits = Waits::new();
    let mut cancel = cancel_on_interrupt;
    let id = task.id.clone();
    loop {
        ticker.show(&format!("task {id}: {}", line(&task.summary)));
        let ended = task.summary.state.is_final();
        let update = async {
            outputs.read(caller, &mut ticker, &task, screen).await?;
            if ended {
                return Ok(None);
            }
            waits.tell(caller, &mut ticker, &task).await?;
            wait_between_requests(if outputs.wanted() { task.summary.progress.total } else { 0 }).await;
            // Output is no news of the task, so it is looked for while nothing else happens.
            let request =
                if outputs.wanted() { id.as_str().into() } else { changes_after(&id, task.version) };
            let task = async |operator: &Operator| operator.call(&TASK, request.clone()).await;
            Ok::<_, Failure>(Some(caller.ask(&mut ticker, task).await?))
        };
        let update = tokio::select! {
            update = update => Some(update?),
            _ = tokio::signal::ctrl_c() => None,
        };
        match update {
            Some(Some(newer)) => task = newer,
            Some(None) => {
                ticker.clear();
                let nodes = caller.operator().all(&TASK_NODES, id.as_str()).await?;
                return Ok(TaskReport { task, nodes, output: outputs.kept() });
            }
            None if std::mem::take(&mut cancel) => {
                ticker.say(&format!("task {id} is called off; what runs is being ended"));
                let cancelled = async |operator: &Operator| operator.call(&CANCEL_TASK, id.as_str()).await;
                task = caller.ask(&mut ticker, cancelled).await?;
            }
            None => return Err(Interrupted { what: "task", id, off: "cancel" }.into()),
        }
    }
}
