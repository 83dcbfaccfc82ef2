//! `muster workflow`: tasks one after another, with gates between them.

mod answers;
mod file;
mod run;
mod show;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use server::api::work::{CONTROL_WORKFLOW, ControlWorkflow, Turn, WORKFLOW, WORKFLOWS, WorkHistory};

use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::screen::Screen;

pub use file::{FileError, parse, read};
pub use run::{WorkflowProgress, exit, progress_of};
pub use show::{line, list, show};

const AFTER: &str = "\
A FILE has a name and steps, each with the nodes that it is on, what it does there, and the
gate before the next:

  name: renew-certificates
  steps:
    - name: try one
      on: 'edge-**,stage=canary'
      action: {name: renew, args: {ca: new}}
    - name: the edge
      on: 'edge-**,!edge-1'
      command: [/usr/bin/certbot, renew]
      batch: 10%
      max_failures: 2
      gate: {success_percent: 95, soak: 30m, approve: true}

Examples:
  muster workflow run renew.yaml
  muster workflow list
  muster workflow show w-3
  muster workflow approve w-3         let the next step begin
  muster workflow resume w-3          once more, for the nodes that did not succeed
  muster workflow abort w-3";

/// Arguments of `muster workflow`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct WorkflowArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    what: WorkflowVerb,
}

#[derive(Debug, Subcommand)]
enum WorkflowVerb {
    /// Begin a workflow and follow it
    #[command(after_help = "Ends with 3 when a step failed or the workflow was aborted.")]
    Run {
        /// YAML or JSON
        file: PathBuf,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// Begin it, and do not follow it
        #[arg(long)]
        detach: bool,
    },
    /// List workflows, newest first
    List {
        /// At most this many
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// Show a workflow: its steps, where it stands, what to do, and what queries were answered
    Show {
        /// Its id
        id: String,
        /// Follow it until it ends or stands still
        #[arg(long)]
        follow: bool,
    },
    /// Let the next step begin
    Approve {
        /// Its id
        id: String,
    },
    /// Call a workflow off: what runs is ended, no step follows
    Abort {
        /// Its id
        id: String,
    },
    /// Begin the step that failed once more, for the nodes that did not succeed
    Resume {
        /// Its id
        id: String,
        /// Also on nodes of which it is not known whether they did it
        #[arg(long)]
        include_unknown: bool,
    },
}

/// Does the verb.
///
/// # Errors
/// When the file has mistakes, or the control plane cannot be asked or refuses.
pub async fn run(args: &WorkflowArgs, screen: Screen) -> Result<Exit, Failure> {
    let connect = &args.connect;
    match &args.what {
        WorkflowVerb::Run { file, yes, detach } => run::run(connect, file, *yes, *detach, screen).await,
        WorkflowVerb::List { limit } => {
            let request = WorkHistory { before: None, limit: usize::from(*limit).into() };
            let workflows = connect.dial().await?.call(&WORKFLOWS, request).await?;
            Ok(screen.result(&workflows, || list(&workflows, screen))?)
        }
        WorkflowVerb::Show { id, follow: true } => {
            let operator = connect.dial().await?;
            let view = operator.call(&WORKFLOW, id.as_str()).await?;
            run::follow(connect, operator, view, screen).await
        }
        WorkflowVerb::Show { id, follow: false } => {
            let operator = connect.dial().await?;
            let view = operator.call(&WORKFLOW, id.as_str()).await?;
            let answers = answers::of_steps(&operator, &view, screen).await?;
            Ok(screen.result(&view, || format!("{}{answers}", show(&view, screen)))?)
        }
        WorkflowVerb::Approve { id } => turn(connect, ControlWorkflow::new(id, Turn::Approve), screen).await,
        WorkflowVerb::Abort { id } => turn(connect, ControlWorkflow::new(id, Turn::Abort), screen).await,
        WorkflowVerb::Resume { id, include_unknown } => {
            let order = ControlWorkflow {
                include_unknown: *include_unknown,
                ..ControlWorkflow::new(id, Turn::Resume)
            };
            turn(connect, order, screen).await
        }
    }
}

async fn turn(connect: &Connect, order: ControlWorkflow, screen: Screen) -> Result<Exit, Failure> {
    let view = connect.dial().await?.call(&CONTROL_WORKFLOW, order).await?;
    Ok(screen.result(&view, || show(&view, screen))?)
}
