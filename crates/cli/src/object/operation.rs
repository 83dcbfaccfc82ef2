//! `muster object sync` and `muster object refresh`: asking the owner of an object, on its node, for
//! something. The request is a task on one node, and never changes the object.

use clap::Args;
use model::replication::ObjectOperation;
use model::work::{OperationTarget, Work};
use server::api::work::{NewTask, TaskView};

use super::name::{ObjectRef, find, is_missing};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::operator::Operator;
use crate::screen::Screen;
use crate::task::{Caller, Outputs, TaskReport, exit, follow, summary};
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
    /// How long the node is waited for when it is offline
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = catalog::duration::parse)]
    wait: u32,
    /// Ask for it, and do not follow it
    #[arg(long)]
    detach: bool,
}

/// Asks for an operation, follows it until its owner has it, and tells what it came to.
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
    let object = target(&operator, &args.node, &args.object).await?;
    let task = NewTask {
        selector: args.node.clone(),
        work: Work::Operation { operation, object: object.clone() },
        batch: None,
        max_failures: None,
        canaries: 0,
        timeout_secs: TIMEOUT_SECS,
        wait_secs: u64::from(args.wait),
        expected: Some(1),
    };
    let begun = operator.begin_task(&task).await?;
    if args.detach {
        screen.result(&begun, || {
            let asked = asked(operation, &object, &args.node, &begun);
            format!("{asked}next: muster task show {}\n", begun.id)
        })?;
        return Ok(Exit::Ok);
    }
    if !screen.is_json() {
        screen.text(&asked(operation, &object, &args.node, &begun))?;
    }
    let mut caller = Caller::new(connect, operator);
    let followed = follow(&mut caller, begun, Outputs::none(), false, screen).await?;
    let nodes = caller.operator().task_nodes(&followed.task.id).await?;
    screen.result(&TaskReport { task: &followed.task, nodes: &nodes, output: Vec::new() }, || {
        summary(&followed.task, &nodes, screen)
    })?;
    Ok(exit(&followed.task.summary.progress, &nodes))
}

/// What was asked for, of whom.
fn asked(operation: ObjectOperation, object: &OperationTarget, node: &str, task: &TaskView) -> String {
    format!("asked {node} to {operation} {object}: task {}\n", task.id)
}

/// The object that is meant. What the control plane's mirror lacks the node may have by now.
async fn target(operator: &Operator, node: &str, object: &ObjectRef) -> Result<OperationTarget, Failure> {
    let namespace = match &object.namespace {
        Some(namespace) => namespace.clone(),
        None => match find(operator, node, object).await {
            Ok(view) => view.namespace,
            Err(error) if is_missing(&error) => String::new(),
            Err(error) => return Err(error.into()),
        },
    };
    Ok(OperationTarget { kind: object.kind.clone(), namespace, name: object.name.clone() })
}
