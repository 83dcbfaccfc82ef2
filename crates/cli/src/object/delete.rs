//! `muster object delete`.

use server::api::objects::{Delete, MAX_APPLY, ObjectName};

use super::apply::{results_text, told};
use super::fields::path;
use super::name::{ObjectRef, find, is_missing};
use super::read::{Source, read};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::operator::Operator;
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
        DeleteTarget::Named { node, objects } => named(&operator, node, objects).await?,
        DeleteTarget::Manifests(_) => given.into_iter().map(|given| given.name).collect(),
    };
    if objects.len() > 1 && !dry_run {
        let names: Vec<String> = objects.iter().map(|name| format!("{} {}", name.node, path(name))).collect();
        let first = some_of(&names, names.len());
        screen.confirm(&format!("{} objects will be deleted ({first})", objects.len()), yes)?;
    }
    let mut results = Vec::new();
    for batch in objects.chunks(MAX_APPLY) {
        match operator.delete_objects(&Delete { objects: batch.to_vec(), dry_run }).await {
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

/// What the names mean on a node. What is not there is told as absent by the control plane.
async fn named(operator: &Operator, node: &str, objects: &[ObjectRef]) -> Result<Vec<ObjectName>, Failure> {
    let mut names = Vec::with_capacity(objects.len());
    for object in objects {
        let (mut name, other) = object.of(node);
        if other.is_some() {
            match find(operator, node, object).await {
                Ok(view) => name.namespace = view.namespace,
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        names.push(name);
    }
    Ok(names)
}
