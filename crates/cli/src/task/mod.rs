//! `muster task`: one thing done on many nodes, and what became of it.

mod answers;
mod answers_text;
mod asking;
mod caller;
mod follow;
mod order;
mod outcome;
mod output;
mod show;
pub(crate) mod ticker;
mod waits;
mod words;

use clap::{Args, Subcommand};
use server::api::work::{CANCEL_TASK, OUTPUT, OutputQuery, TASK, TASK_NODES, TASKS, WorkHistory};

use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::next_step::muster;
use crate::screen::Screen;

pub use answers::{Answers, SameAnswer, answers, within};
pub use answers_text::{answers_of, text as answers_text};
pub(crate) use asking::follow_answers;
pub(crate) use caller::{Caller, changes_after, wait_between_requests};
pub use follow::Interrupted;
pub(crate) use follow::follow;
pub use order::{NewTaskError, TaskRunArgs, new_task};
pub use outcome::{OutcomeGroup, exit, groups, line};
pub use output::{Lines, Outputs};
use output::{NodeOutput, TaskReport};
pub use show::{list, show, summary};
pub use ticker::Ticker;
pub use waits::line as why_it_waits;
pub(crate) use words::in_words;

const AFTER: &str = "\
Nothing runs on a node that its release does not delegate. A task that is not followed goes
on; a node that was asked once is not asked again by the same task.

Examples:
  muster task run web-1.example.com -- /usr/bin/systemctl restart nginx
  muster task run 'edge-**' --action renew ca=new --batch 10% --canaries 2 --max-failures 1%
  muster task run '*' --wait 1h --yes -- /usr/bin/uptime
  muster task list
  muster task show t-20                  which nodes came to what, and what to do
  muster task output t-20 web-1.example.com
  muster task cancel t-20";

const RUN_AFTER: &str = "\
A SELECTOR names nodes: `muster help selectors`. More than one node is asked for a yes.
Output is shown as it comes from few nodes; from many with --output.

Ends with 0 when all succeeded, 3 when some did not, 5 when every node refused.";

/// Arguments of `muster task`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct TaskArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    what: TaskVerb,
}

#[derive(Debug, Subcommand)]
enum TaskVerb {
    /// Run a command or a named action on nodes
    #[command(after_help = RUN_AFTER)]
    Run(TaskRunArgs),
    /// List tasks, newest first
    List {
        /// At most this many
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// Show a task: how far it is, which nodes came to what, and what a query was answered
    Show {
        /// Its id
        id: String,
        /// A line for each node
        #[arg(long)]
        nodes: bool,
        /// Follow it until it ends
        #[arg(long)]
        follow: bool,
    },
    /// Show what a task's commands printed
    Output {
        /// Its id
        id: String,
        /// On this node: hostname or id [default: all]
        node: Option<String>,
    },
    /// Call a task off: what runs is ended, what did not begin does not
    Cancel {
        /// Its id
        id: String,
    },
}

/// Does the verb.
///
/// # Errors
/// When the control plane cannot be asked, or refuses.
pub async fn run(args: &TaskArgs, screen: Screen) -> Result<Exit, Failure> {
    let connect = &args.connect;
    match &args.what {
        TaskVerb::Run(run) => order::run(connect, run, screen).await,
        TaskVerb::List { limit } => {
            let request = WorkHistory { before: None, limit: usize::from(*limit).into() };
            let tasks = connect.dial().await?.call(&TASKS, request).await?;
            Ok(screen.result(&tasks, || list(&tasks, screen))?)
        }
        TaskVerb::Show { id, nodes, follow: wait } => {
            let operator = connect.dial().await?;
            let task = operator.call(&TASK, id.as_str()).await?;
            let mut caller = Caller::new(connect, operator);
            let report = if *wait {
                follow(&mut caller, task, Outputs::none(), false, screen).await?
            } else {
                let nodes = caller.operator().all(&TASK_NODES, id.as_str()).await?;
                TaskReport { task, nodes, output: Vec::new() }
            };
            let waits = waits::lines(caller.operator(), &report.nodes).await;
            screen.result(&report, || show(&report.task, &report.nodes, &waits, *nodes, screen))?;
            Ok(if *wait { report.exit() } else { Exit::Ok })
        }
        TaskVerb::Output { id, node } => output(connect, id, node.as_deref(), screen).await,
        TaskVerb::Cancel { id } => {
            let task = connect.dial().await?.call(&CANCEL_TASK, id.as_str()).await?;
            Ok(screen.result(&task, || {
                let next = muster(&format!("task show {}", task.id));
                format!("{}\nnext: {next}\n", line(&task.summary))
            })?)
        }
    }
}

/// Shows what commands printed: of one node as it is, of several with their names before.
async fn output(connect: &Connect, id: &str, node: Option<&str>, screen: Screen) -> Result<Exit, Failure> {
    let operator = connect.dial().await?;
    let wanted: Vec<(String, String)> = match node {
        Some(node) => vec![(node.to_owned(), node.to_owned())],
        None => {
            let nodes = operator.all(&TASK_NODES, id).await?;
            nodes.iter().map(|node| (node.node.to_string(), words::name(node))).collect()
        }
    };
    let mut all = Vec::new();
    for (id_of_node, name) in wanted {
        let request = OutputQuery { id: id.to_owned(), node: id_of_node, after: 0 };
        let output = operator.call(&OUTPUT, request).await?;
        if screen.is_json() {
            all.push(NodeOutput { node: name, output });
            continue;
        }
        let mut lines = if node.is_some() { Lines::bare() } else { Lines::of(&name) };
        let mut text: String = output.iter().map(|piece| lines.take(piece, screen)).collect();
        text.push_str(&lines.rest(screen));
        screen.text(&text)?;
    }
    if screen.is_json() {
        screen.result(&all, String::new)?;
    }
    Ok(Exit::Ok)
}
