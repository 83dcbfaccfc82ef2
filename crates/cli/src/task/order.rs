//! `muster task run`: from arguments to a task.

use std::collections::BTreeMap;

use catalog::duration;
use clap::Args;
use model::work::Work;
use plane::work::{Share, SpecError};
use server::api::work::{BEGIN_TASK, NewTask, Selected};

use super::caller::Caller;
use super::follow::follow;
use super::output::Outputs;
use super::words::in_words;
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::next_step::muster;
use crate::screen::Screen;
use crate::whom;

/// Up to so many nodes their output is shown as it comes, without being asked for.
const FEW: usize = 20;
/// The longest time on one node by default.
const TIMEOUT: &str = "5m";

/// Arguments of `muster task run`.
#[derive(Args, Clone, Debug)]
pub struct TaskRunArgs {
    /// On which nodes
    pub selector: String,
    /// Run this named action
    #[arg(long, value_name = "NAME", required_unless_present = "command")]
    pub action: Option<String>,
    /// Its arguments
    #[arg(value_name = "KEY=VALUE", requires = "action", conflicts_with = "command", value_parser = pair)]
    pub args: Vec<(String, String)>,
    /// Run this command: a program by its absolute path, and its arguments; no shell reads it
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "action")]
    pub command: Vec<String>,
    /// At most so many nodes at a time, such as 10 or 10% [default: all]
    #[arg(long, value_name = "N|N%")]
    pub batch: Option<Share>,
    /// Call the rest off when more nodes than this failed, such as 1 or 5% [default: never]
    #[arg(long, value_name = "N|N%")]
    pub max_failures: Option<Share>,
    /// So many nodes must succeed before the others begin
    #[arg(long, alias = "canary", value_name = "N", default_value_t = 0)]
    pub canaries: u32,
    /// The longest time on one node
    #[arg(long, value_name = "TIME", default_value = TIMEOUT, value_parser = duration::parse)]
    pub timeout: u32,
    /// How long nodes that cannot be reached are waited for
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration::parse)]
    pub wait: u32,
    /// Show output as it comes, however many nodes there are
    #[arg(long)]
    pub output: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Begin it, and do not follow it
    #[arg(long)]
    pub detach: bool,
    /// Call it off when it is interrupted here; else it goes on
    #[arg(long, conflicts_with = "detach")]
    pub cancel_on_interrupt: bool,
}

/// `key=value`.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("an argument is KEY=VALUE; a command comes after --".to_owned()),
    }
}

/// A task that cannot be asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NewTaskError {
    /// The program has no absolute path.
    #[error("{0:?} is no absolute path of a program")]
    Relative(String),
    /// Two arguments of one name.
    #[error("the argument {0:?} is given twice")]
    Twice(String),
    /// Something else.
    #[error("the task cannot be begun")]
    Spec(#[from] SpecError),
}

impl UserError for NewTaskError {
    fn hint(&self) -> Option<String> {
        match self {
            NewTaskError::Relative(_) => Some(
                "no shell and no PATH is used on nodes: write /usr/bin/uptime; for a shell /bin/sh -c '...'"
                    .to_owned(),
            ),
            NewTaskError::Twice(_) | NewTaskError::Spec(_) => None,
        }
    }
}

/// The task that arguments ask for, on so many nodes.
///
/// # Errors
/// [`NewTaskError`].
pub fn new_task(args: &TaskRunArgs, selected: &Selected) -> Result<NewTask, NewTaskError> {
    let task = NewTask {
        batch: args.batch,
        max_failures: args.max_failures,
        canaries: args.canaries,
        wait_secs: u64::from(args.wait),
        expected: Some(selected.count),
        ..NewTask::new(&args.selector, work(args)?, u64::from(args.timeout))
    };
    // The control plane gives it its own id.
    task.spec("t", "").check(selected.count)?;
    Ok(task)
}

fn work(args: &TaskRunArgs) -> Result<Work, NewTaskError> {
    let Some(name) = &args.action else {
        return match args.command.first() {
            Some(program) if !program.starts_with('/') => Err(NewTaskError::Relative(program.clone())),
            _ => Ok(Work::Command { argv: args.command.clone() }),
        };
    };
    let mut given = BTreeMap::new();
    for (key, value) in &args.args {
        if given.insert(key.clone(), value.clone()).is_some() {
            return Err(NewTaskError::Twice(key.clone()));
        }
    }
    Ok(Work::Action { name: name.clone(), args: given })
}

/// Begins a task, follows it, and reports the outcome.
pub(super) async fn run(connect: &Connect, args: &TaskRunArgs, screen: Screen) -> Result<Exit, Failure> {
    // What can be seen to be wrong is reported before any node is asked.
    work(args)?;
    let operator = connect.dial().await?;
    let selected = whom::select(&operator, &args.selector).await?;
    let task = new_task(args, &selected)?;
    whom::confirm(screen, &selected, &format!("will run {}", in_words(&task.work)), args.yes)?;
    let begun = operator.call(&BEGIN_TASK, task).await?;
    if args.detach {
        return Ok(screen.result(&begun, || {
            let next = muster(&format!("task show {}", begun.id));
            format!("task {} goes on {}\nnext: {next}\n", begun.id, whom::nodes(selected.count))
        })?);
    }
    let outputs = if args.output || selected.count <= FEW { Outputs::all() } else { Outputs::none() };
    let mut caller = Caller::new(connect, operator);
    follow(&mut caller, begun, outputs, args.cancel_on_interrupt, screen).await?.tell(screen)
}
