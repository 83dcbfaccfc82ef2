//! Routes of synchronized objects.

use std::sync::Arc;

use wire::body;
use wire::{Code, Problem};

use super::query::Query;
use crate::answer::{Reply, json};
use crate::api::objects::{NO_NAMESPACE, ObjectName, Resync, Way};
use crate::objects::list::{self, Asked};
use crate::objects::{apply, status};
use crate::state::ControlPlane;

pub(super) async fn get(
    plane: &Arc<ControlPlane>,
    asked: &[&str],
    query: &Query<'_>,
    gzip: bool,
) -> Result<Reply, Problem> {
    match asked {
        ["objects"] => json(&list::list(plane, wanted(query)?).await?, gzip),
        ["objects", node, kind, namespace, name] => {
            let namespace = if *namespace == NO_NAMESPACE { "" } else { namespace };
            let [node, kind, namespace, name] = [*node, *kind, namespace, *name].map(str::to_owned);
            json(&list::one(plane, ObjectName { node, kind, namespace, name }).await?, gzip)
        }
        ["sync"] => {
            let (selector, from) = (query.get("match"), query.get("from").unwrap_or_default());
            json(&status::list(plane, selector.as_deref(), &from, query.limit()).await?, gzip)
        }
        _ => Err(Code::NotFound.into()),
    }
}

fn wanted(query: &Query<'_>) -> Result<Asked, Problem> {
    let way = match query.get("way").as_deref() {
        None => None,
        Some("down") => Some(Way::Down),
        Some("up") => Some(Way::Up),
        Some(_) => return Err(Problem::new(Code::BadBody, "`way` is `down` or `up`")),
    };
    Ok(Asked {
        nodes: query.get("match").or_else(|| query.get("node")),
        way,
        kind: query.get("kind"),
        namespace: query.get("namespace"),
        name: query.get("name"),
        from: query.get("from"),
        limit: query.limit(),
    })
}

pub(super) async fn order(
    plane: &Arc<ControlPlane>,
    order: &[&str],
    bytes: &[u8],
    operator: &str,
    gzip: bool,
) -> Result<Reply, Problem> {
    match order {
        ["objects"] => json(&apply::apply(plane, body::decode(bytes)?, operator).await?, gzip),
        ["objects-delete"] => json(&apply::delete(plane, body::decode(bytes)?, operator).await?, gzip),
        ["resyncs"] => {
            let asked: Resync = body::decode(bytes)?;
            json(&status::resync(plane, &asked, operator)?, false)
        }
        _ => Err(Code::NotFound.into()),
    }
}
