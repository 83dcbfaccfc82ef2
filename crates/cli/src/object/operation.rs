//! `muster object sync` and `muster object refresh`: asking the owner of an object, on its node, for
//! something. The request is a task on one node, and never changes the object.

use clap::Args;
use model::replication::ObjectOperation;
use model::work::{OperationTarget, Work};
use server::api::objects::ObjectName;
use server::api::work::{BEGIN_TASK, NewTask, TaskView};

use super::name::{ObjectRef, resolve};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::next_step::muster;
use crate::screen::Screen;
use crate::task::{Caller, Outputs, follow};
use crate::whom::{self, WhomError};

/// How long a node has to hand an operation over, in seconds.
const TIMEOUT_SECS: u64 = 60;

/// Arguments of both verbs.
#[derive(Args, Debug)]
pub(super) struct OperationArgs {
    /// Hostname or id of an autonomous node
    node: String,
    /// KIND/NAME or KIND/NAMESPACE/NAME
    object: ObjectRef,
    /// How long the node is waited for when it cannot be reached
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = catalog::duration::parse)]
    wait: u32,
    /// Ask for it, and do not follow it
    #[arg(long)]
    detach: bool,
}

/// Asks for an operation, follows it until its owner has it, and reports the outcome.
pub(super) async fn request(
    connect: &Connect,
    operation: ObjectOperation,
    args: &OperationArgs,
    screen: Screen,
) -> Result<Exit, Failure> {
    let operator = connect.dial().await?;
    if whom::select(&operator, &args.node).await?.count != 1 {
        return Err(WhomError::NotOne(args.node.clone()).into());
    }
    let ObjectName { kind, namespace, name, .. } = resolve(&operator, &args.node, &args.object).await?;
    let object = OperationTarget { kind, namespace, name };
    let work = Work::Operation { operation, object: object.clone() };
    let (wait_secs, expected) = (u64::from(args.wait), Some(1));
    let task = NewTask { wait_secs, expected, ..NewTask::new(&args.node, work, TIMEOUT_SECS) };
    let begun = operator.call(&BEGIN_TASK, task).await?;
    if args.detach {
        return Ok(screen.result(&begun, || {
            let asked = asked(operation, &object, &args.node, &begun);
            format!("{asked}next: {}\n", muster(&format!("task show {}", begun.id)))
        })?);
    }
    if !screen.is_json() {
        screen.text(&asked(operation, &object, &args.node, &begun))?;
    }
    let mut caller = Caller::new(connect, operator);
    follow(&mut caller, begun, Outputs::none(), false, screen).await?.tell(screen)
}

/// What was asked for, of whom.
fn asked(operation: ObjectOperation, object: &OperationTarget, node: &str, task: &TaskView) -> String {
    format!("asked {node} to {operation} {object}: task {}\n", task.id)
}
