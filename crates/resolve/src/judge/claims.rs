//! Files that two resources of a node write: what the declarations show is E084 of `check::identity` already,
//! here are those of which a path is evaluated.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::types::PathClaim;
use converge::When;

use super::place::DeclaredPosition;
use super::verdict::{Judged, ModuleJudgement};

/// Each with the place of the second of the two.
pub(super) fn clashes(verdicts: &[Arc<ModuleJudgement>]) -> Vec<(DeclaredPosition, String)> {
    let wanted = |judged: &&Judged| matches!(judged.resource.when, When::Always);
    let all: Vec<&Judged> =
        verdicts.iter().flat_map(|verdict| verdict.resources.iter()).filter(wanted).collect();
    let mut whole: BTreeMap<String, &Judged> = BTreeMap::new();
    let mut parts: Vec<(String, &'static str, &Judged)> = Vec::new();
    let mut found = Vec::new();
    for judged in all {
        let Ok(spec) = &judged.resource.spec else { continue };
        for claim in spec.path_claims() {
            match claim {
                PathClaim::Part { path, what } => parts.push((path, what, judged)),
                PathClaim::Whole(path) | PathClaim::Below(path) => match whole.get(&path) {
                    None => drop(whole.insert(path, judged)),
                    Some(first) => {
                        let same = first.resource.spec == judged.resource.spec;
                        if !same && (first.evaluated || judged.evaluated) {
                            let (a, b) = (&first.resource.id, &judged.resource.id);
                            found.push((
                                judged.place.clone(),
                                format!("{b} writes `{path}`, which {a} declares already"),
                            ));
                        }
                    }
                },
            }
        }
    }
    for (path, what, judged) in parts {
        if let Some(first) = whole.get(&path)
            && (first.evaluated || judged.evaluated)
        {
            let message = format!("{what} in `{path}`, which {} declares whole", first.resource.id);
            found.push((judged.place.clone(), message));
        }
    }
    found
}
