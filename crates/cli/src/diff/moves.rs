//! What left one place of a fleet repo and stands in another: by the agent's rule (CNV-10) it is one
//! thing that moved, and nothing is removed.

use std::collections::BTreeMap;

use catalog::schema::{self, Manages};
use converge::{BoundResource, Desired};
use model::Fields;
use model::delta::{Delta, Edit};

/// By a line's id, where it was before.
pub(super) type Moves = BTreeMap<String, Moved>;

/// Where something was before.
pub(super) struct Moved {
    /// Its id there.
    pub(super) from: String,
    /// What to say of that.
    pub(super) note: String,
}

/// Makes one change of each removal and addition that are about one thing. Gives a note for each.
pub(super) fn join(delta: &mut Delta<String, Fields>, old: &Desired, new: &Desired) -> Moves {
    let mut moves = Moves::new();
    let by_id = |desired: &Desired| -> BTreeMap<String, BoundResource> {
        desired.resources().map(|resource| (resource.id.to_string(), (**resource).clone())).collect()
    };
    let is = |id: &String, wanted: fn(&Edit<Fields>) -> bool| delta.edits.get(id).is_some_and(wanted);
    let gone: Vec<(String, BoundResource)> =
        by_id(old).into_iter().filter(|(id, _)| is(id, |edit| matches!(edit, Edit::Remove { .. }))).collect();
    let mut come: Vec<(String, BoundResource)> =
        by_id(new).into_iter().filter(|(id, _)| is(id, |edit| matches!(edit, Edit::Add { .. }))).collect();
    for (from, resource) in gone {
        let same = |(_, other): &(String, BoundResource)| is_same(&resource, other);
        let Some(found) = come.iter().position(same) else { continue };
        let (to, other) = come.swap_remove(found);
        let note = match resource.kind == other.kind {
            true => format!("was {from}"),
            false => format!("takes the place of {from}"),
        };
        put(delta, &mut moves, &from, to, note);
    }
    modules(delta, &mut moves);
    moves
}

/// Whether two resources are about one thing, so that the agent's ledger follows from one to the other.
fn is_same(old: &BoundResource, new: &BoundResource) -> bool {
    let manages = |resource: &BoundResource| schema::find(&resource.kind).map(|kind| kind.manages);
    match (manages(old), manages(new)) {
        // Several parts may be in one file.
        (Some(Manages::Part), _) | (_, Some(Manages::Part)) => old.kind == new.kind && old.spec == new.spec,
        (Some(_), Some(_)) => old.subject().is_some() && old.subject() == new.subject(),
        _ => false,
    }
}

/// What a module says of itself goes with its name where it is the same.
fn modules(delta: &mut Delta<String, Fields>, moves: &mut Moves) {
    let of_module = |id: &str| id.starts_with(super::line::MODULE);
    let edits = delta.edits.iter().filter(|(id, _)| of_module(id));
    let (mut gone, mut come) = (Vec::new(), Vec::new());
    for (id, edit) in edits {
        match edit {
            Edit::Remove { from } => gone.push((id.clone(), from.clone())),
            Edit::Add { to } => come.push((id.clone(), to.clone())),
            Edit::Change { .. } => {}
        }
    }
    for (from, fields) in gone {
        if let Some(found) = come.iter().position(|(_, other)| *other == fields) {
            let (to, _) = come.swap_remove(found);
            let note = format!("was {from}");
            put(delta, moves, &from, to, note);
        }
    }
}

fn put(delta: &mut Delta<String, Fields>, moves: &mut Moves, from: &str, to: String, note: String) {
    let (Some(Edit::Remove { from: was }), Some(Edit::Add { to: is })) =
        (delta.edits.remove(from), delta.edits.remove(&to))
    else {
        return;
    };
    delta.edits.insert(to.clone(), Edit::Change { from: was, to: is });
    moves.insert(to, Moved { from: from.to_owned(), note });
}
