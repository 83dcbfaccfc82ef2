//! Which resources write which file of the host, so that no two write one.

use std::collections::BTreeMap;

use catalog::types::{PathClaim, Spec};
use model::collect::CollectInserting;

use super::links::resource as resource_at;
use super::{BindError, BoundModule, BoundResource};
use crate::{ResourceId, When};

/// Two resources that write one file: `muster check` refuses them, unless their paths are known on the
/// node alone. Two that are alike, and one that may not be wanted, harm nobody.
pub(super) fn refuse_claimed(modules: &mut [BoundModule]) {
    let mut whole = WholeClaims::default();
    let mut refused: BTreeMap<SlotIndex, String> = claiming(modules)
        .filter_map(|(at, resource, spec)| Some((at, whole.claim(resource, spec)?)))
        .collect_inserting();
    for (at, _, spec) in claiming(modules).filter(|(_, _, spec)| !is_whole(spec)) {
        // One that is refused for its whole files stays refused for them.
        if let (false, Some(reason)) = (refused.contains_key(&at), whole.refusal_of_part(spec)) {
            refused.insert(at, reason);
        }
    }
    for ((module, slot), refused) in refused {
        resource_at(&mut modules[module], slot).spec = Err(BindError::whole(refused));
    }
}

/// A resource of this type claims no part of a file.
fn is_whole(spec: &Spec) -> bool {
    matches!(spec, Spec::File(_) | Spec::Directory(_) | Spec::Symlink(_) | Spec::Download(_))
}

/// A module, and a slot of it.
type SlotIndex = (usize, usize);

/// The resources that claim what they write: those that are wanted whatever the host answers.
fn claiming(modules: &[BoundModule]) -> impl Iterator<Item = (SlotIndex, &BoundResource, &Spec)> {
    modules.iter().enumerate().flat_map(|(m, module)| {
        module.resources.iter().enumerate().filter_map(move |(slot, resource)| {
            let spec = resource.spec.as_ref().ok().filter(|_| matches!(resource.when, When::Always))?;
            Some(((m, slot), &**resource, spec))
        })
    })
}

/// Which resource is the first to write a file as a whole, by its path; and which have all that is below a path.
#[derive(Default)]
struct WholeClaims<'a> {
    whole: BTreeMap<String, (&'a ResourceId, &'a Spec)>,
    below: Vec<(String, &'a ResourceId)>,
}

impl<'a> WholeClaims<'a> {
    /// Takes in what a resource writes whole; says why not, where another one writes it otherwise.
    fn claim(&mut self, resource: &'a BoundResource, spec: &'a Spec) -> Option<String> {
        let mut refused = None;
        for claim in spec.path_claims() {
            if let Some(message) = self.below(&claim, &resource.id) {
                refused = Some(message);
            }
            let path = match claim {
                PathClaim::Part { .. } => continue,
                PathClaim::Whole(path) => path,
                PathClaim::Below(path) => {
                    refused = refused.or_else(|| self.above(&path, &resource.id));
                    self.below.push((path.clone(), &resource.id));
                    path
                }
            };
            match self.whole.get(&path) {
                None => drop(self.whole.insert(path, (&resource.id, spec))),
                Some((_, first)) if *first == spec => {}
                Some((first, _)) => {
                    let second = &resource.id;
                    refused = Some(format!("{second} writes {path}, which {first} declares already"));
                }
            }
        }
        refused
    }

    /// Why a resource may not write something that lies below what another one has as a whole.
    fn below(&self, claim: &PathClaim, second: &ResourceId) -> Option<String> {
        let (above, first) =
            self.below.iter().find(|(path, first)| *first != second && claim.lies_below(path))?;
        Some(format!("{second} writes {} below {above}, which {first} replaces as a whole", claim.path()))
    }

    /// Why a resource may not have all that is below a path: another one writes some of it.
    fn above(&self, path: &str, second: &ResourceId) -> Option<String> {
        let lies_below = |(known, _): &(&String, _)| PathClaim::Whole((*known).clone()).lies_below(path);
        let (known, (first, _)) = self.whole.iter().find(lies_below)?;
        Some(format!("{second} replaces {path} as a whole, and {first} writes {known} below it"))
    }

    /// Why a resource may not write its part of a file that another one writes whole.
    fn refusal_of_part(&self, spec: &Spec) -> Option<String> {
        spec.path_claims().into_iter().find_map(|claim| match &claim {
            PathClaim::Part { path, what } => match self.whole.get(path) {
                Some((first, _)) => Some(format!("{what} in {path}, which {first} declares whole")),
                None => {
                    let (above, first) = self.below.iter().find(|(above, _)| claim.lies_below(above))?;
                    Some(format!("{what} in {path}, below {above}, which {first} replaces as a whole"))
                }
            },
            PathClaim::Whole(_) | PathClaim::Below(_) => None,
        })
    }
}
