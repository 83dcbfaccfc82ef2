//! `muster object delete`.

use std::path::PathBuf;

use clap::Args;
use server::api::objects::{DELETE_OBJECTS, Delete, MAX_APPLY, ObjectName};

use super::MappingArg;
use super::apply::{report_results, results_text};
use super::fields::path;
use super::name::{ObjectRef, resolve};
use super::read::{Source, read};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::screen::{Screen, aside};
use crate::whom::{known_node, some_of};

/// Arguments of `muster object delete`.
#[derive(Args, Debug)]
pub(super) struct DeleteArgs {
    /// Hostname or id
    #[arg(required_unless_present = "files")]
    node: Option<String>,
    /// Each KIND/NAME or KIND/NAMESPACE/NAME
    #[arg(required_unless_present = "files")]
    objects: Vec<ObjectRef>,
    /// Delete what these manifests name: a file, a directory, or - for standard input
    #[arg(short, long = "file", value_name = "FILE|DIR|-", conflicts_with = "objects")]
    files: Vec<PathBuf>,
    /// How manifests find their node
    #[arg(long, value_enum, default_value_t, requires = "files")]
    mapping: MappingArg,
    /// Say what would become of them, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask; of a single object nobody is asked in any case
    #[arg(long)]
    yes: bool,
}

/// Deletes objects, by name of one node or those that manifests name; of more than one somebody is
/// asked.
pub(super) async fn delete(connect: &Connect, args: &DeleteArgs, screen: Screen) -> Result<Exit, Failure> {
    let DeleteArgs { node, objects, files, dry_run, .. } = args;
    let (node, dry_run) = (node.as_deref(), *dry_run);
    let source = Source { files, node, mapping: args.mapping.into() };
    let given = if files.is_empty() { Vec::new() } else { read(&source)? };
    let operator = connect.dial().await?;
    known_node(&operator, node).await?;
    let mut wanted: Vec<ObjectName> = given.into_iter().map(|given| given.name).collect();
    for object in objects {
        wanted.push(resolve(&operator, node.unwrap_or_default(), object).await?);
    }
    if wanted.len() > 1 && !dry_run {
        let names: Vec<String> = wanted.iter().map(|name| format!("{} {}", name.node, path(name))).collect();
        let first = some_of(&names, names.len());
        screen.confirm(&format!("{} objects will be deleted ({first})", wanted.len()), args.yes)?;
    }
    let mut results = Vec::new();
    for batch in wanted.chunks(MAX_APPLY) {
        match operator.call(&DELETE_OBJECTS, Delete { objects: batch.to_vec(), dry_run }).await {
            Ok(answer) => results.extend(answer.results),
            Err(error) => {
                // What was done stays done, so it is reported before the failure.
                aside(results_text(&results, dry_run, screen).trim_end());
                return Err(error.into());
            }
        }
    }
    results.iter_mut().for_each(|done| (done.before, done.after) = (None, None));
    report_results(&results, dry_run, screen)
}
