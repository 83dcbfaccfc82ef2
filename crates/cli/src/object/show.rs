//! Objects for people.

use backends::manifest::{Extras, Format, render};
use model::condition::Direction;
use server::api::objects::{ObjectName, ObjectView, ObjectsQuery};

use super::fields::path;
use crate::clock::{ago, bytes, now};
use crate::next_step::muster;
use crate::screen::{Mark, Screen, name_of};
use crate::table::table;

/// What is listed of an object.
pub const COLUMNS: [&str; 7] = ["NODE", "WAY", "KIND", "NAMESPACE", "NAME", "AGE", "DELIVERED"];

/// Objects as a table.
pub fn list(objects: &[ObjectView], screen: Screen) -> String {
    table(&COLUMNS, objects.iter().map(|view| row(view, screen)))
}

/// An object as a row under [`COLUMNS`].
pub fn row(view: &ObjectView, screen: Screen) -> [String; COLUMNS.len()] {
    [
        view.node.to_string(),
        name_of(view.way),
        view.kind.clone(),
        if view.namespace.is_empty() { "-".to_owned() } else { view.namespace.clone() },
        view.name.clone(),
        ago(view.at, now()),
        delivered(view, screen),
    ]
}

/// There is none, and what to look at.
pub fn none(request: &ObjectsQuery) -> String {
    let kind = request.kind.as_ref().map(|kind| format!(" of kind {kind}")).unwrap_or_default();
    let namespace =
        request.namespace.as_ref().map(|name| format!(" in namespace {name}")).unwrap_or_default();
    let whose = request.selector.as_ref().map(|selector| format!(" of {selector:?}")).unwrap_or_default();
    format!(
        "no object{kind}{namespace}{whose}\nnext: {}, which shows what is synchronized with whom\n",
        muster("object status")
    )
}

/// One object: what is known of it as comments, then its manifest with its status, as YAML.
pub fn show(view: &ObjectView, screen: Screen) -> String {
    let name = ObjectName {
        node: view.node.to_string(),
        kind: view.kind.clone(),
        namespace: view.namespace.clone(),
        name: view.name.clone(),
    };
    let from = match view.way {
        Direction::Down => "the control plane's word for the node",
        Direction::Up => "the node's word; it is changed there alone",
    };
    let mut out = format!("# {}  {}\n# {from}\n", view.node, screen.mark(Mark::Bold, &path(&name)));
    out.push_str(&format!(
        "# uid {}  digest {}  {}  revision {}, {} ago\n",
        view.uid,
        view.digest.short(),
        bytes(view.size),
        view.rev,
        ago(view.at, now()),
    ));
    if view.way == Direction::Down {
        out.push_str(&format!("# delivered: {}\n", delivered(view, screen)));
        if view.refused.is_some() {
            out.push_str("# next: put the manifest right and apply it again\n");
        }
    }
    out.push_str(&manifest(view));
    out
}

fn manifest(view: &ObjectView) -> String {
    let Some(manifest) = &view.manifest else { return "# its manifest is not here\n".to_owned() };
    // Values from JSON have a JSON form.
    let text = |value: &serde_json::Value| serde_json::to_vec(value).unwrap_or_default();
    let status = view.status.as_ref().map(|status| text(status).into());
    let extras = Extras { status, ..Extras::default() };
    match render(&text(manifest), &extras, Format::Yaml) {
        Ok(yaml) => yaml,
        // What is no manifest is shown as it came.
        Err(_) => format!("{manifest:#}\n"),
    }
}

fn delivered(view: &ObjectView, screen: Screen) -> String {
    match (view.way, &view.refused, view.delivered) {
        (Direction::Up, ..) => "-".to_owned(),
        (Direction::Down, Some(why), _) => screen.mark(Mark::Bad, &format!("refused: {why}")),
        (Direction::Down, None, Some(true)) => screen.mark(Mark::Good, "yes"),
        (Direction::Down, None, Some(false)) => screen.mark(Mark::Warn, "not yet"),
        (Direction::Down, None, None) => "not known".to_owned(),
    }
}
