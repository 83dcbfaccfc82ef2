//! `muster object delete`.

use server::api::objects::{DELETE_OBJECTS, Delete, MAX_APPLY};

use super::apply::{results_text, told};
use super::fields::path;
use super::name::{ObjectRef, resolve};
use super::read::{Source, read};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::screen::{Screen, aside};
use crate::whom::some_of;

/// What is to be deleted.
pub(super) enum DeleteTarget<'a> {
    /// By name, of one node.
    Named { node: &'a str, objects: &'a [ObjectRef] },
    /// What manifests name.
    Manifests(Source<'a>),
}

/// Deletes objects; of more than one somebody is asked.
pub(super) async fn delete(
    connect: &Connect,
    what: DeleteTarget<'_>,
    dry_run: bool,
    yes: bool,
    screen: Screen,
) -> Result<Exit, Failure> {
    let given = match &what {
        DeleteTarget::Manifests(source) => read(source)?,
        DeleteTarget::Named { .. } => Vec::new(),
    };
    let operator = connect.dial().await?;
    let objects = match what {
        DeleteTarget::Named { node, objects } => {
            let mut names = Vec::with_capacity(objects.len());
            for object in objects {
                names.push(resolve(&operator, node, object).await?);
            }
            names
        }
        DeleteTarget::Manifests(_) => given.into_iter().map(|given| given.name).collect(),
    };
    if objects.len() > 1 && !dry_run {
        let names: Vec<String> = objects.iter().map(|name| format!("{} {}", name.node, path(name))).collect();
        let first = some_of(&names, names.len());
        screen.confirm(&format!("{} objects will be deleted ({first})", objects.len()), yes)?;
    }
    let mut results = Vec::new();
    for batch in objects.chunks(MAX_APPLY) {
        match operator.call(&DELETE_OBJECTS, Delete { objects: batch.to_vec(), dry_run }).await {
            Ok(answer) => results.extend(answer.results),
            Err(error) => {
                // What was done stays done, so it is told before the failure.
                aside(results_text(&results, dry_run, screen).trim_end());
                return Err(error.into());
            }
        }
    }
    results.iter_mut().for_each(|done| (done.before, done.after) = (None, None));
    told(&results, dry_run, screen)
}
